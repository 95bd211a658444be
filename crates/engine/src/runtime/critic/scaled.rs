//! Optimizer step of a critic that is not taken.

use crate::runtime::RuntimeError;
use crate::runtime::loss_scale::LossScale;

/// Skips an optimizer step whose gradient is not finite in f16. A loss that is not finite is an error, as is such a gradient in
/// another precision.
pub(super) fn skip_step(
    scale: &mut Option<LossScale>,
    policy: &str,
    [loss, norm]: [f64; 2],
) -> Result<(), RuntimeError> {
    let policy = policy.to_owned();
    let Some(scale) = scale else {
        let what = if norm.is_finite() { "the value loss" } else { "the critic's gradient" };
        return Err(RuntimeError::NotFinite { policy, what: what.to_owned() });
    };
    if !loss.is_finite() {
        let what = "the value loss".to_owned();
        return Err(RuntimeError::LossBeyondF16 { policy, what, layer: None });
    }
    if scale.skip_step() {
        return Ok(());
    }
    Err(RuntimeError::SmallestLossScale { policy, what: "gradients of the critic".to_owned() })
}
