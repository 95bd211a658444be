//! Names of keys and of values in messages: their form, lists of them, and those that were probably meant.

/// Formats a key path as in TOML: parts that are not bare keys are quoted.
pub(crate) fn key(path: &[String]) -> String {
    let parts: Vec<String> = path
        .iter()
        .map(|part| if bare(part) { part.clone() } else { format!("{part:?}") })
        .collect();
    parts.join(".")
}

/// Returns true for a key that needs no quotes.
pub(super) fn bare(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

/// Returns `["agents", name]` as a path.
pub(crate) fn path<const N: usize>(parts: [&str; N]) -> Vec<String> {
    parts.map(str::to_owned).to_vec()
}

/// Returns a path with one more part.
pub(crate) fn path_within(path: &[String], part: &str) -> Vec<String> {
    [path, &[part.to_owned()]].concat()
}

/// Maximum number of names in a list of a message.
const LISTED: usize = 100;

/// Maximum length of a name that others are compared with. The time of a comparison grows with the product of the lengths.
const COMPARED: usize = 200;

/// Returns the known name closest to `found`, if it is close: few letters differ, the case differs, or `found` is its
/// last part. A very long name has none.
pub fn did_you_mean<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if found.len() > COMPARED {
        return None;
    }
    let plain = snake_case(found);
    let limit = (1 + found.len() / 4).min(found.len() / 2);
    known
        .into_iter()
        .filter(|name| name.len() <= COMPARED)
        .map(|name| {
            let part = name.rsplit('/').next();
            let role = part == Some(found) || part == Some(plain.as_str());
            let written = strsim::damerau_levenshtein(found, name);
            let distance = written.min(strsim::damerau_levenshtein(&plain, name));
            (if role { 0 } else { distance }, name)
        })
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Formats a list as `` `a`, `b` and `c` ``; of a long one, the first names and the number of the others.
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names = names.into_iter();
    let mut named: Vec<String> =
        names.by_ref().take(LISTED).map(|name| format!("`{name}`")).collect();
    let more = names.count();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    match named.split_last() {
        None => "none".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, names)) => format!("{} and {last}", names.join(", ")),
    }
}

/// Returns help for an unknown name: the closest known one, or all.
pub(crate) fn suggestion<'a>(
    found: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    match did_you_mean(found, known.clone()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("known: {}", list(known)),
    }
}

/// Converts a name to the spelling of keys: `learningRate` and `Learning-Rate` become `learning_rate`.
pub fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    let mut after_lower = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && after_lower {
            snake.push('_');
        }
        snake.push(if matches!(c, '-' | ' ') { '_' } else { c.to_ascii_lowercase() });
        after_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_close_to_a_known_one_is_suggested() {
        let known = ["steps", "seed", "search/verifier"];
        assert_eq!(did_you_mean("stpes", known), Some("steps"));
        assert_eq!(did_you_mean("verifier", known), Some("search/verifier"));
        assert_eq!(did_you_mean("search/verifer", known), Some("search/verifier"));
        assert_eq!(did_you_mean("temperature", known), None);
    }

    #[test]
    fn keys_are_written_as_in_toml() {
        assert_eq!(key(&path(["agents", "math/solver", "model"])), "agents.\"math/solver\".model");
    }
}
