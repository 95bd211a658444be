// Backward passes of attention over packed rows, from its result and the logarithms of its sums.
//
//   p = 2^(s - lse),  ds = p (dout v - delta),  delta = dout out,  dq = ds k / sqrt(d),  dk = ds q / sqrt(d),  dv = p dout
//
// One kernel has keys and adds over the queries that see them, one has queries and adds over keys: no atomics, and an
// order that the packing alone decides.

#define BACK_TILE 64  // keys, or queries, of a block: 16 a warp
#define BACK_STEP 32  // queries, or keys, of a step

// Dot products of dout and out of each head. A warp a head. Memory: 4 d bytes a head.
KERNEL(256) attend_delta(const bf16* dout, const bf16* out, int count, int d, float* delta) {
  int i = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  if (i >= count) return;
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    int c = j * 32 + lane;
    if (c < d) sum += from_bf16(dout[(size_t)i * d + c]) * from_bf16(out[(size_t)i * d + c]);
  }
  sum = warp_sum(sum);
  if (lane == 0) delta[i] = sum;
}

// Fragments of 16 rows of a tile as the left side of products over its columns: step kk.
template <int D> INLINE void left(u32 (&a)[1][4], u32 tile, int row, int kk) {
  const int lane = threadIdx.x & 31;
  u32 at[1] = {tile + swizzled<D / 8>(row + (lane & 15), kk * 2 + (lane >> 4))};
  ldmatrix(a, at);
}
// Fragments of 32 rows of a tile as the right side of products over its columns.
template <int D> INLINE void right(u32 (&b)[4][2], u32 tile, int kk) {
  const int lane = threadIdx.x & 31;
  u32 at[2], quads[2][4];
#pragma unroll
  for (int j = 0; j < 2; j++)
    at[j] = tile + swizzled<D / 8>(j * 16 + (lane >> 4) * 8 + (lane & 7), kk * 2 + (lane >> 3 & 1));
  ldmatrix(quads, at);
#pragma unroll
  for (int j = 0; j < 4; j++) b[j][0] = quads[j / 2][j % 2 * 2], b[j][1] = quads[j / 2][j % 2 * 2 + 1];
}
// Fragments of 16 rows of a tile as the right side of products over its columns.
template <int D> INLINE void right(u32 (&b)[2][2], u32 tile, int row, int kk) {
  const int lane = threadIdx.x & 31;
  u32 at[1] = {tile + swizzled<D / 8>(row + (lane >> 4) * 8 + (lane & 7), kk * 2 + (lane >> 3 & 1))}, quads[1][4];
  ldmatrix(quads, at);
#pragma unroll
  for (int j = 0; j < 2; j++) b[j][0] = quads[0][j * 2], b[j][1] = quads[0][j * 2 + 1];
}
// acc += weights[16, 16] tile[16, D], with the weights as fragments of the left side.
template <int D>
INLINE void add_weighted(float (&acc)[Widths<D>::GROUPS][1][Widths<D>::COLS][4], const u32 (&weights)[1][4], u32 tile,
                         int row) {
  constexpr int COLS = Widths<D>::COLS, GROUPS = Widths<D>::GROUPS;
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int g = 0; g < GROUPS; g++) {
    u32 at[COLS / 2], quads[COLS / 2][4], b[COLS][2];
#pragma unroll
    for (int j = 0; j < COLS / 2; j++)
      at[j] = tile + swizzled<D / 8>(row + (lane & 15), g * COLS + j * 2 + (lane >> 4));
    ldmatrix_transposed(quads, at);
#pragma unroll
    for (int j = 0; j < COLS; j++) b[j][0] = quads[j / 2][j % 2 * 2], b[j][1] = quads[j / 2][j % 2 * 2 + 1];
    mma(acc[g], weights, b);
  }
}
template <int J> INLINE void zero(float (&s)[1][J][4]) {
#pragma unroll
  for (int j = 0; j < J; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) s[0][j][e] = 0.0f;
}
// Rounds 16 results of 16 rows, from the tile of eight columns `first` on, to fragments of the left side.
template <int J> INLINE void pack_left(u32 (&a)[1][4], const float (&s)[1][J][4], int first) {
#pragma unroll
  for (int j = 0; j < 2; j++)
#pragma unroll
    for (int h = 0; h < 2; h++) a[0][j * 2 + h] = pack_bf16(s[0][first + j][2 * h], s[0][first + j][2 * h + 1]);
}
template <int D> INLINE void clear(float (&acc)[Widths<D>::GROUPS][1][Widths<D>::COLS][4]) {
#pragma unroll
  for (int g = 0; g < Widths<D>::GROUPS; g++)
#pragma unroll
    for (int j = 0; j < Widths<D>::COLS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) acc[g][0][j][e] = 0.0f;
}
// Writes the rows that a lane has of a block's 64, `count` of which exist.
template <int D>
INLINE void write_rows(bf16* to, size_t width, int count,
                       const float (&acc)[Widths<D>::GROUPS][1][Widths<D>::COLS][4], float scale) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int row = warp * 16 + (lane >> 2) + 8 * h;
    if (row >= count) continue;
