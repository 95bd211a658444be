// Types and operations of the kernels of a model: for NVRTC by PTX, without NVIDIA's headers; for C++ compilers by
// device_on_cpu.h.

typedef unsigned short bf16;  // its bits
typedef unsigned int u32;
typedef unsigned long long u64;

#define ALL 0xffffffffu
#define KERNEL(threads) KERNEL_OF(threads, 1)
// A kernel of which `blocks` blocks fit a multiprocessor: its registers are limited to that.
#define KERNEL_OF(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)

#ifdef __CUDACC__

#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)
#define INLINE __device__ __forceinline__
#define INLINE_MEMBER __device__ __forceinline__
#define SHARED_DYN(T, name) extern __shared__ __align__(1024) T name[]

INLINE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// I x J products of 16 x 16 bf16 by 16 x 8, added to `acc`. A warp does it together; the fragments are those of
// mma.m16n8k16 in the PTX manual.
template <int I, int J> INLINE void mma(float (&acc)[I][J][4], const u32 (&a)[I][4], const u32 (&b)[J][2]) {
#pragma unroll
  for (int i = 0; i < I; i++)
#pragma unroll
    for (int j = 0; j < J; j++) {
      float* c = acc[i][j];
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j][0]), "r"(b[j][1]));
    }
}
// N times four 8 x 8 matrices of 16 bits; lane 8 i + r has the address of row r of matrix i.
template <int N> INLINE void ldmatrix(u32 (&r)[N][4], const u32 (&at)[N]) {
#pragma unroll
  for (int n = 0; n < N; n++)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[n][0]), "=r"(r[n][1]), "=r"(r[n][2]), "=r"(r[n][3]) : "r"(at[n]) : "memory");
}
template <int N> INLINE void ldmatrix_transposed(u32 (&r)[N][4], const u32 (&at)[N]) {
#pragma unroll
  for (int n = 0; n < N; n++)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[n][0]), "=r"(r[n][1]), "=r"(r[n][2]), "=r"(r[n][3]) : "r"(at[n]) : "memory");
}
// Copies `bytes` of 16 bytes to shared memory, and zeros for the rest, while the thread goes on.
INLINE void cp_async16(u32 to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;"
               ::"r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes) : "memory");
}
INLINE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `PENDING` groups of this thread's copies are under way.
template <int PENDING> INLINE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }
INLINE void store_shared16(u32 to, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0],{%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
// Two numbers rounded to bf16, to nearest even; `lo` in the lower half.
INLINE u32 pack_bf16(float lo, float hi) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
INLINE float exp2_fast(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(r) : "f"(x));
  return r;
}

#else

#include "device_on_cpu.h"
#define INLINE static inline
#define INLINE_MEMBER inline

#endif

INLINE bf16 to_bf16(float x) { return (bf16)pack_bf16(x, 0.0f); }
INLINE float from_bf16(bf16 x) { return __int_as_float((int)((u32)x << 16)); }
INLINE float low_bf16(u32 pair) { return __int_as_float((int)(pair << 16)); }
INLINE float high_bf16(u32 pair) { return __int_as_float((int)(pair & 0xffff0000u)); }

// Sum over the lanes of a warp, in a fixed tree; all lanes get the same bits.
INLINE float warp_sum(float x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(ALL, x, d);
  return x;
}
INLINE double warp_sum(double x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(ALL, x, d);
  return x;
}
INLINE float warp_max(float x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, d));
  return x;
}

// Offset in bytes of a 16-byte chunk in a tile of rows of `CHUNKS` such chunks, permuted so that eight rows of one
// column, and eight columns of one row, lie in different banks.
template <int CHUNKS> INLINE u32 swizzled(int row, int chunk) {
  constexpr int ROWS = CHUNKS >= 8 ? 1 : 8 / CHUNKS, MASK = CHUNKS >= 8 ? 7 : CHUNKS - 1;  // rows of 128 bytes
  return (u32)(row * CHUNKS + (chunk ^ (row / ROWS & MASK))) * 16;
}

// Copies eight numbers of which `valid` exist; the others become zero. `aligned` says that addresses of whole rows are
// multiples of 16 bytes; otherwise the copy is made by the thread itself, at once.
INLINE void copy8(u32 to, const bf16* from, int valid, bool aligned) {
  if (aligned) return cp_async16(to, from, valid * 2);
  u32 v[8];
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] = i < valid ? from[i] : 0u;
  store_shared16(to, make_uint4(v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16));
}

// Starts the copy of a tile of `ROWS` rows of `CHUNKS` * 8 numbers, from row `row` and column `col` of a matrix with
// `rows` and `cols` of them; what lies outside is zero.
template <int ROWS, int CHUNKS, int THREADS>
INLINE void load_tile(u32 to, const bf16* from, int row, int rows, int col, int cols, size_t stride, bool aligned) {
  static_assert(ROWS * CHUNKS % THREADS == 0, "every thread copies as many chunks");
#pragma unroll
  for (int j = 0; j < ROWS * CHUNKS / THREADS; j++) {
    int i = j * THREADS + threadIdx.x, r = i / CHUNKS, c = i % CHUNKS;
    int left = row + r < rows ? cols - (col + c * 8) : 0, valid = max(0, min(left, 8));
    const bf16* at = valid > 0 ? from + (row + r) * stride + col + c * 8 : from;
    copy8(to + swizzled<CHUNKS>(r, c), at, valid, aligned);
  }
}
