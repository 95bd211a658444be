// The gated delta rule (Yang et al., 2024, arXiv:2412.06464), of each value head:
//
//   S_t = α_t S_(t-1) + k_t u_tᵀ,   u_t = β_t (v_t - α_t S_(t-1)ᵀ k_t),   o_t = S_tᵀ q_t       S [key_dim, value_dim]
//
// A column of S depends on no other. A warp has 8 columns of a head, in registers: the four lanes l, l + 8, .. have column
// l, each every fourth row. It walks the tokens of a sequence: packed, behind a state and token by token a token has the
// same bits. Queries, keys and values are bf16, [n, width]: all queries, all keys, all values. Gates and states are f32.

#define KEYS 128           // largest key_dim
#define PARTS 4            // lanes of a column
#define ROWS (KEYS / PARTS)  // of a lane
#define COLUMNS (32 / PARTS)

struct DeltaShape {
  int keys, values, key_dim, value_dim;
  INLINE_MEMBER int tiles() const { return (value_dim + COLUMNS - 1) / COLUMNS; }
  INLINE_MEMBER int width() const { return 2 * keys * key_dim + values * value_dim; }
  INLINE_MEMBER int key_head(int head) const { return head * keys / values; }
  INLINE_MEMBER size_t state(int head) const { return (size_t)head * key_dim * value_dim; }
};
#define SHAPE_OF int keys, int values, int key_dim, int value_dim

// Factor of normalized queries, or of keys, by their index among both.
INLINE float key_factor(const DeltaShape& s, int index) { return index < s.keys ? 1.0f / sqrtf((float)s.key_dim) : 1.0f; }

// Normalizes queries and keys, x / sqrt(sum(x²) + 1e-6), queries also by the root of their width. A warp a head.
KERNEL(256) normalize_keys(const bf16* raw, int n, SHAPE_OF, bf16* y) {
  DeltaShape s = {keys, values, key_dim, value_dim};
  int i = blockIdx.x * WARPS + warp_id(), token = i / (2 * keys), index = i % (2 * keys);
  if (token >= n) return;
  size_t at = (size_t)token * s.width() + index * key_dim;
  float sum = 0.0f;
  for (int c = lane_id(); c < key_dim; c += 32) sum += from_bf16(raw[at + c]) * from_bf16(raw[at + c]);
  float by = key_factor(s, index) / sqrtf(warp_sum(sum) + 1e-6f);
  for (int c = lane_id(); c < key_dim; c += 32) y[at + c] = to_bf16(from_bf16(raw[at + c]) * by);
}
// Its gradients in place: dx = r (dy - y (y dy)). A warp a head.
KERNEL(256) normalize_keys_back(const bf16* raw, int n, SHAPE_OF, bf16* dy) {
  DeltaShape s = {keys, values, key_dim, value_dim};
  int i = blockIdx.x * WARPS + warp_id(), token = i / (2 * keys), index = i % (2 * keys);
  if (token >= n) return;
  size_t at = (size_t)token * s.width() + index * key_dim;
  float squares = 0.0f, dot = 0.0f;
  for (int c = lane_id(); c < key_dim; c += 32) {
    float x = from_bf16(raw[at + c]);
    squares += x * x, dot += x * from_bf16(dy[at + c]);
  }
  float square = 1.0f / (warp_sum(squares) + 1e-6f), along = warp_sum(dot) * square;
  float r = sqrtf(square) * key_factor(s, index);
  for (int c = lane_id(); c < key_dim; c += 32)
    dy[at + c] = to_bf16(r * (from_bf16(dy[at + c]) - from_bf16(raw[at + c]) * along));
}

