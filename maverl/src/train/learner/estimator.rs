//! Device on which a run computes advantages; checks of an estimator: its kernel at the start of a run, its advantages in every
//! step.

use std::collections::BTreeSet;

#[cfg(feature = "cuda")]
use maverl_kernels::cuda::{
    ADVANTAGES, CudaError, Emulated, Gpu, Kernels, Module, StepKernel, nvrtc,
};
#[cfg(feature = "cuda")]
use maverl_kernels::emulate::EmulateError;

use crate::config::AdvantagePlan;
#[cfg(feature = "cuda")]
use crate::config::Granularity;
use crate::credit::Estimators;
#[cfg(feature = "cuda")]
use crate::credit::{Advantage, KernelSource, difference, steps_of_a_run};
use crate::plan::Plan;
use crate::registry::Registry;
use crate::run_dir::StepSamples;
use crate::runtime::DeviceChoice;
use crate::train::error::TrainError;
use crate::trajectory::{Episode, RewardPart};

/// Architecture that kernels of estimators are compiled for where no device is open: the oldest that is tested.
#[cfg(feature = "cuda")]
const ARCH: &str = "sm_80";

/// Modules of the emulated device.
#[cfg(feature = "cuda")]
static MODULES: [Module; 1] = [ADVANTAGES];

/// Returns the place where a run computes advantages: the CPU, or the device of its models. The kernel of a declared
/// estimator is compiled for the device, and compared with its Rust function on generated steps.
#[cfg(feature = "cuda")]
pub(crate) fn open(
    plan: &Plan,
    registry: &Registry,
    device: DeviceChoice,
) -> Result<Estimators, TrainError> {
    if plan.algorithm.preset.is_supervised() {
        Ok(Estimators::default())
    } else {
        open_device(plan, device, declared_kernel(plan, registry).as_ref())
    }
}

/// Opens a device, with the kernel of a declared estimator if there is one.
#[cfg(feature = "cuda")]
fn open_device(
    plan: &Plan,
    device: DeviceChoice,
    declared: Option<&DeclaredEstimator<'_>>,
) -> Result<Estimators, TrainError> {
    let name = device.to_string();
    let failed = |reason: String| TrainError::Estimators { device: name.clone(), reason };
    let opened = match device {
        DeviceChoice::Emulated => {
            let machine = Emulated::shared_machine(&MODULES).map_err(failed)?;
            let opened = Estimators::on(name.clone(), Box::new(Kernels::new(machine)));
            let Some(declared) = declared else { return Ok(opened) };
            match StepKernel::build(&declared.text) {
                Ok(kernel) => opened.with_kernel(declared.file, Box::new(kernel)),
                Err(EmulateError::Compile(log)) => {
                    return Err(declared.compiler_error("the emulated device".to_owned(), log));
                }
                Err(error) => return Err(failed(error.to_string())),
            }
        }
        DeviceChoice::Cuda(number) => {
            let gpu = Gpu::open(number).map_err(|error| failed(error.to_string()))?;
            let opened = Estimators::on(name.clone(), Box::new(gpu.clone()));
            let Some(declared) = declared else { return Ok(opened) };
            match StepKernel::compile(&gpu, declared.file, &declared.text) {
                Ok(kernel) => opened.with_kernel(declared.file, Box::new(kernel)),
                Err(CudaError::Compile { arch, why }) => {
                    return Err(declared.compiler_error(arch, why));
                }
                Err(error) => return Err(failed(error.to_string())),
            }
        }
        _ => return Ok(Estimators::default()),
    };
    if let Some(declared) = declared {
        compare(plan, declared, &opened)?;
    }
    Ok(opened)
}

/// Returns the CPU: this build has no devices.
#[cfg(not(feature = "cuda"))]
pub(crate) fn open(_: &Plan, _: &Registry, _: DeviceChoice) -> Result<Estimators, TrainError> {
    Ok(Estimators::default())
}

