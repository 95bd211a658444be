//! Lexer: text and tags of a template, split as Jinja does with `trim_blocks` and `lstrip_blocks`.

use std::sync::Arc;

use crate::Error;

/// A token and its line.
pub(crate) struct TemplateToken {
    pub(crate) line: u32,
    pub(crate) kind: TokenKind,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TokenKind {
    /// Text between tags.
    Text(Arc<str>),
    /// Start of an expression, `{{`.
    Print,
    /// End of an expression, `}}`.
    PrintEnd,
    /// Start of a statement, `{%`.
    Tag,
    /// End of a statement, `%}`.
    TagEnd,
    Name(Arc<str>),
    Int(i128),
    Float(f64),
    Str(String),
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

/// Operators and brackets, longer ones first.
const SIGNS: &[&str] = &[
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",", ";",
];

/// Splits a template into tokens, the last of which is [`TokenKind::End`].
///
/// # Errors
///
/// If a tag, a text or a bracket is not closed, or a character is invalid.
pub(crate) fn split_tokens(source: &str) -> Result<Vec<TemplateToken>, Error> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = source.strip_suffix('\n').unwrap_or(&source);
    let mut lexer = TemplateLexer {
        source,
        at: 0,
        line: 1,
        starts_line: true,
        brackets: Vec::new(),
        tokens: Vec::new(),
    };
    lexer.run()?;
    lexer.push_token(TokenKind::End);
    Ok(lexer.tokens)
}

/// Returns true for white space as Python defines it: Unicode's, and the separators of ASCII.
pub(crate) fn is_white(char: char) -> bool {
    char.is_whitespace() || ('\x1c'..='\x1f').contains(&char)
}

struct TemplateLexer<'s> {
    source: &'s str,
    at: usize,
    line: u32,
    /// True if the previous token ended with a line break.
    starts_line: bool,
    /// Closing brackets of those that are open.
    brackets: Vec<char>,
    tokens: Vec<TemplateToken>,
}

