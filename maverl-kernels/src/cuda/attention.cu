// Causal grouped-query attention over ragged rows, forward: packed trees of rows, new tokens behind cached ones, and
// decoding.
//
//   s = q k log2(e) / sqrt(d),  m' = max(m, s),  p = 2^(s - m'),  l = l 2^(m - m') + sum p,  o = o 2^(m - m') + bf16(p) v
//
// A warp holds 16 queries of a head, or the query heads of one key head, and walks tiles of 64 keys by their absolute
// position in the row. After each 2048 keys (m, l, o) are merged into the row's totals and begin anew, in the order in
// which decoding merges the spans that its blocks compute apart. Widths and owners of columns are constants. So a
// query's bits depend on its row alone, wherever the row is cut and wherever its keys lie.

#define TILE 64
#define SPAN 2048
#define LOWEST (-1e30f)

template <int D> struct Widths {
  static constexpr int COLS = D / 8 < 8 ? D / 8 : 8, GROUPS = D / 8 / COLS;  // tiles of eight columns, in groups
};

// Running maximum, sum and weighted values of 16 rows. A lane has the rows lane / 4 and lane / 4 + 8, and of each eight
// columns two.
template <int D> struct Running {
  static constexpr int COLS = Widths<D>::COLS, GROUPS = Widths<D>::GROUPS;
  float o[GROUPS][1][COLS][4], m[2], l[2];

  INLINE_MEMBER void clear() {
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
#pragma unroll
      for (int j = 0; j < COLS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[g][0][j][e] = 0.0f;
    m[0] = m[1] = LOWEST, l[0] = l[1] = 0.0f;
  }

  // Absorbs a tile of 64 keys from `first` on, which a row sees up to its limit. `query` gives the fragments of q.
  template <class Query>
  INLINE_MEMBER void tile(u32 keys, u32 values, Query query, float scale, int limit0, int limit1, int first) {
    const int lane = threadIdx.x & 31;
    float s[1][8][4];
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) s[0][j][e] = 0.0f;
#pragma unroll
    for (int kk = 0; kk < D / 16; kk++) {
      u32 at[4], quads[4][4], b[8][2], a[1][4];
#pragma unroll
      for (int j = 0; j < 4; j++)
        at[j] = keys + swizzled<D / 8>(j * 16 + (lane >> 4) * 8 + (lane & 7), kk * 2 + (lane >> 3 & 1));
      ldmatrix(quads, at);
#pragma unroll
      for (int j = 0; j < 8; j++) b[j][0] = quads[j / 2][j % 2 * 2], b[j][1] = quads[j / 2][j % 2 * 2 + 1];
      query(kk, a);
      mma(s, a, b);
    }
    float top[2] = {m[0], m[1]};
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int key = first + j * 8 + (lane & 3) * 2 + (e & 1);
        s[0][j][e] = key <= (e < 2 ? limit0 : limit1) ? s[0][j][e] * scale : LOWEST;
        top[e >> 1] = fmaxf(top[e >> 1], s[0][j][e]);
      }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      top[h] = fmaxf(top[h], __shfl_xor_sync(ALL, top[h], 1));
      top[h] = fmaxf(top[h], __shfl_xor_sync(ALL, top[h], 2));
      float fade = exp2_fast(m[h] - top[h]);
      m[h] = top[h], l[h] *= fade;
#pragma unroll
      for (int g = 0; g < GROUPS; g++)
#pragma unroll
        for (int j = 0; j < COLS; j++) o[g][0][j][2 * h] *= fade, o[g][0][j][2 * h + 1] *= fade;
    }
    u32 p[4][1][4];
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float a = exp2_fast(s[0][j][2 * h] - m[h]), b = exp2_fast(s[0][j][2 * h + 1] - m[h]);
        l[h] += a + b;
        p[j / 2][0][j % 2 * 2 + h] = pack_bf16(a, b);
      }
#pragma unroll
    for (int kk = 0; kk < 4; kk++)
#pragma unroll
      for (int g = 0; g < GROUPS; g++) {
        u32 at[COLS / 2], quads[COLS / 2][4], b[COLS][2];
#pragma unroll
        for (int j = 0; j < COLS / 2; j++)
          at[j] = values + swizzled<D / 8>(kk * 16 + (lane & 15), g * COLS + j * 2 + (lane >> 4));
        ldmatrix_transposed(quads, at);
#pragma unroll
        for (int j = 0; j < COLS; j++) b[j][0] = quads[j / 2][j % 2 * 2], b[j][1] = quads[j / 2][j % 2 * 2 + 1];
        mma(o[g], p[kk], b);
      }
  }

  // Adds the sums of the four lanes of a row.
  INLINE_MEMBER void finish() {
#pragma unroll
    for (int h = 0; h < 2; h++) l[h] += __shfl_xor_sync(ALL, l[h], 1), l[h] += __shfl_xor_sync(ALL, l[h], 2);
  }
};

