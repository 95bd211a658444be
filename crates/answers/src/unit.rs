//! Units: products of powers of known units, and nouns that only name the counted objects.

mod known;

use std::collections::BTreeMap;

use known::{MONEY, Powers, length_power};
pub(crate) use known::{is_abbreviation, is_letter, lookup_unit};

use crate::verdict::AnswerVerdict;
use crate::work::Stop;

/// Words that are part of no unit: the text after one is another answer or retracts this one.
const HEDGES: &str =
    "or and not but maybe perhaps either wrong incorrect false unless except if vs versus no";

/// Returns true for a word after which a text is another answer, or retracts this one.
pub(crate) fn is_hedge(word: &str) -> bool {
    let word = word.to_lowercase();
    HEDGES.split(' ').any(|other| other == word)
}

/// Text after a number.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct MathUnit {
    powers: BTreeMap<&'static str, i32>,
    /// True if the text has words that are no known unit, such as `apples`.
    noun: bool,
    pub(crate) percent: bool,
}

/// Part of the text of a unit.
pub(crate) enum UnitPiece {
    Word(String),
    Power(i32),
    Per,
}

/// Returns true if a text is a known unit and nothing else: `cm^2`, `m/s`.
pub(crate) fn is_unit(text: &str) -> bool {
    let unit = text_pieces(text).map(|pieces| MathUnit::from_pieces(&pieces));
    matches!(unit, Some(Ok(unit)) if !unit.powers.is_empty() && !unit.noun)
}

impl MathUnit {
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn is_known(&self) -> bool {
        !self.powers.is_empty()
    }

    /// Returns true for a time of the day.
    pub(crate) fn is_daytime(&self) -> bool {
        self.powers.contains_key("am") || self.powers.contains_key("pm")
    }

    /// Multiplies by a power of another unit.
    pub(crate) fn multiply(&mut self, powers: Powers, times: i32) {
        for (name, power) in powers {
            let sum = self.powers.entry(name).or_default();
            *sum = sum.saturating_add(power.saturating_mul(times));
        }
        self.powers.retain(|_, power| *power != 0);
    }

    /// Returns the unit of a text.
    ///
    /// # Errors
    ///
    /// If its words state another number or deny this one.
    pub(crate) fn from_pieces(pieces: &[UnitPiece]) -> Result<Self, Stop> {
        let mut unit = Self::default();
        // Sign and power of the next unit; the last unit and its count.
        let (mut sign, mut power) = (1, 1);
        let mut last: Option<(Powers, i32)> = None;
        for (at, piece) in pieces.iter().enumerate() {
            let next = pieces.get(at + 1);
            match piece {
                UnitPiece::Per => sign = -1,
                UnitPiece::Power(n) => {
                    if let Some((powers, times)) = last.take() {
                        unit.multiply(powers, times.saturating_mul(n.saturating_sub(1)));
                    }
                }
                UnitPiece::Word(word) => match word.to_lowercase().as_str() {
                    "per" => sign = -1,
                    "a" | "an" | "each" if unit.is_known() && may_be_known(next) => sign = -1,
                    "square" | "sq" => power = 2,
                    "cubic" | "cu" => power = 3,
                    "squared" | "cubed" => {
                        if let Some((powers, times)) = last.take() {
                            let more = if word == "squared" { 1 } else { 2 };
                            unit.multiply(powers, times.saturating_mul(more));
                        }
                    }
                    "%" | "percent" => unit.percent = true,
                    "c" if unit.powers.remove("°").is_some() => unit.multiply(&[("°C", 1)], 1),
                    "f" if unit.powers.remove("°").is_some() => unit.multiply(&[("°F", 1)], 1),
                    // `90 in total`, and the unit of an answer.
                    "in" if matches!(next, Some(UnitPiece::Word(_))) => {
                        unit.noun |= !may_be_known(next);
                    }
                    hedge if is_hedge(hedge) => {
                        return Err(Stop::Meaningless);
                    }
                    _ => match lookup_unit(word) {
                        Some(powers) => {
                            if powers[0].0.starts_with('°') && powers[0].0 != "°" {
                                unit.powers.remove("°");
                            }
                            last = Some((powers, sign * power));
                            unit.multiply(powers, sign * power);
                            power = 1;
                        }
                        None => unit.noun = true,
                    },
                },
            }
        }
        Ok(unit)
    }

