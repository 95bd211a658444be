//! Assertions for the tests of crates that declare estimators.

use maverl_kernels::emulate::{EmulateError, Estimator, ORDERS};

pub use crate::credit::generated::generated_steps;
use crate::credit::{CudaKernel, KernelSource, PolicyToken, Surrogate, arrays, difference};

/// Asserts that a Rust estimator and its CUDA C++ kernel (`#[advantage(cuda = "..")]`) give the same advantages.
///
/// The kernel is built by a C++17 compiler (`CXX`, or `c++`) and run on the CPU, in several orders of its threads, on the
/// steps of [`generated_steps`]; no GPU is needed. Advantages may differ by 1e-5 of the largest of the step, as kernels
/// take and give `float`. Without a compiler it prints so, and passes.
///
/// A kernel is `ESTIMATOR(step, out) { ... }`. It sees `struct Rewarded`, the arrays of
/// [`Rewarded`](crate::credit::Rewarded), and numbers and booleans among the settings as constants of
/// `namespace settings`.
///
/// # Panics
///
/// If an advantage differs, is no number or was not written, or the kernel does not compile: with the step, the row and
/// both values, or the compiler's messages.
#[track_caller]
pub fn same_advantages<A: CudaKernel>(estimator: &A) {
    let source = KernelSource { file: A::FILE, text: A::SOURCE };
    let kernel = match Estimator::build(&source.whole_source(&estimator.settings())) {
        Ok(kernel) => kernel,
        Err(error @ EmulateError::NoCompiler(_)) => return eprintln!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    for (name, step) in generated_steps() {
        let want = step.estimate(estimator);
        for order in ORDERS {
            let got = kernel.run_step(&arrays(&step), want.len(), order);
            if let Some(difference) = difference(&got, &want) {
                panic!("{name}, threads {order}, {difference}");
            }
        }
    }
}

/// Asserts that the derivative of a surrogate is that of its loss, by central differences.
///
/// Log-ratios go from −1.5 to 1.5, advantages from −2 to 2. Points next to a kink, where the derivative jumps, are left out.
/// A surrogate whose gradient is on purpose another, as that of CISPO, fails.
///
/// # Panics
///
/// If a derivative differs by more than 1e-5: with the token and both values.
#[track_caller]
pub fn right_derivative(surrogate: &dyn Surrogate) {
    const H: f64 = 1e-6;
    for advantage in [-2.0, -0.5, 0.5, 2.0] {
        for step in -15..=15 {
            let at = |moved: f64| {
                let log_ratio = f64::from(step) / 10.0 + 0.013 + moved;
                surrogate.loss(&PolicyToken { logp: log_ratio - 2.0, log_ratio, advantage }).term
            };
            let (here, low, high) = (at(0.0), at(-H), at(H));
            let smooth = (high.grad - low.grad).abs() < 1e-3;
            let want = (high.value - low.value) / (2.0 * H);
            assert!(
                !smooth || (here.grad - want).abs() <= 1e-5 * want.abs().max(1.0),
                "advantage {advantage}, log-ratio {}: the derivative is {}, differences give {want}",
                f64::from(step) / 10.0 + 0.013,
                here.grad
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::loss::{BuiltinSurrogate, CpgdOptions, SapoOptions};
    use crate::credit::{Advantage, Clipped, Rewarded};

    /// Rewards times a factor, for each token; the kernel is right if `RIGHT`.
    struct Scaled<const RIGHT: bool>;

    impl<const RIGHT: bool> Advantage for Scaled<RIGHT> {
        fn estimate(&self, step: &Rewarded<'_>, out: &mut [f64]) {
            let mut first = 0;
            for (&reward, &length) in step.rewards.iter().zip(step.lengths) {
                out[first..first + length].fill(1.5 * reward);
                first += length;
            }
        }

        fn by_token(&self) -> bool {
            true
        }
    }

    impl<const RIGHT: bool> CudaKernel for Scaled<RIGHT> {
        const FILE: &'static str = "scaled.cu";
        const SOURCE: &'static str = "ESTIMATOR(step, out) {
            u64 row = thread();
            if (row >= step->rows) return;
            for (u32 t = step->token_begin[row]; t < step->token_begin[row + 1]; t++)
                out[t] = settings::factor * step->rewards[row];
        }";

        fn settings(&self) -> serde_json::Value {
            serde_json::json!({ "factor": if RIGHT { 1.5 } else { 1.25 }, "name": "left out" })
        }
    }

    #[test]
    fn a_kernel_that_agrees_passes() {
        same_advantages(&Scaled::<true>);
    }

    #[test]
    #[should_panic(expected = "one row, threads forward, place 0: the kernel gives")]
    fn a_kernel_that_differs_is_reported_with_the_step_and_the_place() {
        same_advantages(&Scaled::<false>);
        panic!(
            "one row, threads forward, place 0: the kernel gives the same, or there is no compiler"
        );
    }

    #[test]
    fn generated_steps_are_the_same_every_time_and_parts_add_up() {
        assert_eq!(generated_steps(), generated_steps());
        for (name, step) in generated_steps() {
            for row in 0..step.rewards.len() {
                let sum: f64 = step.parts.iter().map(|part| part.values[row]).sum();
                assert_eq!(sum, step.rewards[row], "{name}");
            }
        }
    }

    #[test]
    fn built_in_surrogates_have_the_derivatives_of_their_losses() {
        right_derivative(&BuiltinSurrogate::default());
        right_derivative(&BuiltinSurrogate::Sapo(SapoOptions::default()));
        right_derivative(&BuiltinSurrogate::Cpgd(CpgdOptions::default()));
    }

    #[test]
    #[should_panic(expected = "the derivative is 0, differences give")]
    fn a_wrong_derivative_is_reported() {
        struct Wrong;
        impl Surrogate for Wrong {
            fn loss(&self, token: &PolicyToken) -> Clipped {
                Clipped::free(-token.advantage * token.log_ratio, 0.0)
            }
        }
        right_derivative(&Wrong);
    }
}
