// Products of bf16 matrices with sums in f32: nt `x wT`, nn `dy w`, tn `dyT x`. A second pair of terms, an adapter's,
// may follow the first.
//
// The order of a sum in nt depends on (N, K) alone. K is cut into pieces at multiples of 128 terms; a piece is one
// chain of steps of 16 terms from zero; pieces are added in f32, ascending, to zero. With few rows every piece has
// blocks of its own, and `add_pieces` adds them; with many a block walks all pieces and keeps the total in registers.
// So a row has the same bits alone and in any batch. The backward products are one chain: they give the same bits for
// the same batch.

// Where a product goes: `bias + scale * sum`, added to `onto`, as f32 or bf16. A null pointer omits a term.
struct Output {
  float* f32;
  bf16* half;
  const float* onto;
  const bf16* bias;
  float scale;
  int n;
};

INLINE float finished(const Output& out, size_t at, int col, float v) {
  v *= out.scale;
  if (out.bias) v += from_bf16(out.bias[col]);
  return out.onto ? out.onto[at] + v : v;
}
INLINE void write_pair(const Output& out, int row, int col, float a, float b) {
  size_t at = (size_t)row * out.n + col;
  if (col >= out.n) return;
  bool both = col + 1 < out.n;
  a = finished(out, at, col, a);
  if (both) b = finished(out, at + 1, col + 1, b);
  if (both && out.n % 2 == 0) {
    if (out.half) *(u32*)(out.half + at) = pack_bf16(a, b);
    else *(float2*)(out.f32 + at) = make_float2(a, b);
    return;
  }
  if (out.half) out.half[at] = to_bf16(a);
  else out.f32[at] = a;
  if (!both) return;
  if (out.half) out.half[at + 1] = to_bf16(b);
  else out.f32[at + 1] = b;
}

// Both pairs of terms. `pieces` are those of the first pair; the second is one more.
struct Terms {
  const bf16 *x, *w, *x2, *w2;
  int m, n, k, k2, pieces;
};

// First step of a piece; of the piece after the last, the number of steps of the first pair.
template <int BK> INLINE int first_step(const Terms& t, int piece) {
  if (piece >= t.pieces) return (t.k + BK - 1) / BK;
  int chunks = (t.k + 127) / 128;
  return (int)((long long)chunks * piece / t.pieces) * (128 / BK);
}

// A block computes BM x BN results in steps of BK terms; of its warps, WM share the rows and WN the columns. XT and WT:
// the left or right matrix lies with its terms in rows. WALK: the block walks all pieces; else it computes all terms, or
// `apart` one piece, to a place of its own.
template <int BM, int BN, int BK, int WM, int WN, int STAGES, bool XT, bool WT, bool WALK>
INLINE void product(const Terms& t, Output out, int tile, int piece, bool apart) {
  constexpr int THREADS = WM * WN * 32, MI = BM / WM / 16, NI = BN / WN / 8, X_BYTES = BM * BK * 2, W_BYTES = BN * BK * 2;
  SHARED_DYN(unsigned char, shared);
  const u32 base = shared_address(shared);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;

  // Eight tiles of rows share a column of weights in the cache.
  int tiles_m = (t.m + BM - 1) / BM, tiles_n = (t.n + BN - 1) / BN, band = tile / (8 * tiles_n) * 8;
  int height = min(8, tiles_m - band), place = tile % (8 * tiles_n);
  const int m0 = (band + place % height) * BM, n0 = place / height * BN;

  const int own = first_step<BK>(t, t.pieces), all = own + (t.k2 + BK - 1) / BK;
  int begin = 0, end = all;
  if (apart) {
    begin = piece == t.pieces ? own : first_step<BK>(t, piece);
    end = piece == t.pieces ? all : first_step<BK>(t, piece + 1);
    out.f32 += (size_t)piece * t.m * t.n;
  }

  auto load = [&](int step) {
    u32 left = base + (u32)(step % STAGES) * (X_BYTES + W_BYTES), right = left + X_BYTES;
    bool first = step < own;
    const bf16 *x = first ? t.x : t.x2, *w = first ? t.w : t.w2;
    int k = first ? t.k : t.k2, k0 = (first ? step : step - own) * BK;
    if (XT) load_tile<BK, BM / 8, THREADS>(left, x, k0, k, m0, t.m, t.m, t.m % 8 == 0);
    else load_tile<BM, BK / 8, THREADS>(left, x, m0, t.m, k0, k, k, k % 8 == 0);
    if (WT) load_tile<BK, BN / 8, THREADS>(right, w, k0, k, n0, t.n, t.n, t.n % 8 == 0);
    else load_tile<BN, BK / 8, THREADS>(right, w, n0, t.n, k0, k, k, k % 8 == 0);
  };

  float acc[MI][NI][4], total[WALK ? MI : 1][WALK ? NI : 1][4];
#pragma unroll
  for (int i = 0; i < MI; i++)
#pragma unroll
    for (int j = 0; j < NI; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        acc[i][j][e] = 0.0f;
        if (WALK) total[i][j][e] = 0.0f;
      }

#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    if (begin + s < end) load(begin + s);
    cp_async_commit();
  }
  int next = WALK ? first_step<BK>(t, 1) : 0;
  const int row0 = warp / WN * (BM / WM), col0 = warp % WN * (BN / WN);
  for (int step = begin; step < end; step++) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    if (step + STAGES - 1 < end) load(step + STAGES - 1);
    cp_async_commit();
    const u32 left = base + (u32)(step % STAGES) * (X_BYTES + W_BYTES), right = left + X_BYTES;
