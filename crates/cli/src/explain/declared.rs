//! Explanations of what the linked crates declare: estimators, surrogates, environments, orchestras and agents with their
//! settings.

use serde_json::Value;

use super::level::{draw_block, level_row};
use crate::info::in_toml;
use maverl::config::source::type_of_option;
use maverl::config::{AdvantagePlan, SurrogatePlan, reference};
use maverl::registry::{Declaration, Registry};
use maverl::settings::{Description, TableKind, Tagged};
use maverl::table::{Table, paragraphs};

/// Makes a declared value from settings, and drops it.
type BuildSettings<'r> = Box<dyn Fn(&Value) -> Result<(), String> + 'r>;

/// A declaration, and the table that its settings are written in.
struct DeclaredKind<'r> {
    /// `advantage`, `surrogate`, `environment`, `orchestra` or `agent`.
    noun: &'static str,
    /// Path of the table.
    table: Vec<String>,
    /// Key that chooses the declaration: `kind` or `name`; empty for an agent.
    tag: &'static str,
    /// Page of the book.
    page: &'static str,
    declaration: &'r Declaration,
    /// The keys are in the reference.
    built_in: bool,
    /// Makes the declared value from settings.
    build: BuildSettings<'r>,
}

/// Explains the declaration with this name, the setting, or the declarations of a table.
pub(super) fn explain(name: &str, registry: &Registry, width: usize) -> Vec<String> {
    let path = reference::parts(name);
    let Some((last, before)) = path.split_last() else { return Vec::new() };
    let mut blocks = Vec::new();
    for declared in all_declarations(registry) {
        let of_table =
            !declared.built_in && !declared.tag.is_empty() && declared.table.ends_with(&path);
        if declared.declaration.name == name || of_table {
            blocks.push(declared.explain_declaration(width));
        } else if !declared.built_in
            && declared.is_in(before)
            && let Some(setting) = declared.settings().iter().find(|key| key.name == *last)
        {
            blocks.push(declared.key(setting, width));
        }
    }
    blocks
}

/// Returns the names of all declarations and of their settings.
pub(super) fn names(registry: &Registry) -> Vec<String> {
    let mut names = Vec::new();
    for its in all_declarations(registry) {
        names.extend(its.settings().into_iter().map(|key| key.name));
        names.push(its.declaration.name.to_owned());
    }
    names
}

fn has_kind(kinds: &[TableKind], its: &Declaration) -> bool {
    kinds.iter().any(|kind| kind.name == its.name)
}

/// Lists the declarations of the linked crates.
fn all_declarations(registry: &Registry) -> Vec<DeclaredKind<'_>> {
    let advantages = registry.advantages.values().map(|entry| DeclaredKind {
        noun: "advantage",
        table: vec!["algorithm".into(), "advantage".into()],
        tag: "kind",
        page: "estimator.md",
        declaration: &entry.declaration,
        built_in: has_kind(AdvantagePlan::KINDS, &entry.declaration),
        build: Box::new(move |settings| (entry.build)(settings).map(drop)),
    });
    let surrogates = registry.surrogates.values().map(|entry| DeclaredKind {
        noun: "surrogate",
        table: vec!["algorithm".into(), "loss".into(), "surrogate".into()],
        tag: "kind",
        page: "estimator.md",
        declaration: &entry.declaration,
        built_in: has_kind(SurrogatePlan::KINDS, &entry.declaration),
        build: Box::new(move |settings| (entry.build)(settings).map(drop)),
    });
    let environments = registry.environments.values().map(|entry| DeclaredKind {
        noun: "environment",
        table: vec!["environment".into()],
        tag: "name",
        page: "environment.md",
        declaration: &entry.declaration,
        built_in: false,
        build: Box::new(move |settings| (entry.check)(settings)),
    });
    let orchestras = registry.orchestras.values().map(|entry| DeclaredKind {
        noun: "orchestra",
        table: vec!["orchestra".into()],
        tag: "name",
        page: "teams.md",
        declaration: &entry.declaration,
        built_in: false,
        build: Box::new(move |settings| (entry.build)(settings).map(drop)),
    });
    let agents = registry.agents.values().map(|entry| DeclaredKind {
        noun: "agent",
        table: vec!["agents".into(), entry.declaration.name.into(), "options".into()],
        tag: "",
        page: "declare.md",
        declaration: &entry.declaration,
        built_in: false,
        build: Box::new(move |settings| (entry.build)(settings).map(drop)),
    });
    orchestras.chain(environments).chain(advantages).chain(surrogates).chain(agents).collect()
}

