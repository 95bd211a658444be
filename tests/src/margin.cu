// Mean reward of a seat on a task; false if it has no row there.
__device__ bool mean(const Rewarded* step, u32 task, u32 seat, double* mean) {
  double n = 0.0, sum = 0.0;
  for (u64 row = 0; row < step->rows; row++) {
    if (step->task[row] == task && step->seat[row] == seat) n += 1.0, sum += step->rewards[row];
  }
  *mean = sum / n;
  return n > 0.0;
}

ESTIMATOR(step, out) {
  u64 row = thread();
  if (row >= step->rows) return;
  bool found = false;
  double best = 0.0, other = 0.0;
  for (u64 i = 0; i < step->rows; i++) {
    if (step->seat[i] == step->seat[row] || !mean(step, step->task[row], step->seat[i], &other)) continue;
    best = found ? fmax(best, other) : other;
    found = true;
  }
  out[row] = found ? (float)(settings::scale * (step->rewards[row] - best)) : 0.0f;
}