#pragma unroll
    for (int kk = 0; kk < BK / 16; kk++) {
      u32 at_a[MI], at_b[NI / 2], a[MI][4], quads[NI / 2][4], b[NI][2];
#pragma unroll
      for (int i = 0; i < MI; i++) {
        int row = row0 + i * 16;
        if (XT) at_a[i] = left + swizzled<BM / 8>(kk * 16 + (lane >> 4) * 8 + (lane & 7), row / 8 + (lane >> 3 & 1));
        else at_a[i] = left + swizzled<BK / 8>(row + (lane & 15), kk * 2 + (lane >> 4));
      }
#pragma unroll
      for (int j = 0; j < NI / 2; j++) {
        int col = col0 + j * 16;
        if (WT) at_b[j] = right + swizzled<BN / 8>(kk * 16 + (lane & 15), col / 8 + (lane >> 4));
        else at_b[j] = right + swizzled<BK / 8>(col + (lane >> 4) * 8 + (lane & 7), kk * 2 + (lane >> 3 & 1));
      }
      if (XT) ldmatrix_transposed(a, at_a);
      else ldmatrix(a, at_a);
      if (WT) ldmatrix_transposed(quads, at_b);
      else ldmatrix(quads, at_b);
#pragma unroll
      for (int j = 0; j < NI; j++) b[j][0] = quads[j / 2][j % 2 * 2], b[j][1] = quads[j / 2][j % 2 * 2 + 1];
      mma(acc, a, b);
    }
    if (WALK && (step + 1 == next || step + 1 == all)) {
      piece++;
      next = first_step<BK>(t, piece + 1);
#pragma unroll
      for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NI; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) total[i][j][e] += acc[i][j][e], acc[i][j][e] = 0.0f;
    }
  }

#pragma unroll
  for (int i = 0; i < MI; i++)
#pragma unroll
    for (int j = 0; j < NI; j++) {
      int row = m0 + row0 + i * 16 + (lane >> 2), col = n0 + col0 + j * 8 + (lane & 3) * 2;
      float* v = WALK ? total[WALK ? i : 0][WALK ? j : 0] : acc[i][j];
      if (row < t.m) write_pair(out, row, col, v[0], v[1]);
      if (row + 8 < t.m) write_pair(out, row + 8, col, v[2], v[3]);
    }
}

#define PRODUCT(NAME, BM, BN, BK, WM, WN, STAGES, XT, WT, WALK)                                                       \
  KERNEL(WM * WN * 32)                                                                                                \
  NAME(const bf16* x, const bf16* w, const bf16* x2, const bf16* w2, int m, int n, int k, int k2, int pieces,          \
       float* f32, bf16* half, const float* onto, const bf16* bias, float scale) {                                    \
    product<BM, BN, BK, WM, WN, STAGES, XT, WT, WALK>({x, w, x2, w2, m, n, k, k2, pieces},                            \
                                                      {f32, half, onto, bias, scale, n}, blockIdx.x, blockIdx.z,      \
                                                      gridDim.z > 1);                                                 \
  }

