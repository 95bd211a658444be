//! Parsed values of answers.

use num_rational::BigRational;

use crate::based::Based;
use crate::exact::Expr;
use crate::name::{Name, variables};
use crate::reals::Reals;
use crate::token::Token;
use crate::unit::Unit;
use crate::work::{Stop, Work};

/// Parsed value of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Number(Expr),
    /// A point or an interval; only the question decides which.
    Tuple {
        open: char,
        items: Vec<Answer>,
        close: char,
    },
    /// Items in any order, in braces or bare.
    Set(Vec<Answer>),
    /// A union of sets that are not known to be real.
    Union(Vec<Answer>),
    /// A set of real numbers that is not a tuple, with its variable where one is named.
    Reals {
        set: Reals,
        variable: Option<char>,
    },
    Matrix(Vec<Vec<Expr>>),
    /// `combined`: the left side has several variables, so the right side may be the result.
    Relation {
        left: Expr,
        sign: char,
        right: Expr,
        combined: bool,
    },
    /// A result with its name: `x = 5`, `\text{Area} = 5`.
    Named {
        name: Name,
        value: Box<Answer>,
    },
    /// Results with different names.
    Assigned(Vec<(Name, Answer)>),
    Based(Based),
    /// One of the options of a question.
    Choice(char),
    /// An option with its value: `\textbf{(B)}\ 12`.
    Labeled {
        option: char,
        value: Box<Answer>,
    },
    Words(String),
}

/// Reading of a part of an answer, such as an item of a list.
pub(crate) type ReadPart<'a> = &'a dyn Fn(&[Token], &mut Work) -> Result<Answer, Stop>;

/// An answer: its value with its unit and its notation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) value: Value,
    pub(crate) unit: Unit,
    /// Digits as written, if the answer consists of digits alone.
    pub(crate) digits: Option<String>,
    /// Rounded value that is given beside the exact one.
    pub(crate) rounded: Option<BigRational>,
}

impl From<Value> for Answer {
    fn from(value: Value) -> Self {
        Self { value, unit: Unit::default(), digits: None, rounded: None }
    }
}

impl Answer {
    /// Returns the set of real numbers that the answer denotes; `None` if it denotes something else. A pair of numbers
    /// is an interval.
    pub(crate) fn reals(&self, work: &mut Work) -> Result<Option<Reals>, Stop> {
        match &self.value {
            Value::Reals { set, .. } => Ok(Some(set.clone())),
            Value::Tuple { open, items, close } => interval(*open, items, *close, work),
            Value::Set(items) => {
                let mut variables = items.iter().filter_map(|item| match item.value {
                    Value::Reals { variable, .. } => variable,
                    _ => None,
                });
                let first = variables.next();
                if variables.any(|other| first != Some(other)) {
                    return Ok(None);
                }
                let mut points = Reals::empty();
                for item in items {
                    let set = match item.number() {
                        Some(number) => Some(Reals::point(number.clone())),
                        None => item.reals(work)?,
                    };
                    let Some(set) = set else { return Ok(None) };
                    points = points.union(&set, work)?;
                }
                Ok(Some(points))
            }
            Value::Named { value, .. } => value.reals(work),
            _ => Ok(None),
        }
    }

    /// Returns true for one mathematical object that names no option: the text `12 (C) 13` is none.
    pub(crate) fn is_single(&self) -> bool {
        match &self.value {
            Value::Number(number) => !number.names().iter().any(|name| ('A'..='J').contains(name)),
            Value::Tuple { items, .. } => items.iter().all(Self::is_single),
            Value::Named { value, .. } => value.is_single(),
            Value::Matrix(_) | Value::Based(_) | Value::Reals { .. } => true,
            _ => false,
        }
    }

    /// Returns the constant that the answer denotes.
    pub(crate) fn number(&self) -> Option<&Expr> {
        match &self.value {
            Value::Number(number) if variables(number).is_empty() => Some(number),
            Value::Named { value, .. } => value.number(),
            _ => None,
        }
    }
}

fn interval(
    open: char,
    items: &[Answer],
    close: char,
    work: &mut Work,
) -> Result<Option<Reals>, Stop> {
    let [low, high] = items else { return Ok(None) };
    let (Some(low), Some(high)) = (low.number(), high.number()) else { return Ok(None) };
    let infinite = |end: &Expr| end.name() == Some('∞');
    let above = match infinite(&low.negated()) {
        true if open == '(' => Reals::all(),
        true => return Ok(None),
        false if infinite(low) => return Ok(None),
        false => Reals::above(low.clone(), open == '['),
    };
    let below = match infinite(high) {
        true if close == ')' => Reals::all(),
        true => return Ok(None),
        false if infinite(&high.negated()) => return Ok(None),
        false => Reals::below(high.clone(), close == ']'),
    };
    let interval = above.intersection(&below, work)?;
    // `(5, 2)` is a point.
    Ok(Some(interval).filter(|interval| !interval.is_empty()))
}
