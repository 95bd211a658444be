//! The nodes of a workflow, and the order that their templates make.

use std::collections::BTreeSet;

use maverl::orchestra::SeatCount;
use serde::{Deserialize, Serialize};

use super::template::names;

/// What a template calls what is asked.
pub(super) const QUESTION: &str = "question";
/// What a template calls what the world showed last.
pub(super) const SEEN: &str = "seen";

/// One node: what it asks whom, and what becomes of the reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its name, by which templates of other nodes show what it said.
    pub id: String,
    /// Who is asked: instructions before the conversation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// What is asked: text with `{{ question }}`, `{{ seen }}` (what the world showed last), and names of other nodes, which
    /// then speak before it.
    pub prompt: String,
    /// Nodes that speak before it, beside those that its template names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// The seat of `workflow/worker` that is asked; nodes with one seat are a group, which shares configuration, policy and
    /// statistics. Without it, each node has its own: its place in the file, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<u32>,
    /// The block of the reply that counts (`answer` for `<answer>..</answer>`); without it, the whole reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// What other nodes are shown: text with `{{ reply }}`, `{{ content }}` (what counts of it) and `{{ seen }}`.
    #[serde(default = "whole")]
    pub shown: String,
    /// Send what counts to the environment.
    #[serde(default)]
    pub acts: bool,
    /// Of `[environments]`, the one that it acts in; without it, the world of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// What its seat earns for this turn if what counts of the reply is a right answer.
    #[serde(default)]
    pub own_reward: f64,
    /// How much of the score of the team's answer it earns for this turn.
    #[serde(default = "all")]
    pub team_reward: f64,
    /// Whether its turns train anybody.
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

/// Why nodes make no workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphError(String);

impl std::fmt::Display for GraphError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for GraphError {}

impl Default for Graph {
    /// One node that answers the question.
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
    /// In the order of the file.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Numbers of nodes that can be asked at once, those first that wait for nothing.
    pub fn levels(&self) -> impl Iterator<Item = &[usize]> {
        self.levels.iter().map(Vec::as_slice)
    }

    /// The environments that nodes act in beside the task's world, each once.
    pub fn environments(&self) -> Vec<String> {
        let names: BTreeSet<&String> =
            self.nodes.iter().filter_map(|node| node.environment.as_ref()).collect();
        names.into_iter().cloned().collect()
    }

    /// The seat of a node.
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
        let before = |place| before(&nodes, place).map_err(GraphError);
        let waits: Vec<Vec<usize>> = (0..nodes.len()).map(before).collect::<Result<_, _>>()?;
        let levels = levels(&waits).map_err(|stuck| {
            let stuck: Vec<String> = stuck.iter().map(|&i| format!("`{}`", nodes[i].id)).collect();
            GraphError(format!("the nodes {} wait for each other", stuck.join(", ")))
        })?;
        Ok(Self { nodes, levels })
    }
}

/// The nodes that one waits for; or what is wrong with it.
fn before(nodes: &[Node], place: usize) -> Result<Vec<usize>, String> {
    let node = &nodes[place];
    let Node { id, .. } = node;
    if [QUESTION, SEEN, ""].contains(&id.as_str()) || nodes[..place].iter().any(|n| n.id == *id) {
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
    if node.role.contains("{{") {
        return Err(format!("`role` of node `{id}` is no template: move `{{{{` to `prompt`"));
    }
    let shown = names(&node.shown).map_err(|open| unclosed(id, open))?;
    let known = ["reply", "content", SEEN];
    if let Some(name) = shown.iter().find(|name| !known.contains(*name)) {
        return Err(format!(
            "`shown` of node `{id}` has `reply`, `content` and `seen`, and no `{name}`"
        ));
    }
    let of = |name: &str| nodes.iter().position(|node| node.id == name);
    let mut before = Vec::new();
    for name in names(&node.prompt).map_err(|open| unclosed(id, open))? {
        match of(name) {
            Some(node) => before.push(node),
            None if [QUESTION, SEEN].contains(&name) => {}
            None => return Err(format!("node `{id}` shows `{name}`, which is no node")),
        }
    }
    for name in &node.after {
        let Some(node) = of(name) else {
            return Err(format!("node `{id}` comes after `{name}`, which is no node"));
        };
        before.push(node);
    }
    Ok(before)
}

fn unclosed(id: &str, open: &str) -> String {
    format!("a template of node `{id}` has `{{{{` without `}}}}`: {open:?}")
}

/// Each node on the level after the last one it waits for; or those that can never be asked.
fn levels(waits: &[Vec<usize>]) -> Result<Vec<Vec<usize>>, Vec<usize>> {
    let mut left: Vec<usize> = (0..waits.len()).collect();
    let mut levels = Vec::new();
    while !left.is_empty() {
        let ready = |node: &usize| !waits[*node].iter().any(|before| left.contains(before));
        let (now, later): (Vec<usize>, Vec<usize>) = left.iter().copied().partition(ready);
        if now.is_empty() {
            return Err(later);
        }
        levels.push(now);
        left = later;
    }
    Ok(levels)
}