INLINE float log_decay(float a, float a_log, float dt_bias) {
  float x = a + dt_bias;
  return -expf(a_log) * (x > 20.0f ? x : log1pf(expf(x)));
}
// Decay e^g, g = -e^a_log softplus(a + dt_bias), and beta, the sigmoid of b, [n, heads] each.
KERNEL(256) delta_gates(const bf16* a, const bf16* b, const bf16* a_log, const bf16* dt_bias, int n, int heads,
                        float* decay, float* beta) {
  int i = blockIdx.x * 256 + threadIdx.x, head = i % heads;
  if (i >= n * heads) return;
  decay[i] = expf(log_decay(from_bf16(a[i]), from_bf16(a_log[head]), from_bf16(dt_bias[head])));
  beta[i] = sigmoid(from_bf16(b[i]));
}
// Their gradients, and partial sums of 64 tokens for a_log and dt_bias, [heads] each. A thread a head of 64 tokens.
KERNEL(256) delta_gates_back(const bf16* a, const bf16* b, const bf16* a_log, const bf16* dt_bias, const float* dlog,
                             const float* dbeta, int n, int heads, bf16* da, bf16* db, float* log_sums, float* bias_sums) {
  int head = blockIdx.y * 256 + threadIdx.x, first = blockIdx.x * ROWS_OF_A_SUM, end = min(n, first + ROWS_OF_A_SUM);
  if (head >= heads) return;
  float rate = from_bf16(a_log[head]), bias = from_bf16(dt_bias[head]), of_log = 0.0f, of_bias = 0.0f;
  for (int t = first; t < end; t++) {
    size_t i = (size_t)t * heads + head;
    float x = from_bf16(a[i]), s = sigmoid(from_bf16(b[i])), d = -dlog[i] * expf(rate) * sigmoid(x + bias);
    of_log += dlog[i] * log_decay(x, rate, bias), of_bias += d;
    da[i] = to_bf16(d), db[i] = to_bf16(dbeta[i] * s * (1.0f - s));
  }
  log_sums[(size_t)blockIdx.x * heads + head] = of_log, bias_sums[(size_t)blockIdx.x * heads + head] = of_bias;
}

// Query and key of a token for a value head, in shared memory.
struct Pair { float q[KEYS], k[KEYS]; };
INLINE void load_pair(Pair& to, const bf16* mixed, int token, int head, const DeltaShape& s) {
  const bf16* q = mixed + (size_t)token * s.width() + s.key_head(head) * s.key_dim;
  const bf16* k = q + s.keys * s.key_dim;
  __syncwarp();
  for (int c = lane_id(); c < s.key_dim; c += 32) to.q[c] = from_bf16(q[c]), to.k[c] = from_bf16(k[c]);
  __syncwarp();
}

INLINE int part() { return lane_id() / COLUMNS; }
// Sum over the lanes of a column, in a fixed tree; all get the same bits.
INLINE float column_sum(float x) {
#pragma unroll
  for (int d = COLUMNS; d < 32; d *= 2) x += __shfl_xor_sync(ALL, x, d);
  return x;
}

// Rows of a column of a state [key_dim] of a head.
struct Column {
  float s[ROWS];
  // Calls `f` with each row and its number.
  template <class F> INLINE_MEMBER void each(int key_dim, F f) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      if (PARTS * r + part() < key_dim) f(PARTS * r + part(), s[r]);
  }
  INLINE_MEMBER void load(const float* from, const DeltaShape& of, bool there) {
    each(of.key_dim, [&](int row, float& x) { x = from && there ? from[(size_t)row * of.value_dim] : 0.0f; });
  }
  INLINE_MEMBER void store(float* to, const DeltaShape& of, bool there) {
    if (there) each(of.key_dim, [&](int row, float& x) { to[(size_t)row * of.value_dim] = x; });
  }
  // Advances the state by a token, and returns its result.
  INLINE_MEMBER float advance(const Pair& pair, int key_dim, float v, float decay, float beta) {
    float seen = 0.0f, out = 0.0f;
    each(key_dim, [&](int row, float& x) { seen += x * pair.k[row]; });
    float u = beta * (v - decay * column_sum(seen));
    each(key_dim, [&](int row, float& x) { x = decay * x + pair.k[row] * u, out += x * pair.q[row]; });
    return column_sum(out);
  }
};

// Place of a warp's lane: a value head, and a column of its values.
struct Lane { int head, column; bool there; };
INLINE Lane lane_of(int block, const DeltaShape& s) {
  int column = block % s.tiles() * COLUMNS + lane_id() % COLUMNS;
  return {block / s.tiles(), column, column < s.value_dim};
}
// Walks tokens from a state, and writes their results [n, values value_dim].
INLINE void walk_tokens(Column& state, Pair& pair, const bf16* mixed, const float* decay, const float* beta, int first,
                        int count, const Lane& at, const DeltaShape& s, bf16* out) {
  for (int token = first; token < first + count; token++) {
    load_pair(pair, mixed, token, at.head, s);
    size_t value = at.head * s.value_dim + at.column, gate = (size_t)token * s.values + at.head;
    float v = at.there ? from_bf16(mixed[(size_t)token * s.width() + 2 * s.keys * s.key_dim + value]) : 0.0f;
    float o = state.advance(pair, s.key_dim, v, decay[gate], beta[gate]);
    if (at.there && out && part() == 0) out[(size_t)token * s.values * s.value_dim + value] = to_bf16(o);
  }
}

