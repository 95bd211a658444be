// What a kernel of an estimator sees: the step's rows, as `maverl::credit::Rewarded` has them, and `settings::NAME`.
//
// A kernel is one function, `ESTIMATOR(step, out) { ... }`, run by at least as many threads as there are rows (and tokens,
// if it gives an advantage for each token). `out` has a place for each row or token. Sums are taken in `double`.

typedef unsigned int u32;
typedef unsigned long long u64;

struct Rewarded {
  u64 rows, tokens, groups, parts;
  const float* rewards;      // [rows]
  const float* part;         // [parts][rows]: they add up to the rewards
  const float* values;       // values of a critic, packed row by row; null without a critic
  const u32* value_begin;    // [rows + 1]; null without a critic
  const u32* seat;           // [rows], as the ids that follow
  const u32* turn;
  const u32* task;
  const u32* episode;
  const u32* length;         // tokens of each row
  const u32* unit;
  const u32* group;
  const u32* token_begin;    // [rows + 1]: where the tokens of each row begin
  const u32* group_begin;    // [groups + 1]: where each group begins in `group_rows`
  const u32* group_rows;     // [rows]: the rows of each group in ascending order
};

__device__ inline u64 thread() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }

#define ESTIMATOR(step, out) extern "C" __global__ void estimate(const Rewarded* step, float* out)
