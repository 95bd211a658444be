// The kernels of a model that memory bounds: embedding, norm, rope, SwiGLU, AdamW, sums, and their backward passes.
//
// Activations are bf16, the residual stream and its gradient f32, sums of weight gradients f32. There are no atomics.
// A row's sum is a tree that its width alone decides; sums over rows are taken over 64 rows at a time, ascending.

#define ROWS_OF_A_SUM 64
#define WARPS 8  // of a block of 256 threads

INLINE int lane_id() { return threadIdx.x & 31; }
INLINE int warp_id() { return threadIdx.x >> 5; }

// Eight numbers, of which `valid` exist. With `aligned` the address is a multiple of 16 bytes.
INLINE void load8(float (&v)[8], const float* from, int valid, bool aligned) {
  if (aligned && valid == 8) {
    float4 a = *(const float4*)from, b = *(const float4*)(from + 4);
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] = i < valid ? from[i] : 0.0f;
}
INLINE void load8(float (&v)[8], const bf16* from, int valid, bool aligned) {
  if (aligned && valid == 8) {
    uint4 a = *(const uint4*)from;
    u32 pairs[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
    for (int i = 0; i < 4; i++) v[2 * i] = low_bf16(pairs[i]), v[2 * i + 1] = high_bf16(pairs[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] = i < valid ? from_bf16(from[i]) : 0.0f;
}
INLINE void store8(float* to, const float (&v)[8], int valid, bool aligned) {
  if (aligned && valid == 8) {
    *(float4*)to = make_float4(v[0], v[1], v[2], v[3]);
    *(float4*)(to + 4) = make_float4(v[4], v[5], v[6], v[7]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; i++)
    if (i < valid) to[i] = v[i];
}
INLINE void store8(bf16* to, const float (&v)[8], int valid, bool aligned) {
  if (aligned && valid == 8) {
    u32 a = pack_bf16(v[0], v[1]), b = pack_bf16(v[2], v[3]), c = pack_bf16(v[4], v[5]), d = pack_bf16(v[6], v[7]);
    *(uint4*)to = make_uint4(a, b, c, d);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; i++)
    if (i < valid) to[i] = to_bf16(v[i]);
}

// Embedding: x[i] = table[ids[i]]. A warp a row. Memory: 6 d bytes a row.
KERNEL(256) gather(const bf16* table, const u32* ids, int n, int d, float* x) {
  int row = blockIdx.x * WARPS + warp_id();
  if (row >= n) return;
  const bf16* from = table + (size_t)ids[row] * d;
  for (int c = lane_id() * 8; c < d; c += 256) {
    float v[8];
    load8(v, from + c, d - c < 8 ? d - c : 8, d % 8 == 0);
    store8(x + (size_t)row * d + c, v, d - c < 8 ? d - c : 8, d % 8 == 0);
  }
}

// Gradient of the embedding. `tokens` are sorted by id, those of an id ascending, and cut into pieces of one id. A warp
// sums 32 columns of a piece in the order of tokens: to its row of `table` if the id has no other piece (slot below 0),
// else to its slot of `partials`. Memory: 4 d bytes a token, 8 d a piece.
KERNEL(256) scatter(const float* dx, const u32* tokens, const u32* starts, const u32* ids, const int* slots, int pieces,
                    int d, float* table, float* partials) {
  int piece = blockIdx.x * WARPS + warp_id(), c = blockIdx.y * 32 + lane_id();
  if (piece >= pieces || c >= d) return;
  float sum = 0.0f;
#pragma unroll 4
  for (u32 i = starts[piece]; i < starts[piece + 1]; i++) sum += dx[(size_t)tokens[i] * d + c];
  int slot = slots[piece];
  if (slot >= 0) partials[(size_t)slot * d + c] = sum;
  else table[(size_t)ids[piece] * d + c] += sum;
}

// Adds the partial sums of ids with several pieces: those of ids[i] are the slots starts[i]..starts[i + 1], ascending.
KERNEL(256) scatter_merge(const float* partials, const u32* starts, const u32* ids, int count, int d, float* table) {
  int i = blockIdx.x * WARPS + warp_id(), c = blockIdx.y * 32 + lane_id();
  if (i >= count || c >= d) return;
  float sum = 0.0f;
  for (u32 slot = starts[i]; slot < starts[i + 1]; slot++) sum += partials[(size_t)slot * d + c];
  table[(size_t)ids[i] * d + c] += sum;
}

// Root-mean-square norm: y = bf16(w x / sqrt(mean(x²) + eps)). THREADS of them share a row. Memory: 6 d bytes a row,
// and the row again from the cache.
template <int THREADS> INLINE void norm_row(const float* x, const bf16* w, int d, float eps, bf16* y) {
  int t = threadIdx.x % THREADS;
  bool aligned = d % 8 == 0;
  float sum = 0.0f, v[8], weight[8];
  for (int c = t * 8; c < d; c += THREADS * 8) {
    load8(v, x + c, min(d - c, 8), aligned);
#pragma unroll
    for (int i = 0; i < 8; i++) sum += v[i] * v[i];
  }
  sum = warp_sum(sum);
  if (THREADS > 32) {
    __shared__ float sums[WARPS];
    if (lane_id() == 0) sums[warp_id()] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int i = 0; i < WARPS; i++) sum += sums[i];
  }
  float inverse = 1.0f / sqrtf(sum / (float)d + eps);
  for (int c = t * 8; c < d; c += THREADS * 8) {
    load8(v, x + c, min(d - c, 8), aligned);
    load8(weight, w + c, min(d - c, 8), aligned);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = weight[i] * (v[i] * inverse);
    store8(y + c, v, min(d - c, 8), aligned);
  }
}
KERNEL(256) rms_norm(const float* x, const bf16* w, int n, int d, float eps, bf16* y) {
  int row = blockIdx.x * WARPS + warp_id();
  if (row < n) norm_row<32>(x + (size_t)row * d, w, d, eps, y + (size_t)row * d);
}
KERNEL(256) rms_norm_wide(const float* x, const bf16* w, int n, int d, float eps, bf16* y) {
  norm_row<256>(x + (size_t)blockIdx.x * d, w, d, eps, y + (size_t)blockIdx.x * d);
}

// Gradients of the norm for 64 rows: of x, set or added to what is there (`add`), and partial sums for w (if not null).
// Writes the norm's result again, if `again` is not null. A warp a row, then a thread a column, with the rows from the
// cache. Memory: 10 d bytes a row, 4 d with `add`, 2 d with `again`.
KERNEL_OF(256, 4) rms_norm_back(const float* x, const bf16* w, const bf16* dy, int n, int d, float eps, int add, float* dx,
                                bf16* again, float* partials) {
  __shared__ float inverses[ROWS_OF_A_SUM];
  int first = blockIdx.x * ROWS_OF_A_SUM, rows = min(n - first, ROWS_OF_A_SUM);
  bool aligned = d % 8 == 0;
  for (int r = warp_id(); r < rows; r += WARPS) {
    size_t at = (size_t)(first + r) * d;
    float squares = 0.0f, dot = 0.0f, v[8], g[8], weight[8];
    for (int c = lane_id() * 8; c < d; c += 256) {
      int valid = min(d - c, 8);
      load8(v, x + at + c, valid, aligned), load8(g, dy + at + c, valid, aligned), load8(weight, w + c, valid, aligned);
#pragma unroll
      for (int i = 0; i < 8; i++) squares += v[i] * v[i], dot += g[i] * weight[i] * v[i];
    }
    float inverse = 1.0f / sqrtf(warp_sum(squares) / (float)d + eps);
    float pull = inverse * inverse * (warp_sum(dot) / (float)d);
    if (lane_id() == 0) inverses[r] = inverse;
    for (int c = lane_id() * 8; c < d; c += 256) {
      int valid = min(d - c, 8);
      load8(v, x + at + c, valid, aligned), load8(g, dy + at + c, valid, aligned), load8(weight, w + c, valid, aligned);
      float old[8], y[8];
      if (add) load8(old, dx + at + c, valid, aligned);
#pragma unroll
      for (int i = 0; i < 8; i++) {
        y[i] = weight[i] * (v[i] * inverse);
        float share = inverse * (g[i] * weight[i] - v[i] * pull);
        g[i] = add ? old[i] + share : share;
      }
      store8(dx + at + c, g, valid, aligned);
      if (again) store8(again + at + c, y, valid, aligned);
    }
  }
  if (!partials) return;
  __syncthreads();
  for (int c = threadIdx.x; c < d; c += 256) {
    float sum = 0.0f;
    for (int r = 0; r < rows; r++) {
      size_t at = (size_t)(first + r) * d + c;
      sum += from_bf16(dy[at]) * (x[at] * inverses[r]);
    }
    partials[(size_t)blockIdx.x * d + c] = sum;
  }
}

// Sums of 64 rows each, ascending; added to `out` if `add`. Memory: 4 d bytes a row.
KERNEL(256) sum_rows(const float* x, int n, int d, int add, float* out) {
  int c = blockIdx.x * 256 + threadIdx.x, first = blockIdx.y * ROWS_OF_A_SUM, end = min(n, first + ROWS_OF_A_SUM);
  if (c >= d) return;
  float sum = 0.0f;
#pragma unroll 4
  for (int r = first; r < end; r++) sum += x[(size_t)r * d + c];
  float* to = out + (size_t)blockIdx.y * d + c;
  *to = add ? *to + sum : sum;
}
KERNEL(256) sum_rows_bf16(const bf16* x, int n, int d, float* out) {
  int c = blockIdx.x * 256 + threadIdx.x, first = blockIdx.y * ROWS_OF_A_SUM, end = min(n, first + ROWS_OF_A_SUM);
  if (c >= d) return;
  float sum = 0.0f;
#pragma unroll 4
  for (int r = first; r < end; r++) sum += from_bf16(x[(size_t)r * d + c]);
  out[(size_t)blockIdx.y * d + c] = sum;
}

// Most pairs of a head that a lane has: heads are up to 128 wide.
#define PAIRS 2

// A head in the halves that rope rotates. Lane l has the pairs l and l + 32.
struct Head { float a[PAIRS], b[PAIRS]; };
INLINE Head load_head(const bf16* x, int half) {
  Head h;
#pragma unroll
  for (int j = 0; j < PAIRS; j++) {
    int i = lane_id() + 32 * j;
    h.a[j] = i < half ? from_bf16(x[i]) : 0.0f;
    h.b[j] = i < half ? from_bf16(x[i + half]) : 0.0f;
  }
  return h;
}
INLINE void store_head(bf16* x, const Head& h, int half) {
#pragma unroll
  for (int j = 0; j < PAIRS; j++) {
    int i = lane_id() + 32 * j;
    if (i < half) x[i] = to_bf16(h.a[j]), x[i + half] = to_bf16(h.b[j]);
  }
}
INLINE Head rotate(const Head& h, const float* cos, const float* sin, float sign, int half) {
  Head out = h;
#pragma unroll
  for (int j = 0; j < PAIRS; j++) {
    int i = lane_id() + 32 * j;
    if (i >= half) continue;
    float s = sign * sin[i];
    out.a[j] = h.a[j] * cos[i] - h.b[j] * s;
    out.b[j] = h.b[j] * cos[i] + h.a[j] * s;
  }
  return out;
}
INLINE float dot(const Head& x, const Head& y) {
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < PAIRS; j++) sum += x.a[j] * y.a[j] + x.b[j] * y.b[j];
  return warp_sum(sum);
}

// Rope of each head of each token in place, by tables [positions, half]; first the norm of the head, if it has a
// weight, and a copy of what was there to `raw`, if that is not null. A warp a head. Memory: 4 d bytes a head, 2 d with
// `raw`.
KERNEL(256) rope(bf16* x, const u32* positions, int n, int heads, int d, const float* cos, const float* sin,
                 const bf16* w, float eps, bf16* raw) {
  int i = blockIdx.x * WARPS + warp_id(), half = d / 2;
  if (i >= n * heads) return;
  size_t at = (size_t)i * d, of = (size_t)positions[i / heads] * half;
  Head h = load_head(x + at, half);
  if (raw) store_head(raw + at, h, half);
  if (w) {
    float inverse = 1.0f / sqrtf(dot(h, h) / (float)d + eps);
    Head weight = load_head(w, half);
#pragma unroll
    for (int j = 0; j < PAIRS; j++) {
      h.a[j] = weight.a[j] * (h.a[j] * inverse);
      h.b[j] = weight.b[j] * (h.b[j] * inverse);
    }
  }
  store_head(x + at, rotate(h, cos + of, sin + of, 1.0f, half), half);
}

// Gradients of rope, and of the head's norm if it has a weight: of x in place, and partial sums of 64 heads for the
// weight. A warp a head, then a thread a column. Memory: 4 d bytes a head, 2 d with a norm.
KERNEL(256) rope_back(bf16* dx, const u32* positions, int n, int heads, int d, const float* cos, const float* sin,
                      const bf16* w, float eps, const bf16* raw, float* partials) {
  __shared__ float products[ROWS_OF_A_SUM][128];
  int first = blockIdx.x * ROWS_OF_A_SUM, rows = min(n * heads - first, ROWS_OF_A_SUM), half = d / 2;
  for (int r = warp_id(); r < rows; r += WARPS) {
    int i = first + r;
    size_t at = (size_t)i * d, of = (size_t)positions[i / heads] * half;
    Head g = rotate(load_head(dx + at, half), cos + of, sin + of, -1.0f, half);
    if (w) {
      Head h = load_head(raw + at, half), weight = load_head(w, half), weighted;
      float inverse = 1.0f / sqrtf(dot(h, h) / (float)d + eps);
#pragma unroll
      for (int j = 0; j < PAIRS; j++) {
        int c = lane_id() + 32 * j;
        if (c < half) {
          products[r][c] = g.a[j] * (h.a[j] * inverse);
          products[r][c + half] = g.b[j] * (h.b[j] * inverse);
        }
        weighted.a[j] = g.a[j] * weight.a[j], weighted.b[j] = g.b[j] * weight.b[j];
      }
      float pull = inverse * inverse * (dot(weighted, h) / (float)d);
#pragma unroll
      for (int j = 0; j < PAIRS; j++) {
        g.a[j] = inverse * (weighted.a[j] - h.a[j] * pull);
        g.b[j] = inverse * (weighted.b[j] - h.b[j] * pull);
      }
    }
    store_head(dx + at, g, half);
  }
  if (!partials) return;
  __syncthreads();
  int c = threadIdx.x;
  if (c >= d) return;
  float sum = 0.0f;
  for (int r = 0; r < rows; r++) sum += products[r][c];
  partials[(size_t)blockIdx.x * d + c] = sum;
}

INLINE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// SwiGLU: act = silu(gate) up. Eight elements a thread. Memory: 6 bytes an element.
KERNEL(256) swiglu(const bf16* gate, const bf16* up, u64 n, bf16* act) {
  u64 i = ((u64)blockIdx.x * 256 + threadIdx.x) * 8;
  if (i >= n) return;
  int valid = (int)min(n - i, (u64)8);
  float g[8], u[8];
  load8(g, gate + i, valid, true), load8(u, up + i, valid, true);
#pragma unroll
  for (int j = 0; j < 8; j++) g[j] = g[j] * sigmoid(g[j]) * u[j];
  store8(act + i, g, valid, true);
}

// Gradients of SwiGLU; its result again, if `act` is not null. Memory: 10 bytes an element, 2 with `act`.
KERNEL(256) swiglu_back(const bf16* gate, const bf16* up, const bf16* dact, u64 n, bf16* dgate, bf16* dup, bf16* act) {
  u64 i = ((u64)blockIdx.x * 256 + threadIdx.x) * 8;
  if (i >= n) return;
  int valid = (int)min(n - i, (u64)8);
  float g[8], u[8], out[8];
  load8(g, gate + i, valid, true), load8(u, up + i, valid, true), load8(out, dact + i, valid, true);
#pragma unroll
  for (int j = 0; j < 8; j++) {
    float s = sigmoid(g[j]), gated = g[j] * s, by_up = out[j] * gated;
    float by_gate = out[j] * u[j] * (s * (1.0f + g[j] * (1.0f - s)));
    out[j] = gated * u[j], g[j] = by_gate, u[j] = by_up;
  }
  store8(dgate + i, g, valid, true), store8(dup + i, u, valid, true);
  if (act) store8(act + i, out, valid, true);
}

// AdamW on a master in two halves: `high` is the weight in bf16, rounded half away from zero, `low` the difference of
// the bits. The gradient is cleared. Memory: 32 bytes a parameter.
KERNEL(256) adamw(bf16* high, bf16* low, float* grad, float* m, float* v, u64 n, float scale, float keep, float gain1,
                  float beta2, float gain2, float correction, float eps, float rate) {
  u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
  if (i >= n) return;
  u32 bits = ((u32)high[i] << 16) + (u32)(int)(short)low[i];
  float g = grad[i] * scale, p = __int_as_float((int)bits);
  float first = fmaf(g - m[i], gain1, m[i]), second = v[i] * beta2 + gain2 * (g * g);
  p = p * keep - rate * (first / (sqrtf(second) / correction + eps));
  bits = (u32)__float_as_int(p);
  u32 rounded = (bits + 0x8000u) >> 16;
  high[i] = (bf16)rounded, low[i] = (bf16)(bits - (rounded << 16));
  m[i] = first, v[i] = second, grad[i] = 0.0f;
}

// Sums of 4096 numbers in f64: of squares of f32, or of f64. A thread has sixteen, ascending; then a tree.
template <class T> INLINE void sum_4096(const T* x, u64 n, double* out) {
  __shared__ double sums[WARPS];
  double sum = 0.0;
  for (int j = 0; j < 16; j++) {
    u64 i = (u64)blockIdx.x * 4096 + j * 256 + threadIdx.x;
    double v = i < n ? (double)x[i] : 0.0;
    sum += sizeof(T) == 4 ? v * v : v;
  }
  sum = warp_sum(sum);
  if (lane_id() == 0) sums[warp_id()] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  sum = 0.0;
  for (int i = 0; i < WARPS; i++) sum += sums[i];
  out[blockIdx.x] = sum;
}
KERNEL(256) squares(const float* x, u64 n, double* out) { sum_4096(x, n, out); }
KERNEL(256) sum_f64(const double* x, u64 n, double* out) { sum_4096(x, n, out); }

// y += by x. Memory: 12 bytes an element.
KERNEL(256) axpy(const float* x, u64 n, float by, float* y) {
  u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] += by * x[i];
}

// Rounds to bf16. Memory: 6 bytes an element.
KERNEL(256) round_to_bf16(const float* x, u64 n, bf16* y) {
  u64 i = ((u64)blockIdx.x * 256 + threadIdx.x) * 8;
  if (i >= n) return;
  int valid = (int)min(n - i, (u64)8);
  float v[8];
  load8(v, x + i, valid, true);
  store8(y + i, v, valid, true);
}

// Rows that are sums of rows of x: y[i] = bf16(Σ x[sources[s]]), s from starts[i] to starts[i + 1], ascending; zeros
// without any. A warp a row. Memory: 2 d bytes a source, 2 d a row.
KERNEL(256) combine_rows(const bf16* x, const u32* starts, const u32* sources, int n, int d, bf16* y) {
  int row = blockIdx.x * WARPS + warp_id();
  if (row >= n) return;
  u32 first = starts[row], end = starts[row + 1];
  bool aligned = d % 8 == 0;
  for (int c = lane_id() * 8; c < d; c += 256) {
    int valid = min(d - c, 8);
    float sum[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}, v[8];
    for (u32 s = first; s < end; s++) {
      load8(v, x + (size_t)sources[s] * d + c, valid, aligned);
#pragma unroll
      for (int i = 0; i < 8; i++) sum[i] = s == first ? v[i] : sum[i] + v[i];
    }
    store8(y + (size_t)row * d + c, sum, valid, aligned);
  }
}

// Copies n times 16 bytes.
KERNEL(256) copy(const uint4* x, size_t n, uint4* y) {
  size_t i = (size_t)blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] = x[i];
}
