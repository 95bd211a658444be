//! Statistics of verifiers: separation of right and wrong replies by logits, calibration, and shortcuts in the data.
//!
//! Pure functions of logits and rows. Training is in `train/supervised/verifier.rs`.

mod calibration;
mod leaks;
mod probes;
mod statistics;

pub(crate) use calibration::Calibration;
pub(crate) use leaks::{Leaks, leaks};
pub(crate) use probes::{Probed, probes};
pub(crate) use statistics::{auc, auc_interval, statistics};
