//! Numbers as tokens: thousands, decimals, periods, powers of ten.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Pow};

use crate::lexer::{LatexLexer, THOUSANDS};
use crate::reading::NotationReading;
use crate::token::MathToken;

/// Maximum number of digits of a period that is read.
const LONGEST_PERIOD: usize = 100;

impl LatexLexer {
    /// Reads a number.
    pub(crate) fn read_number(&mut self) {
        let mut digits = self.take_while(|c| c.is_ascii_digit());
        if (1..=3).contains(&digits.len()) {
            while let Some(group) = self.read_thousands() {
                digits.push_str(&group);
            }
        }
        let mut decimals = String::new();
        if self.peek(0) == '.' && self.peek(1).is_ascii_digit() {
            self.at += 1;
            decimals = self.take_while(|c| c.is_ascii_digit());
        }
        if let Some((length, period)) = self.read_repeating(usize::from(decimals.is_empty())) {
            self.at += length;
            return self.tokens.push(repeating_decimal(&digits, &decimals, &period));
        }
        if let Some((length, (start, period))) = self.trailing_dots().zip(find_period(&decimals)) {
            self.at += length;
            return self.tokens.push(repeating_decimal(&digits, &decimals[..start], period));
        }
        let exponent = self.read_exponent();
        let whole: BigInt = format!("{digits}{decimals}").parse().unwrap_or_default();
        let mut value = BigRational::new(whole, power_of_ten(decimals.len()));
        value *= match exponent {
            Some(power) if power < 0 => {
                BigRational::new(BigInt::one(), power_of_ten(-power as usize))
            }
            Some(power) => BigRational::from_integer(power_of_ten(power as usize)),
            None => BigRational::one(),
        };
        let point = if decimals.is_empty() { "" } else { "." };
        let digits = format!("{digits}{point}{decimals}");
        self.tokens.push(MathToken::Number { value, digits });
    }

    /// Reads a comma that separates thousands, and the three digits after it.
    fn read_thousands(&mut self) -> Option<String> {
        let bare = match self.reading {
            NotationReading::Lists => false,
            NotationReading::Spaced => true,
            NotationReading::Plain | NotationReading::Units => self.depth == 0,
        };
        // `000` alone is not a number.
        let zero = self.peek(1) == '0';
        let blanks = match self.peek(0) {
            ',' if bare || zero => 0,
            // Thin spaces.
            '\u{2009}' | '\u{202f}' => 0,
            '\\' if self.peek(1) == ',' => 1,
            // Spaces of LaTeX after a marked comma.
            THOUSANDS => (1..4).take_while(|at| self.peek(*at).is_whitespace()).count(),
            _ => return None,
        };
        let start = 1 + blanks;
        let digits: String =
            (start..start + 3).map(|at| self.peek(at)).filter(char::is_ascii_digit).collect();
        let three = digits.len() == 3 && !self.peek(start + 3).is_ascii_digit();
        if three {
            self.at += start + 3;
        }
        three.then_some(digits)
    }

    /// Reads the digits in `\overline{3}` at an offset, after the point if `point` is 1. Returns them with the total
    /// length.
    pub(crate) fn read_repeating(&self, point: usize) -> Option<(usize, String)> {
        if point == 1 && self.peek(0) != '.' {
            return None;
        }
        let start = ["\\overline{", "\\bar{", "\\dot{"]
            .into_iter()
            .find(|mark| mark.chars().enumerate().all(|(i, c)| self.peek(point + i) == c))
            .map(|mark| point + mark.len())?;
        let digits = (start..start + LONGEST_PERIOD).map(|at| self.peek(at));
        let period: String = digits.take_while(char::is_ascii_digit).collect();
        let end = start + period.len();
        (!period.is_empty() && self.peek(end) == '}').then(|| (end + 1, period))
    }

    /// Returns the length of the dots after decimals that go on: `0.333\ldots`, `0.333...`
    fn trailing_dots(&self) -> Option<usize> {
        let blanks = (0..4).take_while(|at| self.peek(*at) == ' ').count();
        // One of three dots may have ended the sentence.
        let found = ["...", "..", "\\ldots", "\\dots", "\\cdots"]
            .into_iter()
            .find(|dots| dots.chars().enumerate().all(|(i, c)| self.peek(blanks + i) == c))?;
        let end = blanks + found.len();
        (!self.peek(end).is_ascii_alphanumeric()).then_some(end)
    }

    /// Reads the power of ten in `1.5e-3`.
    fn read_exponent(&mut self) -> Option<isize> {
        if !matches!(self.peek(0), 'e' | 'E') {
            return None;
        }
        let sign = matches!(self.peek(1), '+' | '-');
        let from = 1 + usize::from(sign);
        let length = (0..4).take_while(|i| self.peek(from + i).is_ascii_digit()).count();
        let next = self.peek(from + length);
        // In `2E3_{16}` the `E` is a digit.
        if !(1..=3).contains(&length) || next.is_ascii_alphanumeric() || next == '_' {
            return None;
        }
        let text: String = (from..from + length).map(|i| self.peek(i)).collect();
        let negative = self.peek(1) == '-';
        self.at += from + length;
        let power: isize = text.parse().ok()?;
        Some(if negative { -power } else { power })
    }
}

/// Returns the beginning and the digits of the period with which decimals end: three times, or twice if it has several
/// digits and begins at the point. The last repetition may be incomplete. `2.718281828` has none.
fn find_period(decimals: &str) -> Option<(usize, &str)> {
    (1..=decimals.len() / 2).find_map(|length| period_of_length(decimals, length))
}

/// Returns the beginning and the digits of the period of a length.
fn period_of_length(decimals: &str, length: usize) -> Option<(usize, &str)> {
    let digits = decimals.as_bytes();
    let places = (0..digits.len() - length).rev();
    let run = places.take_while(|at| digits[*at] == digits[*at + length]).count();
    let start = digits.len() - length - run;
    let times = (length + run) / length;
    let enough = times >= 3 || times == 2 && length > 1 && start == 0;
    enough.then(|| (start, &decimals[start..start + length]))
}

fn power_of_ten(power: usize) -> BigInt {
    Pow::pow(BigInt::from(10), power)
}

/// Computes a number whose last decimals repeat: `0.1\overline{6}` is 1/6.
fn repeating_decimal(digits: &str, decimals: &str, period: &str) -> MathToken {
    let shift = power_of_ten(decimals.len());
    let [whole, period_number] = [&format!("{digits}{decimals}"), period]
        .map(|digits| digits.parse::<BigInt>().unwrap_or_default());
    let start = BigRational::new(whole, shift.clone());
    let nines = (power_of_ten(period.len()) - 1) * shift;
    let value = start + BigRational::new(period_number, nines);
    MathToken::Number { value, digits: format!("{digits}.{decimals}({period})") }
}
