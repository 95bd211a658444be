//! Teachers of a plan: where their log-probabilities come from, and which seat has which.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Plan;
use crate::config::{EndpointConfig, HintPlace, OnRewardError, TeacherChoice};

/// A teacher that some trained seat has.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TeacherPlan {
    /// Name of its table in `[teachers]`.
    pub name: String,
    /// Weights that compute its log-probabilities.
    pub source: TeacherSource,
    /// Text that it reads and the policy does not.
    pub hint: Option<HintPlan>,
}

/// Weights of a teacher.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TeacherSource {
    /// A policy that is not trained, as index into [`Plan::policies`].
    Policy(usize),
    /// The current weights of the policy that is taught.
    Current,
    /// The reference of the policy that is taught.
    Reference,
    /// A server, which scores turns when their episodes have ended.
    Endpoint {
        /// Name of its table in `[endpoints]`.
        name: String,
        /// Settings of the endpoint.
        endpoint: EndpointConfig,
        /// Outcome if it does not score a turn.
        on_error: OnRewardError,
    },
}

/// A hint of a teacher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HintPlan {
    /// Template of the text.
    pub template: String,
    /// Place of the text in the prompt.
    pub place: HintPlace,
    /// Number of tokens after which it is cut.
    pub max_tokens: usize,
}

/// Teachers of a seat, and their weight.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeatTeachers {
    /// Indices into [`Plan::teachers`], by the source of the task.
    pub by_source: BTreeMap<String, usize>,
    /// Weight of the teacher's term.
    pub coef: f64,
}

impl Plan {
    /// Returns the teacher of a seat on tasks of a source, as index into [`Plan::teachers`].
    pub fn teacher_of(&self, seat: usize, source: &str) -> Option<usize> {
        let teachers = &self.seats[seat].teachers.as_ref()?.by_source;
        teacher_by_source(teachers, source).copied()
    }
}

/// Returns the teacher for tasks of a source. The source decides, then its first part (the component of a mixture), then the default.
pub(crate) fn teacher_by_source<'t, T>(
    teachers: &'t BTreeMap<String, T>,
    source: &str,
) -> Option<&'t T> {
    let component = source.split('/').next().unwrap_or_default();
    let sources = [source, component, TeacherChoice::DEFAULT];
    sources.into_iter().find_map(|source| teachers.get(source))
}
