//! Explanations of keys and tables of a configuration, from the text of `docs/src/keys.md`.

use super::declared;
use super::level::{draw_block, level_row};
use crate::info::in_toml;
use crate::{Failure, usage};
use maverl::config::Preset;
use maverl::config::reference::{self, Entry, Item};
use maverl::config::source::{alias, type_of};
use maverl::config::tables;
use maverl::registry::Registry;
use maverl::table::{Table, paragraphs};

/// Pages of the book, by the tables that they are about; the first that fits.
const PAGES: [(&str, &str); 38] = [
    ("task.curriculum", "mixture.md"),
    ("task.mixture", "mixture.md"),
    ("task", "corpora.md"),
    ("orchestra", "teams.md"),
    ("environments", "declare.md"),
    ("environment", "declare.md"),
    ("sampling", "configuring.md"),
    ("models.NAME.lora", "adapters.md"),
    ("models.NAME.chat_template_kwargs", "chat.md"),
    ("models", "models.md"),
    ("endpoints", "endpoints.md"),
    ("teachers", "algorithms/distill.md"),
    ("agents", "sharing.md"),
    ("algorithm.preference", "algorithms/dpo.md"),
    ("algorithm.update_order", "algorithms/happo.md"),
    ("algorithm.future_rewards", "algorithms/maporl.md"),
    ("algorithm.train_on", "algorithms/sft.md"),
    ("algorithm.influence", "algorithms/maporl.md"),
    ("algorithm.distill", "algorithms/distill.md"),
    ("algorithm.advantage", "algorithms/advantages.md"),
    ("algorithm.loss.surrogate", "algorithms/surrogates.md"),
    ("algorithm.loss", "algorithms/loss.md"),
    ("algorithm.reference", "algorithms/loss.md"),
    ("algorithm.adaptive_kl", "algorithms/loss.md"),
    ("algorithm.adaptive_entropy", "algorithms/loss.md"),
    ("algorithm.select", "algorithms/loss.md"),
    ("algorithm.replay", "algorithms/replay.md"),
    ("algorithm", "algorithms/index.md"),
    ("rewards.NAME.judge", "rewards.md"),
    ("rewards.NAME.python", "python.md"),
    ("rewards", "declare.md"),
    ("eval", "compare.md"),
    ("checkpoint", "resume.md"),
    ("record", "runs.md"),
    ("runtime", "memory.md"),
    ("worker_groups", "gpu.md"),
    ("dist", "ranks.md"),
    ("", "configuring.md"),
];

/// Lists every table with its purpose.
pub(super) fn tables(width: usize) -> String {
    let mut table = Table::without_frame(["table", "what it is about"]).prose(&[1]);
    table.row(["(before any table)", "the run: `seed`, `steps`"]);
    for item in reference::items().iter().filter(|item| item.entry.is_none()) {
        table.row([format!("[{}]", item.name()), item.meaning.clone()]);
    }
    let more = "`maverl explain TABLE` shows the keys of a table, `maverl explain KEY` what a key means, `maverl explain \
                algorithm PRESET` the parts of a preset";
    format!("{}\n\n{}", table.draw(width), paragraphs(more, width))
}

/// Explains the key or table with this name, or all whose names end with it.
pub(super) fn explain(name: &str, registry: &Registry, width: usize) -> Result<String, Failure> {
    let name = name.trim_matches(['[', ']', ' ']);
    let found = match reference::find(name) {
        Some(item) => vec![item],
        None => match tables_named(name) {
            none if none.is_empty() => reference::ending(name),
            tables => tables,
        },
    };
    let mut blocks: Vec<String> = found
        .iter()
        .map(|item| match &item.entry {
            Some(entry) => key(item, entry, width),
            None => table(item, width),
        })
        .collect();
    blocks.extend(declared::explain(name, registry, width));
    if !blocks.is_empty() {
        return Ok(blocks.join("\n\n"));
    }
    if let Some(help) = alias::help(name, None) {
        let ours = alias::key(name, None);
        let more = ours.and_then(|key| explain(&key, registry, width).ok());
        return Ok(format!("{}\n\n{}", paragraphs(&help, width), more.unwrap_or_default()));
    }
    Err(unknown_key(name, registry))
}

/// Returns the tables `[name.NAME]`, for a name that has no table of its own.
fn tables_named(name: &str) -> Vec<Item> {
    let mut items = reference::items();
    items.retain(|item| item.entry.is_none() && item.path.len() == 2 && item.path[0] == name);
    items
}

fn unknown_key(name: &str, registry: &Registry) -> Failure {
    let declared = declared::names(registry);
    let items = reference::items();
    let whole: Vec<String> = items.iter().map(Item::name).collect();
    let mut names: Vec<&str> = whole.iter().map(String::as_str).collect();
    names.extend(items.iter().filter_map(|item| item.path.last()).map(String::as_str));
    names.extend(declared.iter().map(String::as_str));
    names.sort_unstable();
    names.dedup();
    let told = usage::none_called("key or table", name, names.iter().copied());
    let told = told.lines().next().unwrap_or_default().to_owned();
    Failure(format!(
        "{told}\n`maverl explain` lists the tables, `maverl list` the options of what is linked"
    ))
}

