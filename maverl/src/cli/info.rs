//! `maverl list`.

use crate::registry::{Declaration, Registry};
use crate::table::{NO_BREAK, Table};

/// Lists all linked components.
pub(super) fn list(registry: &Registry) -> Table {
    let header = ["kind", "name", "what it is", "options"];
    let mut table = Table::plain(header).prose(&[2, 3]).title(2);
    let mut add = |kind: &str, declaration: &Declaration| {
        let defaults = (declaration.defaults)();
        let options = defaults.as_object().into_iter().flatten();
        let options: Vec<String> =
            options.map(|(name, value)| format!("{name}{NO_BREAK}={NO_BREAK}{value}")).collect();
        table.row([kind, declaration.name, declaration.summary, &options.join(", ")]);
    };
    registry.orchestras.values().for_each(|entry| add("orchestra", &entry.declaration));
    registry.agents.values().for_each(|entry| add("agent", &entry.declaration));
    registry.environments.values().for_each(|entry| add("environment", &entry.declaration));
    registry.rewards.values().for_each(|entry| add("reward", &entry.declaration));
    registry.tools.values().for_each(|entry| add("tool", &entry.declaration));
    registry.advantages.values().for_each(|entry| add("advantage", &entry.declaration));
    registry.surrogates.values().for_each(|entry| add("surrogate", &entry.declaration));
    table
}
