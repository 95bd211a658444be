//! The nodes of a workflow, and the order that their templates make.

use std::collections::BTreeMap;

use maverl::orchestra::SeatCount;
use serde::{Deserialize, Serialize};

/// One node: what it asks whom, and what becomes of the reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its name, by which templates of other nodes show what it said.
    pub id: String,
    /// What is asked: text with `{{ question }}`, `{{ seen }}` (what the world showed last), and names of other nodes, which
    /// then speak before it.
    pub prompt: String,
    /// The seat of `workflow/worker` that is asked; nodes with one seat share its configuration and statistics. Without it,
    /// each node has its own: its place in the file, from 0.
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
    /// What its seat earns for this turn if what counts of the reply is a right answer.
    #[serde(default)]
    pub own_reward: f64,
}

fn whole() -> String {
    "{{ reply }}".to_owned()
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
            prompt: "Question: {{ question }}\nWhat is the answer? Reply <answer>words</answer>."
                .to_owned(),
            seat: None,
            tag: Some("answer".to_owned()),
            shown: whole(),
            acts: false,
            own_reward: 0.0,
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
        let error = |message: String| Err(GraphError(message));
        if nodes.is_empty() {
            return error(
                "a workflow has at least one node: write `[[orchestra.nodes]]`".to_owned(),
            );
        }
        let mut waits = Vec::new();
        for (i, node) in nodes.iter().enumerate() {
            let Node { id, .. } = node;
            if ["question", "seen", ""].contains(&id.as_str())
                || nodes[..i].iter().any(|n| n.id == *id)
            {
                return error(format!("`{id}` cannot be the id of a node: it is taken or empty"));
            }
            if node.seat.is_some_and(|seat| seat as usize >= nodes.len()) {
                return error(format!("node `{id}` has a seat above the number of nodes"));
            }
            let mut before = Vec::new();
            for name in names(&node.prompt).map_err(|open| GraphError(unclosed(id, open)))? {
                match nodes.iter().position(|node| node.id == name) {
                    Some(node) => before.push(node),
                    None if ["question", "seen"].contains(&name) => {}
                    None => return error(format!("node `{id}` shows `{name}`, which is no node")),
                }
            }
            let shown = names(&node.shown).map_err(|open| GraphError(unclosed(id, open)))?;
            let known = ["reply", "content", "seen"];
            if let Some(name) = shown.iter().find(|name| !known.contains(*name)) {
                return error(format!(
                    "`shown` of node `{id}` has `reply`, `content` and `seen`, and no `{name}`"
                ));
            }
            waits.push(before);
        }
        let levels = levels(&waits).map_err(|stuck| {
            let stuck: Vec<String> = stuck.iter().map(|&i| format!("`{}`", nodes[i].id)).collect();
            GraphError(format!("the nodes {} wait for each other", stuck.join(", ")))
        })?;
        Ok(Self { nodes, levels })
    }
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

/// A template in pieces: text, then the name of what follows it, if something does.
fn pieces(template: &str) -> Result<Vec<(&str, Option<&str>)>, &str> {
    let (mut rest, mut pieces) = (template, Vec::new());
    while let Some((text, after)) = rest.split_once("{{") {
        let (name, left) = after.split_once("}}").ok_or(after)?;
        pieces.push((text, Some(name.trim())));
        rest = left;
    }
    pieces.push((rest, None));
    Ok(pieces)
}

fn names(template: &str) -> Result<Vec<&str>, &str> {
    Ok(pieces(template)?.into_iter().filter_map(|(_, name)| name).collect())
}

/// A template with its names filled in. What is filled in is not read again.
pub(super) fn fill(template: &str, values: &BTreeMap<String, String>) -> String {
    let mut filled = String::new();
    for (text, name) in pieces(template).unwrap_or_default() {
        filled.push_str(text);
        filled.push_str(name.and_then(|name| values.get(name)).map_or("", String::as_str));
    }
    filled
}
