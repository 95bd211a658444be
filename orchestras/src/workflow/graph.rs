//! Nodes of a workflow, and their order by the dependencies of their templates.

use std::collections::BTreeSet;

use maverl::orchestra::SeatCount;
use serde::{Deserialize, Serialize};

use super::template::names;

/// Template variable of the last observation.
pub(super) const SEEN: &str = "seen";
/// Template variable of the task's system message, empty for none.
pub(super) const SYSTEM: &str = "system";
/// Template variable of the messages between the system message and the question.
pub(super) const HISTORY: &str = "history";
/// Template variables that are no nodes.
pub(super) const OF_TASK: [&str; 4] = ["question", SEEN, SYSTEM, HISTORY];

/// One node: its agent, its prompt, and the use of its reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Name of the node, which templates of other nodes use for its reply.
    pub id: String,
    /// Instructions before the conversation, with `{{ system }}`, the system message of the task.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// Prompt: text with `{{ question }}`, `{{ system }}` and `{{ history }}` (messages of the task before the question),
    /// `{{ seen }}` (the last observation), and names of other nodes, which then precede it.
    pub prompt: String,
    /// Nodes that precede it, in addition to those that its template names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Seat of `workflow/worker`. Nodes with the same seat are a group and share configuration, policy and statistics.
    /// Without it, each node has its own seat: its index in the file, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<u32>,
    /// Block of the reply that is its content (`answer` for `<answer>..</answer>`); without it, the whole reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Text for other nodes, with `{{ reply }}`, `{{ content }}` and `{{ seen }}`.
    #[serde(default = "whole")]
    pub shown: String,
    /// Sends the content to the environment as an action.
    #[serde(default)]
    pub acts: bool,
    /// Environment of `[environments]` in which it acts; without it, the environment of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Reward of its seat for this turn if the content is a correct answer.
    #[serde(default)]
    pub own_reward: f64,
    /// Weight of the score of the team's answer in the reward of this turn.
    #[serde(default = "all")]
    pub team_reward: f64,
    /// False to mask its turns.
    #[serde(default = "yes")]
    pub trains: bool,
}

fn whole() -> String {
    "{{ reply }}".to_owned()
}

fn all() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

/// Nodes in an order in which they can be asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Node>", into = "Vec<Node>")]
pub struct Graph {
    nodes: Vec<Node>,
    levels: Vec<Vec<usize>>,
}

/// Reason that nodes are not a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphError(String);

impl std::fmt::Display for GraphError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for GraphError {}

impl Default for Graph {
    /// A single node that answers the question.
    fn default() -> Self {
        let node = Node {
            id: "answer".to_owned(),
            role: String::new(),
            prompt: "Question: {{ question }}\nWhat is the answer? Reply <answer>words</answer>."
                .to_owned(),
            after: Vec::new(),
            seat: None,
            tag: Some("answer".to_owned()),
            shown: whole(),
            acts: false,
            environment: None,
            own_reward: 0.0,
            team_reward: 1.0,
            trains: true,
        };
        Self { nodes: vec![node], levels: vec![vec![0]] }
    }
}

impl Graph {
    /// Nodes in the order of the file.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the indices of nodes that can be asked concurrently, in levels; the first level has no dependencies.
    pub fn levels(&self) -> impl Iterator<Item = &[usize]> {
        self.levels.iter().map(Vec::as_slice)
    }

    /// Returns the environments in which nodes act in addition to the task's, without repetition.
    pub fn environments(&self) -> Vec<String> {
        let names: BTreeSet<&String> =
            self.nodes.iter().filter_map(|node| node.environment.as_ref()).collect();
        names.into_iter().cloned().collect()
    }

    /// Returns true if a prompt or a role has a template variable.
    pub(super) fn shows(&self, variable: &str) -> bool {
        let templates = self.nodes.iter().flat_map(|node| [&node.role, &node.prompt]);
        templates.filter_map(|template| names(template).ok()).flatten().any(|name| name == variable)
    }

    /// Returns the seat of a node.
    pub fn seat(&self, node: usize) -> usize {
        self.nodes[node].seat.map_or(node, |seat| seat as usize)
    }
}

impl SeatCount for Graph {
    fn seats(&self) -> u32 {
        let last = (0..self.nodes.len()).map(|node| self.seat(node)).max();
        u32::try_from(last.map_or(0, |last| last.saturating_add(1))).unwrap_or(u32::MAX)
    }
}

