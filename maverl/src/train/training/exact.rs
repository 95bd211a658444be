//! Devices on which a token has not the same bits in every company, and bounds that hold there.

use crate::metrics::Metrics;
use crate::plan::Plan;
use crate::runtime::DeviceChoice;

/// Name of the warning about a mismatch.
const MISMATCH: &str = "mismatch";

/// Returns true if every worker group is on a device where results have the same bits in every company (K-1).
pub(crate) fn is_exact(plan: &Plan) -> bool {
    mismatch_bound(plan) == 0.0
}

/// Returns the largest difference that log-probs of rollout and training, or of a replay, are expected to have.
pub(crate) fn mismatch_bound(plan: &Plan) -> f32 {
    let devices = plan.workers.iter().map(|worker| plan.device_of(worker));
    devices.map(DeviceChoice::mismatch_bound).fold(0.0, f32::max)
}

/// Returns a warning about a policy whose log-probs in training differ from those of rollout by more than a device's kernels
/// explain, with its name. Devices that are exact, and replies of earlier weights, have none.
pub(crate) fn mismatch_warning(plan: &Plan, metrics: &Metrics) -> Option<(&'static str, String)> {
    if plan.config.rollout.staleness > 0 || plan.algorithm.replay.groups > 0 {
        return None;
    }
    plan.policies.iter().find_map(|policy| {
        let device = plan.device_of(&plan.workers[policy.worker]);
        let name = format!("{MISMATCH}/{}/logp_abs_max", policy.name);
        let (found, bound) = (metrics.get(&name)?, f64::from(device.mismatch_bound()));
        (bound > 0.0 && found > bound).then(|| (MISMATCH, warning(&name, device, found, bound)))
    })
}

fn warning(name: &str, device: DeviceChoice, found: f64, bound: f64) -> String {
    format!(
        "`{name}` is {found:.1e}, and {bound:.0e} is the most that {device} explains: rollout and training compute \
         other log-probs; compare with `runtime.device = \"cpu\"`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_of_a_mismatch_names_metric_device_and_bound() {
        let device = DeviceChoice::CandleCpu;
        let text = warning("mismatch/a/logp_abs_max", device, 0.02, device.mismatch_bound().into());
        assert!(text.starts_with("`mismatch/a/logp_abs_max` is 2.0e-2, and 1e-3 is"), "{text}");
        assert!(text.contains("candle:cpu explains"), "{text}");
    }
}
