//! Keys of servers, which are in variables of the environment.

use crate::config::source::{Problems, path_within};

/// Reports the `key_env` of a table if the variable is not set, or empty.
pub(super) fn check_key_env(name: Option<&str>, table: &[String], problems: &mut Problems<'_>) {
    let Some(variable) = name else { return };
    if std::env::var_os(variable).is_none_or(|key| key.is_empty()) {
        let message = format!("the environment variable `{variable}` is not set, or empty");
        problems.value(&path_within(table, "key_env"), message, None);
    }
}
