//! Tokens of an answer, in LaTeX or plain text.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Pow};

use super::Reading;
use super::function::{is_function, is_known};
use super::unicode::to_latex;
use super::unit;

/// Token of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// An unsigned number, and its digits as written.
    Number { value: BigRational, digits: String },
    /// A letter that stands for a number.
    Letter(char),
    /// A word or a LaTeX command without its backslash.
    Word(String),
    /// The text in `\text{..}` and similar commands.
    Text(String),
    /// Any other character, including LaTeX's named symbols. `$` is a currency sign, never a delimiter.
    Symbol(char),
    /// The end of a row of a matrix.
    Row,
}

/// Maximum number of digits of a period that is read.
const LONGEST_PERIOD: usize = 100;
/// A comma that can only separate thousands (`{,}` and `,\!`).
const THOUSANDS: char = '\u{1}';

/// Splits an answer into tokens. Never fails; unknown text becomes a symbol that no rule accepts.
pub(super) fn tokens(answer: &str, reading: Reading) -> Vec<Token> {
    let mut answer = to_latex(answer).replace("{,}", "\u{1}").replace(",\\!", "\u{1}");
    // `9\!,500` has the comma that `9,500` has.
    answer = answer.replace("\\!,", ",").replace("\\!\u{1}", "\u{1}");
    for (dotted, plain) in [("a.m.", "am"), ("p.m.", "pm"), ("A.M.", "am"), ("P.M.", "pm")] {
        answer = answer.replace(dotted, plain);
    }
    let mut lexer = Lexer::new(&answer, reading);
    lexer.dollar = lexer.sign_of_money();
    lexer.run();
    lexer.tokens
}

pub(super) struct Lexer {
    rest: Vec<char>,
    pub(super) at: usize,
    /// Position after the last white space.
    pub(super) space: usize,
    /// Position of a bare `$` that is a currency sign instead of a delimiter.
    dollar: Option<usize>,
    /// Number of open brackets. Inside brackets a comma separates items, never thousands.
    depth: usize,
    reading: Reading,
    pub(super) tokens: Vec<Token>,
}

impl Lexer {
    fn new(text: &str, reading: Reading) -> Self {
        let rest = text.chars().collect();
        Self { rest, at: 0, space: 0, dollar: None, depth: 0, reading, tokens: Vec::new() }
    }

    fn run(&mut self) {
        while self.at < self.rest.len() {
            self.token();
        }
    }

    /// Appends the tokens of the text inside a command, as outside of it.
    pub(super) fn inline(&mut self, text: &str) {
        let mut inner = Self::new(text, self.reading);
        inner.dollar = inner.sign_of_money();
        inner.depth = self.depth;
        inner.tokens = std::mem::take(&mut self.tokens);
        inner.run();
        self.tokens = inner.tokens;
    }

    /// Returns the position of the first bare `$` if it has no partner and a number follows it: `$5`.
    fn sign_of_money(&self) -> Option<usize> {
        let bare = |at: &usize| self.rest[*at] == '$' && (*at == 0 || self.rest[*at - 1] != '\\');
        let mut signs = (0..self.rest.len()).filter(bare);
        let first = signs.next()?;
        let number = |c: &&char| c.is_ascii_digit() || **c == '.';
        let follows = self.rest.get(first + 1).filter(number).is_some();
        (follows && signs.count() % 2 == 0).then_some(first)
    }

