//! The kernels of a model run as C++ on the CPU, in every order of threads and with both times of copies, and on a GPU if
//! there is one. `maverl device check` runs the same checks on a device.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods)] // references are computed by the functions of the C library
#![cfg_attr(
    not(test),
    allow(dead_code, unused_imports, reason = "tests have more than the checks")
)]

mod attention;
mod elementwise;
mod head;
mod library;
#[cfg(test)]
mod mutants;
mod products;
mod rows;
mod softmax;

use std::sync::OnceLock;

use super::{LaunchShape, MODEL};
use crate::cuda::array::Arg;
use crate::cuda::{Driver, Emulated, Gpu, Kernels, Machine, from_bf16, to_bf16};
use crate::emulate::{EmulateError, KernelLibrary, ThreadSchedule};
use crate::testing::random;

/// A machine that the tests run on.
pub trait Tested: Machine<Error: std::fmt::Debug> + Clone {
    /// Sets the order of threads and the time of copies, where a machine has a choice.
    fn settings(&self, settings: ThreadSchedule);
}

impl Tested for Emulated {
    fn settings(&self, settings: ThreadSchedule) {
        self.apply_settings(settings);
    }
}

impl Tested for Driver {
    fn settings(&self, _: ThreadSchedule) {}
}

/// A check of the kernels of a machine: it panics where they are wrong.
pub struct Check<M: Tested> {
    /// Name of the check, a sentence that is true when it passes.
    pub name: &'static str,
    /// Modules that it launches kernels of.
    pub modules: &'static [&'static str],
    /// The check.
    pub run: fn(&Kernels<M>),
}

/// Declares tests of modules: one each on the emulated machine, and one of all on a GPU.
macro_rules! tests {
    ($($family:ident of $modules:expr => $names:tt;)*) => {
        /// Returns the checks of the kernels of a machine.
        pub fn checks<M: Tested>() -> Vec<Check<M>> {
            let families = [$(tests!(list $family $modules => $names)),*];
            families.into_iter().flatten().collect()
        }

        #[cfg(test)]
        mod emulated {
            $(mod $family { tests!(emulated $family $modules => $names); })*
        }

        #[test]
        fn the_gpu_passes_the_tests_of_the_emulated_machine() {
            match Gpu::with_modules(0, &MODEL) {
                Ok(gpu) => {
                    for check in checks() {
                        println!("{}", check.name);
                        (check.run)(&gpu);
                    }
                }
                Err(error) => eprintln!("skipped: {error}"),
            }
        }
    };
    (emulated $family:ident $modules:expr => [$($name:ident,)*]) => {
        $(
            #[test]
            fn $name() {
                if let Some(kernels) = super::super::emulated($modules) {
                    super::super::$family::$name(&kernels);
                }
            }
        )*
    };
    (list $family:ident $modules:expr => [$($name:ident,)*]) => {
        vec![$(Check { name: stringify!($name), modules: $modules, run: $family::$name }),*]
    };
}

tests! {
    elementwise of &["elementwise.cu"] => [
        the_norm_and_its_gradients_agree_with_f64_and_the_cpu,
        a_row_has_the_same_norm_alone_and_in_a_batch,
        rope_and_its_gradients_agree_with_f64_and_the_cpu,
        swiglu_and_its_gradients_agree_with_the_cpu,
        rows_of_a_table_are_copied_and_their_gradients_added_in_the_order_of_tokens,
        adamw_on_a_master_in_two_halves_has_the_bits_of_the_cpu,
        sums_over_arrays_agree_with_the_cpu,
        sums_in_order_have_the_bits_of_the_cpu,
    ];
    rows of &["elementwise.cu"] => [
        rows_are_selected_and_their_gradients_added_in_order,
        copies_leave_what_is_beside_them,
    ];
    products of &["products.cu"] => [
        every_form_of_a_product_agrees_with_f64,
        large_tiles_of_the_backward_products_agree_with_f64,
        a_row_has_the_same_bits_by_every_tile_with_pieces_apart_or_walked,
        outputs_have_their_scale_bias_adapter_rounding_and_sum,
        maps_of_one_input_have_the_bits_of_each_alone,
    ];
    library of &["products.cu"] => [
        backward_products_by_the_library_agree_with_f64_for_every_destination,
    ];
    attention of &["attention.cu"] => [
        attention_and_its_gradients_agree_with_f64_and_the_cpu,
        a_token_has_the_same_bits_packed_behind_a_prefix_in_chunks_and_decoded,
        a_row_has_the_same_bits_alone_and_in_any_order_of_a_batch,
        decoding_agrees_in_every_order,
        a_long_row_has_the_same_bits_decoded_over_several_spans,
        sequences_with_one_and_several_new_tokens_share_a_call,
    ];
    softmax of &["softmax.cu"] => [
        log_probabilities_and_their_derivatives_agree_with_f64_and_the_cpu,
        a_row_has_the_same_bits_in_training_and_sampling_alone_and_in_a_batch,
        draws_equal_those_of_the_cpu,
        the_lowest_of_equal_logits_is_the_greedy_one,
        logits_that_describe_no_distribution_are_errors_of_their_row,
        sampled_ids_take_their_places_before_the_host_reads_them,
    ];
    head of &["products.cu", "softmax.cu"] => [
        a_loss_of_the_head_agrees_with_the_cpu_and_does_not_depend_on_chunks,
    ];
}

/// C++ builds of modules, each made once; none without a C++ compiler.
fn emulated(names: &[&str]) -> Option<Kernels<Emulated>> {
    static LIBRARIES: [OnceLock<Option<KernelLibrary>>; MODEL.len()] =
        [const { OnceLock::new() }; MODEL.len()];
    let build = |name: &&str| {
        let at = MODEL.iter().position(|module| module.name == *name).unwrap();
        let library = LIBRARIES[at].get_or_init(|| {
            match KernelLibrary::build(&MODEL[at].source_text(), MODEL[at].kernels) {
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
    Some(Kernels::new(Emulated::from_libraries(libraries)))
}

/// Runs `f` in every order of threads, with both times of copies. All give the same bits.
#[track_caller]
fn in_every_order<M: Tested, R: PartialEq>(
    kernels: &Kernels<M>,
    mut f: impl FnMut(&Kernels<M>) -> R,
) -> R {
    let mut first = None;
    for settings in ThreadSchedule::every_schedule() {
        kernels.machine().settings(settings);
        let result = f(kernels);
        let first = first.get_or_insert_with(|| f(kernels));
        assert!(*first == result, "other bits by {settings:?}");
    }
    kernels.machine().settings(ThreadSchedule::default());
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

#[test]
fn a_kernel_that_writes_beside_an_array_is_an_error() {
    let Some(kernels) = emulated(&["elementwise.cu"]) else { return };
    let x = kernels.array_of(&random(1, 16)).unwrap();
    let y = kernels.new_array::<u16>(8).unwrap();
    let args = [x.as_slice().bits(), 9, y.as_slice().bits()];
    kernels.run_model_kernel("round_to_bf16", LaunchShape::of_threads(2), &args).unwrap();
    let error = kernels.read_array(&y).unwrap_err().to_string();
    assert!(error.contains("a kernel writes beside an array of 8 elements"), "{error}");
}
