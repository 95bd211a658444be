//! Rules of the team, as functions of what was read: which policy replies for each seat, and which settings exclude each other.
//! They open no file and ask no machine.

mod adapter;
mod agreement;
mod algorithm;
mod branches;
mod credit;
mod critic;
mod curriculum;
mod doubts;
mod endpoint;
mod experts;
mod groups;
mod idle;
mod idle_tables;
mod losses;
mod optimizer;
mod overlong;
mod policy;
mod precision;
mod prompts;
mod rewards;
mod sampling;
mod staleness;
mod tasks;
mod taught;
mod teachers;
mod training;
mod worker;

pub(super) use algorithm::check_algorithm;
pub(super) use branches::check_branches;
pub(super) use credit::check_estimator;
pub(super) use critic::{check_critics, with_critics};
pub(super) use endpoint::take_endpoints;
pub(super) use experts::{check_router_replay, unused_balance};
pub(super) use optimizer::check_optimizers;
pub(super) use overlong::check_rows;
pub(super) use policy::{Assignment, assign_policies};
pub(super) use precision::model_precisions;
pub(super) use prompts::{check_prompts, prompt_tokens};
pub(super) use rewards::reward_parts;
pub(super) use sampling::check_trainable;
pub(super) use staleness::check_staleness;
pub(super) use tasks::{task_doubts, unread_messages};
pub(super) use taught::check_teachers;
pub(super) use teachers::check_teacher_tables;
pub(super) use training::training_warnings;