// Factors by which a row's totals and a span's sums are scaled when they are merged.
struct Merge { float top, old_by, new_by; };
INLINE Merge merge(float top, float m) {
  float higher = fmaxf(top, m);
  return {higher, exp2_fast(top - higher), exp2_fast(m - higher)};
}
INLINE float merged(float old, float now, const Merge& by) { return old * by.old_by + now * by.new_by; }

// Totals of a row over its spans.
template <int D> struct Totals {
  static constexpr int COLS = Widths<D>::COLS, GROUPS = Widths<D>::GROUPS;
  float o[GROUPS][COLS][4], m[2], l[2];

  INLINE_MEMBER void clear() {
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
#pragma unroll
      for (int j = 0; j < COLS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[g][j][e] = 0.0f;
    m[0] = m[1] = LOWEST, l[0] = l[1] = 0.0f;
  }

  INLINE_MEMBER void absorb(Running<D>& span) {
    span.finish();
#pragma unroll
    for (int h = 0; h < 2; h++) {
      Merge by = merge(m[h], span.m[h]);
#pragma unroll
      for (int g = 0; g < GROUPS; g++)
#pragma unroll
        for (int j = 0; j < COLS; j++)
#pragma unroll
          for (int e = 2 * h; e < 2 * h + 2; e++) o[g][j][e] = merged(o[g][j][e], span.o[g][0][j][e], by);
      l[h] = merged(l[h], span.l[h], by), m[h] = by.top;
    }
    span.clear();
  }
};

// Up to 128 queries of one node, from the position `first` on; the first is row `query` of q. Its keys are the tokens
// path[start..start + past], then those from token `own` on, or those of a cached sequence.
struct AttendTile { int query, first, count, own, start, past, sequence, unused; };

// The token at a position of a path.
INLINE size_t path_token(const AttendTile& t, const int* path, int position) {
  return position < t.past ? path[t.start + position] : t.own + position - t.past;
}

// Keys and values in blocks of 16 tokens: of each block, keys then values, [heads, 16, d].
struct Cache { const bf16* blocks; const int* table; int most; u64 stride; };

INLINE const bf16* cached(const Cache& c, int sequence, int position, int kv_heads, int head, int d, bool values) {
  const bf16* block = c.blocks + (size_t)c.table[(size_t)sequence * c.most + position / 16] * c.stride;
  return block + (((size_t)(values ? kv_heads : 0) + head) * 16 + position % 16) * d;
}

template <int D, bool CACHED>
INLINE void attend(const bf16* q, const bf16* k, const bf16* v, const Cache& cache, const AttendTile* tiles,
                   const int* path, int heads, int kv_heads, float scale, bf16* out, float* lse) {
  constexpr int BYTES = TILE * D * 2;
  constexpr bool FROM_SHARED = D > 64;  // registers do not hold the queries beside the totals
  SHARED_DYN(unsigned char, shared);
  const u32 base = shared_address(shared), queries = base + 4 * BYTES;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, head = blockIdx.y, kv = head / (heads / kv_heads);
  const AttendTile t = tiles[blockIdx.x];
  const int last = t.first + t.count - 1, position = t.first + warp * 16;
  const size_t width = (size_t)heads * D, kv_width = (size_t)kv_heads * D;

  u32 held[FROM_SHARED ? 1 : D / 16][4];
  if (FROM_SHARED) {
    load_tile<128, D / 8, 256>(queries, q + t.query * width + head * D, 0, t.count, 0, D, width, true);
    cp_async_commit();
  } else {
    const bf16* rows[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int row = t.query + min(warp * 16 + (lane >> 2) + 8 * h, t.count - 1);
      rows[h] = q + row * width + head * D + (lane & 3) * 2;
    }
#pragma unroll
    for (int kk = 0; kk < D / 16; kk++)
#pragma unroll
      for (int e = 0; e < 4; e++) held[FROM_SHARED ? 0 : kk][e] = *(const u32*)(rows[e & 1] + kk * 16 + (e >> 1) * 8);
  }
  auto query = [&](int kk, u32 (&a)[1][4]) {
    if (FROM_SHARED) {
      u32 at[1] = {queries + swizzled<D / 8>(warp * 16 + (lane & 15), kk * 2 + (lane >> 4))};
      ldmatrix(a, at);
    } else {
#pragma unroll
      for (int e = 0; e < 4; e++) a[0][e] = held[FROM_SHARED ? 0 : kk][e];
    }
  };
  auto load = [&](int i) {
    u32 keys = base + (u32)(i & 1) * 2 * BYTES, values = keys + BYTES;
#pragma unroll
    for (int j = 0; j < TILE * (D / 8) / 256; j++) {
      int c = j * 256 + threadIdx.x, r = c / (D / 8), x = c % (D / 8), at = min(i * TILE + r, last);
      const bf16 *key, *value;
      if (CACHED) {
        key = cached(cache, t.sequence, at, kv_heads, kv, D, false);
        value = cached(cache, t.sequence, at, kv_heads, kv, D, true);
      } else {
        size_t row = path_token(t, path, at);
        key = k + row * kv_width + kv * D, value = v + row * kv_width + kv * D;
      }
      cp_async16(keys + swizzled<D / 8>(r, x), key + x * 8, 16);
      cp_async16(values + swizzled<D / 8>(r, x), value + x * 8, 16);
    }
  };

  Running<D> span;
  Totals<D> totals;
  span.clear(), totals.clear();
  const int limit0 = min(position + (lane >> 2), last), limit1 = min(position + (lane >> 2) + 8, last);
  const int count = last / TILE + 1;
  load(0);
  cp_async_commit();
  for (int i = 0; i < count; i++) {
    if (i + 1 < count) load(i + 1);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    u32 keys = base + (u32)(i & 1) * 2 * BYTES, values = keys + BYTES;
    if (i * TILE <= position + 15 && position <= last) span.tile(keys, values, query, scale, limit0, limit1, i * TILE);
    if (i % (SPAN / TILE) == SPAN / TILE - 1) totals.absorb(span);
    __syncthreads();
  }
  totals.absorb(span);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int row = warp * 16 + (lane >> 2) + 8 * h;
    if (row >= t.count) continue;
    float inverse = 1.0f / totals.l[h];
    bf16* to = out + (t.query + row) * width + head * D + (lane & 3) * 2;
    if (lse && (lane & 3) == 0) lse[(size_t)(t.query + row) * heads + head] = totals.m[h] + log2f(totals.l[h]);
#pragma unroll
    for (int g = 0; g < Widths<D>::GROUPS; g++)
#pragma unroll
      for (int j = 0; j < Widths<D>::COLS; j++) {
        float* o = totals.o[g][j] + 2 * h;
        *(u32*)(to + (g * Widths<D>::COLS + j) * 8) = pack_bf16(o[0] * inverse, o[1] * inverse);
      }
  }
}

