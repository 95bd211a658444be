//! Check of the key that balances the load of experts.

use crate::check::files::Models;
use crate::plan::AlgorithmPlan;

/// Returns a warning if the load of experts is balanced and no model has experts.
pub(crate) fn unused_balance(algorithm: &AlgorithmPlan, models: &Models) -> Option<String> {
    let experts = models
        .values()
        .flat_map(|model| &model.shape.layers)
        .any(|layer| layer.mlp.experts().is_some());
    (algorithm.router_aux_coef != 0.0 && !experts).then(|| {
        "`algorithm.router_aux_coef` has no effect: no model is a mixture of experts".to_owned()
    })
}
