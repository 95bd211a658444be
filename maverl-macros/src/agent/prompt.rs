//! Syntax of prompts.
//!
//! ```text
//! prompt      = [ "# system" line text "# user" line ] text
//! placeholder = "{{" ( field | "agent." option | "reply_format" ) "}}"
//! ```
//!
//! A placeholder is closed on its line. Line breaks around a section are not part of it.

use std::ops::Range;

/// A parsed prompt.
#[derive(Debug, PartialEq)]
pub(crate) struct PromptTemplate {
    pub(crate) system: Option<Vec<PlacedPiece>>,
    pub(crate) user: Vec<PlacedPiece>,
}

/// A piece and its line, from 1.
pub(crate) type PlacedPiece = (PromptPiece, usize);

/// A piece of a prompt.
#[derive(Debug, PartialEq)]
pub(crate) enum PromptPiece {
    Text(String),
    Field(String),
    Option(String),
    ReplyFormat,
}

/// An error in a line.
#[derive(Debug, PartialEq)]
pub(crate) struct Mistake {
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl PromptTemplate {
    /// Parses a prompt. Returns the valid parts and the errors.
    pub(crate) fn parse(text: &str) -> (Self, Vec<Mistake>) {
        let mut mistakes = Vec::new();
        let (system, user) = sections(text, &mut mistakes);
        let system = system.map(|range| pieces(text, range, &mut mistakes));
        if text[user.clone()].trim().is_empty() && mistakes.is_empty() {
            mistakes.push(Mistake {
                line: line_at(text, user.start),
                message: "there is nothing to ask; write the prompt here".to_owned(),
            });
        }
        let user = pieces(text, user, &mut mistakes);
        (Self { system, user }, mistakes)
    }

    /// Returns all pieces, in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &PlacedPiece> {
        self.system.iter().flatten().chain(&self.user)
    }
}

/// Returns the byte ranges of the system section, if there is one, and the user section.
fn sections(text: &str, mistakes: &mut Vec<Mistake>) -> (Option<Range<usize>>, Range<usize>) {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        lines.push((start..start + line.len(), line.trim_end().to_ascii_lowercase()));
        start += line.len();
    }
    let has_system = lines.first().is_some_and(|(_, line)| line == "# system");
    let user = lines.iter().position(|(_, line)| line == "# user").filter(|_| has_system);
    for (i, (_, line)) in lines.iter().enumerate() {
        let message = match line.as_str() {
            "# system" if i > 0 => "`# system` is the first line or not there at all",
            "# system" if user.is_none() => "after `# system` and its text comes a line `# user`",
            "# user" if !has_system => {
                "`# user` is needed only after a `# system` section; remove it"
            }
            "# user" if user != Some(i) => "`# user` comes once",
            _ => continue,
        };
        mistakes.push(Mistake { line: i + 1, message: message.to_owned() });
    }
    match user {
        Some(user) => {
            let system = lines[0].0.end..lines[user].0.start;
            (Some(trim(text, system)), trim(text, lines[user].0.end..text.len()))
        }
        None => (None, trim(text, 0..text.len())),
    }
}

fn trim(text: &str, range: Range<usize>) -> Range<usize> {
    let breaks = ['\n', '\r'];
    let part = text[range.clone()].trim_end_matches(breaks);
    let end = range.start + part.len();
    end - part.trim_start_matches(breaks).len()..end
}

