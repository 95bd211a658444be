//! Declared functions: rewards and tools.

use serde_json::Value;

use super::{Declaration, Entry, SourceLocation};
use crate::reward::Rewards;
use crate::tools::DeclaredTool;
use crate::trajectory::Episode;

/// A declared reward function.
#[derive(Clone, Copy)]
pub struct RewardEntry {
    /// Name, summary, source location (no options).
    pub declaration: Declaration,
    /// Reward function.
    pub reward: fn(&Episode) -> Rewards,
}

/// A declared tool.
#[derive(Clone, Copy)]
pub struct ToolEntry {
    /// Name, summary, source location (no options).
    pub declaration: Declaration,
    /// Function of the tool.
    pub tool: &'static DeclaredTool,
}

impl Entry {
    /// Creates a reward function's entry.
    pub const fn reward(
        name: &'static str,
        summary: &'static str,
        place: SourceLocation,
        reward: fn(&Episode) -> Rewards,
    ) -> Self {
        let declaration = Declaration { name, summary, place, defaults: no_options, keys: &[] };
        Self::Reward(RewardEntry { declaration, reward })
    }

    /// Creates a tool's entry.
    pub fn tool(tool: &'static DeclaredTool) -> Self {
        let DeclaredTool { name, description, file, line, item, .. } = *tool;
        let summary = description.lines().next().unwrap_or_default();
        let place = SourceLocation { file, line, item };
        let declaration = Declaration { name, summary, place, defaults: no_options, keys: &[] };
        Self::Tool(ToolEntry { declaration, tool })
    }
}

fn no_options() -> Value {
    Value::Object(serde_json::Map::new())
}
