// Operations of parts that only some families have: norms of rows of other types and gains, rotations of parts of heads,
// gates, columns, bounds of logits. Numbers, rows and sums are as in elementwise.cu.

// Norm of rows with the gains w + one: `put` gets eight results of a row at a time, from an element on. A warp has a row,
// or with `wide` a block.
template <class In, class Put>
INLINE void norm_row(const In* all, const bf16* w, float one, int n, int d, float eps, bool wide, Put put) {
  __shared__ float sums[WARPS];
  int row = wide ? blockIdx.x : blockIdx.x * WARPS + warp_id(), t = wide ? threadIdx.x : lane_id(), step = wide ? 2048 : 256;
  if (row >= n) return;
  const In* x = all + (size_t)row * d;
  bool aligned = d % 8 == 0;
  float sum = 0.0f, v[8], gain[8];
  for (int c = t * 8; c < d; c += step) {
    load8(v, x + c, min(d - c, 8), aligned);
#pragma unroll
    for (int i = 0; i < 8; i++) sum += v[i] * v[i];
  }
  sum = warp_sum(sum);
  if (wide) {
    if (lane_id() == 0) sums[warp_id()] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int i = 0; i < WARPS; i++) sum += sums[i];
  }
  float inverse = 1.0f / sqrtf(sum / (float)d + eps);
  for (int c = t * 8; c < d; c += step) {
    load8(v, x + c, min(d - c, 8), aligned);
    load8(gain, w + c, min(d - c, 8), aligned);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = (gain[i] + one) * (v[i] * inverse);
    put((size_t)row * d + c, v, min(d - c, 8), aligned);
  }
}
// Memory: 6 d bytes a row of f32, 4 d of bf16, 10 d added to a stream.
KERNEL(256) norm_stream(const float* x, const bf16* w, float one, int n, int d, float eps, int wide, bf16* y) {
  norm_row(x, w, one, n, d, eps, wide, [&](size_t at, float (&v)[8], int valid, bool aligned) {
    store8(y + at, v, valid, aligned);
  });
}
KERNEL(256) norm_act(const bf16* x, const bf16* w, float one, int n, int d, float eps, int wide, bf16* y) {
  norm_row(x, w, one, n, d, eps, wide, [&](size_t at, float (&v)[8], int valid, bool aligned) {
    store8(y + at, v, valid, aligned);
  });
}
KERNEL(256) norm_onto(const bf16* x, const bf16* w, float one, int n, int d, float eps, int wide, const float* onto,
                      float* y) {
  norm_row(x, w, one, n, d, eps, wide, [&](size_t at, float (&v)[8], int valid, bool aligned) {
    float old[8];
    load8(old, onto + at, valid, aligned);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] += old[i];
    store8(y + at, v, valid, aligned);
  });
}

