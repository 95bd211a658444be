//! Declarations of the linked crates: agents, orchestras, environments, rewards, tools, estimators, surrogates.

mod actions;
mod built_in;
mod credit;
mod environment;
mod features;
mod function;
mod options;

#[doc(hidden)]
pub use actions::{ANY, includes};
#[doc(hidden)]
pub use credit::{AdvantageEntry, SurrogateEntry};
#[doc(hidden)]
pub use environment::{EnvironmentEntry, Looked, Started};
#[doc(hidden)]
pub use features::{FeatureGate, LinkedFeature, has_feature, lacking_gates};
#[doc(hidden)]
pub use function::{RewardEntry, ToolEntry};
#[doc(hidden)]
pub use options::{default_options, from_options, in_range, no_options, refuse_options};

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::agent::{AgentName, Input, Reply};
use crate::orchestra::{DynOrchestra, OrchestraName};
use crate::settings::{Description, Key};
use crate::task::{TaskError, TaskList, parse_all};
use crate::tools::DeclaredTool;

/// Source location of a declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct SourceLocation {
    /// Source file, as the compiler was given it.
    pub file: &'static str,
    /// Line, from 1.
    pub line: u32,
    /// Rust path of the item.
    pub item: &'static str,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}:{}", self.item, self.file, self.line)
    }
}

/// Construction from options; implemented by the attributes. The options are the type's own fields.
#[doc(hidden)]
pub trait Build: Sized {
    /// Documentation of the options, and their ranges where they have some.
    const KEYS: &'static [Key] = &[];

    /// Returns the options with their defaults, an object.
    fn defaults() -> Value;

    /// Creates the value from options; missing keys have their defaults.
    ///
    /// # Errors
    ///
    /// The first unknown key or wrong type, in serde's words.
    fn build(options: &Value) -> Result<Self, String>;
}

/// One declaration, as submitted by the attributes.
#[doc(hidden)]
pub enum Entry {
    /// From `#[agent]`.
    Agent(AgentEntry),
    /// From `#[orchestra]`.
    Orchestra(OrchestraEntry),
    /// From `#[environment]`.
    Environment(EnvironmentEntry),
    /// From `#[reward]`.
    Reward(RewardEntry),
    /// From `#[tool]`.
    Tool(ToolEntry),
    /// From `#[advantage]`.
    Advantage(AdvantageEntry),
    /// From `#[surrogate]`.
    Surrogate(SurrogateEntry),
}

inventory::collect!(Entry);

/// Common part of all declarations.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct Declaration {
    /// Registered name.
    pub name: &'static str,
    /// First line of its documentation.
    pub summary: &'static str,
    /// Source location.
    pub place: SourceLocation,
    /// Options with their defaults.
    pub defaults: fn() -> Value,
    /// Documentation and ranges of options.
    pub keys: &'static [Key],
}

impl Declaration {
    /// Declaration of a type with options.
    const fn of<T: Build>(
        name: &'static str,
        summary: &'static str,
        place: SourceLocation,
    ) -> Self {
        Self { name, summary, place, defaults: T::defaults, keys: T::KEYS }
    }

    /// Returns its options with their documentation, defaults and ranges.
    pub fn descriptions(&self) -> Vec<Description> {
        Description::of_options(self.keys, (self.defaults)())
    }
}

/// A declared agent.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct AgentEntry {
    /// Name, summary, source location, options.
    pub declaration: Declaration,
    /// Fields of its input.
    pub inputs: &'static [&'static str],
    /// Sentence that describes the reply format to the model; empty for plain text.
    pub reply_format: fn() -> String,
    /// Creates the agent from its options.
    pub build: fn(&Value) -> Result<Arc<dyn Any + Send + Sync>, String>,
}

/// Function that validates an orchestra's options: warnings, or errors.
#[doc(hidden)]
pub type Look = fn(&Value, &Path) -> Result<Vec<String>, Vec<String>>;

/// Function that creates an orchestra from its options and starts it.
#[doc(hidden)]
pub type Start = fn(&Value, &Path) -> Result<Arc<dyn DynOrchestra>, String>;

/// A declared orchestra.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct OrchestraEntry {
    /// Name, summary, source location, options.
    pub declaration: Declaration,
    /// Names of the actions it sends.
    pub needs: &'static [&'static str],
    /// Creates the orchestra from its options.
    pub build: fn(&Value) -> Result<Arc<dyn DynOrchestra>, String>,
    /// See [`Orchestra::validate`](crate::orchestra::Orchestra::validate); paths in options are relative to the directory.
    pub look: Look,
    /// Creates and starts the orchestra; paths in options are relative to the directory.
    pub start: Start,
    /// Reads every task as the type that it declares.
    pub read_tasks: fn(&TaskList) -> Result<(), TaskError>,
}

