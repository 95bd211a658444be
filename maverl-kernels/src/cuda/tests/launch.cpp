// The kernels as plain C++, launchable by name with the arguments of cuLaunchKernel.
#include "cuda_on_cpu.h"
#include "../advantage.cu"

COC_KERNEL(moments_f32);
COC_KERNEL(moments_f64);
COC_KERNEL(means);
COC_KERNEL(merge);
COC_KERNEL(relative_groups);
COC_KERNEL(relative_rows);
COC_KERNEL(whiten_rows);
COC_KERNEL(ema_rows);
COC_KERNEL(ema_move);
COC_KERNEL(gae);

extern "C" int coc_launch(const char* name, unsigned blocks, unsigned threads, void** args) {
  auto it = coc::table().find(name);
  if (it == coc::table().end()) return 1;
  it->second(dim3(blocks), dim3(threads), 0, args);
  return 0;
}

extern "C" void coc_order(const char* order) { coc::order() = order; }
