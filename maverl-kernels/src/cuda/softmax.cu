// Softmax over the vocabulary: log-probabilities and entropies of targets, derivatives of the logits, sampling.
//
// Logits are f32, unscaled; z are the logits times the inverse temperature of their row. A row is summed in f32 over
// tiles of 64 logits, in a tree, and over tiles in f64, in an order that the size of the vocabulary alone decides.
// Training and sampling use the same sums.

#define LOGITS 64
#define FAR (-100.0f)  // distance from the maximum below which an exponential is zero
#define HAS_NAN (-1.0f)
#define HAS_INFINITE (-2.0f)

// Largest z of a tile, the sum of exp(z - max), and of (z - max) exp(z - max). A sum below zero says that z is not
// finite.
struct Partial { float max, sum, moment; };

INLINE float distance(float z, float top) { return fmaxf(z - top, FAR); }
INLINE float weight(float far) { return far > FAR ? expf(far) : 0.0f; }

// One warp a tile. Memory: 4 bytes a logit.
KERNEL(256) softmax_partials(const float* logits, const float* inverses, int rows, int vocab, int tiles, Partial* out) {
  u64 i = (u64)blockIdx.x * 8 + (threadIdx.x >> 5);
  int lane = threadIdx.x & 31;
  if (i >= (u64)rows * tiles) return;
  int row = (int)(i / tiles), first = (int)(i % tiles) * LOGITS;
  float inverse = inverses[row], z[2], top = -INFINITY;
  bool has_nan = false;
#pragma unroll
  for (int j = 0; j < 2; j++) {
    int c = first + j * 32 + lane;
    z[j] = c < vocab ? logits[(size_t)row * vocab + c] * inverse : -INFINITY;
    has_nan |= z[j] != z[j];
    top = fmaxf(top, z[j]);
  }
  top = warp_max(top);
  has_nan = __any_sync(ALL, has_nan);
  float sum = 0.0f, moment = 0.0f;
#pragma unroll
  for (int j = 0; j < 2; j++) {
    float far = distance(z[j], top), e = weight(far);
    if (z[j] == -INFINITY) e = 0.0f;
    sum += e, moment += e * far;
  }
  sum = warp_sum(sum), moment = warp_sum(moment);
  if (top == -INFINITY) sum = moment = 0.0f;
  if (top == INFINITY) sum = HAS_INFINITE;
  if (has_nan) sum = HAS_NAN;
  if (lane == 0) out[i] = {top, sum, moment};
}

// Sums of a row. `mass` is the sum of the tiles of this lane's range, and `before` that of the lanes before it.
struct RowSums { float max; double sum, moment, mass, before; float bad; int begin, end; };

// Mass of a tile, relative to the row's maximum.
INLINE double tile_mass(const Partial& p, float top) {
  return p.sum > 0.0f ? exp((double)(p.max - top)) * (double)p.sum : 0.0;
}

// A warp adds the tiles of a row: each lane a range of them, ascending, then the lanes, ascending.
INLINE RowSums row_sums(const Partial* tiles, int count) {
  const int lane = threadIdx.x & 31, each = (count + 31) / 32;
  RowSums r = {-INFINITY, 0.0, 0.0, 0.0, 0.0, 0.0f, min(lane * each, count), min(lane * each + each, count)};
  float worst = 0.0f;
  bool infinite = false;
  for (int i = r.begin; i < r.end; i++) {
    r.max = fmaxf(r.max, tiles[i].max), worst = fmaxf(worst, tiles[i].sum == HAS_NAN ? 1.0f : 0.0f);
    infinite |= tiles[i].sum == HAS_INFINITE;
  }
  r.max = warp_max(r.max);
  if (__any_sync(ALL, infinite)) r.bad = HAS_INFINITE;
  if (warp_max(worst) > 0.0f) r.bad = HAS_NAN;
  double moment = 0.0;
  for (int i = r.begin; i < r.end; i++) {
    Partial p = tiles[i];
    if (!(p.sum > 0.0f)) continue;
    double apart = (double)(p.max - r.max), by = exp(apart);
    r.mass += by * (double)p.sum, moment += by * ((double)p.moment + apart * (double)p.sum);
  }
#pragma unroll 1
  for (int from = 0; from < 32; from++) {
    if (from == lane) r.before = r.sum;
    r.sum += __shfl_sync(ALL, r.mass, from), r.moment += __shfl_sync(ALL, moment, from);
  }
  return r;
}
INLINE float log_probability(float z, const RowSums& r) { return (float)((double)(z - r.max) - log(r.sum)); }
INLINE double entropy_of(const RowSums& r) { return fmax(log(r.sum) - r.moment / r.sum, 0.0); }