fn is_kind(item: &Item) -> bool {
    item.path.last().is_some_and(|name| name == "kind")
}

/// Lists the keys of a table and its nested tables; for a table of several kinds, those of each kind.
fn table(item: &Item, width: usize) -> String {
    let mut inside = reference::items();
    inside.retain(|other| {
        other.path.len() == item.path.len() + 1 && other.path.starts_with(&item.path)
    });
    let all: Vec<&Item> = inside.iter().collect();
    let mut blocks = vec![paragraphs(&format!("[{}]: {}", item.name(), item.meaning), width)];
    if all.iter().filter(|item| is_kind(item)).count() > 1 {
        let (entries, nested): (Vec<&Item>, Vec<&Item>) =
            all.iter().partition(|item| item.entry.is_some());
        for of_kind in entries.chunk_by(|_, next| !is_kind(next)) {
            let (kind, rest): (Vec<&Item>, Vec<&Item>) =
                of_kind.iter().partition(|item| is_kind(item));
            let value = kind.iter().filter_map(|item| item.entry.as_ref());
            let heading: String = value.map(|entry| format!("kind = {}\n", entry.value)).collect();
            blocks.push(heading + &keys(&rest, width));
        }
        blocks.extend((!nested.is_empty()).then(|| keys(&nested, width)));
    } else if !all.is_empty() {
        blocks.push(keys(&all, width));
    }
    blocks.push(format!("read docs/src/{}", page(&item.name())));
    blocks.join("\n\n")
}

/// Formats keys and tables, a row each.
fn keys(items: &[&Item], width: usize) -> String {
    if items.is_empty() {
        return "  (no other keys)".to_owned();
    }
    let mut table = Table::without_frame(["key", "default", "level", "what it is"]).prose(&[3]);
    for item in items {
        let name = item.path.last().cloned().unwrap_or_default();
        let meaning = item.meaning.clone();
        match &item.entry {
            Some(entry) => {
                table.row([name, default(item, entry), entry.level.clone(), meaning]);
            }
            None => table.row([name, "(a table)".to_owned(), String::new(), meaning]),
        }
    }
    table.draw(width)
}

/// Formats the default as TOML, or states that there is none.
fn default(item: &Item, entry: &Entry) -> String {
    if !entry.example || item.path.last().is_some_and(|name| name == "kind") {
        return entry.value.clone();
    }
    if item.path.first().is_some_and(|table| table == "agents") {
        return "as for the model or the run".to_owned();
    }
    let keys = tables::descriptions(&item.path);
    let found = keys.iter().find(|(_, key)| !key.default.is_null());
    found.map_or_else(|| "none".to_owned(), |(_, key)| in_toml(&key.default))
}

/// Explains one key.
fn key(item: &Item, entry: &Entry, width: usize) -> String {
    let name = item.name();
    let mut lines = Table::without_frame(["", ""]).prose(&[1]);
    lines.row(["type", &kind(item)]);
    lines.row(["default", &default(item, entry)]);
    let kinds = kinds(item);
    if kinds.len() > 1 {
        lines.row(["default by kind", &kinds.join(", ")]);
    }
    if entry.example {
        lines
            .row(["example", &format!("{} = {}", item.path.last().map_or("", |k| k), entry.value)]);
    }
    lines.row(["level", &level_row(&entry.level)]);
    lines.row(["written in", &reference::written_in(item).join(", ")]);
    lines.row(["set with", &set(item, entry)]);
    if let Some(presets) = presets(&item.path) {
        lines.row(["used by", &presets]);
    }
    lines.row(["read", &format!("docs/src/{}, docs/src/keys.md", page(&name))]);
    draw_block(&name, &item.meaning, &lines, width)
}

/// Lists the kinds of its table that have a key, each with its default.
fn kinds(item: &Item) -> Vec<String> {
    let keys = tables::descriptions(&item.path).into_iter();
    keys.filter_map(|(kind, key)| Some(format!("{} ({})", kind?, in_toml(&key.default)))).collect()
}

/// Describes the type of a key, with its range.
fn kind(item: &Item) -> String {
    // Seats are numbers; user-defined names are arbitrary.
    let path: Vec<String> = item
        .path
        .iter()
        .map(|part| if part == "N" { "0".to_owned() } else { part.clone() })
        .collect();
    let free = path.iter().any(|part| part == "chat_template_kwargs");
    let kind = type_of(&path).filter(|_| !free).unwrap_or_else(|| "any value of TOML".to_owned());
    match tables::descriptions(&item.path).first() {
        Some((_, key)) => key.type_words(kind),
        None => kind,
    }
}

/// Lists the ways to set the key without a file.
fn set(item: &Item, entry: &Entry) -> String {
    let name = item.name();
    let quote = if name.contains('"') || entry.value.contains('"') { "'" } else { "" };
    let flag = format!("--set {quote}{name}={}{quote}", entry.value);
    if name.contains(['"', '/']) {
        flag
    } else {
        format!("{flag}, MAVERL_{}", item.path.join("__").to_uppercase())
    }
}

