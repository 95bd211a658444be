//! `maverl list`.

use comfy_table::{Table, presets};

use crate::registry::{Declaration, Registry};

/// Everything that is linked in, a line each.
pub(super) fn list(registry: &Registry) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["kind", "name", "what it is", "options"]);
    let mut add = |kind: &str, declaration: &Declaration| {
        let defaults = (declaration.defaults)();
        let options = defaults.as_object().into_iter().flatten();
        let options: Vec<String> =
            options.map(|(name, value)| format!("{name} = {value}")).collect();
        table.add_row([kind, declaration.name, declaration.summary, &options.join(", ")]);
    };
    registry.orchestras.values().for_each(|entry| add("orchestra", &entry.declaration));
    registry.agents.values().for_each(|entry| add("agent", &entry.declaration));
    registry.environments.values().for_each(|entry| add("environment", &entry.declaration));
    registry.rewards.values().for_each(|entry| add("reward", &entry.declaration));
    registry.tools.values().for_each(|entry| add("tool", &entry.declaration));
    table.to_string()
}
