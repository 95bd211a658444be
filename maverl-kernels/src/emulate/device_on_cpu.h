// The operations of device.cuh on the CPU. Those of a warp are one rendezvous of its lanes, after which the last one
// computes for all. Fragments are laid out by the tables of the PTX manual, so that a wrong index is a wrong result.
// Products of bf16 are added in float, k ascending; a tensor core rounds in other places.
#pragma once
#include "cuda_on_cpu.h"

namespace coc {
inline float wide(unsigned short bits) { unsigned u = (unsigned)bits << 16; float f; std::memcpy(&f, &u, 4); return f; }

// I x J products of 16 x 8 x 16.
template <int I, int J> void mma_all(Warp& w, unsigned mask) {
  if (mask != ~0u) return fail("mma: not all lanes of the warp are there");
  float* accs[32];
  float a[I * 16][16], b[J * 8][16];
  for (int lane = 0; lane < 32; lane++) {
    int g = lane >> 2, t = lane & 3;
    auto* of_a = static_cast<const unsigned*>(w.slot[lane].in[0]);
    auto* of_b = static_cast<const unsigned*>(w.slot[lane].in[1]);
    accs[lane] = static_cast<float*>(w.slot[lane].out);
    for (int i = 0; i < I; i++) for (int r = 0; r < 4; r++) for (int h = 0; h < 2; h++)
      a[i * 16 + g + 8 * (r & 1)][t * 2 + 8 * (r >> 1) + h] = wide((unsigned short)(of_a[i * 4 + r] >> (16 * h)));
    for (int j = 0; j < J; j++) for (int r = 0; r < 2; r++) for (int h = 0; h < 2; h++)
      b[j * 8 + g][t * 2 + 8 * r + h] = wide((unsigned short)(of_b[j * 2 + r] >> (16 * h)));
  }
  for (int i = 0; i < I; i++) for (int row = 0; row < 16; row++) for (int j = 0; j < J; j++) {
    float c[8];
    for (int n = 0; n < 8; n++) c[n] = accs[(row & 7) * 4 + (n >> 1)][(i * J + j) * 4 + (row >> 3) * 2 + (n & 1)];
    for (int k = 0; k < 16; k++) {
      float x = a[i * 16 + row][k];
      for (int n = 0; n < 8; n++) c[n] += x * b[j * 8 + n][k];
    }
    for (int n = 0; n < 8; n++) accs[(row & 7) * 4 + (n >> 1)][(i * J + j) * 4 + (row >> 3) * 2 + (n & 1)] = c[n];
  }
}

inline bool in_shared(unsigned at, unsigned bytes) { return at + bytes <= COC_ST->dyn_bytes; }

// N times four 8 x 8 matrices; lane 8 i + r has the address of row r of matrix i.
template <int N, bool TRANSPOSED> void ldmatrix_all(Warp& w, unsigned mask) {
  if (mask != ~0u) return fail("ldmatrix: not all lanes of the warp are there");
  const unsigned char* base = dyn_shared();
  for (int n = 0; n < N; n++) for (int i = 0; i < 4; i++) {
    unsigned short m[8][8];
    for (int r = 0; r < 8; r++) {
      unsigned at = static_cast<const unsigned*>(w.slot[i * 8 + r].in[0])[n];
      if (at & 15) return fail("ldmatrix: an address is not a multiple of 16");
      if (!in_shared(at, 16)) return fail("ldmatrix: an address is outside shared memory");
      std::memcpy(m[r], base + at, 16);
    }
    for (int lane = 0; lane < 32; lane++) {
      int row = lane >> 2, col = 2 * (lane & 3);
      unsigned lo = TRANSPOSED ? m[col][row] : m[row][col], hi = TRANSPOSED ? m[col + 1][row] : m[row][col + 1];
      static_cast<unsigned*>(w.slot[lane].out)[n * 4 + i] = lo | hi << 16;
    }
  }
}

inline void do_copy(const Copy& c) {
  unsigned char* to = dyn_shared() + c.to;
  std::memset(to, 0, 16);
  std::memcpy(to, c.from, c.bytes);
}
}  // namespace coc

static inline unsigned shared_address(const void* p) { return (unsigned)((const unsigned char*)p - coc::dyn_shared()); }

template <int I, int J> void mma(float (&acc)[I][J][4], const unsigned (&a)[I][4], const unsigned (&b)[J][2]) {
  coc::Slot& s = coc::my_slot();
  s.in[0] = a; s.in[1] = b; s.out = acc;
  coc::meet(~0u, coc::mma_all<I, J>);
}
template <int N> void ldmatrix(unsigned (&r)[N][4], const unsigned (&at)[N]) {
  coc::Slot& s = coc::my_slot();
  s.in[0] = at; s.out = r;
  coc::meet(~0u, coc::ldmatrix_all<N, false>);
}
template <int N> void ldmatrix_transposed(unsigned (&r)[N][4], const unsigned (&at)[N]) {
  coc::Slot& s = coc::my_slot();
  s.in[0] = at; s.out = r;
  coc::meet(~0u, coc::ldmatrix_all<N, true>);
}

// Copies are made by the cp_async_wait that covers them, which shows a wait that is missing, or at once, which shows a
// barrier that is missing before a buffer is filled again.
static inline void cp_async16(unsigned to, const void* from, int bytes) {
  if (to & 15 || (bytes > 0 && (uintptr_t)from & 15)) coc::fail("cp.async: an address is not a multiple of 16");
  if (bytes < 0 || bytes > 16) coc::fail("cp.async: 0 to 16 bytes");
  if (!coc::in_shared(to, 16)) coc::fail("cp.async: the target is outside shared memory");
  coc::Copy copy = {to, from, bytes};
  if (coc::self.copies_at_once) coc::do_copy(copy);
  else coc::me().copies.push_back(copy);
}
static inline void cp_async_commit() { coc::Fiber& f = coc::me(); f.groups.push_back(f.copies.size()); }
template <int PENDING> void cp_async_wait() {
  coc::Fiber& f = coc::me();
  if (f.groups.size() <= PENDING) return;
  size_t done = f.groups.size() - PENDING, end = f.groups[done - 1];
  for (size_t i = 0; i < end; i++) coc::do_copy(f.copies[i]);
  f.copies.erase(f.copies.begin(), f.copies.begin() + end);
  f.groups.erase(f.groups.begin(), f.groups.begin() + done);
  for (size_t& at : f.groups) at -= end;
}
static inline void store_shared16(unsigned to, uint4 value) {
  if (to & 15 || !coc::in_shared(to, 16)) coc::fail("a store to shared memory is not aligned, or outside");
  std::memcpy(coc::dyn_shared() + to, &value, 16);
}

static inline unsigned pack_bf16(float lo, float hi) {
  return __float2bfloat16(lo).x | (unsigned)__float2bfloat16(hi).x << 16;
}
static inline float exp2_fast(float x) { return exp2f(x); }