fn pieces(text: &str, range: Range<usize>, mistakes: &mut Vec<Mistake>) -> Vec<PlacedPiece> {
    let mut pieces = Vec::new();
    let mut at = range.start;
    while let Some(open) = text[at..range.end].find("{{").map(|offset| at + offset) {
        push_text(&mut pieces, text, at..open);
        let line = line_at(text, open);
        let inside = &text[open + 2..range.end];
        let inside = inside.split('\n').next().unwrap_or_default();
        match inside.split_once("}}") {
            Some((inside, _)) if !inside.contains("{{") => {
                match placeholder(inside.trim()) {
                    Ok(piece) => pieces.push((piece, line)),
                    Err(message) => mistakes.push(Mistake { line, message }),
                }
                at = open + 2 + inside.len() + 2;
            }
            _ => {
                let message = "`{{` is not closed; write `{{ name }}` on one line".to_owned();
                mistakes.push(Mistake { line, message });
                at = open + 2;
            }
        }
    }
    push_text(&mut pieces, text, at..range.end);
    pieces
}

fn push_text(pieces: &mut Vec<PlacedPiece>, text: &str, range: Range<usize>) {
    if !range.is_empty() {
        pieces
            .push((PromptPiece::Text(text[range.clone()].to_owned()), line_at(text, range.start)));
    }
}

fn placeholder(inside: &str) -> Result<PromptPiece, String> {
    match inside.split_once('.') {
        None if inside == "reply_format" => Ok(PromptPiece::ReplyFormat),
        None if is_name(inside) => Ok(PromptPiece::Field(inside.to_owned())),
        Some(("agent", option)) if is_name(option) => Ok(PromptPiece::Option(option.to_owned())),
        _ => Err(format!(
            "`{{{{ {inside} }}}}` is no placeholder; those are `{{{{ field }}}}` of the input, `{{{{ agent.option }}}}` \
             and `{{{{ reply_format }}}}`; more needs an `impl Agent` written by hand"
        )),
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text[..offset].matches('\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> PromptPiece {
        PromptPiece::Text(text.to_owned())
    }

    fn field(name: &str) -> PromptPiece {
        PromptPiece::Field(name.to_owned())
    }

    fn read(prompt: &str) -> PromptTemplate {
        let (template, mistakes) = PromptTemplate::parse(prompt);
        assert_eq!(mistakes, []);
        template
    }

    fn lines_of(prompt: &str) -> Vec<usize> {
        PromptTemplate::parse(prompt).1.iter().map(|mistake| mistake.line).collect()
    }

    #[test]
    fn without_markers_everything_is_the_user_section() {
        let template = read("Ask: {{question}}.\n\n{{ agent.tone }}\n");
        assert_eq!(template.system, None);
        let option = PromptPiece::Option("tone".to_owned());
        let user = [(text("Ask: "), 1), (field("question"), 1), (text(".\n\n"), 1), (option, 3)];
        assert_eq!(template.user, user);
    }

    #[test]
    fn a_system_section_comes_first_and_line_breaks_around_sections_go() {
        let template = read("# System\r\n\nBe {{ mood }}.\n\n# user\n\nGo.\n");
        let system = vec![(text("Be "), 3), (field("mood"), 3), (text("."), 3)];
        assert_eq!(template.system, Some(system));
        assert_eq!(template.user, [(text("Go."), 7)]);
    }

    #[test]
    fn misplaced_sections_are_mistakes() {
        assert_eq!(lines_of("# system\nno user section"), [1]);
        assert_eq!(lines_of("# user\ntext"), [1]);
        assert_eq!(lines_of("text\n# system\nmore"), [2]);
        assert_eq!(lines_of("# system\na\n# user\nb\n# user\nc"), [5]);
        assert_eq!(lines_of("# system\na\n# user\n"), [4]);
        assert_eq!(lines_of(""), [1]);
    }

    #[test]
    fn every_bad_placeholder_is_a_mistake_of_its_line() {
        let prompt = "{{ }} }}\n{{ a\n}} {{ input.a }} {{ {{ a }}\n{{ a | upper }} {{{ a }}}";
        assert_eq!(lines_of(prompt), [1, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn braces_that_are_not_doubled_are_text() {
        let template = read(r#"{"a": {"b": 1}} \boxed{x}"#);
        assert_eq!(template.user, [(text(r#"{"a": {"b": 1}} \boxed{x}"#), 1)]);
    }
}
