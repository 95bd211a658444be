//! Checks of an estimator: its kernel at the start of a run, its advantages in every step.

#[cfg(feature = "cuda")]
use maverl_kernels::cuda::{CudaError, nvrtc};

#[cfg(feature = "cuda")]
use crate::config::AdvantagePlan;
#[cfg(feature = "cuda")]
use crate::credit::KernelSource;
use crate::plan::Plan;
use crate::registry::Registry;
use crate::run_dir::{SampleRecord, StepSamples};
use crate::train::error::TrainError;
use crate::trajectory::Episode;

/// Architecture that kernels of estimators are compiled for: the oldest that is tested.
#[cfg(feature = "cuda")]
const ARCH: &str = "sm_80";

/// Compiles the CUDA C++ kernel of the plan's declared estimator, if it has one, and discards the machine code: a kernel that
/// does not compile is found before the first step. Returns a note if there is no NVRTC to compile it.
#[cfg(feature = "cuda")]
pub(super) fn compile(plan: &Plan, registry: &Registry) -> Result<Option<String>, TrainError> {
    let AdvantagePlan::Declared(declared) = &plan.algorithm.advantage else { return Ok(None) };
    let (name, settings) = (&declared.chosen.name, &declared.chosen.options);
    let kernel = registry.advantages.get(name.as_str()).and_then(|entry| entry.kernel);
    kernel.map_or(Ok(None), |kernel| compile_kernel(name, settings, kernel))
}

#[cfg(feature = "cuda")]
fn compile_kernel(
    name: &str,
    settings: &serde_json::Value,
    kernel: KernelSource,
) -> Result<Option<String>, TrainError> {
    let file = kernel.file;
    match nvrtc::compile_source(file, &kernel.whole(settings), ARCH) {
        Ok(_) => Ok(None),
        Err(CudaError::Compile { arch, why: log }) => {
            Err(TrainError::Kernel { estimator: name.to_owned(), file, arch, log })
        }
        Err(error) => Ok(Some(format!("the kernel `{file}` of `{name}` is not compiled: {error}"))),
    }
}

/// Compiles nothing: this build has no NVRTC.
#[cfg(not(feature = "cuda"))]
pub(super) fn compile(_: &Plan, _: &Registry) -> Result<Option<String>, TrainError> {
    Ok(None)
}

/// Fails if an advantage of a step is no finite number, or none of `f32`, in which updates are computed. The number of
/// advantages is right by construction: an estimator fills a slice.
pub(super) fn check(
    step: u64,
    episodes: &[Episode],
    record: &StepSamples,
) -> Result<(), TrainError> {
    // The mean over the tokens of a turn is finite only if all of them are. Whitening spreads what is not over all rows.
    let given = |sample: &SampleRecord| sample.unwhitened.unwrap_or(sample.advantage);
    let wrong = |sample: &SampleRecord| !(given(sample) as f32).is_finite();
    let Some(row) = record.samples.iter().position(wrong) else { return Ok(()) };
    let sample = &record.samples[row];
    let episode = &episodes[sample.episode];
    let turn = &episode.turns[sample.turn];
    Err(TrainError::NotFinite {
        estimator: record.estimator.estimator.clone(),
        step: step + 1,
        row: format!(
            "row {} of {} (task `{}`, episode {}, turn {} of `{}`)",
            row + 1,
            record.samples.len(),
            episode.task.id,
            episode.index,
            turn.path,
            turn.seat
        ),
        found: given(sample),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::{episode, plan, turn};
    use crate::train::batches::{StepPlan, advantages, samples};
    use crate::train::critic::ValuePredictions;
    use crate::train::state::AlgorithmState;

    /// Checks the advantages of two tasks with two episodes each; `reward` is that of the last.
    fn checked(plan: &Plan, reward: f64) -> Result<(), TrainError> {
        let one = |task, index, reward| episode(task, index, reward, vec![turn("t/a", 0)]);
        let episodes = [one("p", 0, 0.0), one("p", 1, 1.0), one("q", 0, 1.0), one("q", 1, reward)];
        let at = StepPlan { plan, step: 4, rates: None };
        let rows = samples(&at, &episodes, &mut AlgorithmState::default()).unwrap().rows;
        let given = advantages(plan, &episodes, &rows, &ValuePredictions::default());
        check(at.step, &episodes, &given.record)
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn a_kernel_that_does_not_compile_is_an_error_with_estimator_file_line_and_log() {
        let settings = serde_json::json!({ "scale": 2.5 });
        let compile =
            |text| compile_kernel("t/wrong", &settings, KernelSource { file: "wrong.cu", text });
        let right = "ESTIMATOR(step, out) {\n u64 i = thread();\n \
                     if (i < step->rows) out[i] = settings::scale * step->rewards[i];\n}";
        if let Some(note) = compile(right).unwrap() {
            assert!(note.starts_with("the kernel `wrong.cu` of `t/wrong` is not compiled: "));
            return eprintln!("skipped: {note}");
        }
        let wrong = "ESTIMATOR(step, out) {\n out[0] = settings::absent;\n}";
        let error = compile(wrong).unwrap_err().to_string();
        let start = "the kernel `wrong.cu` of the estimator `t/wrong` does not compile for sm_80";
        assert!(error.starts_with(start), "{error}");
        assert!(error.contains("wrong.cu(2)") && error.contains("absent"), "{error}");
    }

    #[test]
    fn an_advantage_that_is_no_finite_number_is_an_error_with_estimator_step_and_row() {
        let mut plan = plan(&[("t/a", true)]);
        for whiten in [false, true] {
            plan.algorithm.whiten = whiten;
            checked(&plan, 0.0).unwrap();
            for wrong in [f64::NAN, f64::NEG_INFINITY] {
                let error = checked(&plan, wrong).unwrap_err().to_string();
                let start = "step 5: the estimator `group` gave NaN for row 3 of 4";
                assert!(error.starts_with(start), "{error}");
                assert!(error.contains("(task `q`, episode 0, turn 0 of `t/a`)"), "{error}");
            }
        }
    }
}
