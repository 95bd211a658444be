//! `maverl examples`: the configurations that the program brings.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use toml::{Table as Toml, Value};

use super::{Failure, paths, print, terminal};
use maverl::config::source::{Shipped, ShippedName, shipped_configs};
use maverl::output;
use maverl::table::Table;
use maverl::train::own_name;

#[derive(Args)]
pub(super) struct ExamplesArgs {
    /// Example or recipe to print, such as `example:single`. [default: a list of all]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Write the configuration and the files that it names into a directory, so that it can be edited. [default of DIR: the
    /// working directory]
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".", requires = "name", value_parser = paths::to_write())]
    write: Option<PathBuf>,
    /// Print the list as JSON.
    #[arg(long, conflicts_with = "name")]
    json: bool,
}

/// A row of the list.
#[derive(Debug, Serialize)]
struct ShippedEntry {
    name: String,
    summary: String,
    /// Models and data that it names and the program does not contain.
    needs: Vec<String>,
}

/// Lists the configurations that ship with the program, prints one, or writes one with its files.
pub(super) fn examples(args: &ExamplesArgs) -> Result<ExitCode, Failure> {
    let Some(name) = &args.name else {
        let entries: Vec<ShippedEntry> = shipped_configs().iter().map(ShippedEntry::new).collect();
        let text = if args.json { output::json(&entries)? } else { format_list(&entries)? };
        return print(&own_name(&text));
    };
    let found = find(name)?;
    match &args.write {
        Some(dir) => {
            let files = found.write(dir)?;
            let lines: Vec<String> =
                files.iter().map(|file| format!("wrote {}", file.display())).collect();
            let config = dir.join(found.written_path());
            let last = format!("maverl train {} trains it", config.display());
            print(&own_name(&format!("{}\n{last}", lines.join("\n"))))
        }
        None => print(found.text()),
    }
}

/// Returns the configuration with a name, of which the prefix may be left out.
fn find(name: &str) -> Result<Shipped, Failure> {
    if let Some(name) = ShippedName::parse(Path::new(name)) {
        return name.find().ok_or_else(|| {
            let (message, help) = name.unknown_name();
            Failure(format!("{message}; {help}"))
        });
    }
    let mut names = ["example:", "recipe:"].map(|prefix| format!("{prefix}{name}")).into_iter();
    let found = names.find_map(|name| ShippedName::parse(Path::new(&name))?.find());
    found.map_or_else(|| find(&format!("example:{name}")), Ok)
}

/// Formats the list for readers.
fn format_list(entries: &[ShippedEntry]) -> Result<String, Failure> {
    if entries.is_empty() {
        return Err(Failure(
            "this program has no examples and recipes: they are in crates with the built-in teams, such as `maverl-cli` with its \
             feature `stock`"
                .to_owned(),
        ));
    }
    let mut table = Table::without_frame(["name", "what it is", "needs"]).prose(&[1, 2]).title(1);
    for ShippedEntry { name, summary, needs } in entries {
        table.row([name, summary, &needs.join(", ")]);
    }
    let first = &entries[0].name;
    let help = format!(
        "`maverl train {first} --quick` tries one. `maverl examples {first} --write` writes its files into this directory."
    );
    Ok(format!(
        "{}\n\n{}",
        table.draw(terminal::width()),
        maverl::table::paragraphs(&help, terminal::width())
    ))
}

impl ShippedEntry {
    fn new(shipped: &Shipped) -> Self {
        let name = shipped.name.to_string();
        Self { name, summary: summary(shipped.text()), needs: needs(shipped).into_iter().collect() }
    }
}

/// Returns the first sentence of the comment that a configuration begins with.
pub(super) fn summary(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim);
    let first: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let first = first.join(" ");
    let end = first.match_indices(". ").map(|(at, _)| at).find(|at| !first[..*at].ends_with("Dr"));
    first[..end.unwrap_or(first.len())].trim_end_matches(['.', ':']).to_owned()
}

/// Returns what a configuration or one of its stages needs and the program does not bring: models, data, servers, programs.
fn needs(shipped: &Shipped) -> BTreeSet<String> {
    let mut found = wanted_sources(&shipped.table());
    found.retain(|(_, what)| !is_brought(shipped, what));
    let mut needs: BTreeSet<String> =
        found.into_iter().map(|(kind, what)| format!("{kind} {what}")).collect();
    needs.extend(shipped.stages().iter().flat_map(self::needs));
    needs
}