impl Entry {
    /// Creates an agent's entry.
    pub const fn agent<A: AgentName + Build>(place: SourceLocation) -> Self {
        Self::Agent(AgentEntry {
            declaration: Declaration::of::<A>(A::NAME, A::SUMMARY, place),
            inputs: <A::Input as Input>::FIELDS,
            reply_format: <A::Output as Reply>::format,
            build: |options| Ok(Arc::new(A::build(options)?)),
        })
    }

    /// Creates an orchestra's entry.
    pub const fn orchestra<O: OrchestraName + Build>(place: SourceLocation) -> Self {
        Self::Orchestra(OrchestraEntry {
            declaration: Declaration::of::<O>(O::NAME, O::SUMMARY, place),
            needs: O::NEEDS,
            build: |options| Ok(Arc::new(O::build(options)?)),
            look: |options, base| O::build(options).map_err(|error| vec![error])?.validate(base),
            start: |options, base| {
                let mut orchestra = O::build(options)?;
                orchestra.start(base)?;
                Ok(Arc::new(orchestra))
            },
            read_tasks: |tasks| {
                if O::READS_TASKS { parse_all(O::read_task, tasks) } else { Ok(()) }
            },
        })
    }

    fn declaration(&self) -> (&'static str, &Declaration) {
        match self {
            Self::Agent(entry) => ("agent", &entry.declaration),
            Self::Orchestra(entry) => ("orchestra", &entry.declaration),
            Self::Environment(entry) => ("environment", &entry.declaration),
            Self::Reward(entry) => ("reward", &entry.declaration),
            Self::Tool(entry) => ("tool", &entry.declaration),
            Self::Advantage(entry) => ("advantage", &entry.declaration),
            Self::Surrogate(entry) => ("surrogate", &entry.declaration),
        }
    }
}

/// Every declaration of the linked crates, by name. A plain value: built once in `main`, passed by reference.
#[derive(Default)]
pub struct Registry {
    /// Agents.
    #[doc(hidden)]
    pub agents: BTreeMap<&'static str, AgentEntry>,
    /// Orchestras.
    #[doc(hidden)]
    pub orchestras: BTreeMap<&'static str, OrchestraEntry>,
    /// Environments.
    #[doc(hidden)]
    pub environments: BTreeMap<&'static str, EnvironmentEntry>,
    /// Reward functions.
    #[doc(hidden)]
    pub rewards: BTreeMap<&'static str, RewardEntry>,
    /// Tools.
    #[doc(hidden)]
    pub tools: BTreeMap<&'static str, ToolEntry>,
    /// Estimators of advantages.
    #[doc(hidden)]
    pub advantages: BTreeMap<&'static str, AdvantageEntry>,
    /// Surrogates of the loss.
    #[doc(hidden)]
    pub surrogates: BTreeMap<&'static str, SurrogateEntry>,
}

/// Reason that the linked crates have no valid registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// No crate with declarations is linked.
    #[error(
        "no agent or orchestra is registered: the compiler drops a dependency that is never named, and its declarations \
         with it. Name each crate that declares agents in your `main.rs`:\n\n    maverl::main!(my_team, orchestras);\n\n\
         or, with a `main` of your own, `use my_team as _;`"
    )]
    Empty,
    /// Names with more than one declaration.
    #[error("{}", .0.join("\n"))]
    Conflicts(Vec<String>),
}

impl Registry {
    /// Collects the declarations of every linked crate.
    ///
    /// # Errors
    ///
    /// See [`RegistryError`]; all conflicts together, each with both source locations.
    pub fn collect() -> Result<Self, RegistryError> {
        let tools: Vec<Entry> =
            inventory::iter::<DeclaredTool>.into_iter().map(Entry::tool).collect();
        let mut entries: Vec<&Entry> = inventory::iter::<Entry>.into_iter().collect();
        entries.extend(&tools);
        Self::from_entries(entries)
    }