// Log-probabilities of each row's targets, `each` of them, and entropy, with what derivatives need: [rows, 3] of maximum, sum
// and entropy. A warp a row. Memory: 12 bytes a tile.
KERNEL(256) softmax_rows(const float* logits, const float* inverses, const u32* targets, const Partial* partials, int rows,
                         int vocab, int tiles, int each, float* logp, float* entropy, double* stats) {
  int row = blockIdx.x * 8 + (threadIdx.x >> 5);
  if (row >= rows) return;
  RowSums r = row_sums(partials + (size_t)row * tiles, tiles);
  if ((threadIdx.x & 31) != 0) return;
  double h = entropy_of(r);
  for (size_t i = (size_t)row * each; i < ((size_t)row + 1) * each; i++) {
    float z = logits[(size_t)row * vocab + targets[i]] * inverses[row];
    logp[i] = r.bad < 0.0f ? NAN : log_probability(z, r);
  }
  entropy[row] = r.bad < 0.0f ? NAN : (float)h;
  if (!stats) return;
  stats[row * 3] = (double)r.max, stats[row * 3 + 1] = r.sum, stats[row * 3 + 2] = h;
}

// Derivatives of a loss by the logits, from its derivatives by log-probabilities and entropies:
// (sum of dlogp (1[target] - p) over the targets - dentropy p (log p + entropy)) / temperature. A block a row. Memory: 6 bytes
// a logit.
KERNEL(256) softmax_back(const float* logits, const float* inverses, const u32* targets, const double* stats,
                         const float* dlogp, const float* dentropy, int vocab, int each, bf16* dlogits) {
  int row = blockIdx.x;
  targets += (size_t)row * each, dlogp += (size_t)row * each;
  float inverse = inverses[row], top = (float)stats[row * 3], by_logp = dlogp[0], by_entropy = dentropy[row];
#pragma unroll 1
  for (int j = 1; j < each; j++) by_logp += dlogp[j];
  float scale = (float)(1.0 / stats[row * 3 + 1]), offset = (float)(stats[row * 3 + 2] - log(stats[row * 3 + 1]));
  for (int c = threadIdx.x; c < vocab; c += 256) {
    float far = distance(logits[(size_t)row * vocab + c] * inverse, top), p = weight(far) * scale;
    float d = -inverse * p * (by_entropy * (far + offset) + by_logp);
#pragma unroll 1
    for (int j = 0; j < each; j++)
      if (c == (int)targets[j]) d += inverse * dlogp[j];
    dlogits[(size_t)row * vocab + c] = to_bf16(d);
  }
}

