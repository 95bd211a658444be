//! Tokens of an answer, in LaTeX or plain text.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Pow};

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// An unsigned number, and how it is written.
    Number { value: BigRational, digits: String },
    /// A letter that stands for a number.
    Letter(char),
    /// A word or a LaTeX command without its backslash.
    Word(String),
    /// The text in `\text{..}` and its like.
    Text(String),
    /// Anything else; LaTeX's names of symbols are these.
    Symbol(char),
    /// The end of a row of a matrix.
    Row,
}

/// LaTeX commands that only place or size.
const SILENT: [&str; 16] = [
    "left",
    "right",
    "big",
    "Big",
    "bigg",
    "Bigg",
    "bigl",
    "bigr",
    "displaystyle",
    "textstyle",
    "quad",
    "qquad",
    "limits",
    "mathbf",
    "boldsymbol",
    "bf",
];
/// LaTeX commands whose argument is text.
const TEXTUAL: [&str; 9] =
    ["text", "mbox", "textnormal", "mathrm", "textbf", "textrm", "operatorname", "textit", "hbox"];
/// LaTeX commands and plain characters that mean a symbol.
const SYMBOLS: [(&str, char); 32] = [
    ("le", '≤'),
    ("leq", '≤'),
    ("leqslant", '≤'),
    ("ge", '≥'),
    ("geq", '≥'),
    ("geqslant", '≥'),
    ("lt", '<'),
    ("gt", '>'),
    ("ne", '≠'),
    ("neq", '≠'),
    ("cdot", '*'),
    ("times", '*'),
    ("div", '÷'),
    ("cup", '∪'),
    ("pm", '±'),
    ("mp", '∓'),
    ("circ", '°'),
    ("degree", '°'),
    ("in", '∈'),
    ("infty", '∞'),
    ("lvert", '|'),
    ("rvert", '|'),
    ("vert", '|'),
    ("langle", '('),
    ("rangle", ')'),
    ("lbrace", '⦃'),
    ("rbrace", '⦄'),
    ("colon", ':'),
    ("mid", '|'),
    ("to", '→'),
    ("emptyset", '∅'),
    ("varnothing", '∅'),
];
/// Most digits of a period that is read.
const LONGEST_PERIOD: usize = 100;
/// A comma that parts thousands and nothing else (`{,}` and `,\!`).
const THOUSANDS: char = '\u{1}';

/// The tokens of an answer. Never fails; what is unknown becomes a symbol that nothing understands.
pub(super) fn tokens(answer: &str) -> Vec<Token> {
    let answer = answer.replace("{,}", "\u{1}").replace(",\\!", "\u{1}");
    let mut lexer = Lexer { rest: answer.chars().collect(), at: 0, depth: 0, tokens: Vec::new() };
    while lexer.at < lexer.rest.len() {
        lexer.token();
    }
    lexer.tokens
}

