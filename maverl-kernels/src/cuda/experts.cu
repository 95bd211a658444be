// Rows of experts: the choices of tokens, sorted by expert and token. Row r is of token tokens[r]; choice i of token t is
// row rows[t k + i], by rising expert. Numbers and sums are as in elementwise.cu.

// Copies the token of each row, times the weight of the row, if there are weights. A warp a row. Memory: 4 d bytes a row.
KERNEL(256) gather_choices(const bf16* x, const u32* tokens, const float* weights, int rows, int d, bf16* y) {
  int row = blockIdx.x * WARPS + warp_id();
  if (row >= rows) return;
  const bf16* from = x + (size_t)tokens[row] * d;
  float weight = weights ? weights[row] : 1.0f, v[8];
  for (int c = lane_id() * 8; c < d; c += 256) {
    int valid = min(d - c, 8);
    load8(v, from + c, valid, d % 8 == 0);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] *= weight;
    store8(y + (size_t)row * d + c, v, valid, d % 8 == 0);
  }
}

// Sums the rows of each token, times the weights of the choices, if there are weights, by rising expert. A warp a token.
// Memory: 2 d bytes a row, 4 d a token.
KERNEL(256) sum_choices(const bf16* x, const u32* rows, const float* weights, int n, int k, int d, float* y) {
  int token = blockIdx.x * WARPS + warp_id();
  if (token >= n) return;
  for (int c = lane_id() * 8; c < d; c += 256) {
    int valid = min(d - c, 8);
    float sum[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}, v[8];
    for (int i = token * k; i < token * k + k; i++) {
      float weight = weights ? weights[i] : 1.0f;
      load8(v, x + (size_t)rows[i] * d + c, valid, d % 8 == 0);
#pragma unroll
      for (int j = 0; j < 8; j++) sum[j] += weight * v[j];
    }
    store8(y + (size_t)token * d + c, sum, valid, d % 8 == 0);
  }
}

// Product of each choice's row and the gradient of its token: the gradient of its weight. A warp a choice.
KERNEL(256) multiply_choices(const bf16* dy, const bf16* x, const u32* rows, int choices, int k, int d, float* out) {
  int i = blockIdx.x * WARPS + warp_id();
  if (i >= choices) return;
  const bf16 *a = dy + (size_t)(i / k) * d, *b = x + (size_t)rows[i] * d;
  float sum = 0.0f;
  for (int c = lane_id(); c < d; c += 32) sum += from_bf16(a[c]) * from_bf16(b[c]);
  sum = warp_sum(sum);
  if (lane_id() == 0) out[i] = sum;
}

// Gate with bounds: (u + 1) g sigmoid(alpha g), g at most `limit`, u within it; gradients beyond a bound are zero.
KERNEL(256) clamped_gate(const bf16* gate, const bf16* up, u64 n, float alpha, float limit, bf16* act) {
  each_of(n, [&](u64 i) {
    float g = fminf(from_bf16(gate[i]), limit), u = fmaxf(fminf(from_bf16(up[i]), limit), -limit);
    act[i] = to_bf16((u + 1.0f) * g * sigmoid(alpha * g));
  });
}
KERNEL(256) clamped_gate_back(const bf16* gate, const bf16* up, const bf16* dact, u64 n, float alpha, float limit,
                              bf16* dgate, bf16* dup) {
  each_of(n, [&](u64 i) {
    float g = from_bf16(gate[i]), u = from_bf16(up[i]), d = from_bf16(dact[i]);
    bool of_gate = g <= limit, of_up = u <= limit && u >= -limit;
    g = fminf(g, limit), u = fmaxf(fminf(u, limit), -limit);
    float s = sigmoid(alpha * g);
    dgate[i] = of_gate ? to_bf16(d * (u + 1.0f) * s * (1.0f + alpha * g * (1.0f - s))) : to_bf16(0.0f);
    dup[i] = of_up ? to_bf16(d * g * s) : to_bf16(0.0f);
  });
}

// Adds rows times the sigmoid of a gate of each, and the gradients of that: dx is set. A warp a row.
KERNEL(256) add_gated_rows(const bf16* x, const bf16* gates, int n, int d, float* y) {
  int row = blockIdx.x * WARPS + warp_id();
  if (row >= n) return;
  float s = sigmoid(from_bf16(gates[row]));
  for (int c = lane_id(); c < d; c += 32) y[(size_t)row * d + c] += s * from_bf16(x[(size_t)row * d + c]);
}
KERNEL(256) gated_rows_back(const bf16* x, const bf16* gates, const bf16* dy, int n, int d, bf16* dx, bf16* dgates) {
  int row = blockIdx.x * WARPS + warp_id();
  if (row >= n) return;
  float s = sigmoid(from_bf16(gates[row])), sum = 0.0f;
  for (int c = lane_id(); c < d; c += 32) {
    size_t at = (size_t)row * d + c;
    float g = from_bf16(dy[at]);
    dx[at] = to_bf16(s * g), sum += g * from_bf16(x[at]);
  }
  sum = warp_sum(sum);
  if (lane_id() == 0) dgates[row] = to_bf16(sum * s * (1.0f - s));
}
