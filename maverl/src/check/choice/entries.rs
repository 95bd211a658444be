//! Choice among what is declared, by name.

use std::collections::BTreeMap;

use super::unlinked;
use crate::config::Named;
use crate::config::source::{Problems, key, list, path_within};

/// Returns the named entry, or the only existing one.
pub(crate) fn choose_entry<'r, E>(
    kind: &str,
    table: &[String],
    named: &Named,
    entries: &'r BTreeMap<&'static str, E>,
    problems: &mut Problems<'_>,
) -> Option<(String, &'r E)> {
    let at = path_within(table, "name");
    if problems.is_reported(&at) {
        return None;
    }
    let mut names = entries.keys().copied();
    match (&named.name, entries.len()) {
        (Some(name), _) => match entries.get(name.as_str()) {
            Some(entry) => Some((name.clone(), entry)),
            None => {
                let message = format!("no {kind} is called `{name}`");
                problems.value(&at, message, unlinked::link_help(kind, name, names));
                None
            }
        },
        (None, 1) => entries.iter().next().map(|(name, entry)| ((*name).to_owned(), entry)),
        (None, 0) => {
            let message = format!("no {kind} is linked");
            let help = format!("declare one with `#[{kind}]`, or link a crate that does");
            problems.key(&at, message, help);
            None
        }
        (None, n) => {
            let message =
                format!("`{}` is not set, and {n} are linked: {}", key(&at), list(names.clone()));
            let first = names.next().unwrap_or_default();
            problems.key(&at, message, format!("write `name = \"{first}\"` in `[{}]`", key(table)));
            None
        }
    }
}