struct Lexer {
    rest: Vec<char>,
    at: usize,
    /// Brackets that are open: inside them a comma parts items, never thousands.
    depth: usize,
    tokens: Vec<Token>,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> char {
        self.rest.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn token(&mut self) {
        let c = self.peek(0);
        match c {
            '\\' => self.command(),
            '0'..='9' => self.number(),
            '.' if self.peek(1).is_ascii_digit() || self.repeating(1).is_some() => self.number(),
            _ if c.is_ascii_alphabetic() => self.letters(),
            _ => {
                self.at += 1;
                self.symbol(c);
            }
        }
    }

    fn symbol(&mut self, c: char) {
        let symbol = match c {
            '$' | '~' | '\u{a0}' | '\u{202f}' => return,
            _ if c.is_whitespace() => return,
            '−' | '–' | '—' => '-',
            '×' | '·' | '∗' => '*',
            THOUSANDS => ',',
            'π' => return self.tokens.push(Token::Letter('π')),
            '√' => return self.tokens.push(Token::Word("sqrt".to_owned())),
            _ => c,
        };
        match symbol {
            '(' | '[' | '⦃' => self.depth += 1,
            ')' | ']' | '⦄' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.tokens.push(Token::Symbol(symbol));
    }

    fn command(&mut self) {
        self.at += 1;
        let c = self.peek(0);
        if !c.is_ascii_alphabetic() {
            self.at += 1;
            match c {
                '\\' => self.tokens.push(Token::Row),
                '{' => self.symbol('⦃'),
                '}' => self.symbol('⦄'),
                '%' | '|' => self.symbol(c),
                _ => {}
            }
            return;
        }
        let name: String = self.take(|c| c.is_ascii_alphabetic());
        match name.as_str() {
            _ if SILENT.contains(&name.as_str()) => {}
            _ if TEXTUAL.contains(&name.as_str()) => self.text(),
            "begin" | "end" => {
                let environment = self.group().unwrap_or_default();
                self.tokens.push(Token::Word(format!("{name} {environment}")));
            }
            "phantom" => {
                if self.group().is_none() {
                    self.at += 1;
                }
            }
            "pi" => self.tokens.push(Token::Letter('π')),
            "dfrac" | "tfrac" | "cfrac" => self.tokens.push(Token::Word("frac".to_owned())),
            _ => match SYMBOLS.iter().find(|(word, _)| *word == name) {
                Some((_, symbol)) => self.symbol(*symbol),
                None => self.tokens.push(Token::Word(name)),
            },
        }
    }

    fn take(&mut self, keep: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.at < self.rest.len() && keep(self.rest[self.at]) {
            self.at += 1;
        }
        self.rest[start..self.at].iter().collect()
    }

    /// The text in braces that come next.
    fn group(&mut self) -> Option<String> {
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

    fn text(&mut self) {
        let Some(text) = self.group() else { return };
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if matches!(words.as_str(), "and" | "or") {
            self.tokens.push(Token::Symbol(','));
        } else if !words.is_empty() {
            self.tokens.push(Token::Text(words));
        }
    }

    fn letters(&mut self) {
        let word = self.take(|c| c.is_ascii_alphabetic());
        let ascending = word.as_bytes().windows(2).all(|pair| pair[0] < pair[1]);
        match word.as_str() {
            "pi" => self.tokens.push(Token::Letter('π')),
            "and" | "or" => self.tokens.push(Token::Symbol(',')),
            "inf" | "infinity" => self.tokens.push(Token::Symbol('∞')),
            // `xy` and `abc` are products; other words are words.
            _ if word.len() <= 4 && ascending && !UNITS.contains(&word.as_str())
                || word.len() <= 2
                    && !UNITS.contains(&word.as_str())
                    && !super::function::is_function(&word) =>
            {
                self.tokens.extend(word.chars().map(Token::Letter));
            }
            _ => self.tokens.push(Token::Word(word)),
        }
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

    /// A comma that parts thousands, and the three digits after it.
    fn thousands(&mut self) -> Option<String> {
        let blanks = match self.peek(0) {
            ',' if self.depth == 0 => 0,
            // A thin space.
            '\\' if self.peek(1) == ',' => 1,
            // LaTeX's spaces after a comma that is marked.
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

    /// The digits in `\overline{3}`, that many characters from here, after the point if `point` is 1; and the length of all.
    fn repeating(&self, point: usize) -> Option<(usize, String)> {
        if point == 1 && self.peek(0) != '.' {
            return None;
        }
        let after = |mark: &str| {
            let found = mark.chars().enumerate().all(|(i, c)| self.peek(point + i) == c);
            found.then_some(point + mark.len())
        };
        let start = after("\\overline{").or_else(|| after("\\bar{"))?;
        let digits = (start..start + LONGEST_PERIOD).map(|at| self.peek(at));
        let period: String = digits.take_while(char::is_ascii_digit).collect();
        let end = start + period.len();
        (!period.is_empty() && self.peek(end) == '}').then(|| (end + 1, period))
    }

    /// The power of ten in `1.5e-3`.
    fn exponent(&mut self) -> Option<isize> {
        if !matches!(self.peek(0), 'e' | 'E') {
            return None;
        }
        let sign = matches!(self.peek(1), '+' | '-');
        let from = 1 + usize::from(sign);
        let length = (0..4).take_while(|i| self.peek(from + i).is_ascii_digit()).count();
        let next = self.peek(from + length);
        if !(1..=3).contains(&length) || next.is_ascii_alphanumeric() {
            return None;
        }
        let text: String = (from..from + length).map(|i| self.peek(i)).collect();
        let negative = self.peek(1) == '-';
        self.at += from + length;
        let power: isize = text.parse().ok()?;
        Some(if negative { -power } else { power })
    }
}

/// A number whose last decimals repeat: `0.1\overline{6}` is 1/6.
fn repeated(digits: &str, decimals: &str, period: &str) -> Token {
    let ten = |power: usize| -> BigInt { Pow::pow(BigInt::from(10), power) };
    let whole = |digits: &str| -> BigInt { digits.parse().unwrap_or_default() };
    let start = BigRational::new(whole(&format!("{digits}{decimals}")), ten(decimals.len()));
    let nines = (ten(period.len()) - 1) * ten(decimals.len());
    let value = start + BigRational::new(whole(period), nines);
    Token::Number { value, digits: format!("{digits}.{decimals}({period})") }
}

/// Short words that are units and no products of letters.
const UNITS: [&str; 13] =
    ["cm", "km", "mm", "kg", "mg", "ft", "lb", "oz", "ml", "mi", "hr", "am", "kmh"];
