// Advantages on a GPU: the functions of advantage/arithmetic.rs, over f32 with sums in f64.
//
// There are no atomics, and the order of blocks does not matter. Every output is computed by one group of lanes, in an
// order that depends on its own rows alone, so results have the same bits in any batch, on any device. Blocks have 256
// threads. The last block may be partly idle; idle lanes still take part in shuffles. A null pointer omits an argument.

typedef unsigned int u32;
typedef unsigned long long u64;

#define BLOCK 256
#define ALL 0xffffffffu
#define KERNEL extern "C" __global__ void __launch_bounds__(BLOCK, 1)

// Lanes that share a piece of a group: eight floats are one memory sector.
#define LANES 8u

__device__ inline u64 thread() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }

// Number of values, their mean, and the sum of squared distances to it.
struct Moments { double n, mean, m2; };

__device__ inline Moments both(Moments a, Moments b) {
  if (b.n == 0.0) return a;
  if (a.n == 0.0) return b;
  double n = a.n + b.n, apart = b.mean - a.mean;
  return {n, a.mean + apart * (b.n / n), a.m2 + b.m2 + apart * apart * (a.n * b.n / n)};
}

__device__ inline double variance(Moments m) { return m.n > 1.0 ? m.m2 / (m.n - 1.0) : 0.0; }

__device__ inline u32 row_at(const u32* rows, u32 place) { return rows ? rows[place] : place; }

// Sum over the lanes of a piece; every lane gets the same bits, because a + b = b + a.
__device__ inline double lanes_sum(double x) {
  for (u32 d = LANES / 2; d > 0; d /= 2) x += __shfl_xor_sync(ALL, x, d);
  return x;
}

// Moments of the elements begin..end, in one pass. Distances are taken from the first value with a nonzero weight.
template <class T>
__device__ inline Moments piece_moments(const T* x, const u32* weights, const u32* rows, u32 begin, u32 end) {
  while (weights && begin < end && weights[row_at(rows, begin)] == 0) begin++;
  double shift = begin < end ? (double)x[row_at(rows, begin)] : 0.0;
  double n = 0.0, s = 0.0, q = 0.0;
  for (u32 i = begin + threadIdx.x % LANES; i < end; i += LANES) {
    u32 row = row_at(rows, i);
    double w = weights ? (double)weights[row] : 1.0;
    if (w == 0.0) continue;  // whatever it holds
    double d = (double)x[row] - shift;
    n += w;
    s += w * d;
    q += w * d * d;
  }
  n = lanes_sum(n);
  s = lanes_sum(s);
  q = lanes_sum(q);
  if (n == 0.0) return {0.0, 0.0, 0.0};
  return {n, shift + s / n, fmax(q - s * s / n, 0.0)};
}

template <class T>
__device__ inline void all_pieces(const T* x, const u32* weights, const u32* rows, const u32* starts, u32 pieces,
                                  Moments* out) {
  u64 piece = thread() / LANES;
  bool live = piece < pieces;
  Moments m = piece_moments(x, weights, rows, live ? starts[piece] : 0, live ? starts[piece + 1] : 0);
  if (live && threadIdx.x % LANES == 0) out[piece] = m;
}

// Moments of each piece of each group. Eight lanes a piece.
// Memory: 4 bytes a row read (8 for f64), 4 more with weights and 4 with rows out of order; 24 a piece written.
KERNEL moments_f32(const float* x, const u32* weights, const u32* rows, const u32* starts, u32 pieces, Moments* out) {
  all_pieces(x, weights, rows, starts, pieces, out);
}

KERNEL moments_f64(const double* x, const u32* weights, const u32* rows, const u32* starts, u32 pieces, Moments* out) {
  all_pieces(x, weights, rows, starts, pieces, out);
}

// Means of moments, where units are compared. Memory: 24 bytes a unit read, 8 written.
KERNEL means(const Moments* m, u32 n, double* out) {
  u64 i = thread();
  if (i < n) out[i] = m[i].mean;
}

