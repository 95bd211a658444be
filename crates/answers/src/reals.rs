//! Sets of real numbers: unions of intervals in one normal form, independent of notation.

use std::cmp::Ordering;

use num_traits::{Signed, Zero};

use crate::exact::Expr;
use crate::numeric;
use crate::verdict::AnswerVerdict;
use crate::work::{Stop, Work};

/// Relative difference below which the values of two ends do not decide their order.
const NEAR: f64 = 1e-9;

/// End of an interval: a position just before or just after a number, so that all kinds of intervals have one form.
#[derive(Debug, Clone, PartialEq)]
enum Cut {
    Start,
    Before(Expr),
    After(Expr),
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

    pub(crate) fn point(value: Expr) -> Self {
        Self(vec![(Cut::Before(value.clone()), Cut::After(value))])
    }

    /// Returns the numbers above a bound, and the bound itself if `closed`.
    pub(crate) fn above(low: Expr, closed: bool) -> Self {
        let low = if closed { Cut::Before(low) } else { Cut::After(low) };
        Self(vec![(low, Cut::End)])
    }

    /// Returns the numbers below a bound, and the bound itself if `closed`.
    pub(crate) fn below(high: Expr, closed: bool) -> Self {
        let high = if closed { Cut::After(high) } else { Cut::Before(high) };
        Self(vec![(Cut::Start, high)])
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn union(&self, other: &Self, work: &mut Work) -> Result<Self, Stop> {
        let mut sorted: Vec<(Cut, Cut)> = Vec::new();
        for interval in self.0.iter().chain(&other.0) {
            let mut at = sorted.len();
            while at > 0 && order(&interval.0, &sorted[at - 1].0, work)? == Ordering::Less {
                at -= 1;
            }
            sorted.insert(at, interval.clone());
        }
        let mut union: Vec<(Cut, Cut)> = Vec::new();
        for (low, high) in sorted {
            match union.last_mut() {
                Some(last) if order(&low, &last.1, work)? != Ordering::Greater => {
                    if order(&high, &last.1, work)? == Ordering::Greater {
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

    pub(crate) fn intersection(&self, other: &Self, work: &mut Work) -> Result<Self, Stop> {
        let outside = self.complement().union(&other.complement(), work)?;
        Ok(outside.complement())
    }

    pub(crate) fn without(&self, other: &Self, work: &mut Work) -> Result<Self, Stop> {
        self.intersection(&other.complement(), work)
    }

    pub(crate) fn is(&self, other: &Self, work: &mut Work) -> Result<bool, Stop> {
        if self.0.len() != other.0.len() {
            return Ok(false);
        }
        for ((low, high), (low2, high2)) in self.0.iter().zip(&other.0) {
            if order(low, low2, work)? != Ordering::Equal
                || order(high, high2, work)? != Ordering::Equal
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn order(a: &Cut, b: &Cut, work: &mut Work) -> Result<Ordering, Stop> {
    let after = |cut: &Cut| matches!(cut, Cut::After(_));
    match (a, b) {
        (Cut::Start, Cut::Start) | (Cut::End, Cut::End) => Ok(Ordering::Equal),
        (Cut::Start, _) | (_, Cut::End) => Ok(Ordering::Less),
        (_, Cut::Start) | (Cut::End, _) => Ok(Ordering::Greater),
        (Cut::Before(x) | Cut::After(x), Cut::Before(y) | Cut::After(y)) => {
            Ok(numbers(x, y, work)?.then(after(a).cmp(&after(b))))
        }
    }
}

/// Compares two constants.
fn numbers(x: &Expr, y: &Expr, work: &mut Work) -> Result<Ordering, Stop> {
    let difference = x.minus(y, work)?;
    if let Some(difference) = difference.rational() {
        return Ok(match difference {
            zero if zero.is_zero() => Ordering::Equal,
            negative if negative.is_negative() => Ordering::Less,
            _ => Ordering::Greater,
        });
    }
    let (left, right) = (numeric::real(x, work)?, numeric::real(y, work)?);
    if (left - right).abs() > NEAR * left.abs().max(right.abs()) {
        return Ok(left.total_cmp(&right));
    }
    match numeric::identity(x, y, work)? {
        AnswerVerdict::Equal => Ok(Ordering::Equal),
        // An undecided order is an error instead of a guess.
        _ => Err(Stop::Budget),
    }
}