// Tokens that follow each other, and the span before them on their path, or -1.
struct DeltaSpan { int first, count, before, unused; };

// Of packed tokens. Tree b has the spans trees[b]..trees[b + 1]; `states` gets the state after each span. A warp the
// columns of a head in a tree.
KERNEL(32) delta_rule(const bf16* mixed, const float* decay, const float* beta, const DeltaSpan* spans, const int* trees,
                      SHAPE_OF, float* states, bf16* out) {
  __shared__ Pair pair;
  DeltaShape s = {keys, values, key_dim, value_dim};
  Lane at = lane_of(blockIdx.y, s);
  const size_t all = s.state(values), own = s.state(at.head) + at.column;
  for (int i = trees[blockIdx.x]; i < trees[blockIdx.x + 1]; i++) {
    DeltaSpan span = spans[i];
    Column state;
    state.load(span.before < 0 ? 0 : states + span.before * all + own, s, at.there);
    walk_tokens(state, pair, mixed, decay, beta, span.first, span.count, at, s, out);
    state.store(states + i * all + own, s, at.there);
  }
}

// New tokens of a sequence: its first token, their number, its slot of states.
struct Sequence { int first, count, slot, unused; };
// Of new tokens behind the states of their sequences, which it advances.
KERNEL(32) delta_rule_cached(const bf16* mixed, const float* decay, const float* beta, const Sequence* sequences, SHAPE_OF,
                             float* states, u64 stride, bf16* out) {
  __shared__ Pair pair;
  DeltaShape s = {keys, values, key_dim, value_dim};
  Lane at = lane_of(blockIdx.y, s);
  Sequence of = sequences[blockIdx.x];
  float* own = states + (size_t)of.slot * stride + s.state(at.head) + at.column;
  Column state;
  state.load(own, s, at.there);
  walk_tokens(state, pair, mixed, decay, beta, of.first, of.count, at, s, out);
  state.store(own, s, at.there);
}

// Sums over columns of 32 rows, of which `number(row)` is that of a lane's column; lane l gets the sum of row l.
template <class Number> INLINE float sum_columns(float (&buffer)[32][COLUMNS + 1], Number number) {
  __syncwarp();
#pragma unroll
  for (int r = 0; r < COLUMNS; r++) buffer[PARTS * r + part()][lane_id() % COLUMNS] = number(PARTS * r + part(), r);
  __syncwarp();
  float sum = 0.0f;
  for (int column = 0; column < COLUMNS; column++) sum += buffer[lane_id()][column];
  return sum;
}

