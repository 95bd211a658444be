//! Names of TRL, transformers, verl, OpenRLHF and other systems for keys and values that have another name here.

use super::names::snake_case;

/// Aliases, one row per line: keys (or flags) here, names elsewhere, the difference. A name may have the tables that it is in,
/// as `env.max_steps`, and then has this meaning in these alone. A heading (`## NAME`) begins the names of another system.
const NAMES: &str = include_str!("alias.txt");

/// Values, one row per line: the last part of a key, a value of it, names of the value elsewhere.
const VALUES: &str = include_str!("value.txt");

/// Keys of `[algorithm]` that were there before, and what has their meaning.
const MOVED: [(&str, &str); 23] = [
    ("estimator", "`algorithm.advantage.kind`"),
    ("baseline", "`algorithm.advantage.baseline`, or a `kind` of `[algorithm.advantage]`"),
    ("group_by", "`algorithm.advantage.by`"),
    ("deviation_by", "`algorithm.advantage.deviation_by`"),
    ("normalize_std", "`algorithm.advantage.normalize_std`"),
    ("advantage_eps", "`algorithm.advantage.eps`"),
    ("singleton", "`algorithm.advantage.singleton`"),
    ("baseline_momentum", "`momentum` of `[algorithm.advantage]` with `kind = \"moving_average\"`"),
    ("anchor_weight", "`algorithm.advantage.anchor.weight`"),
    ("anchor_similarity", "`algorithm.advantage.anchor.similarity`"),
    ("discount", "`algorithm.advantage.anchor.discount`"),
    ("critic", "`[algorithm.advantage]` with `kind = \"critic\"` or `kind = \"mixer\"`"),
    ("surrogate", "`algorithm.loss.surrogate`"),
    ("gate", "`algorithm.loss.surrogate.gate`"),
    ("clip_low", "`algorithm.loss.surrogate.clip_low`"),
    ("clip_high", "`algorithm.loss.surrogate.clip_high`"),
    ("clip_dual", "`algorithm.loss.surrogate.clip_dual`"),
    ("correction_cap", "`algorithm.loss.correction.cap`"),
    ("shaping_weight", "`algorithm.shaping.weight`"),
    ("happo", "`algorithm.update_order`, a table with `factor` and `clip`"),
    ("future_discount", "`algorithm.future_rewards.discount`"),
    ("observation_weight", "`algorithm.train_on.observation_weight`"),
    ("mixer", "`[algorithm.advantage]` with `kind = \"mixer\"`"),
];

/// Keys that were there before, and the setting with their meaning.
const RENAMED: [(&str, &str); 1] = [("dist.shard_optimizer", "`dist.shard = \"optimizer\"`")];

/// Returns help for a key whose setting has another form now.
pub(super) fn renamed_key(path: &[String]) -> Option<String> {
    let name = path.join(".");
    let (_, now) = RENAMED.iter().find(|(before, _)| *before == name)?;
    Some(format!("`{name}` is {now} now"))
}

/// Returns what has the meaning of a key that was there before.
pub(super) fn moved_key(path: &[String]) -> Option<&'static str> {
    let (name, table) = path.split_last()?;
    let here = table == ["algorithm"] || table.last().is_some_and(|last| last == "loss");
    MOVED.iter().find(|(moved, _)| here && moved == name).map(|(_, ours)| *ours)
}

/// Keys with the same meaning here.
struct Alias {
    here: Vec<&'static str>,
    names: Vec<&'static str>,
    note: &'static str,
}

impl Alias {
    /// Returns the keys that the name is for here, quoted; `None` if there are none.
    fn keys(&self, model: Option<&str>) -> Option<String> {
        let keys = self.here.iter().map(|key| format!("`{}`", insert_model_name(key, model)));
        (!self.here.is_empty()).then(|| keys.collect::<Vec<_>>().join(" and "))
    }
}

/// Returns the three columns of every row.
fn rows(table: &'static str) -> impl Iterator<Item = [&'static str; 3]> {
    table.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut columns = line.splitn(3, '|').map(str::trim);
        Some([columns.next()?, columns.next()?, columns.next()?])
    })
}

fn aliases() -> impl Iterator<Item = Alias> {
    rows(NAMES).map(|[here, names, note]| Alias {
        here: here.split_whitespace().collect(),
        names: names.split_whitespace().collect(),
        note,
    })
}

/// Returns the alias of a name in any spelling (also `learningRate` and `learning-rate`), with the part of the name that it is
/// for: as many of the tables that it is in as an alias names.
fn find(name: &str) -> Option<(&str, Alias)> {
    let starts = std::iter::once(0).chain(name.match_indices('.').map(|(at, _)| at + 1));
    starts
        .map(|start| &name[start..])
        .find_map(|part| Some((part, alias_named(&snake_case(part))?)))
}

fn alias_named(name: &str) -> Option<Alias> {
    aliases().find(|alias| alias.names.contains(&name))
}

/// Returns help for a name that other trainers use for a key, with or without the tables that it is in. `model` is the name of
/// the run's model, if it has only one.
pub fn help(name: &str, model: Option<&str>) -> Option<String> {
    let (part, alias) = find(name)?;
    Some(match (alias.keys(model), alias.note) {
        (None, note) => note.to_owned(),
        (Some(keys), "") => format!("`{part}` is {keys} here"),
        (Some(keys), note) => format!("`{part}` is {keys} here; {note}"),
    })
}

