// Rows of activations and residual streams, for kernels that memory bounds.

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

INLINE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Calls `f` with each of the numbers that a thread has, eight.
template <class F> INLINE void each_of(u64 n, F f) {
#pragma unroll
  for (int j = 0; j < 8; j++) {
    u64 i = (u64)blockIdx.x * 2048 + j * 256 + threadIdx.x;
    if (i < n) f(i);
  }
}
