//! Ranges of numbers.

use std::fmt::{Debug, Display};
use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroIsize, NonZeroU8, NonZeroU16, NonZeroU32,
    NonZeroU64, NonZeroUsize,
};

/// A range of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// The lower end.
    pub from: Option<Bound>,
    /// The upper end.
    pub to: Option<Bound>,
    /// Whole numbers only.
    pub whole: bool,
}

/// An end of a range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// The number.
    pub value: f64,
    /// It is inside.
    pub included: bool,
}

impl Range {
    /// Returns true if a number is inside. No infinite number is.
    pub fn contains(&self, x: f64) -> bool {
        let above = self.from.is_none_or(|b| x > b.value || (b.included && x == b.value));
        let below = self.to.is_none_or(|b| x < b.value || (b.included && x == b.value));
        x.is_finite() && above && below
    }

    /// The range in words: of one number, or of each of several.
    pub fn words(&self, several: bool) -> String {
        let kind = match (self.whole, self.to) {
            (true, _) => "whole ",
            (false, None) => "finite ",
            (false, Some(_)) => "",
        };
        let noun = if several { format!("{kind}numbers") } else { format!("a {kind}number") };
        let from = self.from.map(|b| (if b.included { "from" } else { "above" }, b));
        let to = self.to.map(|b| (if b.included { "to" } else { "below" }, b));
        match (from, to) {
            (None, None) => noun,
            (Some((word, b)), None) => format!("{noun} {word} {}", b.value),
            (None, Some(("to", b))) => format!("{noun} up to {}", b.value),
            (None, Some((_, b))) => format!("{noun} below {}", b.value),
            (Some(("from", a)), Some(("to", b))) => {
                format!("{noun} from {} to {}", a.value, b.value)
            }
            (Some(("from", a)), Some((_, b))) => {
                format!("{noun} from {} to below {}", a.value, b.value)
            }
            (Some((_, a)), Some(("to", b))) => {
                format!("{noun} above {} and at most {}", a.value, b.value)
            }
            (Some((_, a)), Some((_, b))) => {
                format!("{noun} above {} and below {}", a.value, b.value)
            }
        }
    }

    /// Numbers of a value that are outside.
    pub fn check<N: Numbers>(&self, key: &'static str, value: &N) -> Vec<OutOfRange> {
        let numbers = value.numbers();
        let several = numbers.len() > 1;
        let outside = numbers.into_iter().filter(|(number, _)| !self.contains(*number));
        outside.map(|(_, found)| self.out_of_range(key, found, several)).collect()
    }

    fn out_of_range(&self, key: &'static str, found: String, several: bool) -> OutOfRange {
        OutOfRange { key: vec![key], found, several, expected: self.words(several) }
    }
}

/// A number out of its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfRange {
    /// Parts of the key.
    pub key: Vec<&'static str>,
    /// The number.
    pub found: String,
    /// It is one of several that the key has.
    pub several: bool,
    /// The range, in words.
    pub expected: String,
}

impl OutOfRange {
    /// The problem after the name of its key: "is 2; expected a number from 0 to 1".
    pub fn message(&self) -> String {
        let verb = if self.several { "holds" } else { "is" };
        format!("{verb} {}; expected {}", self.found, self.expected)
    }

    /// The same of a table in another one.
    #[must_use]
    pub fn within(mut self, table: &'static str) -> Self {
        self.key.insert(0, table);
        self
    }
}

/// A value of one number or more.
pub trait Numbers {
    /// Each number, and as a user would write it.
    fn numbers(&self) -> Vec<(f64, String)>;
}

impl Numbers for f64 {
    fn numbers(&self) -> Vec<(f64, String)> {
        vec![(*self, number(*self, *self))]
    }
}

impl Numbers for f32 {
    fn numbers(&self) -> Vec<(f64, String)> {
        vec![(f64::from(*self), number(*self, f64::from(*self)))]
    }
}

impl Numbers for (f64, f64) {
    fn numbers(&self) -> Vec<(f64, String)> {
        [self.0.numbers(), self.1.numbers()].concat()
    }
}

impl<N: Numbers> Numbers for Option<N> {
    fn numbers(&self) -> Vec<(f64, String)> {
        self.as_ref().map(N::numbers).unwrap_or_default()
    }
}

/// Implements [`Numbers`] for whole numbers, with and without 0.
macro_rules! whole_numbers {
    ($($number:ty, $nonzero:ty;)*) => {$(
        impl Numbers for $number {
            fn numbers(&self) -> Vec<(f64, String)> {
                vec![(*self as f64, self.to_string())]
            }
        }

        impl Numbers for $nonzero {
            fn numbers(&self) -> Vec<(f64, String)> {
                self.get().numbers()
            }
        }
    )*};
}

whole_numbers! {
    u8, NonZeroU8;
    u16, NonZeroU16;
    u32, NonZeroU32;
    u64, NonZeroU64;
    usize, NonZeroUsize;
    i8, NonZeroI8;
    i16, NonZeroI16;
    i32, NonZeroI32;
    i64, NonZeroI64;
    isize, NonZeroIsize;
}

/// 1e-6 rather than 0.000001, and 1 rather than 1.0.
fn number<T: Debug + Display>(written: T, value: f64) -> String {
    let small = value != 0.0 && value.abs() < 1e-4;
    if small { format!("{written:?}") } else { written.to_string() }
}
