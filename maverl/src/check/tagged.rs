//! Tables with a `kind`: each kind has keys of its own.

use figment::value::Value;

use super::diagnostic::{Problems, path, suggestion, within};
use super::values::out_of_range;
use super::{alias, load};
use crate::config::{AdvantagePlan, Config};
use crate::registry::Registry;
use crate::settings::{TableKind, Tagged, TaggedConfig};

/// Reports kinds that do not exist, and keys and values that are not those of their kind. They are taken out.
pub(super) fn check(config: &mut Config, registry: &Registry, problems: &mut Problems<'_>) {
    let parts = config.algorithm.name.parts();
    let declared: Vec<&str> = registry.advantages.keys().copied().collect();
    let at = path(["algorithm", "advantage"]);
    let inherited = (&parts.advantage, &declared[..]);
    table::<AdvantagePlan>(&mut config.algorithm.advantage, inherited, &at, problems);
}

/// The kinds of the table that a key is in, and the rest of its path; none if the key is in no table with a `kind`, or is
/// the `kind`.
pub(super) fn kinds(path: &[String]) -> Option<(&'static [TableKind], &[String])> {
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["algorithm", "advantage", key, ..] if *key != "kind" => {
            Some((AdvantagePlan::KINDS, &path[2..]))
        }
        _ => None,
    }
}

/// Reports what is wrong in one table, and takes it out. The kind is inherited if none is written.
fn table<T: Tagged>(
    written: &mut TaggedConfig,
    (inherited, declared): (&TaggedConfig, &[&str]),
    at: &[String],
    problems: &mut Problems<'_>,
) {
    let name = written.kind_or(&inherited.kind_or(T::default().kind()));
    let Some(kind) = T::KINDS.iter().find(|kind| kind.name == name) else {
        if !declared.contains(&name.as_str()) {
            let at = within(at, "kind");
            let known = T::KINDS.iter().map(|kind| kind.name).chain(declared.iter().copied());
            let known: Vec<&str> = known.collect();
            let message = format!("no {} is called `{name}`", at[at.len() - 2]);
            let meant = alias::value("kind", &name).map(|name| format!("did you mean `{name}`?"));
            problems.value(&at, message, meant.unwrap_or_else(|| suggestion(&name, known)));
            *written = TaggedConfig::default();
        }
        return;
    };
    let given = problems.layers().merged().find_ref(&at.join(".")).cloned();
    let Some(Value::Dict(tag, mut dict)) = given else { return };
    dict.remove("kind");
    let mut value = Value::Dict(tag, dict);
    for wrong in load::repaired(&mut value, at, kind.read, problems).unwrap_or_default() {
        out_of_range(&wrong, at, problems);
    }
    written.settings = value.deserialize().unwrap_or_default();
}
