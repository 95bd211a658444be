//! What a configuration chooses among the declarations of the linked crates: the orchestra with its seats, the environments,
//! estimators and surrogates. Options that are not written have their defaults.

mod entries;
mod environments;
mod instances;
mod look;
mod meeting;
mod members;
mod nested;
mod options;
mod orchestra;
mod unlinked;

pub(super) use environments::{
    ChosenEnvironment, choose_environments, other_environments, split_components,
};
pub(super) use instances::{declared_algorithm, is_own};
pub(super) use meeting::check_actions;
pub(super) use members::{ConfiguredSeat, seat_members, seat_tables, setting_path};
pub(super) use options::{as_written, without_nulls};
pub(super) use orchestra::{ChosenOrchestra, choose_orchestra};