    pub(super) fn peek(&self, ahead: usize) -> char {
        self.rest.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn token(&mut self) {
        let c = self.peek(0);
        match c {
            '\\' => self.command(),
            '0'..='9' => self.number(),
            '.' if self.peek(1).is_ascii_digit() || self.repeating(1).is_some() => self.number(),
            _ if c.is_ascii_alphabetic() => self.letters(),
            '$' if self.dollar != Some(self.at) => self.at += 1,
            _ => {
                self.at += 1;
                let symbol = self.pair(c).inspect(|_| self.at += 1).unwrap_or(c);
                self.symbol(symbol);
            }
        }
    }

    /// Returns the sign that two characters form: `<=`, `>=`, `!=`. `5!=120` is an equation.
    fn pair(&self, first: char) -> Option<char> {
        let letter = matches!(self.tokens.last(), Some(Token::Letter(_)));
        match (first, self.peek(0)) {
            ('<', '=') => Some('≤'),
            ('>', '=') => Some('≥'),
            ('=', '=') => Some('='),
            ('!', '=') if letter => Some('≠'),
            _ => None,
        }
    }

    pub(super) fn symbol(&mut self, c: char) {
        let symbol = match c {
            '~' | '\u{a0}' | '\u{202f}' => return self.space = self.at,
            _ if c.is_whitespace() => return self.space = self.at,
            '−' | '–' | '—' => '-',
            '×' | '·' | '∗' | '⋅' | '•' | '∙' => '*',
            '⁄' | '∕' => '/',
            '⩽' | '≦' => '≤',
            '⩾' | '≧' => '≥',
            '≃' => '≈',
            '⟨' | '〈' => '(',
            '⟩' | '〉' => ')',
            '∣' => '|',
            '′' | '’' => '\'',
            'º' | '˚' => '°',
            '⟹' => '⇒',
            THOUSANDS => ',',
            'π' => return self.tokens.push(Token::Letter('π')),
            'α'..='ω' => return self.tokens.push(Token::Letter(c)),
            'ϕ' => return self.tokens.push(Token::Letter('φ')),
            _ => c,
        };
        match symbol {
            '(' | '[' | '⦃' => self.depth += 1,
            ')' | ']' | '⦄' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.tokens.push(Token::Symbol(symbol));
    }

    pub(super) fn take(&mut self, keep: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.at < self.rest.len() && keep(self.rest[self.at]) {
            self.at += 1;
        }
        self.rest[start..self.at].iter().collect()
    }

    /// Reads the text in the braces that follow.
    pub(super) fn group(&mut self) -> Option<String> {
        self.take(char::is_whitespace);
        if self.peek(0) != '{' {
            return None;
        }
        let mut depth = 0_usize;
        let start = self.at;
        while self.at < self.rest.len() {
            match self.rest[self.at] {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(self.rest[start + 1..self.at - 1].iter().collect());
            }
        }
        None
    }

    fn letters(&mut self) {
        let spaced = self.space == self.at;
        let word = self.take(|c| c.is_ascii_alphabetic());
        let after_value = self.after_value();
        let in_phrase = match self.tokens.last() {
            Some(Token::Text(_)) => true,
            Some(Token::Word(word)) => !is_known(word) && !word.contains(' '),
            _ => false,
        };
        match word.as_str() {
            "pi" => self.tokens.push(Token::Letter('π')),
            "and" | "AND" => self.tokens.push(Token::Symbol('∧')),
            "or" | "OR" => self.tokens.push(Token::Symbol('∨')),
            "inf" | "infinity" | "infty" => self.tokens.push(Token::Symbol('∞')),
            "cbrt" => self.cube_root(),
            "in" if spaced && after_value && self.bracket_follows() => {
                self.tokens.push(Token::Symbol('∈'));
            }
            // The secant has an argument.
            "sec" if spaced && after_value && !self.argument_follows() => {
                self.tokens.push(Token::Text(word));
            }
            _ if in_phrase && (word.len() > 1 || word == "a") => {
                self.tokens.push(Token::Word(word))
            }
            _ if spaced && after_value && unit::is_abbreviation(&word) => {
                self.tokens.push(Token::Word(word));
            }
            _ if after_value && self.reading == Reading::Units && unit::is_letter(&word) => {
                self.tokens.push(Token::Word(word));
            }
            _ if is_product(&word) => self.tokens.extend(word.chars().map(Token::Letter)),
            _ => self.tokens.push(Token::Word(word)),
        }
    }

    pub(super) fn cube_root(&mut self) {
        let three = Token::Number { value: BigInt::from(3).into(), digits: "3".to_owned() };
        self.tokens.extend([
            Token::Word("sqrt".to_owned()),
            Token::Symbol('['),
            three,
            Token::Symbol(']'),
        ]);
    }

    /// Returns true if the last token ends a number or expression.
    pub(super) fn after_value(&self) -> bool {
        use Token::{Letter, Number, Symbol};
        let last = self.tokens.last();
        matches!(last, Some(Number { .. } | Letter(_) | Symbol(')' | ']' | '}' | '⦄')))
    }

    fn next_mark(&self) -> Option<char> {
        self.rest[self.at..].iter().copied().find(|c| !c.is_whitespace())
    }

    fn bracket_follows(&self) -> bool {
        matches!(self.next_mark(), Some('(' | '[' | '{' | '\\'))
    }

    fn argument_follows(&self) -> bool {
        self.next_mark().is_some_and(|c| c.is_alphanumeric() || "({[\\^".contains(c))
    }

    fn number(&mut self) {
        let mut digits = self.take(|c| c.is_ascii_digit());
        if (1..=3).contains(&digits.len()) {
            while let Some(group) = self.thousands() {
                digits.push_str(&group);
            }
        }
        let mut decimals = String::new();
        if self.peek(0) == '.' && self.peek(1).is_ascii_digit() {
            self.at += 1;
            decimals = self.take(|c| c.is_ascii_digit());
        }
        if let Some((length, period)) = self.repeating(usize::from(decimals.is_empty())) {
            self.at += length;
            return self.tokens.push(repeated(&digits, &decimals, &period));
        }
        if let Some((length, (start, period))) = self.dots().zip(period(&decimals)) {
            self.at += length;
            return self.tokens.push(repeated(&digits, &decimals[..start], period));
        }
        let exponent = self.exponent();
        let whole: BigInt = format!("{digits}{decimals}").parse().unwrap_or_default();
        let ten = |power: usize| -> BigInt { Pow::pow(BigInt::from(10), power) };
        let mut value = BigRational::new(whole, ten(decimals.len()));
        value *= match exponent {
            Some(power) if power < 0 => BigRational::new(BigInt::one(), ten(-power as usize)),
            Some(power) => BigRational::from_integer(ten(power as usize)),
            None => BigRational::one(),
        };
        let point = if decimals.is_empty() { "" } else { "." };
        let digits = format!("{digits}{point}{decimals}");
        self.tokens.push(Token::Number { value, digits });
    }

    /// Reads a comma that separates thousands, and the three digits after it.
    fn thousands(&mut self) -> Option<String> {
        let bare = match self.reading {
            Reading::Lists => false,
            Reading::Spaced => true,
            Reading::Plain | Reading::Units => self.depth == 0,
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
    fn repeating(&self, point: usize) -> Option<(usize, String)> {
        if point == 1 && self.peek(0) != '.' {
            return None;
        }
        let after = |mark: &str| {
            let found = mark.chars().enumerate().all(|(i, c)| self.peek(point + i) == c);
            found.then_some(point + mark.len())
        };
        let start = ["\\overline{", "\\bar{", "\\dot{"].into_iter().find_map(after)?;
        let digits = (start..start + LONGEST_PERIOD).map(|at| self.peek(at));
        let period: String = digits.take_while(char::is_ascii_digit).collect();
        let end = start + period.len();
        (!period.is_empty() && self.peek(end) == '}').then(|| (end + 1, period))
    }

    /// Returns the length of the dots after decimals that go on: `0.333\ldots`, `0.333...`
    fn dots(&self) -> Option<usize> {
        let blanks = (0..4).take_while(|at| self.peek(*at) == ' ').count();
        // One of three dots may have ended the sentence.
        let found = ["...", "..", "\\ldots", "\\dots", "\\cdots"]
            .into_iter()
            .find(|dots| dots.chars().enumerate().all(|(i, c)| self.peek(blanks + i) == c))?;
        let end = blanks + found.len();
        (!self.peek(end).is_ascii_alphanumeric()).then_some(end)
    }

    /// Reads the power of ten in `1.5e-3`.
    fn exponent(&mut self) -> Option<isize> {
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

/// Returns true if a run of letters is a product, such as `xy` and `abc`; other words are words.
fn is_product(word: &str) -> bool {
    let ascending = word.as_bytes().windows(2).all(|pair| pair[0] < pair[1]);
    let capitalized = word.len() > 2
        && word.starts_with(|c: char| c.is_ascii_uppercase())
        && word[1..].bytes().all(|b| b.is_ascii_lowercase());
    let short = word.len() <= 2 && !is_function(word);
    (word.len() <= 4 && ascending && !capitalized || short) && !UNITS.contains(&word)
}

/// Returns the beginning and the digits of the period with which decimals end: three times, or twice if it has several
/// digits and begins at the point. The last repetition may be incomplete. `2.718281828` has none.
fn period(decimals: &str) -> Option<(usize, &str)> {
    let digits = decimals.as_bytes();
    let of_length = |length: usize| {
        let repeats = |at: &usize| digits[*at] == digits[*at + length];
        let run = (0..digits.len() - length).rev().take_while(repeats).count();
        let start = digits.len() - length - run;
        let times = (length + run) / length;
        let enough = times >= 3 || times == 2 && length > 1 && start == 0;
        enough.then(|| (start, &decimals[start..start + length]))
    };
    (1..=digits.len() / 2).find_map(of_length)
}

/// Computes a number whose last decimals repeat: `0.1\overline{6}` is 1/6.
fn repeated(digits: &str, decimals: &str, period: &str) -> Token {
    let ten = |power: usize| -> BigInt { Pow::pow(BigInt::from(10), power) };
    let whole = |digits: &str| -> BigInt { digits.parse().unwrap_or_default() };
    let start = BigRational::new(whole(&format!("{digits}{decimals}")), ten(decimals.len()));
    let nines = (ten(period.len()) - 1) * ten(decimals.len());
    let value = start + BigRational::new(whole(period), nines);
    Token::Number { value, digits: format!("{digits}.{decimals}({period})") }
}

/// Short words that are units instead of products of letters.
const UNITS: [&str; 13] =
    ["cm", "km", "mm", "kg", "mg", "ft", "lb", "oz", "ml", "mi", "hr", "am", "kmh"];