impl<'s> TemplateLexer<'s> {
    fn remaining_text(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn push_token(&mut self, kind: TokenKind) {
        self.tokens.push(TemplateToken { line: self.line, kind });
    }

    /// Skips bytes.
    fn skip_bytes(&mut self, bytes: usize) {
        let passed = &self.remaining_text()[..bytes];
        self.line += passed.matches('\n').count() as u32;
        if !passed.is_empty() {
            self.starts_line = passed.ends_with('\n');
        }
        self.at += bytes;
    }

    fn skip_white(&mut self) {
        let rest = self.remaining_text();
        self.skip_bytes(rest.len() - rest.trim_start_matches(is_white).len());
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, Error> {
        Err(syntax_error(self.line, message))
    }

    fn run(&mut self) -> Result<(), Error> {
        while let Some((start, opening)) = find_tag(self.remaining_text()) {
            let rest = self.remaining_text();
            let sign = rest[start + 2..].chars().next().filter(|sign| matches!(sign, '-' | '+'));
            self.emit_text(start, sign, opening == "{{");
            self.skip_bytes(2 + usize::from(sign.is_some()));
            match opening {
                "{#" => self.skip_comment()?,
                "{{" => {
                    self.push_token(TokenKind::Print);
                    self.tokenize_tag("}}")?;
                    self.push_token(TokenKind::PrintEnd);
                }
                _ => match self.raw_begins() {
                    Some(bytes) => self.emit_raw(bytes)?,
                    None => {
                        self.push_token(TokenKind::Tag);
                        self.tokenize_tag("%}")?;
                        self.push_token(TokenKind::TagEnd);
                    }
                },
            }
        }
        let rest = self.remaining_text();
        self.emit_text(rest.len(), None, true);
        Ok(())
    }

    /// Emits text up to a tag, without the part that the tag strips.
    fn emit_text(&mut self, bytes: usize, sign: Option<char>, prints: bool) {
        let text = &self.remaining_text()[..bytes];
        let shown = match sign {
            Some('-') => text.trim_end_matches(is_white),
            Some(_) => text,
            None if prints => text,
            None => {
                let line = text.rfind('\n').map_or(0, |end| end + 1);
                let blank = text[line..].chars().all(is_white);
                if blank && (line > 0 || self.starts_line) { &text[..line] } else { text }
            }
        };
        if !shown.is_empty() {
            self.push_token(TokenKind::Text(shown.into()));
        }
        self.skip_bytes(bytes);
    }

    /// Skips the end of a tag. `-` strips the white space after it; other tags strip a line break.
    fn skip_end(&mut self, end: &str) -> bool {
        let rest = self.remaining_text();
        if rest.strip_prefix('-').is_some_and(|rest| rest.starts_with(end)) {
            self.skip_bytes(1 + end.len());
            self.skip_white();
            return true;
        }
        let plus = end != "}}" && rest.strip_prefix('+').is_some_and(|rest| rest.starts_with(end));
        if !plus && !rest.starts_with(end) {
            return false;
        }
        let line = !plus && end != "}}" && rest[end.len()..].starts_with('\n');
        self.skip_bytes(end.len() + usize::from(plus || line));
        true
    }

    fn skip_comment(&mut self) -> Result<(), Error> {
        let Some(end) = self.remaining_text().find("#}") else {
            return self.error("a comment is not closed: `#}` is missing");
        };
        let sign = self.remaining_text()[..end].ends_with(['-', '+']);
        self.skip_bytes(end - usize::from(sign));
        self.skip_end("#}");
        Ok(())
    }

    /// Returns the length of ` raw %}` if it follows.
    fn raw_begins(&self) -> Option<usize> {
        let rest = self.remaining_text();
        let after = rest.trim_start_matches(is_white).strip_prefix("raw")?;
        let after = after.trim_start_matches(is_white);
        let stripped = after.strip_prefix("-%}").map(|after| after.trim_start_matches(is_white));
        let after = stripped.or_else(|| after.strip_prefix("%}"))?;
        Some(rest.len() - after.len())
    }

    /// Emits everything up to `{% endraw %}` as text.
    fn emit_raw(&mut self, begin: usize) -> Result<(), Error> {
        self.skip_bytes(begin);
        let rest = self.remaining_text();
        for (start, _) in rest.match_indices("{%") {
            let tag = &rest[start + 2..];
            let sign = tag.chars().next().filter(|sign| matches!(sign, '-' | '+'));
            let word = tag[usize::from(sign.is_some())..].trim_start_matches(is_white);
            let Some(after) = word.strip_prefix("endraw") else { continue };
            let after = after.trim_start_matches(is_white);
            if ["%}", "-%}", "+%}"].iter().any(|end| after.starts_with(end)) {
                self.emit_text(start, sign, false);
                self.skip_bytes(rest.len() - start - after.len());
                self.skip_end("%}");
                return Ok(());
            }
        }
        self.error("`{% raw %}` is not closed: `{% endraw %}` is missing")
    }

    /// Tokenizes the inside of a tag, including its end.
    fn tokenize_tag(&mut self, end: &str) -> Result<(), Error> {
        loop {
            if self.brackets.is_empty() && self.skip_end(end) {
                return Ok(());
            }
            self.skip_white();
            if self.brackets.is_empty() && self.skip_end(end) {
                return Ok(());
            }
            let Some(first) = self.remaining_text().chars().next() else {
                return self.error(format!("a tag is not closed: `{end}` is missing"));
            };
            match first {
                '"' | '\'' => self.take_quoted(first)?,
                '0'..='9' => self.take_number()?,
                '_' => self.take_name(),
                first if first.is_alphabetic() => self.take_name(),
                _ => self.take_sign(first)?,
            }
        }
    }

    fn take_name(&mut self) {
        let rest = self.remaining_text();
        let name = rest.trim_start_matches(|char: char| char.is_alphanumeric() || char == '_');
        let name = &rest[..rest.len() - name.len()];
        self.push_token(TokenKind::Name(name.into()));
        self.skip_bytes(name.len());
    }

    fn take_sign(&mut self, first: char) -> Result<(), Error> {
        let rest = self.remaining_text();
        let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) else {
            return self.error(format!("the character {first:?} has no meaning here"));
        };
        match first {
            '(' => self.brackets.push(')'),
            '[' => self.brackets.push(']'),
            '{' => self.brackets.push('}'),
            ')' | ']' | '}' => match self.brackets.pop() {
                Some(open) if open == first => {}
                Some(open) => return self.error(format!("found {first:?}, expected {open:?}")),
                None => return self.error(format!("{first:?} closes nothing")),
            },
            _ => {}
        }
        self.push_token(TokenKind::Sign(sign));
        self.skip_bytes(sign.len());
        Ok(())
    }

    fn take_quoted(&mut self, quote: char) -> Result<(), Error> {
        let rest = &self.remaining_text()[1..];
        let mut escaped = false;
        let end = rest.find(|char| {
            let ends = char == quote && !escaped;
            escaped = char == '\\' && !escaped;
            ends
        });
        let Some(end) = end else {
            return self.error(format!("a text is not closed: {quote} is missing"));
        };
        let text = unescape_text(&rest[..end]).or_else(|message| self.error(message))?;
        self.push_token(TokenKind::Str(text));
        self.skip_bytes(end + 2);
        Ok(())
    }

    /// Reads an integer, or a number with a point or an exponent.
    fn take_number(&mut self) -> Result<(), Error> {
        let rest = self.remaining_text();
        let mut end = count_digits(rest);
        let mut float = false;
        // `.0` after a point is an item, as in `pair.0`.
        if !self.source[..self.at].ends_with('.') {
            let fraction = rest[end..].strip_prefix('.').map_or(0, count_digits);
            if fraction > 0 {
                (end, float) = (end + 1 + fraction, true);
            }
            if let Some(exponent) = rest[end..].strip_prefix(['e', 'E']) {
                let sign = usize::from(exponent.starts_with(['+', '-']));
                let power = count_digits(&exponent[sign..]);
                if power > 0 {
                    (end, float) = (end + 1 + sign + power, true);
                }
            }
        }
        let text = &rest[..end];
        let number = if float {
            text.parse().ok().map(TokenKind::Float)
        } else {
            text.parse().ok().map(TokenKind::Int)
        };
        let Some(number) = number else {
            return self.error(format!("{text:.40} is no number that is supported"));
        };
        self.push_token(number);
        self.skip_bytes(end);
        Ok(())
    }
}

/// Returns the error of a line.
pub(crate) fn syntax_error(line: u32, reason: impl Into<String>) -> Error {
    Error { line, reason: reason.into(), remedy: None }
}

fn count_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Finds the next tag: its position and its kind.
fn find_tag(text: &str) -> Option<(usize, &str)> {
    let mut pairs = text.as_bytes().windows(2);
    let at = pairs.position(|pair| matches!(pair, [b'{', b'{' | b'%' | b'#']))?;
    Some((at, &text[at..at + 2]))
}

/// Replaces the escapes of a quoted text as Python does; an unknown escape is kept.
fn unescape_text(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = &rest[at + 1..];
        let Some(char) = escape.chars().next() else { return Ok(out + "\\") };
        let after = &escape[char.len_utf8()..];
        let plain = match char {
            '\\' | '\'' | '"' => Some(char),
            'n' => Some('\n'),
            't' => Some('\t'),
            'r' => Some('\r'),
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            'a' => Some('\u{7}'),
            'v' => Some('\u{b}'),
            _ => None,
        };
        rest = after;
        if let Some(plain) = plain {
            out.push(plain);
            continue;
        }
        let (base, digits, most) = match char {
            'x' => (16, after, 2),
            'u' => (16, after, 4),
            'U' => (16, after, 8),
            '0'..='7' => (8, escape, 3),
            '\n' => continue,
            _ => {
                out.push('\\');
                out.push(char);
                continue;
            }
        };
        let length =
            digits.bytes().take(most).take_while(|b| char::from(*b).is_digit(base)).count();
        let code = u32::from_str_radix(&digits[..length], base).ok();
        let code = code.filter(|_| base == 8 || length == most).and_then(char::from_u32);
        out.push(code.ok_or_else(|| format!("the escape `\\{char}` has no character"))?);
        rest = &digits[length..];
    }
    out.push_str(rest);
    Ok(out)
}