// Gradients of norms of 64 rows: of x, set or, for f32, added to what is there (`add`), and partial sums for w (if not
// null). dx is not dy. A warp a row, then a thread a column. Memory: 6 to 14 d bytes a row.
template <class In, class Dy, class Out>
INLINE void norm_row_back(const In* x, const bf16* w, float one, const Dy* dy, int n, int d, float eps, bool add, Out* dx,
                          float* partials) {
  __shared__ float inverses[ROWS_OF_A_SUM];
  int first = blockIdx.x * ROWS_OF_A_SUM, rows = min(n - first, ROWS_OF_A_SUM);
  bool aligned = d % 8 == 0;
  for (int r = warp_id(); r < rows; r += WARPS) {
    size_t at = (size_t)(first + r) * d;
    float squares = 0.0f, dot = 0.0f, v[8], g[8], gain[8];
    for (int c = lane_id() * 8; c < d; c += 256) {
      int valid = min(d - c, 8);
      load8(v, x + at + c, valid, aligned), load8(g, dy + at + c, valid, aligned), load8(gain, w + c, valid, aligned);
#pragma unroll
      for (int i = 0; i < 8; i++) squares += v[i] * v[i], dot += g[i] * (gain[i] + one) * v[i];
    }
    float inverse = 1.0f / sqrtf(warp_sum(squares) / (float)d + eps);
    float pull = inverse * inverse * (warp_sum(dot) / (float)d);
    if (lane_id() == 0) inverses[r] = inverse;
    for (int c = lane_id() * 8; c < d; c += 256) {
      int valid = min(d - c, 8);
      load8(v, x + at + c, valid, aligned), load8(g, dy + at + c, valid, aligned), load8(gain, w + c, valid, aligned);
      float old[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
      if (add) load8(old, dx + at + c, valid, aligned);
#pragma unroll
      for (int i = 0; i < 8; i++) g[i] = old[i] + inverse * (g[i] * (gain[i] + one) - v[i] * pull);
      store8(dx + at + c, g, valid, aligned);
    }
  }
  if (!partials) return;
  __syncthreads();
  for (int c = threadIdx.x; c < d; c += 256) {
    float sum = 0.0f, v[8], g[8];
    for (int r = 0; r < rows; r++) {
      size_t at = (size_t)(first + r) * d + c;
      load8(v, x + at, 1, false), load8(g, dy + at, 1, false);
      sum += g[0] * (v[0] * inverses[r]);
    }
    partials[(size_t)blockIdx.x * d + c] = sum;
  }
}
KERNEL(256) norm_stream_back(const float* x, const bf16* w, float one, const bf16* dy, int n, int d, float eps, int add,
                             float* dx, float* partials) {
  norm_row_back(x, w, one, dy, n, d, eps, add, dx, partials);
}
KERNEL(256) norm_act_back(const bf16* x, const bf16* w, float one, const bf16* dy, int n, int d, float eps, bf16* dx,
                          float* partials) {
  norm_row_back(x, w, one, dy, n, d, eps, false, dx, partials);
}
KERNEL(256) norm_onto_back(const bf16* x, const bf16* w, float one, const float* dy, int n, int d, float eps, bf16* dx,
                           float* partials) {
  norm_row_back(x, w, one, dy, n, d, eps, false, dx, partials);
}

// A head of up to 256 numbers: the pairs that are rotated, i and i + half, and the rest. Lane l has every 32nd of both.
#define MOST_PAIRS 4
#define MOST_REST 8
#define HEADS_OF_A_SUM 32
struct Turned { float a[MOST_PAIRS], b[MOST_PAIRS], c[MOST_REST]; };

// Calls `f` with the index of each number of a head that a lane has, and its place in `h`.
template <class F> INLINE void each_number(Turned& h, int half, int d, F f) {
#pragma unroll
  for (int j = 0; j < MOST_PAIRS; j++) {
    int i = lane_id() + 32 * j;
    if (i < half) f(i, h.a[j]), f(i + half, h.b[j]);
  }
#pragma unroll
  for (int j = 0; j < MOST_REST; j++) {
    int i = 2 * half + lane_id() + 32 * j;
    if (i < d) f(i, h.c[j]);
  }
}
INLINE void rotate_pairs(Turned& h, const float* cos, const float* sin, float sign, int half) {
#pragma unroll
  for (int j = 0; j < MOST_PAIRS; j++) {
    int i = lane_id() + 32 * j;
    if (i >= half) continue;
    float s = sign * sin[i], a = h.a[j], b = h.b[j];
    h.a[j] = a * cos[i] - b * s, h.b[j] = b * cos[i] + a * s;
  }
}

// Norm of each head with the gains w + one, if it has weights, and rotation of its first 2 half numbers, in place, by
// tables [positions, half]; a copy of what was there to `raw`, if that is not null. A warp a head.
KERNEL(256) turn_heads(bf16* x, const u32* positions, int n, int heads, int d, int half, const float* cos,
                       const float* sin, const bf16* w, float one, float eps, bf16* raw) {
  int i = blockIdx.x * WARPS + warp_id();
  if (i >= n * heads) return;
  size_t at = (size_t)i * d, of = (size_t)positions[i / heads] * half;
  Turned h;
  each_number(h, half, d, [&](int c, float& v) { v = from_bf16(x[at + c]); });
  if (raw) each_number(h, half, d, [&](int c, float& v) { raw[at + c] = to_bf16(v); });
  if (w) {
    float squares = 0.0f;
    each_number(h, half, d, [&](int, float& v) { squares += v * v; });
    float inverse = 1.0f / sqrtf(warp_sum(squares) / (float)d + eps);
    each_number(h, half, d, [&](int c, float& v) { v = (from_bf16(w[c]) + one) * (v * inverse); });
  }
  rotate_pairs(h, cos + of, sin + of, 1.0f, half);
  each_number(h, half, d, [&](int c, float& v) { x[at + c] = to_bf16(v); });
}

// Gradients of turn_heads of 32 heads: of x in place, and partial sums for the norm's weight.
KERNEL(256) turn_heads_back(bf16* dx, const u32* positions, int n, int heads, int d, int half, const float* cos,
                            const float* sin, const bf16* w, float one, float eps, const bf16* raw, float* partials) {
  __shared__ float products[HEADS_OF_A_SUM][256];
  int first = blockIdx.x * HEADS_OF_A_SUM, rows = min(n * heads - first, HEADS_OF_A_SUM);
  for (int r = warp_id(); r < rows; r += WARPS) {
    int i = first + r;
    size_t at = (size_t)i * d, of = (size_t)positions[i / heads] * half;
    Turned g;
    each_number(g, half, d, [&](int c, float& v) { v = from_bf16(dx[at + c]); });
    rotate_pairs(g, cos + of, sin + of, -1.0f, half);
    if (w) {
      float squares = 0.0f, dot = 0.0f;
      each_number(g, half, d, [&](int c, float& v) {
        float x = from_bf16(raw[at + c]);
        squares += x * x, dot += v * (from_bf16(w[c]) + one) * x;
      });
      float inverse = 1.0f / sqrtf(warp_sum(squares) / (float)d + eps);
      float pull = inverse * inverse * (warp_sum(dot) / (float)d);
      each_number(g, half, d, [&](int c, float& v) {
        float x = from_bf16(raw[at + c]);
        products[r][c] = v * (x * inverse);
        v = inverse * (v * (from_bf16(w[c]) + one) - x * pull);
      });
    }
    each_number(g, half, d, [&](int c, float& v) { dx[at + c] = to_bf16(v); });
  }
  if (!partials) return;
  __syncthreads();
  int c = threadIdx.x;
  if (c >= d) return;
  float sum = 0.0f;
  for (int r = 0; r < rows; r++) sum += products[r][c];
  partials[(size_t)blockIdx.x * d + c] = sum;
}

// Multiplies the queries [n, width] of each token by 1 + beta ln(1 + floor(position / original)).
KERNEL(256) scale_queries(bf16* q, const u32* positions, int n, int width, float beta, float original) {
  u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
  if (i >= (u64)n * width) return;
  float factor = 1.0f + beta * logf(1.0f + floorf((float)positions[i / width] / original));
  q[i] = to_bf16(from_bf16(q[i]) * factor);
}

// Copies `width` columns of n rows of x from column `from` on to those of y from column `to` on.
KERNEL(256) copy_columns(const bf16* x, u64 n, int width, int stride_x, int from, bf16* y, int stride_y, int to) {
  u64 i = (u64)blockIdx.x * 256 + threadIdx.x, row = i / width, c = i % width;
  if (row < n) y[row * stride_y + to + c] = x[row * stride_x + from + c];
}

// GELU of x, approximated with tanh, and its derivative.
struct Gelu { float value, slope; };
INLINE Gelu gelu(float x) {
  const float root = 0.797884560802865356f, cubic = 0.044715f;
  float t = tanhf(root * (x + cubic * x * x * x));
  return {0.5f * x * (1.0f + t), 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * root * (1.0f + 3.0f * cubic * x * x)};
}
// GeGLU: act = gelu(gate) up. Memory: 6 bytes an element; its gradients 10, 2 with `act`, which may be dact.
KERNEL(256) geglu(const bf16* gate, const bf16* up, u64 n, bf16* act) {
  each_of(n, [&](u64 i) { act[i] = to_bf16(gelu(from_bf16(gate[i])).value * from_bf16(up[i])); });
}
KERNEL(256) geglu_back(const bf16* gate, const bf16* up, const bf16* dact, u64 n, bf16* dgate, bf16* dup) {
  each_of(n, [&](u64 i) {
    float d = from_bf16(dact[i]), u = from_bf16(up[i]);
    Gelu g = gelu(from_bf16(gate[i]));
    dgate[i] = to_bf16(d * u * g.slope), dup[i] = to_bf16(d * g.value);
  });
}

// Activations times the sigmoid of gates, and its gradients. Memory: 6 and 10 bytes an element.
KERNEL(256) apply_gate(const bf16* x, const bf16* gate, u64 n, bf16* y) {
  each_of(n, [&](u64 i) { y[i] = to_bf16(from_bf16(x[i]) * sigmoid(from_bf16(gate[i]))); });
}
KERNEL(256) apply_gate_back(const bf16* x, const bf16* gate, const bf16* dy, u64 n, bf16* dx, bf16* dgate) {
  each_of(n, [&](u64 i) {
    float s = sigmoid(from_bf16(gate[i])), d = from_bf16(dy[i]);
    dx[i] = to_bf16(d * s), dgate[i] = to_bf16(d * from_bf16(x[i]) * s * (1.0f - s));
  });
}
// Products of activations, and SiLU with its gradient in place. Memory: 6 bytes an element.
KERNEL(256) multiply(const bf16* a, const bf16* b, u64 n, bf16* y) {
  each_of(n, [&](u64 i) { y[i] = to_bf16(from_bf16(a[i]) * from_bf16(b[i])); });
}
KERNEL(256) silu(const bf16* x, u64 n, bf16* y) {
  each_of(n, [&](u64 i) {
    float v = from_bf16(x[i]);
    y[i] = to_bf16(v * sigmoid(v));
  });
}
KERNEL(256) silu_back(const bf16* x, u64 n, bf16* dy) {
  each_of(n, [&](u64 i) {
    float v = from_bf16(x[i]), s = sigmoid(v);
    dy[i] = to_bf16(from_bf16(dy[i]) * (s * (1.0f + v * (1.0f - s))));
  });
}

// A residual stream times a factor, and its sum with activations; y may be `onto`.
KERNEL(256) scale_stream(float* x, u64 n, float by) {
  each_of(n, [&](u64 i) { x[i] *= by; });
}
KERNEL(256) sum_onto(const float* onto, const bf16* x, u64 n, float* y) {
  each_of(n, [&](u64 i) { y[i] = onto[i] + from_bf16(x[i]); });
}

// Bounds logits in place: cap tanh(x / cap). The gradients of bounded ones are those of the others after the second.
KERNEL(256) cap_logits(float* x, u64 n, float cap) {
  each_of(n, [&](u64 i) { x[i] = cap * tanhf(x[i] / cap); });
}
KERNEL(256) cap_logits_back(const float* capped, u64 n, float cap, bf16* dx) {
  each_of(n, [&](u64 i) {
    float t = capped[i] / cap;
    dx[i] = to_bf16(from_bf16(dx[i]) * (1.0f - t * t));
  });
}
