//! Parsed values of answers.

use num_rational::BigRational;

use crate::based::Based;
use crate::exact::ExactExpr;
use crate::name::{ResultName, distinct_variables};
use crate::reals::Reals;
use crate::token::MathToken;
use crate::unit::MathUnit;
use crate::work::{Stop, WorkBudget};

/// Parsed value of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MathValue {
    Number(ExactExpr),
    /// A point or an interval; only the question decides which.
    Tuple {
        open: char,
        items: Vec<MathAnswer>,
        close: char,
    },
    /// Items in any order, in braces or bare.
    Set(Vec<MathAnswer>),
    /// A union of sets that are not known to be real.
    Union(Vec<MathAnswer>),
    /// A set of real numbers that is not a tuple, with its variable where one is named.
    Reals {
        set: Reals,
        variable: Option<char>,
    },
    Matrix(Vec<Vec<ExactExpr>>),
    /// `combined`: the left side has several variables, so the right side may be the result.
    Relation {
        left: ExactExpr,
        sign: char,
        right: ExactExpr,
        combined: bool,
    },
    /// A result with its name: `x = 5`, `\text{Area} = 5`.
    Named {
        name: ResultName,
        value: Box<MathAnswer>,
    },
    /// Results with different names.
    Assigned(Vec<(ResultName, MathAnswer)>),
    Based(Based),
    /// One of the options of a question.
    Choice(char),
    /// An option with its value: `\textbf{(B)}\ 12`.
    Labeled {
        option: char,
        value: Box<MathAnswer>,
    },
    Words(String),
}

/// Reading of a part of an answer, such as an item of a list.
pub(crate) type ReadPart<'a> =
    &'a dyn Fn(&[MathToken], &mut WorkBudget) -> Result<MathAnswer, Stop>;

/// An answer: its value with its unit and its notation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MathAnswer {
    pub(crate) value: MathValue,
    pub(crate) unit: MathUnit,
    /// Digits as written, if the answer consists of digits alone.
    pub(crate) digits: Option<String>,
    /// Rounded value that is given beside the exact one.
    pub(crate) rounded: Option<BigRational>,
}

impl From<MathValue> for MathAnswer {
    fn from(value: MathValue) -> Self {
        Self { value, unit: MathUnit::default(), digits: None, rounded: None }
    }
}

impl MathAnswer {
    /// Returns the number or the set of real numbers that the answer denotes, as a set.
    pub(crate) fn as_points(&self, work: &mut WorkBudget) -> Result<Option<Reals>, Stop> {
        match self.as_number() {
            Some(number) => Ok(Some(Reals::point(number.clone()))),
            None => self.as_reals(work),
        }
    }

    pub(crate) fn of_reals(set: Reals) -> Self {
        MathValue::Reals { set, variable: None }.into()
    }

    /// Returns the set of real numbers that the answer denotes; `None` if it denotes something else. A pair of numbers
    /// is an interval.
    pub(crate) fn as_reals(&self, work: &mut WorkBudget) -> Result<Option<Reals>, Stop> {
        match &self.value {
            MathValue::Reals { set, .. } => Ok(Some(set.clone())),
            MathValue::Tuple { open, items, close } => read_interval(*open, items, *close, work),
            MathValue::Set(items) => {
                let mut variables = items.iter().filter_map(|item| match item.value {
                    MathValue::Reals { variable, .. } => variable,
                    _ => None,
                });
                let first = variables.next();
                if variables.any(|other| first != Some(other)) {
                    return Ok(None);
                }
                let mut points = Reals::empty();
                for item in items {
                    let Some(set) = item.as_points(work)? else { return Ok(None) };
                    points = points.union(&set, work)?;
                }
                Ok(Some(points))
            }
            MathValue::Named { value, .. } => value.as_reals(work),
            _ => Ok(None),
        }
    }

    /// Returns true for one mathematical object that names no option: the text `12 (C) 13` is none.
    pub(crate) fn is_single(&self) -> bool {
        match &self.value {
            MathValue::Number(number) => {
                !number.atom_names().iter().any(|name| ('A'..='J').contains(name))
            }
            MathValue::Tuple { items, .. } => items.iter().all(Self::is_single),
            MathValue::Named { value, .. } => value.is_single(),
            MathValue::Matrix(_) | MathValue::Based(_) | MathValue::Reals { .. } => true,
            _ => false,
        }
    }

    /// Returns the constant that the answer denotes.
    pub(crate) fn as_number(&self) -> Option<&ExactExpr> {
        match &self.value {
            MathValue::Number(number) if distinct_variables(number).is_empty() => Some(number),
            MathValue::Named { value, .. } => value.as_number(),
            _ => None,
        }
    }
}

fn read_interval(
    open: char,
    items: &[MathAnswer],
    close: char,
    work: &mut WorkBudget,
) -> Result<Option<Reals>, Stop> {
    let [low, high] = items else { return Ok(None) };
    let (Some(low), Some(high)) = (low.as_number(), high.as_number()) else { return Ok(None) };
    let infinity = Some('∞');
    let (no_low, no_high) = (low.negate().as_name() == infinity, high.as_name() == infinity);
    let closed_infinity = no_low && open != '(' || no_high && close != ')';
    if closed_infinity || low.as_name() == infinity || high.negate().as_name() == infinity {
        return Ok(None);
    }
    let above = if no_low { Reals::all() } else { Reals::above(low.clone(), open == '[') };
    let below = if no_high { Reals::all() } else { Reals::below(high.clone(), close == ']') };
    let interval = above.intersection(&below, work)?;
    // `(5, 2)` is a point.
    Ok(Some(interval).filter(|interval| !interval.is_empty()))
}