// Gradients of delta_rule by values, and with `first_tile` set, else added to, by queries and keys of each value head,
// [values, n, 2 key_dim], by log decays and by betas, [n, values]: of one tile of columns of each head. `passed` has the
// gradients of the states after each span from the spans behind it, zero at first. States within a span are computed
// again, to a place [span tokens, key_dim, 8] of each block. Blocks walk trees in steps of gridDim.x.
//
//   G += q doᵀ,  dq = S do,  du = Gᵀ k,  dk = G u - β α S' du,  G' = G - β k duᵀ,  dg = <α S', G'>,  G = α G'
#define SPAN_TOKENS 64
KERNEL(32) delta_rule_back(const bf16* mixed, const float* decay, const float* beta, const DeltaSpan* spans,
                           const int* trees, int tree_count, int tile, int first_tile, SHAPE_OF, int n,
                           const float* states, float* passed, float* scratch, const bf16* dout, bf16* dmixed,
                           float* dkeys, float* dlog, float* dbeta) {
  __shared__ Pair pair;
  __shared__ float buffer[32][COLUMNS + 1];
  DeltaShape s = {keys, values, key_dim, value_dim};
  const int head = blockIdx.y, lane = lane_id(), column = tile * COLUMNS + lane % COLUMNS;
  const Lane at = {head, column, column < value_dim};
  const size_t all = s.state(values), own = s.state(head) + column;
  float* kept = scratch + ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * SPAN_TOKENS * key_dim * COLUMNS + lane % COLUMNS;
  for (int tree = blockIdx.x; tree < tree_count; tree += gridDim.x)
    for (int i = trees[tree + 1] - 1; i >= trees[tree]; i--) {
      DeltaSpan span = spans[i];
      Column g;
      g.load(span.before < 0 ? 0 : states + span.before * all + own, s, at.there);
      for (int t = 0; t < span.count; t++) {
        float* to = kept + (size_t)t * key_dim * COLUMNS;
        g.each(key_dim, [&](int row, float& x) { to[row * COLUMNS] = x; });
        walk_tokens(g, pair, mixed, decay, beta, span.first + t, 1, at, s, 0);
      }
      g.load(passed + i * all + own, s, at.there);
      for (int t = span.count - 1; t >= 0; t--) {
        const int token = span.first + t;
        const float* before = kept + (size_t)t * key_dim * COLUMNS;
        load_pair(pair, mixed, token, head, s);
        const size_t value = head * value_dim + column, gate = (size_t)token * values + head;
        const size_t in_mixed = (size_t)token * s.width() + 2 * keys * key_dim + value;
        float v = at.there ? from_bf16(mixed[in_mixed]) : 0.0f, a = decay[gate], b = beta[gate];
        float d = at.there ? from_bf16(dout[(size_t)token * values * value_dim + value]) : 0.0f;
        float seen = 0.0f, du = 0.0f, dg = 0.0f;
        g.each(key_dim, [&](int row, float& x) {
          seen += before[row * COLUMNS] * pair.k[row];
          x += pair.q[row] * d, du += x * pair.k[row];
        });
        seen = column_sum(seen), du = column_sum(du);
        const float rest = v - a * seen, u = b * rest;
        float* to = dkeys + ((size_t)head * n + token) * 2 * key_dim;
#pragma unroll
        for (int c = 0; c < KEYS / 32; c++) {
          if (c * 32 >= key_dim) break;
          float q = sum_columns(buffer, [&](int place, int) {
            int row = c * 32 + place;
            return row < key_dim ? (a * before[row * COLUMNS] + pair.k[row] * u) * d : 0.0f;
          });
          float k = sum_columns(buffer, [&](int place, int r) {
            int row = c * 32 + place;
            return row < key_dim ? g.s[c * COLUMNS + r] * u - b * a * before[row * COLUMNS] * du : 0.0f;
          });
          int row = c * 32 + lane;
          if (row < key_dim) {
            to[row] = first_tile ? q : to[row] + q;
            to[key_dim + row] = first_tile ? k : to[key_dim + row] + k;
          }
        }
        g.each(key_dim, [&](int row, float& x) {
          x -= b * pair.k[row] * du, dg += a * before[row * COLUMNS] * x, x *= a;
        });
        if (at.there && part() == 0) dmixed[in_mixed] = to_bf16(b * du);
        // The lanes of a column have the same `du`.
        float of_decay = warp_sum(dg), of_beta = warp_sum(part() == 0 ? du * rest : 0.0f);
        if (lane == 0) {
          dlog[gate] = first_tile ? of_decay : dlog[gate] + of_decay;
          dbeta[gate] = first_tile ? of_beta : dbeta[gate] + of_beta;
        }
      }
      if (span.before < 0 || !at.there) continue;
      float* back = passed + span.before * all + own;
      g.each(key_dim, [&](int row, float& x) { back[(size_t)row * value_dim] += x; });
    }
}

// Adds the gradients of queries and keys of the value heads that share them, ascending. A thread a number.
KERNEL(256) delta_keys_back(const float* dkeys, int n, SHAPE_OF, bf16* dmixed) {
  DeltaShape s = {keys, values, key_dim, value_dim};
  u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
  int columns = 2 * keys * key_dim, c = (int)(i % columns), group = values / keys;
  u64 token = i / columns;
  if (token >= (u64)n) return;
  int key = c / key_dim % keys, row = c % key_dim + (c / key_dim >= keys ? key_dim : 0);
  float sum = 0.0f;
  for (int head = key * group; head < key * group + group; head++)
    sum += dkeys[((size_t)head * n + token) * 2 * key_dim + row];
  dmixed[token * s.width() + c] = to_bf16(sum);
}
