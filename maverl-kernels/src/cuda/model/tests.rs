//! The kernels of a model run as C++ on the CPU, in every order of threads and with both times of copies.
#![allow(clippy::unwrap_used)]

mod attention;
mod elementwise;
mod head;
mod mutants;
mod products;
mod softmax;

use std::sync::OnceLock;

use super::MODEL;
use crate::cuda::{Emulated, Kernels, from_bf16, to_bf16};
use crate::emulate::{EmulateError, Library, Settings};
use crate::testing::random;

/// A module's C++ build; none without a C++ compiler.
fn emulated(name: &str) -> Option<Kernels<Emulated>> {
    emulated_all(&[name])
}

/// C++ builds of modules, each made once; none without a C++ compiler.
fn emulated_all(names: &[&str]) -> Option<Kernels<Emulated>> {
    static LIBRARIES: [OnceLock<Option<Library>>; MODEL.len()] =
        [const { OnceLock::new() }; MODEL.len()];
    let build = |name: &&str| {
        let at = MODEL.iter().position(|module| module.name == *name).unwrap();
        let library = LIBRARIES[at].get_or_init(|| {
            match Library::build(&MODEL[at].text(), MODEL[at].kernels) {
                Ok(library) => Some(library),
                Err(error @ EmulateError::NoCompiler(_)) => {
                    eprintln!("skipped: {error}");
                    None
                }
                Err(error) => panic!("{error}"),
            }
        });
        Some((MODEL[at], (*library)?))
    };
    let libraries = names.iter().map(build).collect::<Option<Vec<_>>>()?;
    Some(Kernels::new(Emulated::of(libraries)))
}

/// Runs `f` in every order of threads, with both times of copies. All give the same bits.
#[track_caller]
fn in_every_order<R: PartialEq + std::fmt::Debug>(
    kernels: &Kernels<Emulated>,
    mut f: impl FnMut(&Kernels<Emulated>) -> R,
) -> R {
    let mut first = None;
    for settings in Settings::all() {
        kernels.machine().set(settings);
        let result = f(kernels);
        let first = first.get_or_insert_with(|| f(kernels));
        assert!(*first == result, "other bits by {settings:?}");
    }
    kernels.machine().set(Settings::default());
    first.unwrap()
}

/// Random numbers that bf16 holds.
fn random_bf16(seed: u64, n: usize) -> Vec<u16> {
    to_bf16(&random(seed, n))
}

fn wide(x: &[u16]) -> Vec<f64> {
    from_bf16(x).into_iter().map(f64::from).collect()
}

/// Asserts that the difference is at most `tolerance` of the reference, by their Euclidean norms.
#[track_caller]
fn near(name: &str, got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{name}");
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let apart = norm(&mut got.iter().zip(want).map(|(&got, want)| f64::from(got) - want));
    let size = norm(&mut want.iter().copied());
    let fine = apart <= tolerance * size.max(1e-30) || apart == 0.0;
    assert!(
        fine,
        "{name}: differs by {apart:e} of {size:e}: {:?}, not {:?}",
        &got[..got.len().min(8)],
        &want[..want.len().min(8)]
    );
}

/// Asserts that numbers are the reference rounded to bf16, up to errors of f32 before the rounding.
#[track_caller]
fn near_bf16(name: &str, got: &[u16], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{name}");
    let size = want.iter().fold(0.0_f64, |size, x| size.max(x.abs()));
    for (i, (got, want)) in from_bf16(got).into_iter().zip(want).enumerate() {
        let most = want.abs() / 256.0 + 1e-6 * size;
        assert!((f64::from(got) - want).abs() <= most, "{name}, {i}: {got}, not {want}");
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}
