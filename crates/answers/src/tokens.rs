//! Texts as tokens.

use crate::function::{is_function, is_known};
use crate::lexer::LatexLexer;
use crate::reading::NotationReading;
use crate::token::MathToken;
use crate::unicode::to_latex;
use crate::unit;

/// Short words that are units instead of products of letters.
const UNITS: [&str; 13] =
    ["cm", "km", "mm", "kg", "mg", "ft", "lb", "oz", "ml", "mi", "hr", "am", "kmh"];

/// Splits an answer into tokens. Never fails; unknown text becomes a symbol that no rule accepts.
pub(crate) fn split_tokens(answer: &str, reading: NotationReading) -> Vec<MathToken> {
    let mut answer = to_latex(answer).replace("{,}", "\u{1}").replace(",\\!", "\u{1}");
    // `9\!,500` has the comma that `9,500` has.
    answer = answer.replace("\\!,", ",").replace("\\!\u{1}", "\u{1}");
    for (dotted, plain) in [("a.m.", "am"), ("p.m.", "pm"), ("A.M.", "am"), ("P.M.", "pm")] {
        answer = answer.replace(dotted, plain);
    }
    let mut lexer = LatexLexer::new(&answer, reading);
    lexer.dollar = lexer.sign_of_money();
    lexer.run();
    lexer.tokens
}

impl LatexLexer {
    fn run(&mut self) {
        while self.at < self.rest.len() {
            self.read_token();
        }
    }

    /// Appends the tokens of the text inside a command, as outside of it.
    fn push_inline(&mut self, text: &str) {
        let mut inner = Self::new(text, self.reading);
        inner.dollar = inner.sign_of_money();
        inner.depth = self.depth;
        inner.text_depth = self.text_depth + 1;
        inner.tokens = std::mem::take(&mut self.tokens);
        inner.run();
        self.tokens = inner.tokens;
    }

    /// Returns the position of the first bare `$` if it has no partner and a number follows it: `$5`.
    fn sign_of_money(&self) -> Option<usize> {
        let mut signs = (0..self.rest.len())
            .filter(|at| self.rest[*at] == '$' && (*at == 0 || self.rest[*at - 1] != '\\'));
        let first = signs.next()?;
        let follows = self.rest.get(first + 1).is_some_and(|c| c.is_ascii_digit() || *c == '.');
        (follows && signs.count() % 2 == 0).then_some(first)
    }

    fn read_token(&mut self) {
        let c = self.peek(0);
        match c {
            '\\' => {
                if let Some(text) = self.read_command() {
                    self.push_inline(&text);
                }
            }
            '0'..='9' => self.read_number(),
            '.' if self.peek(1).is_ascii_digit() || self.read_repeating(1).is_some() => {
                self.read_number()
            }
            _ if c.is_ascii_alphabetic() => self.read_letters(),
            '$' if self.dollar != Some(self.at) => self.at += 1,
            _ => {
                self.at += 1;
                let symbol = self.sign_of_pair(c).inspect(|_| self.at += 1).unwrap_or(c);
                self.push_symbol(symbol);
            }
        }
    }

    /// Returns the sign that two characters form: `<=`, `>=`, `!=`. `5!=120` is an equation.
    fn sign_of_pair(&self, first: char) -> Option<char> {
        let letter = matches!(self.tokens.last(), Some(MathToken::Letter(_)));
        match (first, self.peek(0)) {
            ('<', '=') => Some('≤'),
            ('>', '=') => Some('≥'),
            ('=', '=') => Some('='),
            ('!', '=') if letter => Some('≠'),
            _ => None,
        }
    }

    fn read_letters(&mut self) {
        let spaced = self.space == self.at;
        let word = self.take_while(|c| c.is_ascii_alphabetic());
        let after_value = self.after_value();
        let in_phrase = match self.tokens.last() {
            Some(MathToken::Text(_)) => true,
            Some(MathToken::Word(word)) => !is_known(word) && !word.contains(' '),
            _ => false,
        };
        match word.as_str() {
            "pi" => self.tokens.push(MathToken::Letter('π')),
            "and" | "AND" => self.tokens.push(MathToken::Symbol('∧')),
            "or" | "OR" => self.tokens.push(MathToken::Symbol('∨')),
            "inf" | "infinity" | "infty" => self.tokens.push(MathToken::Symbol('∞')),
            "cbrt" => self.cube_root(),
            "in" if spaced && after_value && self.bracket_follows() => {
                self.tokens.push(MathToken::Symbol('∈'));
            }
            // The secant has an argument.
            "sec" if spaced && after_value && !self.argument_follows() => {
                self.tokens.push(MathToken::Text(word));
            }
            _ if in_phrase && (word.len() > 1 || word == "a") => {
                self.tokens.push(MathToken::Word(word))
            }
            _ if spaced && after_value && unit::is_abbreviation(&word) => {
                self.tokens.push(MathToken::Word(word));
            }
            _ if after_value
                && self.reading == NotationReading::Units
                && unit::is_letter(&word) =>
            {
                self.tokens.push(MathToken::Word(word));
            }
            _ if is_product(&word) => self.tokens.extend(word.chars().map(MathToken::Letter)),
            _ => self.tokens.push(MathToken::Word(word)),
        }
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