    /// Builds the registry from explicit entries.
    ///
    /// # Errors
    ///
    /// See [`RegistryError`].
    pub fn from_entries<'e>(
        entries: impl IntoIterator<Item = &'e Entry>,
    ) -> Result<Self, RegistryError> {
        let mut registry = Self::default();
        let mut places: BTreeMap<(&str, &str), Vec<SourceLocation>> = BTreeMap::new();
        for entry in entries {
            let (kind, declaration) = entry.declaration();
            places.entry((kind, declaration.name)).or_default().push(declaration.place);
            match entry {
                Entry::Agent(entry) => {
                    registry.agents.insert(declaration.name, *entry);
                }
                Entry::Orchestra(entry) => {
                    registry.orchestras.insert(declaration.name, *entry);
                }
                Entry::Environment(entry) => {
                    registry.environments.insert(declaration.name, *entry);
                }
                Entry::Reward(entry) => {
                    registry.rewards.insert(declaration.name, *entry);
                }
                Entry::Tool(entry) => {
                    registry.tools.insert(declaration.name, *entry);
                }
                Entry::Advantage(entry) => {
                    registry.advantages.insert(declaration.name, *entry);
                }
                Entry::Surrogate(entry) => {
                    registry.surrogates.insert(declaration.name, *entry);
                }
            }
        }
        if registry.agents.is_empty() && registry.orchestras.is_empty() {
            return Err(RegistryError::Empty);
        }
        let conflicts: Vec<String> = places
            .into_iter()
            .filter(|(_, places)| places.len() > 1)
            .map(|((kind, name), mut places)| {
                places.sort_by_key(|place| (place.file, place.line));
                let places: Vec<String> = places.iter().map(|place| format!("  {place}")).collect();
                format!(
                    "{kind} `{name}` is declared {} times; rename all but one:\n{}",
                    places.len(),
                    places.join("\n")
                )
            })
            .collect();
        if conflicts.is_empty() { Ok(registry) } else { Err(RegistryError::Conflicts(conflicts)) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::reward::Rewards;

    fn declaration(name: &'static str, file: &'static str, line: u32) -> Declaration {
        let place = SourceLocation { file, line, item: "team::Item" };
        Declaration { name, summary: "An item.", place, defaults: || Value::Null, keys: &[] }
    }

    fn agent(name: &'static str, file: &'static str, line: u32) -> Entry {
        Entry::Agent(AgentEntry {
            declaration: declaration(name, file, line),
            inputs: &[],
            reply_format: String::new,
            build: |_| Ok(Arc::new(())),
        })
    }

    fn orchestra(name: &'static str, file: &'static str, line: u32) -> Entry {
        Entry::Orchestra(OrchestraEntry {
            declaration: declaration(name, file, line),
            needs: &[],
            build: |_| Err("never built".to_owned()),
            look: |_, _| Ok(Vec::new()),
            start: |_, _| Err("never built".to_owned()),
            read_tasks: |_| Ok(()),
        })
    }

    fn reward(name: &'static str) -> Entry {
        let place = SourceLocation { file: "reward.rs", line: 1, item: "team::reward" };
        Entry::reward(name, "A reward.", place, |_| Rewards::none())
    }

    #[test]
    fn declarations_are_sorted_by_name() {
        let entries = [agent("b/z", "x.rs", 1), agent("a/z", "x.rs", 2), agent("b/a", "x.rs", 3)];
        let registry = Registry::from_entries(&entries).unwrap();
        assert_eq!(registry.agents.keys().copied().collect::<Vec<_>>(), ["a/z", "b/a", "b/z"]);
    }

    #[test]
    fn one_name_may_be_an_agent_and_an_orchestra() {
        let entries = [agent("math/solve", "x.rs", 1), orchestra("math/solve", "x.rs", 2)];
        assert!(Registry::from_entries(&entries).is_ok());
    }

    #[test]
    fn every_conflict_is_reported_with_every_place() {
        let entries = [
            orchestra("math/refine", "flow.rs", 7),
            agent("math/solver", "b.rs", 20),
            agent("math/verifier", "a.rs", 1),
            agent("math/solver", "a.rs", 9),
            orchestra("math/refine", "flow.rs", 3),
            agent("math/solver", "b.rs", 4),
        ];
        let error = Registry::from_entries(&entries).err().unwrap();
        let expected = "\
agent `math/solver` is declared 3 times; rename all but one:
  team::Item at a.rs:9
  team::Item at b.rs:4
  team::Item at b.rs:20
orchestra `math/refine` is declared 2 times; rename all but one:
  team::Item at flow.rs:3
  team::Item at flow.rs:7";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn an_empty_registry_says_which_line_to_write() {
        for entries in [vec![], vec![reward("brevity")]] {
            let error = Registry::from_entries(&entries).err().unwrap();
            assert_eq!(error, RegistryError::Empty);
            let text = error.to_string();
            assert!(text.contains("maverl::main!(my_team, orchestras);"), "{text}");
            assert!(text.contains("use my_team as _;"), "{text}");
        }
    }
}