/// Declared estimator of a plan, with its kernel.
#[cfg(feature = "cuda")]
struct DeclaredEstimator<'p> {
    name: &'p str,
    estimator: &'p dyn Advantage,
    file: &'static str,
    /// Source for compilers, with the settings of the plan.
    text: String,
}

#[cfg(feature = "cuda")]
impl DeclaredEstimator<'_> {
    /// Returns the error of a compiler.
    fn compiler_error(&self, arch: String, log: String) -> TrainError {
        TrainError::Kernel { estimator: self.name.to_owned(), file: self.file, arch, log }
    }
}

/// Returns the declared estimator of a plan, if it has a kernel.
#[cfg(feature = "cuda")]
fn declared_kernel<'p>(plan: &'p Plan, registry: &Registry) -> Option<DeclaredEstimator<'p>> {
    let AdvantagePlan::Declared(declared) = &plan.algorithm.advantage else { return None };
    let (name, settings) = (declared.chosen.name.as_str(), &declared.chosen.options);
    let kernel = registry.advantages.get(name)?.kernel?;
    let (estimator, text) = (&*declared.value, kernel.whole_source(settings));
    Some(DeclaredEstimator { name, estimator, file: kernel.file, text })
}

/// Compares the kernel of an estimator with its Rust function on generated steps, with values if the plan has a critic.
#[cfg(feature = "cuda")]
fn compare(
    plan: &Plan,
    declared: &DeclaredEstimator<'_>,
    on: &Estimators,
) -> Result<(), TrainError> {
    let critic = plan.algorithm.critic.as_ref();
    let by_token = critic.map(|critic| critic.granularity == Granularity::Token);
    for (step, rows) in steps_of_a_run(by_token) {
        let want = rows.estimate(declared.estimator);
        let got = on.estimate(&rows, declared.estimator);
        device_error(on)?;
        let got: Vec<f32> = got.into_iter().map(|value| value as f32).collect();
        if let Some(difference) = difference(&got, &want) {
            return Err(TrainError::KernelDiffers {
                estimator: declared.name.to_owned(),
                file: declared.file,
                device: on.device().unwrap_or("cpu").to_owned(),
                step,
                difference,
            });
        }
    }
    Ok(())
}

/// Returns the error of a device that failed to compute advantages.
pub(crate) fn device_error(estimators: &Estimators) -> Result<(), TrainError> {
    let Some(reason) = estimators.failure() else { return Ok(()) };
    let device = estimators.device().unwrap_or("cpu").to_owned();
    Err(TrainError::Estimators { device, reason })
}

/// Compiles the CUDA C++ kernel of the plan's declared estimator, if it has one, and discards the machine code: a kernel that
/// does not compile is found before the first step. Returns a note if there is no NVRTC to compile it.
#[cfg(feature = "cuda")]
pub(crate) fn compile(plan: &Plan, registry: &Registry) -> Result<Option<String>, TrainError> {
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
    match nvrtc::compile_source(file, &kernel.whole_source(settings), ARCH) {
        Ok(_) => Ok(None),
        Err(CudaError::Compile { arch, why: log }) => {
            Err(TrainError::Kernel { estimator: name.to_owned(), file, arch, log })
        }
        Err(error) => Ok(Some(format!("the kernel `{file}` of `{name}` is not compiled: {error}"))),
    }
}

/// Compiles nothing: this build has no NVRTC.
#[cfg(not(feature = "cuda"))]
pub(crate) fn compile(_: &Plan, _: &Registry) -> Result<Option<String>, TrainError> {
    Ok(None)
}

/// Checks the advantages of a step, counted from 0. Returns warnings about the estimator.
///
/// # Errors
///
/// If an advantage is no finite number.
pub(crate) fn check(
    (plan, step): (&Plan, u64),
    episodes: &[Episode],
    record: &StepSamples,
) -> Result<Vec<String>, TrainError> {
    finite(step, episodes, record)?;
    Ok(unknown_parts(plan, step, episodes).into_iter().collect())
}

