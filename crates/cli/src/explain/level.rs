//! Levels of keys, and the block that explains a key.

use maverl::table::{Table, paragraphs};

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

/// Formats what is said of a key: a title, its meaning, which may be empty, and rows below them.
pub(super) fn draw_block(title: &str, meaning: &str, rows: &Table, width: usize) -> String {
    let head = paragraphs(&format!("{title}\n  {meaning}"), width);
    let rows = rows.draw(width.saturating_sub(2));
    let rows: Vec<String> = rows.lines().map(|line| format!("  {line}")).collect();
    format!("{}\n\n{}", head.trim_end(), rows.join("\n"))
}