/// Names a preset with its value of a key of `[algorithm]`.
fn preset_value(preset: &Preset, key: &[String]) -> Option<String> {
    let parts = serde_json::to_value(preset.parts()).ok()?;
    let value = key.iter().try_fold(&parts, |table, key| table.get(key))?;
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Some(format!("{} ({value})", preset.name()))
}

/// Lists the algorithm presets that set a key, each with its value.
fn presets(path: &[String]) -> Option<String> {
    let ([first], rest) = path.split_at_checked(1)? else { return None };
    if first != "algorithm" || rest == ["name"] {
        return None;
    }
    let set: Vec<String> =
        Preset::ALL.iter().filter_map(|preset| preset_value(preset, rest)).collect();
    (rest != ["max_flat_steps"] && !set.is_empty()).then(|| set.join(", "))
}

fn page(name: &str) -> &'static str {
    let page = PAGES.iter().find(|(table, _)| {
        table.is_empty() || name == *table || name.starts_with(&format!("{table}."))
    });
    page.map_or("keys.md", |(_, page)| page)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn told(name: &str) -> String {
        explain(name, &Registry::default(), 80).unwrap_or_else(|Failure(what)| what)
    }

    #[test]
    fn every_key_of_the_reference_is_explained_at_every_width() {
        let registry = Registry::default();
        for item in reference::items() {
            // The keys of a seat are those of its agent.
            let item = reference::find(&item.name()).unwrap();
            for width in [60, 80, 120] {
                let text = explain(&item.name(), &registry, width);
                let text = text.unwrap_or_else(|Failure(what)| panic!("{}: {what}", item.name()));
                let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
                assert!(widest <= width, "{widest} at {width}\n{text}");
                let Some(entry) = item.entry.as_ref().filter(|_| width == 120) else { continue };
                let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
                for part in [&item.meaning, &format!("{}: ", entry.level), &"type ".to_owned()] {
                    assert!(plain.contains(part.as_str()), "{part} is missing in\n{text}");
                }
            }
        }
    }

    #[test]
    fn a_key_is_explained_with_type_default_level_and_use() {
        let expected = "\
algorithm.loss.surrogate.clip_high
  upper clip: the ratio is at most 1 plus this number

  type             a finite number above 0
  default          0.2
  default by kind  clip (0.2), cispo (4.0), cpgd (0.2), gmpo (0.4)
  level            agent: every agent and every seat may have its own
  written in       [algorithm.loss.surrogate],
                   [agents.\"TEAM/ROLE\".loss.surrogate],
                   [agents.\"TEAM/ROLE\".seats.N.loss.surrogate]
  set with         --set algorithm.loss.surrogate.clip_high=0.2,
                   MAVERL_ALGORITHM__LOSS__SURROGATE__CLIP_HIGH
";
        let text = told("clip_high");
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("dapo (0.28)"), "{text}");
        assert!(told("models.small.optim.lr").contains("models.NAME.optim.lr"));
        assert!(
            told("learning_rate").starts_with("`learning_rate` is `models.NAME.optim.lr` here")
        );
        assert!(told("temperature").contains("eval.temperature"));
        assert!(told("kl_in").contains("one of \"loss\", \"reward\""), "{}", told("kl_in"));
        assert!(told("sampling").contains("max_tokens"));
    }

    #[test]
    fn a_table_of_several_kinds_shows_the_keys_of_each_under_its_name() {
        let text = told("algorithm.advantage");
        let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("no {words} in\n{text}"));
        let (group, moving) = (at("kind = \"group\""), at("kind = \"moving_average\""));
        assert!(group < at("deviation_by") && at("deviation_by") < moving, "{text}");
        assert!(moving < at("momentum"), "{text}");
        assert!(!text.contains("default     \"group\""), "the kind is a heading, no key\n{text}");
    }

    #[test]
    fn the_first_word_of_named_tables_is_explained_as_these_tables() {
        for (name, table) in
            [("models", "[models."), ("endpoints", "[endpoints."), ("rewards", "[rewards.")]
        {
            let text = told(name);
            assert!(text.starts_with(table) && text.contains("read docs/src/"), "{text}");
        }
    }

    #[test]
    fn a_key_that_is_not_there_is_answered_with_the_one_that_was_meant() {
        let text = told("task.gruop_size");
        assert!(text.contains("did you mean `task.group_size`?"), "{text}");
        let text = told("clip_hihg");
        assert!(text.contains("did you mean `clip_high`?"), "{text}");
        let text = told("nothing_like_it");
        assert!(text.starts_with("no key or table is called `nothing_like_it`\n"), "{text}");
    }

    #[test]
    fn every_page_that_is_named_is_there() {
        let book = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src");
        for (_, page) in PAGES {
            assert!(book.join(page).is_file(), "{page}");
        }
    }
}
