//! The kernels run as plain C++ on the CPU, and on a GPU if there is one. NVRTC compiles them where it is installed.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::nvrtc::Resources;
use super::*;
use crate::advantage::checks::agrees_with_the_cpu;
use crate::advantage::{Arithmetic, Baseline, Grouping, Relative, Singleton};
use crate::emulate::{EmulateError, KernelLibrary, ORDERS, ThreadSchedule};
use crate::testing::{random, same_bits};

/// Architectures that every kernel compiles for.
const ARCHITECTURES: [&str; 4] = ["sm_80", "sm_90", "sm_90a", "sm_100"];

/// The kernels' C++ build; made once, none without a C++ compiler.
fn emulated() -> Option<Kernels<Emulated>> {
    static LIBRARY: OnceLock<Option<KernelLibrary>> = OnceLock::new();
    let built = LIBRARY.get_or_init(|| {
        match KernelLibrary::build(&ADVANTAGES.source_text(), ADVANTAGES.kernels) {
            Ok(library) => Some(library),
            Err(error @ EmulateError::NoCompiler(_)) => {
                eprintln!("skipped: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    });
    built.map(|library| Kernels::new(Emulated::from_libraries(vec![(ADVANTAGES, library)])))
}

#[test]
fn the_kernels_agree_with_the_cpu_in_every_order_of_threads() {
    let Some(kernels) = emulated() else { return };
    for order in ORDERS {
        kernels.machine().apply_settings(ThreadSchedule { order, ..ThreadSchedule::default() });
        agrees_with_the_cpu(&kernels);
    }
}

#[test]
fn a_group_has_the_same_bits_by_every_way_to_compute_it() {
    let Some(kernels) = emulated() else { return };
    let options = Relative {
        baseline: Baseline::Mean,
        normalize_std: true,
        eps: 1e-6,
        singleton: Singleton::Zero,
    };
    let values: Vec<f64> = random(3, 900).into_iter().map(f64::from).collect();
    let of = |values: &[f64], group: &[usize]| -> Vec<f32> {
        let (found, _) = kernels
            .relative_advantages(values, &Grouping::from_row_groups(group), None, &options)
            .unwrap();
        found.into_iter().map(|advantage| advantage as f32).collect()
    };
    // Alone the group is computed in one kernel, beside a group of several pieces in three.
    let alone = of(&values[..100], &[0; 100]);
    let group: Vec<usize> = (0..900).map(|row| usize::from(row >= 100)).collect();
    same_bits(&of(&values, &group)[..100], &alone);
    // In a batch, with the rows of the group not contiguous.
    let apart: Vec<f64> = (0..900).map(|row| values[row / 9 + row % 9 * 100]).collect();
    let group: Vec<usize> = (0..900).map(|row| row % 9).collect();
    let together: Vec<f32> = of(&apart, &group).into_iter().step_by(9).collect();
    same_bits(&together, &alone);
}

/// Registers that a thread of each kernel may use, by name.
fn budget() -> BTreeMap<&'static str, u32> {
    let lines = include_str!("budget.toml").lines();
    let kernels = lines.filter_map(|line| line.split_once(" = "));
    kernels.map(|(kernel, registers)| (kernel, registers.parse().unwrap())).collect()
}

#[test]
fn every_kernel_has_a_budget_and_every_budget_a_kernel() {
    let modules = [ADVANTAGES].into_iter().chain(MODEL);
    let mut kernels: Vec<&str> = modules.flat_map(|module| module.kernels).copied().collect();
    let mut named: Vec<&str> = budget().into_keys().collect();
    kernels.sort_unstable();
    named.sort_unstable();
    assert_eq!(named, kernels);
}

#[test]
fn every_kernel_compiles_for_every_architecture_within_its_budget_without_spills() {
    if let Err(missing) = nvrtc::load_nvrtc() {
        assert!(std::env::var_os("MAVERL_REQUIRE_NVRTC").is_none(), "{missing}");
        eprintln!("skipped: {missing}");
        return;
    }
    let (budget, mut problems) = (budget(), Vec::new());
    for module in [ADVANTAGES].iter().chain(&MODEL) {
        for arch in ARCHITECTURES {
            let compiled =
                nvrtc::compile_module(module, arch).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(&compiled.code[..4], b"\x7fELF", "{arch}");
            let resources = compiled.resources();
            for &name in module.kernels {
                let place = format!("{name} for {arch}");
                match resources.iter().find(|of| of.kernel == name) {
                    None => problems.push(format!("{place} is not there")),
                    Some(Resources { registers, spilled, .. }) => {
                        println!("{place}: {registers} registers, {spilled} bytes spilled");
                        if *spilled > 0 || *registers > budget[name] {
                            problems
                                .push(format!("{place}: {registers} registers, {spilled} spilled"));
                        }
                    }
                }
            }
        }
    }
    assert!(problems.is_empty(), "over the budget: {problems:#?}");
}

#[test]
fn an_architecture_that_is_none_is_an_error_that_says_so() {
    if nvrtc::load_nvrtc().is_err() {
        eprintln!("skipped: no NVRTC");
        return;
    }
    let error = nvrtc::compile_module(&ADVANTAGES, "sm_1").unwrap_err().to_string();
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