/// Fails if an advantage of a step is no finite number, or none of `f32`, in which updates are computed. The number of
/// advantages is right by construction: an estimator fills a slice.
fn finite(step: u64, episodes: &[Episode], record: &StepSamples) -> Result<(), TrainError> {
    // The mean over the tokens of a turn is finite only if all of them are. Whitening spreads what is not over all rows.
    let given = record.samples.iter().map(|sample| sample.unwhitened.unwrap_or(sample.advantage));
    let wrong = given.enumerate().find(|(_, given)| !(*given as f32).is_finite());
    let Some((row, found)) = wrong else { return Ok(()) };
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
        found,
    })
}

/// Returns the warning about parts of the reward that settings of the plan's declared estimator name, and that neither the
/// configuration nor an episode of the first step has. Later steps get none.
fn unknown_parts(plan: &Plan, step: u64, episodes: &[Episode]) -> Option<String> {
    let AdvantagePlan::Declared(declared) = &plan.algorithm.advantage else { return None };
    let own = [
        RewardPart::SCORE,
        RewardPart::INVALID_REPLY,
        RewardPart::OVERLONG_REPLY,
        RewardPart::KL,
        RewardPart::OTHER,
    ];
    let parts = episodes.iter().flat_map(|episode| &episode.rewards).map(|part| part.name.as_str());
    let found: BTreeSet<&str> =
        parts.chain(plan.rewards.iter().map(|reward| reward.name.as_str())).collect();
    let named = declared.value.named_parts();
    let unknown: Vec<&str> = named
        .iter()
        .map(String::as_str)
        .filter(|name| step == 0 && !own.contains(name) && !found.contains(name))
        .collect();
    let there: Vec<&str> = [RewardPart::SCORE].into_iter().chain(found).collect();
    (!unknown.is_empty()).then(|| {
        format!(
            "step 1: settings of the estimator `{}` name parts of the reward that no episode has: `{}`; the parts are `{}`. A \
             part of 0 is not recorded",
            declared.chosen.name,
            unknown.join("`, `"),
            there.join("`, `")
        )
    })
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use super::*;
    use crate::algo::testing::{episode, plan, turn};
    use crate::credit::{Advantage, CPU, Gdpo};
    use crate::plan::{Chosen, Instance};
    use crate::train::learner::batches::{StepPlan, advantages, samples};
    use crate::train::learner::critic::ValuePredictions;
    use crate::train::learner::state::AlgorithmState;

    /// Returns the estimators of the emulated device; none without a C++ compiler.
    #[cfg(feature = "cuda")]
    pub(in crate::train) fn emulated() -> Option<Estimators> {
        if let Some(reason) = DeviceChoice::Emulated.unavailable() {
            eprintln!("skipped: {reason}");
            return None;
        }
        let machine = Emulated::shared_machine(&MODULES).unwrap();
        Some(Estimators::on("emulated".to_owned(), Box::new(Kernels::new(machine))))
    }

    /// Checks the advantages of two tasks with two episodes each; `reward` is that of the last.
    fn checked(plan: &Plan, reward: f64) -> Result<(), TrainError> {
        let one = |task, index, reward| episode(task, index, reward, vec![turn("t/a", 0)]);
        let episodes = [one("p", 0, 0.0), one("p", 1, 1.0), one("q", 0, 1.0), one("q", 1, reward)];
        let at = StepPlan { plan, step: 4, rates: None };
        let rows = samples(&at, &episodes, &mut AlgorithmState::default(), &CPU).unwrap().rows;
        let given = advantages(plan, &episodes, &rows, &ValuePredictions::default(), (&CPU, 0.0));
        finite(at.step, &episodes, &given.record)
    }

    #[test]
    fn a_part_that_a_setting_names_and_no_episode_of_the_first_step_has_is_a_warning() {
        let mut plan = plan(&[("t/a", true)]);
        let weights = [("verdict".to_owned(), 0.5), ("pivot".to_owned(), 1.0)].into();
        let value: Arc<dyn Advantage> = Arc::new(Gdpo { weights, ..Gdpo::default() });
        let chosen = Chosen { name: "gdpo".to_owned(), options: serde_json::json!({}) };
        plan.algorithm.advantage = AdvantagePlan::Declared(Instance { chosen, value });
        let mut played = episode("p", 0, 1.0, vec![turn("t/a", 0)]);
        let of = crate::trajectory::RewardOf::Turn(0);
        played.rewards.push(RewardPart { name: "pivot".to_owned(), value: 0.5, of });
        let episodes = [played];
        let warning = unknown_parts(&plan, 0, &episodes).unwrap();
        assert!(
            warning.contains("that no episode has: `verdict`; the parts are `score`, `pivot`"),
            "{warning}"
        );
        assert_eq!(unknown_parts(&plan, 1, &episodes), None);
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

    /// Twice the reward.
    #[cfg(feature = "cuda")]
    struct Double;

    #[cfg(feature = "cuda")]
    impl Advantage for Double {
        fn estimate(&self, step: &crate::credit::Rewarded<'_>, out: &mut [f64]) {
            out.iter_mut().zip(step.rewards).for_each(|(out, reward)| *out = 2.0 * reward);
        }
    }

    /// Opens the emulated device with a kernel of `Double` that computes this.
    #[cfg(feature = "cuda")]
    fn opened(expression: &str) -> Option<Result<Estimators, TrainError>> {
        DeviceChoice::Emulated.unavailable().map_or(Some(()), |reason| {
            eprintln!("skipped: {reason}");
            None
        })?;
        let text = format!(
            "ESTIMATOR(step, out) {{ u64 i = thread(); if (i < step->rows) {expression}; }}"
        );
        let kernel = KernelSource { file: "double.cu", text: text.leak() };
        let text = kernel.whole_source(&serde_json::Value::Null);
        let declared =
            DeclaredEstimator { name: "t/double", estimator: &Double, file: "double.cu", text };
        Some(open_device(&plan(&[("t/a", true)]), DeviceChoice::Emulated, Some(&declared)))
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn a_kernel_that_agrees_computes_the_advantages_of_a_step() {
        let Some(opened) = opened("out[i] = 2.000001f * step->rewards[i]") else { return };
        let opened = opened.unwrap();
        assert_eq!((opened.device(), opened.kernel()), (Some("emulated"), Some("double.cu")));
        let step = crate::credit::RewardedStep {
            rewards: vec![0.5],
            seats: vec![0],
            turns: vec![0],
            tasks: vec![0],
            episodes: vec![0],
            lengths: vec![1],
            units: vec![0],
            groups: vec![0],
            ..crate::credit::RewardedStep::default()
        };
        // Within the tolerance of the comparison, and another number than that of the Rust function.
        assert_eq!(opened.estimate(&step, &Double), [f64::from(2.000001_f32 * 0.5)]);
        assert_eq!(step.estimate(&Double), [1.0]);
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn a_kernel_that_differs_fails_or_does_not_compile_is_refused_before_the_run() {
        for (expression, parts) in [
            (
                "out[i] = 3.0f * step->rewards[i]",
                [
                    "`double.cu` of the estimator `t/double` differs",
                    "emulated: step `one row`, place 0: the kernel gives",
                ],
            ),
            ("if (i > 0) out[i] = 2.0f * step->rewards[i]", ["differs", "kernel gives NaN, Rust"]),
            (
                "out[step->rows] = 1.0f",
                ["emulated failed to compute advantages", "beside an array"],
            ),
            ("out[i] = absent", ["does not compile for the emulated device", "double.cu:1"]),
        ] {
            let Some(opened) = opened(expression) else { return };
            let error = opened.unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{expression}: {error}");
        }
    }

    /// Advantages of a step of two seats, with values of a critic, by the estimator of a plan; the moving averages after it.
    #[cfg(feature = "cuda")]
    fn given(plan: &Plan, on: &Estimators) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let turns = || vec![turn("t/a", 0), turn("t/b", 1), turn("t/a", 2)];
        let rewards = [0.1, 1.0, 0.3, 0.7, 0.2, 0.9];
        let one = |(i, reward): (usize, &f64)| {
            episode(["p", "q"][i / 3], i as u32 % 3, *reward, turns()[..2 + i % 2].to_vec())
        };
        let episodes: Vec<Episode> = rewards.iter().enumerate().map(one).collect();
        let at = StepPlan { plan, step: 0, rates: None };
        let mut state = AlgorithmState::default();
        let rows = samples(&at, &episodes, &mut state, on).unwrap().rows;
        let value = |(row, sample): (usize, &crate::algo::Sample)| {
            (0..sample.tokens).map(|t| 0.1 * row as f64 - 0.3 * t as f64).collect()
        };
        let values = match plan.algorithm.critic {
            Some(_) => rows.iter().enumerate().map(value).collect(),
            None => Vec::new(),
        };
        let predicted = ValuePredictions { values, ..ValuePredictions::default() };
        let found = advantages(plan, &episodes, &rows, &predicted, (on, 0.0));
        device_error(on).unwrap();
        assert_eq!(found.record.estimator.device.as_deref(), on.device());
        let returns = found.record.samples.iter().flat_map(|sample| sample.returns.clone());
        let averages = state.averages.seats.into_values().collect();
        (found.tokens.concat(), returns.collect(), averages)
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn every_estimator_gives_on_a_device_what_it_gives_on_the_cpu() {
        use crate::config::{
            AnchorPlan, Bootstrap, CriticPlan, GroupBaseline, GroupBy, GroupPlan,
            MovingAveragePlan, RewardPlan,
        };
        let Some(emulated) = emulated() else { return };
        let group = GroupPlan::default;
        let anchor = Some(AnchorPlan { weight: 0.5, ..AnchorPlan::default() });
        let gdpo = crate::plan::Instance {
            chosen: crate::plan::Chosen {
                name: "gdpo".to_owned(),
                options: serde_json::Value::Null,
            },
            value: std::sync::Arc::new(crate::credit::Gdpo::default()) as _,
        };
        let critic = |bootstrap| {
            AdvantagePlan::Critic(CriticPlan { bootstrap, lambda: 0.9, ..CriticPlan::default() })
        };
        for advantage in [
            AdvantagePlan::Group(GroupPlan { by: GroupBy::Task, ..group() }),
            AdvantagePlan::Group(GroupPlan { by: GroupBy::TaskTurn, ..group() }),
            AdvantagePlan::Group(GroupPlan { deviation_by: Some(GroupBy::Task), ..group() }),
            AdvantagePlan::Group(GroupPlan { baseline: GroupBaseline::LeaveOneOut, ..group() }),
            AdvantagePlan::Group(GroupPlan { baseline: GroupBaseline::SecondBest, ..group() }),
            AdvantagePlan::Group(GroupPlan { anchor, ..group() }),
            AdvantagePlan::Reward(RewardPlan::default()),
            AdvantagePlan::MovingAverage(MovingAveragePlan::default()),
            AdvantagePlan::Declared(gdpo),
            critic(Bootstrap::Turn),
            critic(Bootstrap::Team),
        ] {
            let mut plan = plan(&[("t/a", true), ("t/b", true)]);
            if let AdvantagePlan::Critic(critic) = &advantage {
                plan.algorithm.critic = Some(critic.clone());
            }
            plan.algorithm.advantage = advantage.clone();
            for whiten in [false, true] {
                plan.algorithm.whiten = whiten;
                let (got, want) = (given(&plan, &emulated), given(&plan, &CPU));
                for (got, want) in [(&got.0, &want.0), (&got.1, &want.1), (&got.2, &want.2)] {
                    assert_eq!(got.len(), want.len(), "{advantage:?}");
                    let largest = want.iter().fold(1.0_f64, |most, value| most.max(value.abs()));
                    let differs = got.iter().zip(want).any(|(a, b)| (a - b).abs() > 1e-6 * largest);
                    assert!(!differs, "{advantage:?}, whitened {whiten}: {got:?}, CPU {want:?}");
                }
            }
        }
    }
}
