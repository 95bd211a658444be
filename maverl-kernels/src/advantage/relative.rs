//! Advantages relative to a group, row by row.

use super::{Grouping, Moments, Singleton};

/// A standard deviation up to this times the mean (or 1, if that is more) is the rounding of equal rewards.
const ROUNDING: f64 = 1e-9;

/// What a unit is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// Nothing.
    None,
    /// The mean of its group.
    Mean,
    /// The mean of the others.
    LeaveOneOut,
}

/// How units are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Relative {
    /// What a unit is compared with.
    pub baseline: Baseline,
    /// Divide by the deviation.
    pub normalize_std: bool,
    /// Added to the deviation.
    pub eps: f64,
    /// The advantage of a group of one.
    pub singleton: Singleton,
}

impl Relative {
    /// The advantage of a unit of this value. `scale` is the group of the deviation, where it is another one.
    pub(crate) fn advantage(&self, value: f64, own: &Moments, scale: Option<&Moments>) -> f64 {
        let alone = own.n == 1.0 && self.baseline != Baseline::None;
        if alone && self.singleton == Singleton::Zero {
            return 0.0;
        }
        let centred = match self.baseline {
            _ if alone => value,
            Baseline::None => value,
            Baseline::Mean => value - own.mean,
            Baseline::LeaveOneOut => (value - own.mean) * (own.n / (own.n - 1.0)),
        };
        if !self.normalize_std {
            return centred;
        }
        let std = match scale {
            None if own.n == 1.0 => 1.0,
            None => own.std(),
            Some(scale) if scale.std() > ROUNDING * scale.mean.abs().max(1.0) => scale.std(),
            Some(scale) if scale.n == 1.0 && self.singleton == Singleton::Raw => 1.0,
            Some(_) => return 0.0,
        };
        centred / (std + self.eps)
    }
}

/// The units of a grouping and its groups.
pub(crate) struct Groups<'a> {
    by: &'a Grouping,
    units: Option<Vec<Moments>>,
    groups: Vec<Moments>,
}

impl<'a> Groups<'a> {
    pub(crate) fn of(values: &[f32], by: &'a Grouping) -> Self {
        assert_eq!(values.len(), by.len(), "relative: one place in the grouping per value");
        let row = |row: usize| (f64::from(values[row]), 1.0);
        let units = by.units.as_ref().map(|units| super::moments::moments(units, row));
        let groups = match &units {
            Some(units) => super::moments::moments(&by.groups, |unit| (units[unit].mean, 1.0)),
            None => super::moments::moments(&by.groups, row),
        };
        Self { by, units, groups }
    }

    /// The value that counts for a row.
    pub(crate) fn value(&self, values: &[f32], row: usize) -> f64 {
        match (&self.units, &self.by.units) {
            (Some(means), Some(units)) => means[units.ids()[row] as usize].mean,
            _ => f64::from(values[row]),
        }
    }

    /// The group of a row.
    pub(crate) fn group(&self, row: usize) -> &Moments {
        &self.groups[self.by.ids()[row] as usize]
    }
}
