//! Files that a configuration names: models without their weights, tasks, adapters and verifiers.

mod adapters;
mod episodes;
mod hub;
mod models;
mod tasks;
mod verifiers;

pub(super) use episodes::check_step;
pub(super) use hub::pin_data;
pub(super) use models::{Models, OpenedModel, model_shape, open_models};
pub(super) use tasks::{LoadedTasks, data_warnings, load_tasks};
pub(super) use verifiers::{SeenQuestions, seen_questions};