/// Returns the meaning of a name in a line that begins with the whole name.
pub(super) fn line(name: &str, model: Option<&str>) -> Option<String> {
    let (_, alias) = find(name)?;
    Some(match (alias.keys(model), alias.note) {
        (None, note) => format!("`{name}`: {note}"),
        (Some(keys), "") => format!("`{name}` is {keys}"),
        (Some(keys), note) => format!("`{name}` is {keys}; {note}"),
    })
}

/// Returns the first key that has this name elsewhere.
pub fn key(name: &str, model: Option<&str>) -> Option<String> {
    let (_, alias) = find(name)?;
    let first = alias.here.first().filter(|key| !key.starts_with('-')).copied()?;
    Some(insert_model_name(first, model))
}

/// Inserts the name of the run's model into a key, if known.
fn insert_model_name(key: &str, model: Option<&str>) -> String {
    match (key.strip_prefix("models.NAME"), model) {
        (Some(rest), Some(model)) => format!("models.{model}{rest}"),
        _ => key.to_owned(),
    }
}

/// Returns the value of a key that has the name `found` elsewhere. Only the last part of the key is given.
pub(super) fn value(key: &str, found: &str) -> Option<&'static str> {
    let found = snake_case(found);
    rows(VALUES)
        .find(|[of, _, names]| *of == key && names.split_whitespace().any(|name| name == found))
        .map(|[_, ours, _]| ours)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_of_other_trainers_are_answered_with_ours() {
        let cases = [
            ("learning_rate", "`learning_rate` is `models.small.optim.lr` here"),
            ("learningRate", "`learningRate` is `models.small.optim.lr` here"),
            ("num_generations", "`num_generations` is `task.group_size` here"),
            ("clip_ratio_high", "`clip_ratio_high` is `algorithm.loss.surrogate.clip_high` here"),
            ("n_samples_per_prompt", "`n_samples_per_prompt` is `task.group_size` here"),
        ];
        for (name, expected) in cases {
            assert_eq!(help(name, Some("small")).as_deref(), Some(expected));
        }
        assert_eq!(key("learning-rate", None).as_deref(), Some("models.NAME.optim.lr"));
        assert_eq!(key("env.max_steps", None), None);
        assert_eq!(key("trainer.max_steps", None).as_deref(), Some("steps"));
        assert_eq!(key("training.num_epochs", None).as_deref(), Some("steps"));
        assert_eq!(key("num_epochs", None).as_deref(), Some("algorithm.epochs"));
        assert_eq!(key("output_dir", None), None);
        assert_eq!(help("no_such_name", None), None);
    }

    #[test]
    fn keys_that_have_moved_are_keys_where_they_are_now() {
        for (_, now) in MOVED {
            let named = now.split('`').find(|part| part.starts_with("algorithm."));
            let known = named.is_none_or(|name| crate::config::reference::find(name).is_some());
            assert!(known || now.contains(".anchor."), "{now}");
        }
    }

    #[test]
    fn at_least_sixty_names_are_known_and_none_twice() {
        let mut names: Vec<&str> = aliases().flat_map(|alias| alias.names).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert!(all >= 60, "{all}");
        assert_eq!(names.len(), all, "a name stands twice");
        for name in names {
            assert_eq!(snake_case(name), name, "is looked up in this spelling");
        }
    }

    #[test]
    fn every_key_that_is_named_instead_is_one() {
        for Alias { here, names, note } in aliases() {
            assert!(!here.is_empty() || !note.is_empty(), "{names:?}");
            for key in here {
                let known = key.starts_with("--") || crate::config::reference::find(key).is_some();
                assert!(known, "`{key}` is no key");
            }
        }
    }

    /// The tables of the page, from the rows: that of the names without a heading, one for each heading, and the values.
    fn page() -> String {
        let code = |names: &str| {
            let names: Vec<String> =
                names.split_whitespace().map(|name| format!("`{name}`")).collect();
            names.join(" ")
        };
        let mut text = String::new();
        for (i, section) in NAMES.split("\n## ").enumerate() {
            let (title, names) = section.split_once('\n').unwrap();
            let source = names.lines().next().unwrap_or_default().trim_start_matches("# ");
            if i > 0 {
                text += &format!("\n## Keys of {title}\n\n{source}\n");
            }
            text += "\n| elsewhere | here | |\n|---|---|---|\n";
            for [here, names, note] in rows(names) {
                text += &format!(
                    "| {} | {} | {} |\n",
                    code(names),
                    code(here),
                    note.replace('|', "\\|")
                );
            }
        }
        text += "\n## Values\n\n| key | elsewhere | here |\n|---|---|---|\n";
        for [key, ours, names] in rows(VALUES) {
            text += &format!("| `{key}` | {} | `\"{ours}\"` |\n", code(names));
        }
        text
    }

    #[test]
    fn the_page_for_users_of_other_trainers_has_every_name() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = path.join("../docs/src/coming_from.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let mark =
            "<!-- From here on the page is written from the names that `maverl check` knows. -->\n";
        let (head, tables) = text.split_once(mark).unwrap();
        if std::env::var_os("WRITE_BOOK").is_some() {
            std::fs::write(&path, format!("{head}{mark}{}", page())).unwrap();
            return;
        }
        assert_eq!(tables, page(), "run with WRITE_BOOK=1 to write the page again");
    }

    #[test]
    fn values_of_other_trainers_are_answered_with_ours() {
        assert_eq!(value("kl", "low_var_kl"), Some("k3"));
        assert_eq!(value("aggregation", "seq-mean-token-mean"), Some("sequence_mean"));
        assert_eq!(value("dtype", "bfloat16"), Some("bf16"));
        assert_eq!(value("name", "ppo"), None);
    }
}
