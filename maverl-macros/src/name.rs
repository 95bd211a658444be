//! Registered names: `snake_case` parts joined by `/`.

use proc_macro2::Ident;
use syn::LitStr;
use syn::ext::IdentExt;

use crate::errors::Errors;

/// Required number of parts of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameForm {
    /// `team/role`, or more parts.
    Team,
    /// `word`, or more parts.
    Any,
}

/// Returns the name as written, or that of the package and the item: `my_team/writer` of `Writer` in the package `my-team`. Adds
/// an error if it is malformed.
pub(crate) fn name_or_default(
    given: Option<&LitStr>,
    form: NameForm,
    item: &Ident,
    errors: &mut Errors,
) -> LitStr {
    if let Some(name) = given {
        check(name, form, errors);
        return name.clone();
    }
    let written = item.unraw().to_string();
    let (team, word) = (package_name(), default_word(&written));
    if word.is_none() {
        let rule = "names are `snake_case` words of the letters a to z and digits";
        let remedy = format!("write `name = \"{team}/role\"`");
        errors.at(item, format!("no name can be made of `{written}`, for {rule}: {remedy}"));
    }
    LitStr::new(&format!("{team}/{}", word.unwrap_or_default()), item.span())
}

/// Returns the last part of the name of an item, or `None` if a letter of the item's would be lost.
fn default_word(written: &str) -> Option<String> {
    written.is_ascii().then(|| snake(written)).filter(|word| is_snake(word))
}

/// Returns the name of the package that is compiled, in snake case: the first part of its names.
pub(crate) fn package_name() -> String {
    let name = std::env::var("CARGO_PKG_NAME").map(|package| snake(&package));
    name.ok().filter(|name| is_snake(name)).unwrap_or_else(|| "team".to_owned())
}

/// Adds an error if `name` does not have this form.
pub(crate) fn check(name: &LitStr, form: NameForm, errors: &mut Errors) {
    let text = name.value();
    let parts: Vec<&str> = text.split('/').collect();
    let problem = if !parts.iter().all(|part| is_snake(part)) {
        "names are `snake_case` parts joined by `/`"
    } else if form == NameForm::Team && parts.len() < 2 {
        "a name begins with its team: `team/role`"
    } else {
        return;
    };
    let hint = suggestion(&text, form).map(|name| format!("; try \"{name}\"")).unwrap_or_default();
    errors.at(name, format!("{problem}{hint}"));
}

/// Adds an error if `word` is not one snake_case word.
pub(crate) fn check_word(word: &LitStr, errors: &mut Errors) {
    let text = word.value();
    if !is_snake(&text) {
        let fixed = snake(&text);
        let hint = if is_snake(&fixed) { format!("; try \"{fixed}\"") } else { String::new() };
        errors.at(word, format!("words of actions are in `snake_case`{hint}"));
    }
}

/// Adds an error if models and their servers do not accept `name` as the name of a function.
pub(crate) fn check_tool(name: &LitStr, errors: &mut Errors) {
    let text = name.value();
    if !is_snake(&text) || text.len() > 64 {
        let fixed = snake(&text);
        let good = is_snake(&fixed) && fixed.len() <= 64;
        let hint = if good { format!("; try \"{fixed}\"") } else { String::new() };
        errors.at(name, format!("a tool's name is in `snake_case`, 64 characters at most{hint}"));
    }
}

fn suggestion(text: &str, form: NameForm) -> Option<String> {
    let mut parts: Vec<String> =
        text.split('/').map(snake).filter(|part| !part.is_empty()).collect();
    if form == NameForm::Team && parts.len() == 1 {
        parts.insert(0, package_name());
    }
    (!parts.is_empty() && parts.iter().all(|part| is_snake(part))).then(|| parts.join("/"))
}

/// Returns true for letters and digits in words joined by single `_`, starting with a letter.
pub(crate) fn is_snake(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.split('_').all(|part| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        })
}

/// Converts to snake case: `Verifier Agent` and `VerifierAgent` both become `verifier_agent`.
pub(crate) fn snake(text: &str) -> String {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for c in text.chars() {
        if !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && after_lower) {
            words.push(String::new());
        }
        if c.is_ascii_alphanumeric() {
            words.last_mut().expect("there is always a word").push(c.to_ascii_lowercase());
        }
        after_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
    }
    words.retain(|word| !word.is_empty());
    words.join("_")
}

/// Converts to camel case: `write_twice` becomes `WriteTwice`.
pub(crate) fn camel(text: &str) -> String {
    text.split('_').map(capitalize).collect()
}

fn capitalize(word: &str) -> String {
    let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
    first.to_uppercase() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_snake_case() {
        assert_eq!(snake("Verifier Agent"), "verifier_agent");
        assert_eq!(snake("VerifierAgent2"), "verifier_agent2");
        assert_eq!(snake("-a--b_"), "a_b");
        assert_eq!(snake("HTTPClient"), "httpclient");
        assert_eq!(camel("write_twice_"), "WriteTwice");
    }

    #[test]
    fn a_default_name_loses_no_letter() {
        assert_eq!(default_word("ProofWriter2").as_deref(), Some("proof_writer2"));
        assert_eq!(default_word("_Writer").as_deref(), Some("writer"));
        assert_eq!(default_word("Größe"), None);
        assert_eq!(default_word("_2"), None);
    }

    #[test]
    fn a_suggestion_is_always_a_good_name() {
        assert_eq!(suggestion("Math/ Verifier", NameForm::Team).as_deref(), Some("math/verifier"));
        assert_eq!(suggestion("math//verifier", NameForm::Team).as_deref(), Some("math/verifier"));
        assert_eq!(suggestion("Search!", NameForm::Any).as_deref(), Some("search"));
        assert_eq!(suggestion("4/2", NameForm::Any), None);
        assert_eq!(suggestion("", NameForm::Any), None);
    }
}
