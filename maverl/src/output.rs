//! Output of the process. Texts of others (data, models, servers, files) pass through here before they are printed, so that
//! none of them can control a terminal.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write as _};

use serde::Serialize;

/// Returns true for a character that a terminal obeys, that changes the direction of the text around it, or that is not
/// seen. The pages of `maverl view` mark the same ones (`HIDDEN` in `crates/view/web/dom.js`).
fn is_hidden(c: char) -> bool {
    let obeyed = c.is_control() && c != '\n' && c != '\t';
    let directs = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks = matches!(c, '\u{2028}' | '\u{2029}');
    let unseen = matches!(
        c,
        '\u{180e}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{feff}'
    );
    let unassigned =
        matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e007f}');
    obeyed || directs || breaks || unseen || unassigned
}

/// Returns a text in which hidden characters are marked, as in `<U+001B>`. Line feeds and tabs stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    mark_hidden(text, |c| format!("<U+{:04X}>", u32::from(c)))
}

/// Formats a value as JSON in indented lines. Hidden characters are escapes (`\u009b`), so that the value is the same.
///
/// # Errors
///
/// If the value is not representable in JSON.
pub fn json(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(|text| escape_json(&text))
}

/// Formats a value as JSON in one line, like [`json`].
///
/// # Errors
///
/// If the value is not representable in JSON.
pub fn json_line(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(|text| escape_json(&text))
}

/// Replaces hidden characters of a JSON text, which are within its strings, by escapes.
fn escape_json(json: &str) -> String {
    mark_hidden(json, escape_char).into_owned()
}

fn escape_char(c: char) -> String {
    c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

/// Returns a text with the mark of each hidden character in its place.
fn mark_hidden(text: &str, mark: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hidden(c) {
            out.push_str(&mark(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Prints a line on standard error, with marks in place of hidden characters. A reader that has closed it (`2>&1 | head`)
/// does not end the process.
pub fn tell(line: impl Display) {
    let _ = writeln!(io::stderr(), "{}", visible(&line.to_string()));
}

/// Writes to standard output at once, with marks in place of hidden characters.
///
/// # Errors
///
/// If the write fails; a reader that has closed it (`| head`) is not an error.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(visible(text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Characters of each kind that a terminal, or a reader, would be misled by.
    const HIDDEN: [char; 20] = [
        '\0',
        '\u{7}',
        '\u{8}',
        '\r',
        '\u{1b}',
        '\u{7f}',
        '\u{85}',
        '\u{9b}',
        '\u{9d}',
        '\u{61c}',
        '\u{180e}',
        '\u{200b}',
        '\u{200f}',
        '\u{2028}',
        '\u{202e}',
        '\u{2066}',
        '\u{206f}',
        '\u{feff}',
        '\u{fffb}',
        '\u{e0041}',
    ];

    #[test]
    fn hidden_characters_are_marked_and_all_others_stay() {
        for c in HIDDEN {
            let text = format!("a{c}b");
            assert_eq!(visible(&text), format!("a<U+{:04X}>b", u32::from(c)));
        }
        let plain = "größe\t漢字\n😀 e\u{301} العربية עברית";
        assert!(matches!(visible(plain), Cow::Borrowed(text) if text == plain));
    }

    #[test]
    fn json_has_escapes_for_hidden_characters_and_the_same_value() {
        let value: serde_json::Value =
            HIDDEN.iter().map(|c| (format!("k{c}"), format!("{c}\n"))).collect();
        for text in [json(&value), json_line(&value)].map(Result::unwrap_or_default) {
            assert!(!text.contains(is_hidden), "{text:?}");
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&text).ok().as_ref(),
                Some(&value)
            );
        }
    }
}