/// Returns true if a path is built in, written by an earlier stage, or that of a file that comes with the configuration.
fn is_brought(shipped: &Shipped, path: &str) -> bool {
    let name = Path::new(path).file_name();
    path.starts_with("builtin:")
        || path.starts_with("stage:")
        || shipped.files().iter().any(|file| Path::new(file.path).file_name() == name)
}

fn inner_table<'t>(table: &'t Toml, name: &str) -> Option<&'t Toml> {
    table.get(name).and_then(Value::as_table)
}

/// Returns the models, data, servers and programs that a configuration names, each with its kind.
pub(super) fn wanted_sources(table: &Toml) -> Vec<(&'static str, String)> {
    let mut found: Vec<(&'static str, Option<&Value>)> = Vec::new();
    for model in inner_table(table, "models").into_iter().flat_map(Toml::values) {
        found.push(("model", model.get("path")));
    }
    for name in ["task", "eval"] {
        found.push(("data", inner_table(table, name).and_then(|part| part.get("data"))));
    }
    for reward in inner_table(table, "rewards").into_iter().flat_map(Toml::values) {
        let verifier = reward.get("verifier");
        found.push(("verifier", verifier.and_then(|verifier| verifier.get("path"))));
    }
    let environment = inner_table(table, "environment");
    found.push(("documents", environment.and_then(|part| part.get("corpus"))));
    found.push(("server", environment.and_then(|part| part.get("retriever"))));
    let command = inner_table(table, "orchestra").and_then(|part| part.get("command"));
    found.push(("program", command.and_then(Value::as_array).and_then(|words| words.first())));
    let named = found.into_iter();
    named.filter_map(|(kind, value)| Some((kind, value?.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_summary_is_the_first_sentence_of_the_comment() {
        assert_eq!(summary("# One agent answers. It is\n# fast.\nseed = 1"), "One agent answers");
        assert_eq!(summary("# A long\n# sentence:\n#\n#   code\n"), "A long sentence");
        assert_eq!(summary("# GRPO beside Dr. MAS. Both"), "GRPO beside Dr. MAS");
        assert_eq!(summary("seed = 1"), "");
    }

    #[test]
    fn models_data_servers_and_programs_are_what_a_configuration_wants() {
        let text = r#"
            [task]
            data = "data/gsm8k/train.parquet"
            [models.qwen]
            path = "models/Qwen"
            [rewards.verified.verifier]
            path = "verifiers/sums"
            [environment]
            retriever = "http://127.0.0.1:8000/retrieve"
            [orchestra]
            command = ["python3", "a.py"]
        "#;
        let found = wanted_sources(&text.parse().unwrap());
        let found: Vec<String> =
            found.into_iter().map(|(kind, what)| format!("{kind} {what}")).collect();
        assert_eq!(
            found,
            [
                "model models/Qwen",
                "data data/gsm8k/train.parquet",
                "verifier verifiers/sums",
                "server http://127.0.0.1:8000/retrieve",
                "program python3"
            ]
        );
    }

    #[cfg(feature = "stock")]
    #[test]
    fn the_list_says_of_each_what_it_is_and_what_it_needs() {
        use orchestras as _;

        let entries: Vec<ShippedEntry> = shipped_configs().iter().map(ShippedEntry::new).collect();
        assert!(entries.iter().all(|entry| !entry.summary.is_empty()), "{entries:?}");
        let needs = |name: &str| {
            let entry = entries.iter().find(|entry| entry.name == name).unwrap();
            entry.needs.join(", ")
        };
        assert_eq!(needs("example:search_orchestra"), "");
        assert_eq!(needs("example:verifier/stages"), "");
        assert_eq!(needs("example:program"), "program python3");
        let hybrid = needs("recipe:mrlm/09-hybrid");
        assert!(
            hybrid.contains("data data/Capybara/")
                && hybrid.contains("model models/Qwen2.5-1.5B-Instruct"),
            "{hybrid}"
        );
        assert!(find("single").is_ok() && find("mrlm/09-hybrid").is_ok());
        let Failure(error) = find("singel").err().unwrap();
        assert_eq!(error, "there is no example `singel`; did you mean `example:single`?");
    }
}