impl From<Graph> for Vec<Node> {
    fn from(graph: Graph) -> Self {
        graph.nodes
    }
}

impl TryFrom<Vec<Node>> for Graph {
    type Error = GraphError;

    fn try_from(nodes: Vec<Node>) -> Result<Self, GraphError> {
        if nodes.is_empty() {
            let message = "a workflow has at least one node: write `[[orchestra.nodes]]`";
            return Err(GraphError(message.to_owned()));
        }
        if !nodes.iter().any(|node| node.trains) {
            let message = "no node trains: remove `trains = false` from one of them";
            return Err(GraphError(message.to_owned()));
        }
        let waits = (0..nodes.len()).map(|place| dependencies_of(&nodes, place));
        let waits: Vec<Vec<usize>> = waits.collect::<Result<_, _>>().map_err(GraphError)?;
        let levels = levels(&waits).map_err(|stuck| {
            let stuck: Vec<String> = stuck.iter().map(|&i| format!("`{}`", nodes[i].id)).collect();
            GraphError(format!("the nodes {} wait for each other", stuck.join(", ")))
        })?;
        Ok(Self { nodes, levels })
    }
}

/// Returns the dependencies of a node, or its problem.
fn dependencies_of(nodes: &[Node], place: usize) -> Result<Vec<usize>, String> {
    let node = &nodes[place];
    let Node { id, .. } = node;
    let reserved = id.is_empty() || OF_TASK.contains(&id.as_str());
    if reserved || nodes[..place].iter().any(|n| n.id == *id) {
        return Err(format!("`{id}` cannot be the id of a node: it is taken or empty"));
    }
    if node.seat.is_some_and(|seat| seat as usize >= nodes.len()) {
        return Err(format!("node `{id}` has a seat above the number of nodes"));
    }
    if node.environment.is_some() && !node.acts {
        return Err(format!(
            "node `{id}` has an `environment` and does not act: add `acts = true`"
        ));
    }
    if !node.own_reward.is_finite() || !node.team_reward.is_finite() {
        return Err(format!("the rewards of node `{id}` are finite numbers"));
    }
    let role = names(&node.role).map_err(|open| unclosed_block(id, open))?;
    if let Some(name) = role.iter().find(|name| **name != SYSTEM) {
        return Err(format!(
            "`role` of node `{id}` has `system`, and no `{name}`: move it to `prompt`"
        ));
    }
    let shown = names(&node.shown).map_err(|open| unclosed_block(id, open))?;
    let known = ["reply", "content", SEEN];
    if let Some(name) = shown.iter().find(|name| !known.contains(*name)) {
        return Err(format!(
            "`shown` of node `{id}` has `reply`, `content` and `seen`, and no `{name}`"
        ));
    }
    let mut before = Vec::new();
    for name in names(&node.prompt).map_err(|open| unclosed_block(id, open))? {
        match place_of(nodes, name) {
            Some(node) => before.push(node),
            None if OF_TASK.contains(&name) => {}
            None => return Err(format!("node `{id}` shows `{name}`, which is no node")),
        }
    }
    for name in &node.after {
        let Some(node) = place_of(nodes, name) else {
            return Err(format!("node `{id}` comes after `{name}`, which is no node"));
        };
        before.push(node);
    }
    Ok(before)
}

fn unclosed_block(id: &str, open: &str) -> String {
    format!("a template of node `{id}` has `{{{{` without `}}}}`: {open:?}")
}

fn place_of(nodes: &[Node], id: &str) -> Option<usize> {
    nodes.iter().position(|node| node.id == id)
}

/// Puts each node on the level after its last dependency. Returns the nodes that can never be asked as an error.
fn levels(waits: &[Vec<usize>]) -> Result<Vec<Vec<usize>>, Vec<usize>> {
    let mut left: Vec<usize> = (0..waits.len()).collect();
    let mut levels = Vec::new();
    while !left.is_empty() {
        let (now, later): (Vec<usize>, Vec<usize>) = left
            .iter()
            .copied()
            .partition(|node| !waits[*node].iter().any(|before| left.contains(before)));
        if now.is_empty() {
            return Err(later);
        }
        levels.push(now);
        left = later;
    }
    Ok(levels)
}