#pragma unroll
    for (int g = 0; g < Widths<D>::GROUPS; g++)
#pragma unroll
      for (int j = 0; j < Widths<D>::COLS; j++) {
        const float* v = acc[g][0][j] + 2 * h;
        bf16* at = to + row * width + (g * Widths<D>::COLS + j) * 8 + (lane & 3) * 2;
        *(u32*)at = pack_bf16(v[0] * scale, v[1] * scale);
      }
  }
}

// A block has 64 queries of a head, and walks the keys they see, ascending.
template <int D>
INLINE void attend_dq(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse, const float* delta,
                      const AttendTile* tiles, const int* path, int heads, int kv_heads, float scale2, float scale,
                      bf16* dq) {
  constexpr int BYTES = BACK_TILE * D * 2, STEP_BYTES = BACK_STEP * D * 2;
  SHARED_DYN(unsigned char, shared);
  const u32 queries = shared_address(shared), douts = queries + BYTES, stages = douts + BYTES;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, head = blockIdx.y, kv = head / (heads / kv_heads);
  const AttendTile t = tiles[blockIdx.x];
  const int last = t.first + t.count - 1, count = last / BACK_STEP + 1, position = t.first + warp * 16;
  const size_t width = (size_t)heads * D, kv_width = (size_t)kv_heads * D, at_head = t.query * width + head * D;
  load_tile<BACK_TILE, D / 8, 128>(queries, q + at_head, 0, t.count, 0, D, width, true);
  load_tile<BACK_TILE, D / 8, 128>(douts, dout + at_head, 0, t.count, 0, D, width, true);
  cp_async_commit();
  auto load = [&](int i) {
    u32 keys = stages + (u32)(i & 1) * 2 * STEP_BYTES, values = keys + STEP_BYTES;
#pragma unroll
    for (int j = 0; j < BACK_STEP * (D / 8) / 128; j++) {
      int c = j * 128 + threadIdx.x, r = c / (D / 8), x = c % (D / 8), at = min(i * BACK_STEP + r, last);
      size_t row = path_token(t, path, at) * kv_width + kv * D + x * 8;
      cp_async16(keys + swizzled<D / 8>(r, x), k + row, 16);
      cp_async16(values + swizzled<D / 8>(r, x), v + row, 16);
    }
  };
  float log_sum[2], inner[2];
  int limit[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int row = min(warp * 16 + (lane >> 2) + 8 * h, t.count - 1);
    size_t at = (size_t)(t.query + row) * heads + head;
    log_sum[h] = lse[at], inner[h] = delta[at], limit[h] = t.first + row;
  }
  float acc[Widths<D>::GROUPS][1][Widths<D>::COLS][4];
  clear<D>(acc);
  load(0);
  cp_async_commit();
  for (int i = 0; i < count; i++) {
    if (i + 1 < count) load(i + 1);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    u32 keys = stages + (u32)(i & 1) * 2 * STEP_BYTES, values = keys + STEP_BYTES;
    if (i * BACK_STEP <= position + 15 && position <= last) {
      float s[1][4][4], dp[1][4][4];
      zero(s), zero(dp);
#pragma unroll
      for (int kk = 0; kk < D / 16; kk++) {
        u32 a[1][4], b[4][2];
        left<D>(a, queries, warp * 16, kk), right<D>(b, keys, kk);
        mma(s, a, b);
        left<D>(a, douts, warp * 16, kk), right<D>(b, values, kk);
        mma(dp, a, b);
      }
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          int key = i * BACK_STEP + j * 8 + (lane & 3) * 2 + (e & 1), h = e >> 1;
          float p = key <= limit[h] ? exp2_fast(s[0][j][e] * scale2 - log_sum[h]) : 0.0f;
          s[0][j][e] = p * (dp[0][j][e] - inner[h]);
        }
#pragma unroll
      for (int kk = 0; kk < 2; kk++) {
        u32 weights[1][4];
        pack_left(weights, s, kk * 2);
        add_weighted<D>(acc, weights, keys, kk * 16);
      }
    }
    __syncthreads();
  }
  write_rows<D>(dq + at_head, width, t.count, acc, scale);
}

// Up to 64 keys of one node from the position `first` on, the first of which is token `token`. The queries that see them
// are the steps begin..end of a list.
struct KeyTile { int token, first, count, begin, end, unused[3]; };
// Up to 32 queries of one node: the first token, its position, their number.
struct QueryStep { int token, first, count, unused; };