    /// Returns the verdict on two units. A missing unit agrees with every unit.
    pub(crate) fn agrees_with(&self, other: &Self) -> AnswerVerdict {
        let missing = [self, other].iter().any(|u| !u.is_known() && !u.noun && !u.percent);
        if missing || self.powers == other.powers {
            return AnswerVerdict::Equal;
        }
        // `3 units`, `3 square units`
        let [generic, other_generic] =
            [self, other].map(|unit| unit.powers.keys().all(|name| *name == "unit"));
        match (self.is_known(), other.is_known()) {
            (false, false) => AnswerVerdict::Equal,
            (true, false) if other.percent => AnswerVerdict::Unequal,
            (false, true) if self.percent => AnswerVerdict::Unequal,
            (true, false) if generic => AnswerVerdict::Equal,
            (false, true) if other_generic => AnswerVerdict::Equal,
            // A counted object may also have a weight.
            (true, false) | (false, true) => AnswerVerdict::Undecided,
            (true, true) if generic => AnswerVerdict::from(other.is_measured_in(self)),
            (true, true) if other_generic => AnswerVerdict::from(self.is_measured_in(other)),
            (true, true) => {
                AnswerVerdict::from(self.is_short_for(other) || other.is_short_for(self))
            }
        }
    }

    /// Returns true if `units`, `square units` or `cubic units` may stand for this unit.
    fn is_measured_in(&self, units: &Self) -> bool {
        let dimension =
            self.powers.iter().map(|(name, power)| length_power(name).map(|d| d * power));
        let dimension = dimension.sum::<Option<i32>>();
        let units = units.powers.get("unit").copied().unwrap_or_default();
        dimension == Some(units) || dimension.is_none() && units == 1
    }

    /// Returns true if the unit omits the scale of a temperature, or the object that a price refers to.
    fn is_short_for(&self, other: &Self) -> bool {
        let mut rest = other.powers.clone();
        if self.powers.contains_key("°") {
            let degrees = rest.remove("°C").or_else(|| rest.remove("°F"));
            rest.extend(degrees.map(|power| ("°", power)));
        }
        if self.powers.keys().any(|name| MONEY.contains(name)) {
            rest.retain(|_, power| *power > 0);
        }
        rest == self.powers
    }
}

/// Splits words into the pieces of a unit: `square cm`, `m/s^2`.
pub(crate) fn text_pieces(text: &str) -> Option<Vec<UnitPiece>> {
    let mut pieces = Vec::new();
    let mut rest = text.trim_start();
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '/' => {
                pieces.push(UnitPiece::Per);
                1
            }
            '-' if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                let digits = rest[1..].find(|c: char| !c.is_ascii_digit());
                let end = digits.map_or(rest.len(), |digits| digits + 1);
                pieces.push(UnitPiece::Power(rest[..end].parse().ok()?));
                end
            }
            '0'..='9' => {
                let power = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                let n: i32 = rest[..power].parse().ok().filter(|n| matches!(n, 2 | 3))?;
                let Some(UnitPiece::Word(word)) = pieces.last() else { return None };
                word.starts_with(char::is_alphabetic).then_some(())?;
                pieces.push(UnitPiece::Power(n));
                power
            }
            _ if c.is_alphabetic() || "%°$€£¥₹¢".contains(c) => {
                let end = if c.is_alphabetic() {
                    rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len())
                } else {
                    c.len_utf8()
                };
                pieces.push(UnitPiece::Word(rest[..end].to_owned()));
                end
            }
            _ if c.is_whitespace() || "^{}().,;:!-*·'\"_&".contains(c) => c.len_utf8(),
            _ => return None,
        };
        rest = &rest[length..];
    }
    Some(pieces)
}

/// Returns true for a piece that is no word, and for the word of a known unit.
fn may_be_known(piece: Option<&UnitPiece>) -> bool {
    match piece {
        Some(UnitPiece::Word(word)) => lookup_unit(word).is_some(),
        Some(_) => true,
        None => false,
    }
}
