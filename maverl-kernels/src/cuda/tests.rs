//! The kernels compiled by NVRTC where it is there, and run: as plain C++ on the CPU, and on a GPU where there is one.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::cell::UnsafeCell;
use std::convert::Infallible;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use super::*;
use crate::advantage::estimate_tests::parity::agrees_with_the_cpu;
use crate::advantage::{Baseline, Estimate, Grouping, Relative, Singleton};
use crate::testing::{random, same_bits};

type Launch = unsafe extern "C" fn(*const c_char, c_uint, c_uint, *mut *mut c_void) -> c_int;
type Order = unsafe extern "C" fn(*const c_char);

/// The kernels as plain C++: every CUDA thread is a fiber, barriers and shuffles are meetings of them.
#[derive(Clone, Copy)]
struct Emulated {
    launch: Launch,
}

/// Memory that kernels write to.
struct Memory<T>(Box<[UnsafeCell<T>]>);

impl Machine for Emulated {
    type Error = Infallible;
    type Array<T: Element> = Memory<T>;

    fn upload<T: Element>(&self, host: &[T]) -> Result<Memory<T>, Infallible> {
        Ok(Memory(host.iter().map(|&x| UnsafeCell::new(x)).collect()))
    }

    fn space<T: Element>(&self, n: usize) -> Result<Memory<T>, Infallible> {
        let memory: Memory<T> = Memory((0..n).map(|_| UnsafeCell::new(T::default())).collect());
        // SAFETY: any bits are an element. These are no number, so that what is read before it is written shows.
        unsafe { std::ptr::write_bytes(memory.0.as_ptr().cast_mut().cast::<T>(), 0xff, n) };
        Ok(memory)
    }

    fn download<T: Element>(&self, array: &Memory<T>, n: usize) -> Result<Vec<T>, Infallible> {
        // SAFETY: launches have returned, so nobody writes.
        Ok(array.0[..n].iter().map(|x| unsafe { *x.get() }).collect())
    }

    fn address<T: Element>(&self, array: &Memory<T>) -> u64 {
        array.0.as_ptr() as u64
    }

    unsafe fn launch(
        &self,
        kernel: &'static str,
        blocks: u32,
        args: &[u64],
    ) -> Result<(), Infallible> {
        let name = CString::new(kernel).unwrap();
        let mut args: Vec<*mut c_void> =
            args.iter().map(|arg| std::ptr::from_ref(arg).cast_mut().cast()).collect();
        // SAFETY: the caller's promise.
        let found = unsafe { (self.launch)(name.as_ptr(), blocks, BLOCK, args.as_mut_ptr()) };
        assert_eq!(found, 0, "no kernel {kernel}");
        Ok(())
    }
}

/// The kernels' C++ build, and what sets the order of its threads; made once, none without a C++ compiler.
fn emulated() -> Option<(Kernels<Emulated>, Order)> {
    static LIBRARY: OnceLock<Option<(Emulated, Order)>> = OnceLock::new();
    let (machine, order) = (*LIBRARY.get_or_init(build))?;
    Some((Kernels::new(machine), order))
}

fn build() -> Option<(Emulated, Order)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cuda/tests/launch.cpp");
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("kernels.so");
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let flags = ["-std=c++17", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-o"];
    let run = Command::new(&compiler).args(flags).arg(&library).arg(&source).output();
    let Ok(run) = run else {
        eprintln!("skipped: no C++ compiler {compiler:?}");
        return None;
    };
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let path = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the library is ours, stays open, and these functions have these types in launch.cpp.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null(), "the library opens");
        let [launch, order] =
            [c"coc_launch", c"coc_order"].map(|name| libc::dlsym(handle, name.as_ptr()));
        assert!(!launch.is_null() && !order.is_null(), "the library has both functions");
        let machine = Emulated { launch: std::mem::transmute::<*mut c_void, Launch>(launch) };
        Some((machine, std::mem::transmute::<*mut c_void, Order>(order)))
    }
}

#[test]
fn the_kernels_agree_with_the_cpu_in_every_order_of_threads() {
    let Some((kernels, set)) = emulated() else { return };
    for order in [c"forward", c"reverse", c"lockstep", c"shuffle:7"] {
        // SAFETY: a string that ends in zero.
        unsafe { set(order.as_ptr()) };
        agrees_with_the_cpu(&kernels);
    }
}

#[test]
fn a_group_has_the_same_bits_by_every_way_to_compute_it() {
    let Some((kernels, _)) = emulated() else { return };
    let options = Relative {
        baseline: Baseline::Mean,
        normalize_std: true,
        eps: 1e-6,
        singleton: Singleton::Zero,
    };
    let values = random(3, 900);
    let of = |values: &[f32], group: &[usize]| {
        kernels.relative(values, &Grouping::rows(group), &options).unwrap()
    };
    // Alone it is computed in one kernel; beside a group of several pieces in three.
    let alone = of(&values[..100], &[0; 100]);
    let group: Vec<usize> = (0..900).map(|row| usize::from(row >= 100)).collect();
    same_bits(&of(&values, &group)[..100], &alone);
    // Among others, with its rows apart.
    let apart: Vec<f32> = (0..900).map(|row| values[row / 9 + row % 9 * 100]).collect();
    let group: Vec<usize> = (0..900).map(|row| row % 9).collect();
    let together: Vec<f32> = of(&apart, &group).into_iter().step_by(9).collect();
    same_bits(&together, &alone);
}

#[test]
fn every_kernel_compiles_for_every_architecture() {
    if let Err(missing) = nvrtc::load() {
        assert!(std::env::var_os("MAVERL_REQUIRE_NVRTC").is_none(), "{missing}");
        eprintln!("skipped: {missing}");
        return;
    }
    for arch in ["sm_80", "sm_90", "sm_100"] {
        let code = nvrtc::compile(arch).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(&code[..4], b"\x7fELF", "{arch}");
        let has = |name: &str| {
            let section = format!(".text.{name}\0");
            code.windows(section.len()).any(|part| part == section.as_bytes())
        };
        assert!(NAMES.iter().all(|name| has(name)), "{arch} lacks one of {NAMES:?}");
        println!("{arch}: {} bytes of machine code", code.len());
    }
}

#[test]
fn an_architecture_that_is_none_is_an_error_that_says_so() {
    if nvrtc::load().is_err() {
        eprintln!("skipped: no NVRTC");
        return;
    }
    let error = nvrtc::compile("sm_1").unwrap_err().to_string();
    assert!(error.starts_with("the kernels do not compile for sm_1: "), "{error}");
}

#[test]
fn the_gpu_agrees_with_the_cpu() {
    match Gpu::open(0) {
        Ok(gpu) => {
            agrees_with_the_cpu(&gpu);
        }
        Err(error) => eprintln!("skipped: {error}"),
    }
}
