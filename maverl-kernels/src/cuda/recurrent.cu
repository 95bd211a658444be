// Depthwise causal convolutions over tokens, as checkpoints have their weights [channels, 1, kernel]:
//
//   y[t] = b + Σ_i w[i] x[t - kernel + 1 + i]
//
// Tokens before the start of a sequence count as 0. Sums begin with the token itself, so that a token has the same bits
// packed and behind a state. States are f32: of each sequence the last kernel - 1 inputs, [kernel - 1, channels], the
// oldest first.

// Of packed tokens; `before` has the token before each on its path, or -1. A thread a number.
KERNEL(256) convolve(const bf16* x, const int* before, const bf16* w, const bf16* bias, int n, int channels, int kernel,
                     bf16* y) {
  u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
  if (i >= (u64)n * channels) return;
  int c = (int)(i % channels);
  float sum = 0.0f;
  for (int tap = kernel - 1, at = (int)(i / channels); tap >= 0 && at >= 0; tap--, at = before[at])
    sum += from_bf16(w[(size_t)c * kernel + tap]) * from_bf16(x[(size_t)at * channels + c]);
  y[i] = to_bf16(bias ? sum + from_bf16(bias[c]) : sum);
}

// New tokens of a sequence: its first token, their number, its slot of states.
struct Sequence { int first, count, slot, unused; };

// Of new tokens behind the states of their sequences. A thread a number.
KERNEL(256) convolve_cached(const bf16* x, const u32* of, const Sequence* sequences, const float* states, u64 stride,
                            const bf16* w, const bf16* bias, int n, int channels, int kernel, bf16* y) {
  u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
  if (i >= (u64)n * channels) return;
  int token = (int)(i / channels), c = (int)(i % channels);
  Sequence s = sequences[of[token]];
  const float* past = states + (size_t)s.slot * stride;
  float sum = 0.0f;
  for (int tap = kernel - 1; tap >= 0; tap--) {
    int at = token - (kernel - 1 - tap), row = kernel - 1 + at - s.first;
    float v = at >= s.first ? from_bf16(x[(size_t)at * channels + c]) : past[(size_t)row * channels + c];
    sum += from_bf16(w[(size_t)c * kernel + tap]) * v;
  }
  y[i] = to_bf16(bias ? sum + from_bf16(bias[c]) : sum);
}
// Advances the states by the new tokens. A thread a channel of a sequence.
KERNEL(256) advance_past(const bf16* x, const Sequence* sequences, int count, int channels, int kernel, float* states,
                         u64 stride) {
  u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
  if (i >= (u64)count * channels) return;
  int c = (int)(i % channels);
  Sequence s = sequences[i / channels];
  float* past = states + (size_t)s.slot * stride;
  for (int row = 0; row < kernel - 1; row++) {
    int from = row + s.count, token = s.first + from - (kernel - 1);
    past[(size_t)row * channels + c] =
        from < kernel - 1 ? past[(size_t)from * channels + c] : from_bf16(x[(size_t)token * channels + c]);
  }
}

// A token whose result reads another: the token, and its tap.
struct Reader { int token, tap; };

// Gradients of x: the readers of token t are starts[t]..starts[t + 1] of a list. A thread a number.
KERNEL(256) convolve_back(const bf16* dy, const u32* starts, const Reader* readers, const bf16* w, int n, int channels,
                          int kernel, bf16* dx) {
  u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
  if (i >= (u64)n * channels) return;
  int token = (int)(i / channels), c = (int)(i % channels);
  float sum = 0.0f;
  for (u32 r = starts[token]; r < starts[token + 1]; r++)
    sum += from_bf16(w[(size_t)c * kernel + readers[r].tap]) * from_bf16(dy[(size_t)readers[r].token * channels + c]);
  dx[i] = to_bf16(sum);
}
// Partial sums of 64 tokens of the gradients of weights, [channels, kernel]. A thread a channel.
KERNEL(256) convolve_weights_back(const bf16* x, const bf16* dy, const int* before, int n, int channels, int kernel,
                                  float* partials) {
  int c = blockIdx.x * 256 + threadIdx.x, first = blockIdx.y * ROWS_OF_A_SUM, end = min(n, first + ROWS_OF_A_SUM);
  if (c >= channels) return;
  for (int tap = 0; tap < kernel; tap++) {
    float sum = 0.0f;
    for (int t = first; t < end; t++) {
      int at = t;
      for (int back = kernel - 1; back > tap && at >= 0; back--) at = before[at];
      if (at >= 0) sum += from_bf16(dy[(size_t)t * channels + c]) * from_bf16(x[(size_t)at * channels + c]);
    }
    partials[((size_t)blockIdx.y * channels + c) * kernel + tap] = sum;
  }
}