// The newest token of a cached sequence: row `query` of q, with `length` keys, its own included.
struct DecodeRow { int query, sequence, length, unused; };

// Decoding: one warp has the query heads of a key head of a row, and one span of its keys. Writes weighted values
// [row, kv head, span, 16, d] with maxima and sums [.., 16, 2].
template <int D>
INLINE void attend_one(const bf16* q, const Cache& cache, const DecodeRow* list, int heads, int kv_heads, float scale,
                       float* values, float* sums) {
  constexpr int BYTES = TILE * D * 2;
  SHARED_DYN(unsigned char, shared);
  const u32 base = shared_address(shared);
  const DecodeRow of = list[blockIdx.x];
  const int lane = threadIdx.x, kv = blockIdx.y, group = heads / kv_heads, length = of.length;
  if ((int)blockIdx.z * SPAN >= length) return;
  const int end = min(length, ((int)blockIdx.z + 1) * SPAN);
  const int from = blockIdx.z * (SPAN / TILE), to = (end + TILE - 1) / TILE;

  u32 held[D / 16][4];
  const bf16* rows[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int head = kv * group + min((lane >> 2) + 8 * h, group - 1);
    rows[h] = q + ((size_t)of.query * heads + head) * D + (lane & 3) * 2;
  }
#pragma unroll
  for (int kk = 0; kk < D / 16; kk++)
#pragma unroll
    for (int e = 0; e < 4; e++) held[kk][e] = *(const u32*)(rows[e & 1] + kk * 16 + (e >> 1) * 8);
  auto query = [&](int kk, u32 (&a)[1][4]) {
#pragma unroll
    for (int e = 0; e < 4; e++) a[0][e] = held[kk][e];
  };
  // Keys alternate between two buffers, values have the third.
  auto load = [&](int i, u32 buffer, bool of_values) {
#pragma unroll 4
    for (int c = lane; c < TILE * (D / 8); c += 32) {
      int r = c / (D / 8), x = c % (D / 8), at = min(i * TILE + r, end - 1);
      const bf16* row = cached(cache, of.sequence, at, kv_heads, kv, D, of_values);
      cp_async16(base + buffer * BYTES + swizzled<D / 8>(r, x), row + x * 8, 16);
    }
    cp_async_commit();
  };

  Running<D> span;
  span.clear();
  load(from, from & 1, false);
  load(from, 2, true);
  for (int i = from; i < to; i++) {
    if (i + 1 < to) load(i + 1, (i + 1) & 1, false);
    else cp_async_commit();
    cp_async_wait<1>();
    __syncwarp();
    span.tile(base + (i & 1) * BYTES, base + 2 * BYTES, query, scale, length - 1, length - 1, i * TILE);
    __syncwarp();
    if (i + 1 < to) load(i + 1, 2, true);
    else cp_async_commit();
  }
  span.finish();
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int row = (lane >> 2) + 8 * h;
    if (row >= group) continue;
    size_t at = (((size_t)blockIdx.x * kv_heads + kv) * gridDim.z + blockIdx.z) * 16 + row;
    if ((lane & 3) == 0) *(float2*)(sums + at * 2) = make_float2(span.m[h], span.l[h]);
#pragma unroll
    for (int g = 0; g < Widths<D>::GROUPS; g++)
#pragma unroll
      for (int j = 0; j < Widths<D>::COLS; j++) {
        float* o = span.o[g][0][j] + 2 * h;
        *(float2*)(values + at * D + (g * Widths<D>::COLS + j) * 8 + (lane & 3) * 2) = make_float2(o[0], o[1]);
      }
  }
}

