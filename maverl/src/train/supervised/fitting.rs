//! Rows of supervised training that fit the models that are trained on them.

use std::collections::BTreeSet;

use crate::config::OverlongText;
use crate::data::{self, Misfit, RowTexts};
use crate::plan::Plan;
use crate::runtime::Policy;
use crate::train::error::{DemonstrationError, TrainError};

/// Leaves out rows that are longer than the context of a trained policy, if `task.overlong` says so.
pub(crate) fn fitting<R>(
    plan: &Plan,
    policies: &[Policy],
    mut rows: Vec<R>,
    row_texts: impl Fn(&R) -> RowTexts,
) -> Result<Vec<R>, TrainError> {
    if plan.config.task.overlong != OverlongText::Drop {
        return Ok(rows);
    }
    let all_texts: Vec<RowTexts> = rows.iter().map(row_texts).collect();
    let mut overlong = BTreeSet::new();
    let trained = plan.policies.iter().zip(policies).filter(|(planned, _)| planned.trained);
    for (_, policy) in trained {
        for (i, misfit) in data::misfits(&all_texts, policy.tokenizer(), policy.context()) {
            match misfit {
                Misfit::Overlong(_) => drop(overlong.insert(i)),
                Misfit::Refused(source) => {
                    let location = all_texts[i].location.clone();
                    return Err(TrainError::Demonstration { location, source: source.into() });
                }
            }
        }
    }
    let mut index = 0..;
    rows.retain(|_| index.next().is_some_and(|i| !overlong.contains(&i)));
    if rows.is_empty() {
        Err(TrainError::Demonstration {
            location: plan.config.task.data.clone(),
            source: DemonstrationError::NoneLeft,
        })
    } else {
        Ok(rows)
    }
}