impl DeclaredKind<'_> {
    fn settings(&self) -> Vec<Description> {
        self.declaration.descriptions()
    }

    /// Returns true if a path before a setting can be that of its table: none, its end, or a table of the same form.
    fn is_in(&self, before: &[String]) -> bool {
        let Some(first) = before.first() else { return true };
        let form = match first.as_str() {
            "environments" | "task" => "environment",
            "agents" => "agent",
            _ => "",
        };
        self.table.ends_with(before) || form == self.noun
    }

    /// Returns the level of its settings. None of them may change when a run is resumed.
    fn level(&self) -> &'static str {
        if self.noun == "agent" { "agent" } else { "team" }
    }

    /// Returns the header of its table, and the line that chooses the declaration.
    fn written_in(&self) -> String {
        let header = format!("[{}]", quote_path(&self.table));
        match self.tag {
            "" => header,
            tag => format!("{header} with `{tag} = {:?}`", self.declaration.name),
        }
    }

    /// Explains one setting, as those of built-in tables are explained.
    fn key(&self, setting: &Description, width: usize) -> String {
        let Description { name, default, .. } = setting;
        let key = quote_path(&[self.table.as_slice(), std::slice::from_ref(name)].concat());
        let value = if default.is_null() { "VALUE".to_owned() } else { in_toml(default) };
        let quote = if key.contains('"') || value.contains('"') { "'" } else { "" };
        let mut lines = Table::without_frame(["", ""]).prose(&[1]);
        lines.row(["type", &setting.type_words(type_of_option(&self.build, name))]);
        lines.row(["default", &in_toml(default)]);
        lines.row(["level", &level_row(self.level())]);
        lines.row(["written in", &self.written_in()]);
        lines.row(["set with", &format!("--set {quote}{key}={value}{quote}")]);
        lines.row(["read", &format!("docs/src/{}", self.page)]);
        let title = format!("{key}, a setting of the {} `{}`", self.noun, self.declaration.name);
        draw_block(&title, &setting.meaning(), &lines, width)
    }

    /// Explains a declaration: its purpose, where it is written, and its settings.
    fn explain_declaration(&self, width: usize) -> String {
        let title = format!(
            "{}: {} `{}`: {}",
            self.written_in(),
            self.noun,
            self.declaration.name,
            self.declaration.summary
        );
        let mut table = Table::without_frame(["key", "default", "level", "what it is"]).prose(&[3]);
        for setting in self.settings() {
            let default = in_toml(&setting.default);
            table.row([setting.name.as_str(), &default, self.level(), &setting.meaning()]);
        }
        let keys =
            if table.is_empty() { "  (no keys of its own)".to_owned() } else { table.draw(width) };
        format!("{}\n\n{keys}\n\nread docs/src/{}", paragraphs(&title, width), self.page)
    }
}

/// Formats a path as it is written in a configuration.
fn quote_path(path: &[String]) -> String {
    path.iter()
        .map(|part| if part.contains('/') { format!("{part:?}") } else { part.clone() })
        .collect::<Vec<_>>()
        .join(".")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use maverl::credit::Gdpo;
    use maverl::env::search::SearchEnvironment;
    use maverl::registry::{Entry, SourceLocation};

    fn registry() -> Registry {
        let place = SourceLocation { file: "", line: 1, item: "" };
        let mut registry = Registry::default();
        if let Entry::Advantage(gdpo) = Entry::advantage::<Gdpo>("gdpo", "GDPO.", place) {
            registry.advantages.insert("gdpo", gdpo);
        }
        if let Entry::Environment(search) = Entry::environment::<SearchEnvironment>(place) {
            registry.environments.insert("search", search);
        }
        registry
    }

    fn told(name: &str, width: usize) -> String {
        explain(name, &registry(), width).join("\n\n")
    }

    #[test]
    fn a_setting_of_a_declared_estimator_is_explained_as_one_of_a_built_in_kind() {
        let expected = "\
algorithm.advantage.eps, a setting of the advantage `gdpo`
  added to deviations

  type        a finite number from 0
  default     0.0001
  level       team: one for all agents of the run
  written in  [algorithm.advantage] with `kind = \"gdpo\"`
  set with    --set algorithm.advantage.eps=0.0001
  read        docs/src/estimator.md";
        assert_eq!(told("eps", 80), expected);
        assert_eq!(told("algorithm.advantage.eps", 80), expected);
        assert_eq!(told("environment.eps", 80), "");
        assert_eq!(told("task.mixture.quiz.environment.top_k", 80), told("environment.top_k", 80));
        assert!(told("by", 80).contains("one of `task`"), "{}", told("by", 80));
        assert!(told("weights", 80).contains("a table"), "{}", told("weights", 80));
    }

    #[test]
    fn a_declaration_and_the_table_that_names_it_show_its_keys() {
        for name in ["gdpo", "algorithm.advantage", "advantage"] {
            let text = told(name, 80);
            assert!(text.starts_with("[algorithm.advantage] with `kind = \"gdpo\"`"), "{text}");
            for part in ["weights", "eps", "0.0001", "added to deviations"] {
                assert!(text.contains(part), "{part} is missing in\n{text}");
            }
        }
        let search = told("environment", 80);
        assert!(search.contains("with `name = \"search\"`"), "{search}");
        assert_eq!(told("nothing", 80), "");
        assert!(names(&registry()).contains(&"weights".to_owned()));
    }

    #[test]
    fn every_setting_is_explained_at_every_width() {
        let registry = registry();
        for declared in all_declarations(&registry) {
            for Description { name: key, doc, .. } in &declared.settings() {
                for width in [60, 80, 120] {
                    let text = explain(key, &registry, width).join("\n\n");
                    assert!(!doc.is_empty(), "{key} has no documentation");
                    let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
                    assert!(widest <= width, "{widest} at {width}\n{text}");
                }
            }
        }
    }
}