PRODUCT(product_nt_16, 16, 64, 128, 1, 4, 4, false, false, false)
PRODUCT(product_nt_64, 64, 64, 64, 2, 2, 4, false, false, false)
PRODUCT(product_nt_128, 128, 128, 32, 2, 4, 5, false, false, false)
PRODUCT(product_nt_128_pieces, 128, 128, 32, 2, 4, 5, false, false, true)
PRODUCT(product_nn_64, 64, 64, 64, 2, 2, 4, false, true, false)
PRODUCT(product_nn_128, 128, 128, 32, 2, 4, 5, false, true, false)
PRODUCT(product_tn_64, 64, 64, 64, 2, 2, 4, true, true, false)
PRODUCT(product_tn_128, 128, 128, 32, 2, 4, 5, true, true, false)

// Adds the pieces [pieces, m, n] of a product, ascending. Memory: 4 bytes a result and piece.
KERNEL(256) add_pieces(const float* parts, int pieces, int m, int n, float* f32, bf16* half, const float* onto,
                       const bf16* bias, float scale) {
  u64 at = (u64)blockIdx.x * 256 + threadIdx.x, size = (u64)m * n;
  if (at >= size) return;
  float sum = 0.0f;
  for (int piece = 0; piece < pieces; piece++) sum += parts[piece * size + at];
  Output out = {f32, half, onto, bias, scale, n};
  float v = finished(out, at, (int)(at % n), sum);
  if (half) half[at] = to_bf16(v);
  else f32[at] = v;
}

// A map of an input of few rows: `half = x wT + bias`. If its sum has several pieces, they go to `parts` first.
struct Map {
  const bf16 *w, *bias;
  bf16* half;
  int n, pieces;
};
#define MAP(I) const bf16 *w##I, const bf16 *bias##I, bf16 *half##I, int n##I, int pieces##I
#define MAP_OF(I) {w##I, bias##I, half##I, n##I, pieces##I}

// Up to three maps of one input: the blocks of each, one after the other. Each result has the bits of its product alone.
template <int BM, int BN, int BK, int WM, int WN, int STAGES>
INLINE void products(const bf16* x, int m, int k, Map a, const Map& b, const Map& c, float* parts) {
  int block = blockIdx.x;
  auto blocks = [&](const Map& of) { return (m + BM - 1) / BM * ((of.n + BN - 1) / BN) * of.pieces; };
  auto results = [&](const Map& of) { return of.pieces > 1 ? (size_t)of.pieces * m * of.n : 0; };
  if (block >= blocks(a)) {
    block -= blocks(a), parts += results(a), a = b;
    if (block >= blocks(a)) block -= blocks(a), parts += results(a), a = c;
  }
  const int tiles = blocks(a) / a.pieces;
  const bool apart = a.pieces > 1;
  Output out = {apart ? parts : 0, apart ? 0 : a.half, 0, apart ? 0 : a.bias, 1.0f, a.n};
  product<BM, BN, BK, WM, WN, STAGES, false, false, false>({x, a.w, 0, 0, m, a.n, k, 0, a.pieces}, out, block % tiles,
                                                           block / tiles, apart);
}

#define PRODUCTS(NAME, BM, BN, BK, WM, WN, STAGES)                                                                    \
  KERNEL(WM * WN * 32) NAME(const bf16* x, int m, int k, MAP(0), MAP(1), MAP(2), float* parts) {                      \
    products<BM, BN, BK, WM, WN, STAGES>(x, m, k, MAP_OF(0), MAP_OF(1), MAP_OF(2), parts);                            \
  }

PRODUCTS(products_nt_16, 16, 64, 128, 1, 4, 4)
PRODUCTS(products_nt_64, 64, 64, 64, 2, 2, 4)

// Adds the pieces of maps whose sums have several, as `add_pieces` does.
KERNEL(256) add_map_pieces(const float* parts, int m, MAP(0), MAP(1), MAP(2)) {
  u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
  Map a = MAP_OF(0), b = MAP_OF(1), c = MAP_OF(2);
  auto results = [&](const Map& of) { return of.pieces > 1 ? (u64)m * of.n : 0; };
  if (at >= results(a)) {
    at -= results(a), parts += results(a) * a.pieces, a = b;
    if (at >= results(a)) at -= results(a), parts += results(a) * a.pieces, a = c;
  }
  const u64 size = results(a);
  if (at >= size) return;
  float sum = 0.0f;
  for (int i = 0; i < a.pieces; i++) sum += parts[i * size + at];
  Output out = {0, a.half, 0, a.bias, 1.0f, a.n};
  a.half[at] = to_bf16(finished(out, at, (int)(at % a.n), sum));
}
