//! Characters of an answer, and the tokens read so far.

use num_bigint::BigInt;

use crate::reading::NotationReading;
use crate::token::MathToken;

/// A comma that can only separate thousands (`{,}` and `,\!`).
pub(crate) const THOUSANDS: char = '\u{1}';

/// Position in a text, and the tokens before it.
pub(crate) struct LatexLexer {
    pub(crate) rest: Vec<char>,
    pub(crate) at: usize,
    /// Position after the last white space.
    pub(crate) space: usize,
    /// Position of a bare `$` that is a currency sign instead of a delimiter.
    pub(crate) dollar: Option<usize>,
    /// Number of open brackets. Inside brackets a comma separates items, never thousands.
    pub(crate) depth: usize,
    /// Number of commands with text around this one: `\text{..}`.
    pub(crate) text_depth: usize,
    pub(crate) reading: NotationReading,
    pub(crate) tokens: Vec<MathToken>,
}

impl LatexLexer {
    pub(crate) fn new(text: &str, reading: NotationReading) -> Self {
        let rest = text.chars().collect();
        Self {
            rest,
            at: 0,
            space: 0,
            dollar: None,
            depth: 0,
            text_depth: 0,
            reading,
            tokens: Vec::new(),
        }
    }

    pub(crate) fn peek(&self, ahead: usize) -> char {
        self.rest.get(self.at + ahead).copied().unwrap_or('\0')
    }

    pub(crate) fn push_symbol(&mut self, c: char) {
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
            'π' => return self.tokens.push(MathToken::Letter('π')),
            'α'..='ω' => return self.tokens.push(MathToken::Letter(c)),
            'ϕ' => return self.tokens.push(MathToken::Letter('φ')),
            _ => c,
        };
        match symbol {
            '(' | '[' | '⦃' => self.depth += 1,
            ')' | ']' | '⦄' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.tokens.push(MathToken::Symbol(symbol));
    }

    pub(crate) fn take_while(&mut self, keep: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.at < self.rest.len() && keep(self.rest[self.at]) {
            self.at += 1;
        }
        self.rest[start..self.at].iter().collect()
    }

    /// Reads the text in the braces that follow.
    pub(crate) fn take_group(&mut self) -> Option<String> {
        self.take_while(char::is_whitespace);
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

    /// Returns true if the last token ends a number or expression.
    pub(crate) fn after_value(&self) -> bool {
        use MathToken::{Letter, Number, Symbol};
        let last = self.tokens.last();
        matches!(last, Some(Number { .. } | Letter(_) | Symbol(')' | ']' | '}' | '⦄')))
    }

    /// Appends the tokens of a cube root, before its argument.
    pub(crate) fn cube_root(&mut self) {
        let three = MathToken::Number { value: BigInt::from(3).into(), digits: "3".to_owned() };
        self.tokens.extend([
            MathToken::Word("sqrt".to_owned()),
            MathToken::Symbol('['),
            three,
            MathToken::Symbol(']'),
        ]);
    }
}
