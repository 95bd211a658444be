//! Levels of keys.

/// Meaning of each level.
const LEVELS: [(&str, &str); 4] = [
    ("agent", "every agent and every seat may have its own"),
    ("policy", "one for all agents that share weights"),
    ("team", "one for all agents of the run"),
    ("run", "one for the run; it may change when the run is resumed"),
];

/// Formats a level with its meaning.
pub(super) fn level_row(level: &str) -> String {
    let meaning = LEVELS.iter().find(|(name, _)| *name == level).map_or("", |(_, what)| what);
    format!("{level}: {meaning}")
}
