//! Explanations of texts that are not TOML, by their probable intent.

mod value;

use std::ops::Range;

use toml_edit::TomlError;

use super::names::{bare, snake_case};
use super::unread::UnreadValue;

/// Span, message and help.
type SyntaxProblem = (Range<usize>, String, String);

/// Returns the problem of a parser error, explained if the line shows the intent.
pub(super) fn explain(name: &str, text: &str, error: &TomlError) -> UnreadValue {
    let said = error.message().trim().replace('\n', "; ");
    let at = error.span().map_or(0, |span| span.start).min(text.len());
    if let Some(message) = other_format(text) {
        return (None, format!("{name} is not TOML: {message}"), Some(EXAMPLE.to_owned()));
    }
    let line = Line::line_around(text, at);
    let found = twice(text, at, &said)
        .or_else(|| line.typographic())
        .or_else(|| line.header())
        .or_else(|| line.comment())
        .or_else(|| line.assignment());
    match found {
        Some((span, what, help)) => (Some(span), format!("{name} is not TOML: {what}"), Some(help)),
        None => (error.span(), format!("{name} is not TOML: {said}"), None),
    }
}

const EXAMPLE: &str = "a configuration reads like `steps = 100`, then `[task]`, then `group_size = 8`: docs/src/config.md";

/// Returns the name of another format if the whole text is in it.
fn other_format(text: &str) -> Option<String> {
    let text = text.trim_start_matches('\u{feff}');
    let mut lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let first = lines.next()?;
    if first.starts_with('{') {
        return Some("it begins like JSON".to_owned());
    }
    let mut others = lines.take(1);
    let yaml = has_colon(first) && others.all(|line| has_colon(line) || line.starts_with("- "));
    (first == "---" || yaml).then(|| "it reads like YAML".to_owned())
}

/// Returns true for a line of YAML with a key.
fn has_colon(line: &str) -> bool {
    line.split_once(':')
        .is_some_and(|(key, rest)| bare(key) && (rest.is_empty() || rest.starts_with(' ')))
}

/// Reports a key or table that is defined twice, with the line of the first.
fn twice(text: &str, at: usize, said: &str) -> Option<SyntaxProblem> {
    let (_, key) = said.split_once("duplicate key `")?;
    let key = key.split('`').next()?;
    let line = Line::line_around(text, at);
    let here = text[..line.start].matches('\n').count() + 1;
    let header = line.code().starts_with('[');
    // A key may occur again in another table; the relevant one is in the same table.
    let first = (1..here).find(|n| {
        let other = text.lines().nth(n - 1).unwrap_or_default().trim();
        key_of(other) == key_of(line.code())
            && (header || header_above(text, *n) == header_above(text, here))
    });
    let place = first.map_or_else(String::new, |first| format!(", first in line {first}"));
    let span = line.whole_span();
    Some(if header {
        let header = line.code();
        (
            span,
            format!("the table `{header}` is there twice{place}"),
            "write all its keys under one header".to_owned(),
        )
    } else {
        (span, format!("`{key}` is set twice{place}"), "remove one of the two".to_owned())
    })
}

/// Returns what an assignment begins with, or the whole of another line.
fn key_of(line: &str) -> Option<&str> {
    line.split('=').next().map(str::trim)
}

/// Returns the last header of a table in the first lines of a text.
fn header_above(text: &str, lines: usize) -> Option<&str> {
    text.lines().take(lines).filter(|line| line.trim_start().starts_with('[')).last()
}

/// Returns the offset of the start of the line that contains a position.
fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |end| end + 1)
}

/// A line of a text.
struct Line<'t> {
    text: &'t str,
    /// Byte offset of the line's start.
    start: usize,
}

impl<'t> Line<'t> {
    /// Returns the line that contains a position; the previous one, if the line is empty or the position is after the
    /// end of a line.
    fn line_around(text: &'t str, at: usize) -> Self {
        let mut start = line_start(text, text.floor_char_boundary(at));
        loop {
            let line = text[start..].lines().next().unwrap_or_default();
            if !line.trim().is_empty() || start == 0 {
                return Self { text: line, start };
            }
            start = line_start(text, start - 1);
        }
    }