// A block has 64 keys of a key head, and walks the steps of queries that see them: of each, the heads that share the
// key head, ascending.
template <int D>
INLINE void attend_dkv(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse, const float* delta,
                       const KeyTile* tiles, const QueryStep* list, int heads, int kv_heads, float scale2, float scale,
                       bf16* dk, bf16* dv) {
  constexpr int BYTES = BACK_TILE * D * 2, STEP_BYTES = BACK_STEP * D * 2;
  SHARED_DYN(unsigned char, shared);
  const u32 keys = shared_address(shared), values = keys + BYTES, stages = values + BYTES;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, kv = blockIdx.y, group = heads / kv_heads;
  const KeyTile t = tiles[blockIdx.x];
  const int count = (t.end - t.begin) * group;
  const size_t width = (size_t)heads * D, kv_width = (size_t)kv_heads * D, at_kv = t.token * kv_width + kv * D;
  load_tile<BACK_TILE, D / 8, 128>(keys, k + at_kv, 0, t.count, 0, D, kv_width, true);
  load_tile<BACK_TILE, D / 8, 128>(values, v + at_kv, 0, t.count, 0, D, kv_width, true);
  cp_async_commit();
  auto load = [&](int i) {
    u32 queries = stages + (u32)(i & 1) * 2 * STEP_BYTES, douts = queries + STEP_BYTES;
    QueryStep step = list[t.begin + i / group];
    size_t at = step.token * width + (kv * group + i % group) * D;
    load_tile<BACK_STEP, D / 8, 128>(queries, q + at, 0, step.count, 0, D, width, true);
    load_tile<BACK_STEP, D / 8, 128>(douts, dout + at, 0, step.count, 0, D, width, true);
  };
  float of_keys[Widths<D>::GROUPS][1][Widths<D>::COLS][4], of_values[Widths<D>::GROUPS][1][Widths<D>::COLS][4];
  clear<D>(of_keys), clear<D>(of_values);
  if (count > 0) load(0);
  cp_async_commit();
  for (int i = 0; i < count; i++) {
    if (i + 1 < count) load(i + 1);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    u32 queries = stages + (u32)(i & 1) * 2 * STEP_BYTES, douts = queries + STEP_BYTES;
    QueryStep step = list[t.begin + i / group];
    int head = kv * group + i % group;
    // Sixteen queries at a time: registers hold the sums of keys and values, and little else.
#pragma unroll 1
    for (int row = 0; row < BACK_STEP; row += 16) {
      float p[1][2][4], ds[1][2][4];
      zero(p), zero(ds);
#pragma unroll
      for (int kk = 0; kk < D / 16; kk++) {
        u32 a[1][4], b[2][2];
        left<D>(a, keys, warp * 16, kk), right<D>(b, queries, row, kk);
        mma(p, a, b);
        left<D>(a, values, warp * 16, kk), right<D>(b, douts, row, kk);
        mma(ds, a, b);
      }
#pragma unroll
      for (int j = 0; j < 2; j++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
          int column = row + j * 8 + (lane & 3) * 2 + c, query = min(column, step.count - 1);
          size_t at = (size_t)(step.token + query) * heads + head;
          float log_sum = lse[at], inner = delta[at];
#pragma unroll
          for (int h = 0; h < 2; h++) {
            int key = t.first + warp * 16 + (lane >> 2) + 8 * h, e = 2 * h + c;
            bool seen = column < step.count && key <= step.first + query;
            p[0][j][e] = seen ? exp2_fast(p[0][j][e] * scale2 - log_sum) : 0.0f;
            ds[0][j][e] = p[0][j][e] * (ds[0][j][e] - inner);
          }
        }
      u32 weights[1][4];
      pack_left(weights, p, 0);
      add_weighted<D>(of_values, weights, douts, row);
      pack_left(weights, ds, 0);
      add_weighted<D>(of_keys, weights, queries, row);
    }
    __syncthreads();
  }
  write_rows<D>(dk + at_kv, kv_width, t.count, of_keys, scale);
  write_rows<D>(dv + at_kv, kv_width, t.count, of_values, 1.0f);
}

#define ATTEND_BACK(D)                                                                                                 \
  KERNEL(128) attend_dq_##D(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse,           \
                            const float* delta, const AttendTile* tiles, const int* path, int heads, int kv_heads,     \
                            float scale2, float scale, bf16* dq) {                                                     \
    attend_dq<D>(q, k, v, dout, lse, delta, tiles, path, heads, kv_heads, scale2, scale, dq);                          \
  }                                                                                                                    \
  KERNEL(128) attend_dkv_##D(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse,          \
                             const float* delta, const KeyTile* tiles, const QueryStep* steps, int heads,              \
                             int kv_heads, float scale2, float scale, bf16* dk, bf16* dv) {                            \
    attend_dkv<D>(q, k, v, dout, lse, delta, tiles, steps, heads, kv_heads, scale2, scale, dk, dv);                    \
  }
ATTEND_BACK(32)
ATTEND_BACK(64)
ATTEND_BACK(128)
