//! Files that a configuration names: models without their weights, tasks, adapters, verifiers and Python.

mod adapters;
mod episodes;
mod hub;
mod judges;
mod models;
mod python;
mod tasks;
mod verifiers;

pub(super) use episodes::check_step;
pub(super) use hub::pin_data;
pub(super) use judges::check_judges;
pub(super) use models::{Models, OpenedModel, model_shape, open_models};
pub(super) use python::check_python_rewards;
pub(super) use tasks::{LoadedTasks, data_warnings, load_tasks};
pub(super) use verifiers::{SeenQuestions, seen_questions};
