// Attention with scores of other kinds, over the functions of attention.cu and attention_back.cu: a scale of its own, a bound,
// a window, sinks, and heads of 96 and 256. `cap` is 0 and `sinks` null without them.

#define ATTEND(D)                                                                                                       \
  KERNEL(256) attend_scored_##D(const bf16* q, const bf16* k, const bf16* v, const AttendTile* tiles, const int* path,  \
                                int heads, int kv_heads, float scale, float cap, int window, const bf16* sinks,        \
                                bf16* out, float* lse) {                                                               \
    attend<D, false, true>(q, k, v, {}, tiles, path, heads, kv_heads, {scale, cap, window}, sinks, out, lse);          \
  }                                                                                                                    \
  KERNEL(256) attend_cached_scored_##D(const bf16* q, const bf16* blocks, const int* table, int most, u64 stride,      \
                                       const AttendTile* tiles, int heads, int kv_heads, float scale, float cap,       \
                                       int window, const bf16* sinks, bf16* out) {                                     \
    attend<D, true, true>(q, 0, 0, {blocks, table, most, stride}, tiles, 0, heads, kv_heads, {scale, cap, window},     \
                          sinks, out, 0);                                                                              \
  }                                                                                                                    \
  KERNEL(32) attend_one_scored_##D(const bf16* q, const bf16* blocks, const int* table, int most, u64 stride,           \
                                   const DecodeRow* rows, int heads, int kv_heads, float scale, float cap, int window, \
                                   float* values, float* sums) {                                                       \
    attend_one<D, true>(q, {blocks, table, most, stride}, rows, heads, kv_heads, {scale, cap, window}, values, sums);  \
  }                                                                                                                    \
  KERNEL(128) attend_dq_scored_##D(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse,    \
                                   const float* delta, const AttendTile* tiles, const int* path, int heads,            \
                                   int kv_heads, float scale2, float cap, int window, float scale, bf16* dq) {         \
    attend_dq<D, true>(q, k, v, dout, lse, delta, tiles, path, heads, kv_heads, {scale2, cap, window}, scale, dq);     \
  }                                                                                                                    \
  KERNEL(128) attend_dkv_scored_##D(const bf16* q, const bf16* k, const bf16* v, const bf16* dout, const float* lse,   \
                                    const float* delta, const KeyTile* tiles, const QueryStep* steps, int heads,       \
                                    int kv_heads, float scale2, float cap, int window, float scale, bf16* dk,          \
                                    bf16* dv) {                                                                        \
    attend_dkv<D, true>(q, k, v, dout, lse, delta, tiles, steps, heads, kv_heads, {scale2, cap, window}, scale, dk,    \
                        dv);                                                                                           \
  }
ATTEND(32)
ATTEND(64)
ATTEND(96)
ATTEND(128)
ATTEND(256)

// Gradients of sinks: partial sums over 64 tokens of -2^(sink - lse) delta, of each head. Memory: 8 bytes a head and token.
KERNEL(256) attend_sinks_back(const float* lse, const float* delta, const bf16* sinks, int n, int heads, float* partials) {
  int first = blockIdx.x * 64, end = min(n, first + 64);
  for (int head = threadIdx.x; head < heads; head += 256) {
    float sink = from_bf16(sinks[head]) * LOG2E, sum = 0.0f;
    for (int token = first; token < end; token++) {
      size_t at = (size_t)token * heads + head;
      sum -= exp2_fast(sink - lse[at]) * delta[at];
    }
    partials[(size_t)blockIdx.x * heads + head] = sum;
  }
}
