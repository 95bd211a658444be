//! Workflows that are written in a configuration: a graph of nodes, each of which asks an agent.

mod graph;
#[cfg(test)]
mod tests;

pub use graph::{Graph, GraphError, Node};

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use agents::workflow::{Work, Worker};
use futures::future::join_all;
use maverl::prelude::*;

/// Asks along a graph of nodes that is read from the configuration; the last node's reply is the answer.
///
/// A node is asked as soon as all that its template names have spoken; nodes that wait for nothing of each other are asked
/// at once.
#[orchestra(name = "workflow/graph", agents(Worker[nodes]))]
pub struct Workflow {
    /// The nodes, `[[orchestra.nodes]]`.
    pub nodes: Graph,
    /// How often the graph is gone through, unless the world takes no further action.
    pub passes: NonZeroU32,
}

impl Default for Workflow {
    fn default() -> Self {
        Self { nodes: Graph::default(), passes: NonZeroU32::MIN }
    }
}

impl Orchestra for Workflow {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut known = BTreeMap::from([
            ("question".to_owned(), task.question.clone()),
            ("seen".to_owned(), "(none)".to_owned()),
        ]);
        let mut answer = None;
        for _ in 0..self.passes.get() {
            let mut done = false;
            for level in self.nodes.levels() {
                done |= self.level(team, level, &mut known, &mut answer).await?;
            }
            if done {
                break;
            }
        }
        Ok(answer)
    }
}

impl Workflow {
    /// Asks nodes that wait for nothing of each other. Says whether the world takes no further action.
    async fn level(
        &self,
        team: &Team<Self>,
        level: &[usize],
        known: &mut BTreeMap<String, String>,
        answer: &mut Option<String>,
    ) -> Result<bool, AskError> {
        let nodes = self.nodes.nodes();
        let asks = level.iter().map(|&i| {
            let work = Work { text: graph::fill(&nodes[i].prompt, known) };
            team.seat::<Worker>(self.nodes.seat(i)).ask(&work)
        });
        let mut done = false;
        for (&i, said) in level.iter().zip(join_all(asks).await) {
            let node = &nodes[i];
            let reply = said?;
            let content = match &node.tag {
                Some(name) => tag(&reply, name).map_err(AskError::Reply)?.to_owned(),
                None => reply.clone(),
            };
            if node.own_reward != 0.0 && team.judge(&content).await?.solved {
                team.seat::<Worker>(self.nodes.seat(i)).pay("own", node.own_reward);
            }
            if node.acts {
                let seen = team.act(Action::Text(content.clone())).await?;
                done |= seen.done;
                known.insert("seen".to_owned(), seen.text);
            }
            if i + 1 == nodes.len() {
                *answer = Some(content.clone());
            }
            let seen = known.get("seen").cloned().unwrap_or_default();
            let names = ["reply", "content", "seen"].map(str::to_owned);
            let parts = names.into_iter().zip([reply, content, seen]).collect();
            known.insert(node.id.clone(), graph::fill(&node.shown, &parts));
        }
        Ok(done)
    }
}