// Merges the spans of decoding, ascending. A warp a query head.
KERNEL(256) attend_merge(const float* values, const float* sums, const DecodeRow* list, int rows, int heads,
                         int kv_heads, int d, int spans, bf16* out) {
  int i = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31, group = heads / kv_heads;
  if (i >= rows * heads) return;
  DecodeRow of = list[i / heads];
  int head = i % heads, used = (of.length + SPAN - 1) / SPAN;
  size_t first = ((size_t)(i / heads) * kv_heads + head / group) * spans;
  float o[4] = {0.0f, 0.0f, 0.0f, 0.0f}, m = LOWEST, l = 0.0f;
  for (int span = 0; span < used; span++) {
    size_t at = (first + span) * 16 + head % group;
    Merge by = merge(m, sums[at * 2]);
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (j * 32 + lane < d) o[j] = merged(o[j], values[at * d + j * 32 + lane], by);
    l = merged(l, sums[at * 2 + 1], by), m = by.top;
  }
  // A sequence without tokens fills a pass up.
  float inverse = used > 0 ? 1.0f / l : 0.0f;
#pragma unroll
  for (int j = 0; j < 4; j++)
    if (j * 32 + lane < d) out[((size_t)of.query * heads + head) * d + j * 32 + lane] = to_bf16(o[j] * inverse);
}

// Copies keys and values of new tokens to their places in blocks: `slots` are 16 times the block plus the place in it,
// all bits set for a token that is not kept. Eight numbers a thread. Memory: 8 bytes an element of a token's keys.
KERNEL(256) append_kv(const bf16* k, const bf16* v, const u32* slots, int n, int kv_heads, int d, u64 stride,
                      bf16* blocks) {
  int chunks = kv_heads * d / 8;
  u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
  if (i >= (u64)n * chunks) return;
  u32 token = (u32)(i / chunks), x = (u32)(i % chunks) * 8, slot = slots[token];
  if (slot == 0xffffffffu) return;
  size_t from = (size_t)token * kv_heads * d + x;
  bf16* to = blocks + (size_t)(slot / 16) * stride + ((size_t)(x / d) * 16 + slot % 16) * d + x % d;
  *(uint4*)to = *(const uint4*)(k + from);
  *(uint4*)(to + (size_t)kv_heads * 16 * d) = *(const uint4*)(v + from);
}

#define ATTEND(D)                                                                                                       \
  KERNEL(256) attend_##D(const bf16* q, const bf16* k, const bf16* v, const AttendTile* tiles, const int* path,        \
                         int heads, int kv_heads, float scale, bf16* out, float* lse) {                                \
    attend<D, false>(q, k, v, {}, tiles, path, heads, kv_heads, scale, out, lse);                                      \
  }                                                                                                                    \
  KERNEL(256) attend_cached_##D(const bf16* q, const bf16* blocks, const int* table, int most, u64 stride,             \
                                const AttendTile* tiles, int heads, int kv_heads, float scale, bf16* out) {            \
    attend<D, true>(q, 0, 0, {blocks, table, most, stride}, tiles, 0, heads, kv_heads, scale, out, 0);                 \
  }                                                                                                                    \
  KERNEL(32) attend_one_##D(const bf16* q, const bf16* blocks, const int* table, int most, u64 stride,                  \
                            const DecodeRow* rows, int heads, int kv_heads, float scale, float* values, float* sums) { \
    attend_one<D>(q, {blocks, table, most, stride}, rows, heads, kv_heads, scale, values, sums);                       \
  }
ATTEND(32)
ATTEND(64)
ATTEND(128)