INLINE u64 finalize(u64 z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
// Number `counter` of a stream, in [0, 1), as `uniform` on the host.
INLINE double uniform(u64 seed, u64 counter) {
  const u64 golden = 0x9e3779b97f4a7c15ull;
  u64 z = finalize(finalize(seed + golden) + counter * golden + golden);
  return (double)(z >> 11) * (1.0 / 9007199254740992.0);
}

// A row's sampling: `greedy` takes the largest logit.
struct Draw { u64 seed, counter; u32 greedy, unused; };
// A sampled token. `flag`: 0 it is one; 1 logit `id` is NaN; 2 it is infinite; 3 all are negative infinity.
struct Drawn { u32 id; float logp, entropy; u32 flag; };

// Smallest of the lanes' numbers.
INLINE int warp_min(int x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = min(x, __shfl_xor_sync(ALL, x, d));
  return x;
}
// First tile of a row for which `is` holds; `count` if there is none.
template <class Is> INLINE int first_tile(const Partial* tiles, int begin, int end, int count, Is is) {
  int found = count;
  for (int i = end; i-- > begin;)
    if (is(tiles[i])) found = i;
  return warp_min(found);
}
// First logit of a tile for which `is` holds.
template <class Is> INLINE u32 first_logit(const float* logits, float inverse, int tile, int vocab, Is is) {
  int found = vocab;
  for (int j = 1; j >= 0; j--) {
    int c = tile * LOGITS + j * 32 + (threadIdx.x & 31);
    if (c < vocab && is(logits[c] * inverse)) found = c;
  }
  return (u32)warp_min(found);
}

// Samples a token of each row by its random number: the first at which the mass, added in ascending order, passes the
// number times the whole. A warp a row.
KERNEL(256) choose(const float* logits, const float* inverses, const Partial* partials, const Draw* draws, int rows,
                   int vocab, int tiles, Drawn* out) {
  int row = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  if (row >= rows) return;
  const Partial* of = partials + (size_t)row * tiles;
  const float* from = logits + (size_t)row * vocab;
  const float inverse = inverses[row];
  RowSums r = row_sums(of, tiles);
  Drawn drawn = {0, NAN, NAN, 0};
  if (r.bad == HAS_NAN) {
    int tile = first_tile(of, r.begin, r.end, tiles, [](const Partial& p) { return p.sum == HAS_NAN; });
    drawn.id = first_logit(from, inverse, tile, vocab, [](float z) { return z != z; }), drawn.flag = 1;
  } else if (r.bad == HAS_INFINITE) {
    int tile = first_tile(of, r.begin, r.end, tiles, [](const Partial& p) { return p.sum == HAS_INFINITE; });
    drawn.id = first_logit(from, inverse, tile, vocab, [](float z) { return z == INFINITY; }), drawn.flag = 2;
  } else if (r.max == -INFINITY) {
    drawn.flag = 3;
  } else if (draws[row].greedy) {
    int tile = first_tile(of, r.begin, r.end, tiles, [&](const Partial& p) { return p.max == r.max; });
    drawn.id = first_logit(from, inverse, tile, vocab, [&](float z) { return z == r.max; });
  } else {
    double aim = uniform(draws[row].seed, draws[row].counter) * r.sum;
    // The lane in whose tiles the mass passes the aim; by rounding none may, then the last that has mass.
    u32 passing = __ballot_sync(ALL, r.mass > 0.0 && r.before + r.mass > aim);
    u32 any = __ballot_sync(ALL, r.mass > 0.0);
    int owner = passing ? __ffs((int)passing) - 1 : 31 - __clz((int)any);
    if (lane == owner) {
      double before = r.before, start = before;
      int tile = r.begin;
      for (int i = r.begin; i < r.end; i++) {
        double mass = tile_mass(of[i], r.max);
        if (!(mass > 0.0)) continue;
        tile = i, start = before, before += mass;
        if (before > aim) break;
      }
      Partial p = of[tile];
      double by = exp((double)(p.max - r.max));
      for (int c = tile * LOGITS; c < min(tile * LOGITS + LOGITS, vocab); c++) {
        float e = weight(distance(from[c] * inverse, p.max));
        if (!(e > 0.0f)) continue;
        drawn.id = (u32)c, start += by * (double)e;
        if (start > aim) break;
      }
    }
    drawn.id = __shfl_sync(ALL, drawn.id, owner);
  }
  if (lane != 0) return;
  if (drawn.flag == 0) drawn.logp = log_probability(from[drawn.id] * inverse, r), drawn.entropy = (float)entropy_of(r);
  out[row] = drawn;
}

// Replaces ids of a pass by those of sampled tokens: id i is that of row `from[i]`, unless `from[i]` is FROM_HOST.
#define FROM_HOST 0xffffffffu
KERNEL(256) sampled_ids(const Drawn* drawn, const u32* from, int n, u32 vocab, u32* ids) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= n || from[i] == FROM_HOST) return;
  u32 id = drawn[from[i]].id;
  ids[i] = id < vocab ? id : vocab - 1;
}
