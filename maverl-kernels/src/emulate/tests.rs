#![allow(clippy::unwrap_used)]

use std::sync::OnceLock;

use super::*;

/// Kernels with one property or mistake each.
const SOURCE: &str = r#"
#include "device_on_cpu.h"
#define KERNEL extern "C" __global__ void

KERNEL places(unsigned* out) {
  unsigned at = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  out[at * blockDim.x + threadIdx.x] = blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z + 1000 * threadIdx.x;
}
KERNEL unwritten(float* out) {
  __shared__ float here[4];
  SHARED_DYN(float, there);
  if (blockIdx.x == 0) here[threadIdx.x] = there[threadIdx.x] = 1.0f;
  out[blockIdx.x * 8 + threadIdx.x] = here[threadIdx.x];
  out[blockIdx.x * 8 + 4 + threadIdx.x] = there[threadIdx.x];
}
KERNEL waits_forever() { if (threadIdx.x < 32 || threadIdx.x > 40) __syncthreads(); else __syncwarp(); }
KERNEL meets_in_two_places() {
  unsigned r[1][4], at[1] = {0};
  if (threadIdx.x < 16) __syncwarp(); else ldmatrix(r, at);
}
KERNEL writes_outside() { SHARED_DYN(char, shared); shared[64] = 1; }
KERNEL copies_askew(const char* from) { cp_async16(0, from + 4, 16); }
KERNEL copies_outside(const char* from) { cp_async16(64, from, 16); }
KERNEL does_not_wait(const float* from, float* to) {
  SHARED_DYN(float, shared);
  cp_async16(0, from, 16);
  cp_async_commit();
  to[0] = shared[0];
  cp_async_wait<0>();
  to[1] = shared[0];
}
"#;

const KERNELS: [&str; 8] = [
    "places",
    "unwritten",
    "waits_forever",
    "meets_in_two_places",
    "writes_outside",
    "copies_askew",
    "copies_outside",
    "does_not_wait",
];

fn library() -> Option<KernelLibrary> {
    static LIBRARY: OnceLock<Option<KernelLibrary>> = OnceLock::new();
    *LIBRARY.get_or_init(|| match KernelLibrary::build(SOURCE, &KERNELS) {
        Ok(library) => Some(library),
        Err(error @ EmulateError::NoCompiler(_)) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    })
}

/// Runs a kernel with 64 bytes of dynamic shared memory.
fn run(library: KernelLibrary, kernel: &str, grid: [u32; 3], threads: u32, args: &[u64]) -> String {
    // SAFETY: the kernels above have these arguments, and read and write arrays of the tests alone.
    match unsafe { library.launch_kernel(kernel, grid, threads, 64, args) } {
        Ok(()) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn blocks_have_their_places_on_three_axes() {
    let Some(library) = library() else { return };
    let mut out = vec![0_u32; 2 * 3 * 4 * 5];
    let args = [out.as_mut_ptr() as u64];
    assert_eq!(run(library, "places", [2, 3, 4], 5, &args), "");
    for (i, got) in (0_u32..).zip(out) {
        let (thread, block) = (i % 5, i / 5);
        let place = block % 2 + 10 * (block / 2 % 3) + 100 * (block / 6);
        assert_eq!(got, place + 1000 * thread);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn shared_memory_that_a_block_has_not_written_is_nan() {
    let Some(library) = library() else { return };
    let mut out = vec![0.0_f32; 16];
    assert_eq!(run(library, "unwritten", [2, 1, 1], 4, &[out.as_mut_ptr() as u64]), "");
    assert_eq!(out[..8], [1.0; 8]);
    assert!(out[8..].iter().all(|x| x.is_nan()), "{out:?}");
}

/// Ubuntu's GCC checks sizes by default. Without reordering, static shared memory lies behind the emulation's own variable.
#[test]
#[cfg(target_os = "linux")]
fn a_compiler_that_checks_sizes_and_keeps_the_order_of_variables_builds_kernels_that_run() {
    if library().is_none() {
        return;
    }
    let checks = ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3", "-fno-toplevel-reorder"];
    let dir = scratch_dir(&env::temp_dir()).unwrap();
    let built = compile_library(&dir, SOURCE, &KERNELS, &[&FLAGS[..], &checks].concat());
    let library = built.and_then(|library| open_library(&library)).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    let mut out = vec![0.0_f32; 16];
    assert_eq!(run(library, "unwritten", [2, 1, 1], 4, &[out.as_mut_ptr() as u64]), "");
    assert!(out[8..].iter().all(|x| x.is_nan()), "{out:?}");
}

#[test]
fn mistakes_of_a_kernel_are_errors_that_name_the_block() {
    let Some(library) = library() else { return };
    let from = [0_u128; 4];
    let from = from.as_ptr() as u64;
    for (kernel, args, what) in [
        ("waits_forever", vec![], "deadlock"),
        ("meets_in_two_places", vec![], "lanes of a warp meet in different operations"),
        ("writes_outside", vec![], "writes outside its dynamic shared memory"),
        ("copies_askew", vec![from], "cp.async: an address is not a multiple of 16"),
        ("copies_outside", vec![from], "cp.async: the target is outside shared memory"),
        ("nothing", vec![], "there is no such kernel"),
    ] {
        let error = run(library, kernel, [1, 1, 1], 64, &args);
        assert!(error.contains(what), "{kernel}: {error}");
        assert!(error.contains("(block 0,0,0") || kernel == "nothing", "{kernel}: {error}");
        // The next launch is not affected.
        let mut out = [0_u32; 1];
        assert_eq!(run(library, "places", [1, 1, 1], 1, &[out.as_mut_ptr() as u64]), "");
    }
}

#[test]
fn copies_are_made_at_their_wait_or_at_once() {
    let Some(library) = library() else { return };
    let from = [5_u128; 1];
    for copies_at_once in [false, true] {
        library.apply_settings(ThreadSchedule { copies_at_once, ..ThreadSchedule::default() });
        let mut to = [0_u32; 2];
        let args = [from.as_ptr() as u64, to.as_mut_ptr() as u64];
        assert_eq!(run(library, "does_not_wait", [1, 1, 1], 1, &args), "");
        assert_eq!((to[0] == 5, to[1]), (copies_at_once, 5));
    }
    library.apply_settings(ThreadSchedule::default());
}

#[test]
fn atomics_on_floats_do_not_compile() {
    let source = "extern \"C\" __global__ void add(float* x) { atomicAdd(x, 1.0f); }";
    match KernelLibrary::build(source, &["add"]) {
        Err(EmulateError::NoCompiler(_)) => eprintln!("skipped: no C++ compiler"),
        Err(EmulateError::Compile(log)) => assert!(log.contains("atomics on integers alone")),
        other => panic!("{other:?}"),
    }
}