// Moments of groups of several pieces. One block a group. Memory: 24 bytes a piece read, 24 a group written.
KERNEL merge(const Moments* pieces, const u32* offsets, Moments* out) {
  __shared__ double n[BLOCK], mean[BLOCK], m2[BLOCK];
  u32 t = threadIdx.x;
  Moments m = {0.0, 0.0, 0.0};
  for (u32 p = offsets[blockIdx.x] + t; p < offsets[blockIdx.x + 1]; p += BLOCK) m = both(m, pieces[p]);
  n[t] = m.n, mean[t] = m.mean, m2[t] = m.m2;
  __syncthreads();
  for (u32 d = BLOCK / 2; d > 0; d /= 2) {
    if (t < d) {
      m = both(m, {n[t + d], mean[t + d], m2[t + d]});
      n[t] = m.n, mean[t] = m.mean, m2[t] = m.m2;
    }
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = m;
}

// Bits of the options in `Relative`: the baseline in two bits, then these.
#define NO_BASELINE 0u
#define LEAVE_ONE_OUT 2u
#define NORMALIZE 4u
#define RAW 8u
#define ROUNDING 1e-9

// Advantage of a unit. `scale` is the group that gives the deviation, if that is another group.
__device__ inline double advantage(double value, Moments own, const Moments* scale, u32 options, double eps) {
  u32 baseline = options & 3u;
  bool alone = own.n == 1.0 && baseline != NO_BASELINE, raw = options & RAW;
  if (alone && !raw) return 0.0;
  double centred = value;
  if (!alone && baseline != NO_BASELINE) centred = value - own.mean;
  if (!alone && baseline == LEAVE_ONE_OUT) centred *= own.n / (own.n - 1.0);
  if (!(options & NORMALIZE)) return centred;
  double std = own.n == 1.0 ? 1.0 : sqrt(variance(own));
  if (!scale && own.n != 1.0 && eps == 0.0 && !(std > ROUNDING * fmax(fabs(own.mean), 1.0))) return 0.0;
  if (scale) {
    std = sqrt(variance(*scale));
    if (!(std > ROUNDING * fmax(fabs(scale->mean), 1.0))) {
      if (!(scale->n == 1.0 && raw)) return 0.0;
      std = 1.0;
    }
  }
  return centred / (std + eps);
}

__device__ inline float added(const float* add, double weight, u32 row, double a) {
  return (float)(add ? (double)add[row] + weight * a : a);
}

// Moments and advantages of groups of one piece each, in one kernel. Eight lanes a group; rows are read again from the
// cache.
// Memory: 4 bytes a row read and 4 written, 4 a group; 4 more a row with `add`, and with rows out of order.
KERNEL relative_groups(const float* x, const u32* rows, const u32* starts, u32 groups, const float* add, double weight,
                       u32 options, double eps, float* out) {
  u64 group = thread() / LANES;
  bool live = group < groups;
  u32 begin = live ? starts[group] : 0, end = live ? starts[group + 1] : 0;
  Moments own = piece_moments(x, (const u32*)0, rows, begin, end);
  for (u32 i = begin + threadIdx.x % LANES; i < end; i += LANES) {
    u32 row = row_at(rows, i);
    out[row] = added(add, weight, row, advantage((double)x[row], own, (const Moments*)0, options, eps));
  }
}

// Advantages of rows whose groups' moments are known. One thread a row.
// Memory: 4 bytes a row read for the value (or for its unit), 4 for each of its groups, 4 written. The moments of
// groups, 24 bytes each, come from the cache where rows of one group are near each other.
KERNEL relative_rows(const float* x, const u32* unit, const Moments* units, const u32* group, const Moments* groups,
                     const u32* scale, const Moments* scales, const float* add, double weight, u32 options, double eps,
                     u32 n, float* out) {
  u64 i = thread();
  if (i >= n) return;
  double value = unit ? units[unit[i]].mean : (double)x[i];
  const Moments* apart = scale ? &scales[scale[i]] : (const Moments*)0;
  out[i] = added(add, weight, (u32)i, advantage(value, groups[group[i]], apart, options, eps));
}

// Whitening: mean 0, deviation 1. One thread a row. Memory: 8 bytes a row read, 4 written; moments from the cache.
KERNEL whiten_rows(const float* x, const u32* group, const Moments* groups, double eps, u32 n, float* out) {
  u64 i = thread();
  if (i >= n) return;
  Moments own = groups[group[i]];
  out[i] = (float)(((double)x[i] - own.mean) / sqrt(variance(own) + eps));
}

// Rewards minus the moving average of their seat. One thread a row. Memory: 8 bytes a row read, 4 written.
KERNEL ema_rows(const float* x, const u32* seat, const double* averages, u32 n, float* out) {
  u64 i = thread();
  if (i < n) out[i] = (float)((double)x[i] - averages[seat[i]]);
}

// Update of the seats' moving averages. One thread a seat.
KERNEL ema_move(const Moments* groups, double momentum, u32 seats, double* averages) {
  u64 i = thread();
  if (i < seats && groups[i].n > 0.0) averages[i] = momentum * averages[i] + (1.0 - momentum) * groups[i].mean;
}

// Steps of a row that a warp scans at once, from the end to the start. Each lane has four consecutive ones.
#define TILE 128u
#define EACH 4u

// A step as the map A -> b + a * A, from the next advantage to its own. The scan composes maps.
struct Map { double a, b; };

// Composition: first `late`, then `early`.
__device__ inline Map then(Map early, Map late) { return {early.a * late.a, early.b + early.a * late.b}; }

// Composition of the maps from this lane to the last.
__device__ inline Map suffix(Map m, u32 lane) {
  for (u32 d = 1; d < 32; d *= 2) {
    Map late = {__shfl_down_sync(ALL, m.a, d), __shfl_down_sync(ALL, m.b, d)};
    if (lane + d < 32) m = then(m, late);
  }
  return m;
}

// GAE of ragged rows, or of chains whose replies end where `last` is 1. One warp a row. The next tile is loaded
// while one is scanned. Values go through shared memory, so that loads and stores are whole lines wherever a row
// begins.
// Memory: 8 bytes a step read (4 without values, 1 more for chains), 8 written (4 without returns).
KERNEL gae(const float* rewards, const float* values, const float* after, const unsigned char* last,
           const u32* offsets, u32 rows, double gamma, double fade, double gamma_between, double fade_between,
           float* advantages, float* returns) {
  __shared__ float shared_r[BLOCK / 32][TILE], shared_v[BLOCK / 32][TILE];
  u64 row = thread() / 32;
  if (row >= rows) return;  // a whole warp
  u32 lane = threadIdx.x % 32;
  float *r = shared_r[threadIdx.x / 32], *v = shared_v[threadIdx.x / 32];
  u32 begin = offsets[row], end = offsets[row + 1];
  double next = after ? (double)after[row] : 0.0, running = 0.0;
  float coming_r[EACH], coming_v[EACH];
  auto fetch = [&](u32 tile) {
    for (u32 k = 0; k < EACH; k++) {
      u64 place = (u64)begin + tile * TILE + k * 32 + lane;
      coming_r[k] = place < end ? rewards[place] : 0.0f;
      coming_v[k] = place < end && values ? values[place] : 0.0f;
    }
  };
  u32 tiles = (u32)(((u64)(end - begin) + TILE - 1) / TILE);
  if (tiles > 0) fetch(tiles - 1);
  for (u32 tile = tiles; tile-- > 0;) {
    for (u32 k = 0; k < EACH; k++) r[k * 32 + lane] = coming_r[k], v[k * 32 + lane] = coming_v[k];
    __syncwarp();
    if (tile > 0) fetch(tile - 1);

    // Steps of this lane and their composed map. Past the end the map is the identity.
    u64 first = (u64)begin + tile * TILE + lane * EACH;
    double value[EACH + 1];
    for (u32 k = 0; k < EACH; k++) value[k] = first + k < end ? (double)v[lane * EACH + k] : next;
    double above = __shfl_down_sync(ALL, value[0], 1);
    value[EACH] = lane == 31 ? next : above;
    Map place[EACH], own = {1.0, 0.0};
    for (u32 k = EACH; k-- > 0;) {
      place[k] = {1.0, 0.0};
      if (first + k < end) {
        bool chained = last && last[first + k];
        double delta = (double)r[lane * EACH + k] + (chained ? gamma_between : gamma) * value[k + 1] - value[k];
        place[k] = {chained ? fade_between : fade, delta};
      }
      own = then(place[k], own);
    }

    // Composed map of the later lanes, then step by step.
    Map later = suffix(own, lane);
    later = {__shfl_down_sync(ALL, later.a, 1), __shfl_down_sync(ALL, later.b, 1)};
    double a = lane == 31 ? running : later.b + later.a * running;
    for (u32 k = EACH; k-- > 0;) {
      a = place[k].b + place[k].a * a;
      r[lane * EACH + k] = (float)a;
      v[lane * EACH + k] = (float)(a + value[k]);
    }
    running = __shfl_sync(ALL, a, 0);
    next = __shfl_sync(ALL, value[0], 0);
    __syncwarp();
    for (u32 k = 0; k < EACH; k++) {
      u64 at = (u64)begin + tile * TILE + k * 32 + lane;
      if (at < end) {
        advantages[at] = r[k * 32 + lane];
        if (returns) returns[at] = v[k * 32 + lane];
      }
    }
    __syncwarp();
  }
}