    /// Returns the line without surrounding space and comment.
    fn code(&self) -> &'t str {
        let mut quote = None;
        let mut end = self.text.len();
        for (at, c) in self.text.char_indices() {
            match (quote, c) {
                (Some(open), _) if c == open => quote = None,
                (None, '"' | '\'') => quote = Some(c),
                (None, '#') => {
                    end = at;
                    break;
                }
                _ => {}
            }
        }
        self.text[..end].trim()
    }

    /// Returns the span of its code in the whole text.
    fn whole_span(&self) -> Range<usize> {
        self.span(self.code())
    }

    /// Returns the span of a part of the line in the whole text.
    fn span(&self, part: &str) -> Range<usize> {
        let start =
            self.start + (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        start..start + part.len()
    }

    /// Finds quotes that a word processor has made.
    fn typographic(&self) -> Option<SyntaxProblem> {
        let (at, c) = self.text.char_indices().find(|(_, c)| "“”„‘’«»".contains(*c))?;
        // Inside a quoted text, they are valid.
        if self.text[..at].contains(['"', '\'']) {
            return None;
        }
        let span = self.start + at..self.start + at + c.len_utf8();
        Some((
            span,
            format!("`{c}` is not a quote of TOML"),
            "write a straight one: `\"`".to_owned(),
        ))
    }

    /// Finds a header that is not closed, or not quoted.
    fn header(&self) -> Option<SyntaxProblem> {
        let code = self.code();
        let inner = code.strip_prefix('[')?;
        let name = inner.split(']').next()?.trim_matches(['[', ' ']);
        if name.contains(['/', ' ', '@', ':']) && !name.contains(['"', '\'']) {
            let message = format!("the name in `[{name}]` is not quoted");
            return Some((
                self.whole_span(),
                message,
                format!("a name with `/` is quoted: `[{}]`", quote_key(name)),
            ));
        }
        if !inner.contains(']') {
            let message = format!("the header `{code}` is not closed");
            return Some((self.whole_span(), message, format!("write `[{name}]`")));
        }
        let rest = inner.split_once(']').map_or("", |(_, rest)| rest.trim_matches([']', ' ']));
        let message = format!("`{rest}` follows the header `[{name}]`");
        let help = "keys stand in lines of their own, below the header".to_owned();
        (!rest.is_empty()).then(|| (self.span(rest), message, help))
    }

    /// Finds a comment of another language.
    fn comment(&self) -> Option<SyntaxProblem> {
        let code = self.code();
        let mark = ["//", "--", ";", "/*"].into_iter().find(|mark| code.starts_with(mark))?;
        Some((
            self.whole_span(),
            format!("`{mark}` begins no comment"),
            "a comment begins with `#`".to_owned(),
        ))
    }

    /// Finds an invalid key or value of an assignment.
    fn assignment(&self) -> Option<SyntaxProblem> {
        let code = self.code();
        let Some((key, value)) = code.split_once('=') else { return self.without_equals() };
        let (key, value) = (key.trim(), value.trim());
        if let Some(found) = self.key(key) {
            return Some(found);
        }
        if value.is_empty() {
            let help = "write one behind `=`; without the line the key has its default".to_owned();
            return Some((self.whole_span(), format!("`{key}` has no value"), help));
        }
        let (what, help) = value::explain(key, value)?;
        Some((self.span(value), what, help))
    }

    fn without_equals(&self) -> Option<SyntaxProblem> {
        let code = self.code();
        let parts = code.split_once(':').or_else(|| code.split_once(char::is_whitespace));
        let (key, value) = parts.map_or((code, ""), |(key, value)| (key.trim(), value.trim()));
        if !bare(key) {
            return None;
        }
        let help = if value.is_empty() {
            format!("write `{key} = ..`, or `[{key}]` if it is a table")
        } else {
            format!("write `{key} = {}`", value::as_value(value))
        };
        Some((self.whole_span(), format!("`{code}` has no `=`"), help))
    }

    /// Finds a key with characters that require quotes.
    fn key(&self, key: &str) -> Option<SyntaxProblem> {
        let strange = key.contains(['/', ' ', '@', '+', '-', ':']) && !key.contains(['"', '\'']);
        let fine = key.split('.').all(|part| bare(part.trim()));
        if !strange || fine {
            return None;
        }
        let help = if key.contains('/') {
            format!("a name with `/` is quoted: `{}`", quote_key(key))
        } else {
            format!("did you mean `{}`?", snake_case(key))
        };
        Some((self.span(key), format!("`{key}` is not a key"), help))
    }
}

/// Adds the required quotes to a dotted key. A dot within the name of an agent is not recognized; that is rare.
fn quote_key(key: &str) -> String {
    let names = key.split('.').map(str::trim);
    let parts = names.map(|it| if bare(it) { it.to_owned() } else { format!("\"{it}\"") });
    parts.collect::<Vec<_>>().join(".")
}
