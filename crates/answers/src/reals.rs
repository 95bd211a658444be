//! Sets of real numbers: unions of intervals in one normal form, independent of notation.

use std::cmp::Ordering;

use num_traits::{Signed, Zero};

use crate::exact::ExactExpr;
use crate::numeric;
use crate::verdict::AnswerVerdict;
use crate::work::{Stop, WorkBudget};

/// Relative difference below which the values of two ends do not decide their order.
const NEAR: f64 = 1e-9;

/// End of an interval: a position just before or just after a number, so that all kinds of intervals have one form.
#[derive(Debug, Clone, PartialEq)]
enum Cut {
    Start,
    Before(ExactExpr),
    After(ExactExpr),
    End,
}

/// A set of real numbers: disjoint intervals that do not touch, in ascending order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reals(Vec<(Cut, Cut)>);

impl Reals {
    /// Returns all real numbers.
    pub(crate) fn all() -> Self {
        Self(vec![(Cut::Start, Cut::End)])
    }

    pub(crate) fn empty() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn point(value: ExactExpr) -> Self {
        Self(vec![(Cut::Before(value.clone()), Cut::After(value))])
    }

    /// Returns the numbers above a bound, and the bound itself if `closed`.
    pub(crate) fn above(low: ExactExpr, closed: bool) -> Self {
        let low = if closed { Cut::Before(low) } else { Cut::After(low) };
        Self(vec![(low, Cut::End)])
    }

    /// Returns the numbers below a bound, and the bound itself if `closed`.
    pub(crate) fn below(high: ExactExpr, closed: bool) -> Self {
        let high = if closed { Cut::After(high) } else { Cut::Before(high) };
        Self(vec![(Cut::Start, high)])
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn union(&self, other: &Self, work: &mut WorkBudget) -> Result<Self, Stop> {
        let mut sorted: Vec<(Cut, Cut)> = Vec::new();
        for interval in self.0.iter().chain(&other.0) {
            let mut at = sorted.len();
            while at > 0 && compare_cuts(&interval.0, &sorted[at - 1].0, work)? == Ordering::Less {
                at -= 1;
            }
            sorted.insert(at, interval.clone());
        }
        let mut union: Vec<(Cut, Cut)> = Vec::new();
        for (low, high) in sorted {
            match union.last_mut() {
                Some(last) if compare_cuts(&low, &last.1, work)? != Ordering::Greater => {
                    if compare_cuts(&high, &last.1, work)? == Ordering::Greater {
                        last.1 = high;
                    }
                }
                _ => union.push((low, high)),
            }
        }
        Ok(Self(union))
    }

    pub(crate) fn complement(&self) -> Self {
        let mut gaps = Vec::new();
        let mut from = Some(Cut::Start);
        for (low, high) in &self.0 {
            let start = from.replace(high.clone()).filter(|_| *low != Cut::Start);
            gaps.extend(start.map(|start| (start, low.clone())));
        }
        gaps.extend(from.filter(|from| *from != Cut::End).map(|from| (from, Cut::End)));
        Self(gaps)
    }

    pub(crate) fn intersection(&self, other: &Self, work: &mut WorkBudget) -> Result<Self, Stop> {
        let outside = self.complement().union(&other.complement(), work)?;
        Ok(outside.complement())
    }

    pub(crate) fn without(&self, other: &Self, work: &mut WorkBudget) -> Result<Self, Stop> {
        self.intersection(&other.complement(), work)
    }

    pub(crate) fn is_equal(&self, other: &Self, work: &mut WorkBudget) -> Result<bool, Stop> {
        if self.0.len() != other.0.len() {
            return Ok(false);
        }
        for ((low, high), (low2, high2)) in self.0.iter().zip(&other.0) {
            if compare_cuts(low, low2, work)? != Ordering::Equal
                || compare_cuts(high, high2, work)? != Ordering::Equal
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn compare_cuts(a: &Cut, b: &Cut, work: &mut WorkBudget) -> Result<Ordering, Stop> {
    match (a, b) {
        (Cut::Start, Cut::Start) | (Cut::End, Cut::End) => Ok(Ordering::Equal),
        (Cut::Start, _) | (_, Cut::End) => Ok(Ordering::Less),
        (_, Cut::Start) | (Cut::End, _) => Ok(Ordering::Greater),
        (Cut::Before(x) | Cut::After(x), Cut::Before(y) | Cut::After(y)) => {
            let [a, b] = [a, b].map(|cut| matches!(cut, Cut::After(_)));
            Ok(compare_constants(x, y, work)?.then(a.cmp(&b)))
        }
    }
}

/// Compares two constants.
fn compare_constants(
    x: &ExactExpr,
    y: &ExactExpr,
    work: &mut WorkBudget,
) -> Result<Ordering, Stop> {
    let difference = x.minus(y, work)?;
    if let Some(difference) = difference.rational() {
        return Ok(match difference {
            zero if zero.is_zero() => Ordering::Equal,
            negative if negative.is_negative() => Ordering::Less,
            _ => Ordering::Greater,
        });
    }
    let (left, right) = (numeric::real_value(x, work)?, numeric::real_value(y, work)?);
    if (left - right).abs() > NEAR * left.abs().max(right.abs()) {
        return Ok(left.total_cmp(&right));
    }
    match numeric::compare_functions(x, y, work)? {
        AnswerVerdict::Equal => Ok(Ordering::Equal),
        // An undecided order is an error instead of a guess.
        _ => Err(Stop::Budget),
    }
}
