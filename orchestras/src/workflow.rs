//! Workflows that are declared in a configuration: a graph of nodes, each of which asks an agent.

mod graph;
mod template;
#[cfg(test)]
mod tests;

pub use graph::{Graph, GraphError, Node};

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use agents::block;
use agents::workflow::{Work, Worker};
use futures::future::join_all;
use maverl::prelude::*;
use maverl::trajectory::TurnPath;
use serde::{Deserialize, Serialize};

use graph::{HISTORY, OF_TASK, SEEN, SYSTEM};
use template::fill;

/// Runs a graph of nodes from the configuration; the last node's reply is the answer.
///
/// A node is asked as soon as all its dependencies have replied; independent nodes are asked concurrently.
#[orchestra(name = "workflow/graph", agents(Worker[nodes]))]
#[derive(Settings)]
pub struct Workflow {
    /// The nodes, `[[orchestra.nodes]]`.
    pub nodes: Graph,
    /// Number of passes through the graph, unless the environment accepts no further action.
    #[setting(default = 1)]
    pub passes: NonZeroU32,
    /// Passes that train: `all`, or `last`.
    pub trains: Passes,
}

/// Selection of passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Passes {
    /// Every pass.
    #[default]
    All,
    /// The last pass of the episode.
    Last,
}

impl Orchestra for Workflow {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let (system, history) = (task.system().to_owned(), task.history().show());
        let question = task.question.clone();
        let texts = [question, "(none)".to_owned(), system, history];
        let mut course = Course {
            team,
            graph: &self.nodes,
            known: OF_TASK.map(str::to_owned).into_iter().zip(texts).collect(),
            spoken: Vec::new(),
            answer: None,
        };
        for _ in 0..self.passes.get() {
            if self.trains == Passes::Last {
                course.mask_turns();
            }
            if course.pass().await? {
                break;
            }
        }
        course.share().await?;
        Ok(course.answer)
    }

    fn environments(&self) -> Vec<String> {
        self.nodes.environments()
    }

    fn acts(&self) -> bool {
        self.nodes.nodes().iter().any(|node| node.acts)
    }

    fn passes_on(&self) -> Vec<&'static str> {
        [SYSTEM, HISTORY].into_iter().filter(|name| self.nodes.shows(name)).collect()
    }
}

/// Reply of a node, and its content.
struct NodeReply {
    reply: String,
    content: String,
}

impl NodeReply {
    /// Reads a reply, whose content is the block of a tag, or without a tag the whole reply.
    fn read(reply: String, tag: Option<&str>) -> Result<Self, ReplyError> {
        let content = match tag {
            Some(name) => block(&reply, name)?.to_owned(),
            None => reply.clone(),
        };
        Ok(Self { reply, content })
    }
}

/// A running episode.
struct Course<'w> {
    team: &'w Team<Workflow>,
    graph: &'w Graph,
    /// Template variables by name.
    known: BTreeMap<String, String>,
    /// Nodes of the turns so far, with the paths of the turns.
    spoken: Vec<(usize, TurnPath)>,
    answer: Option<String>,
}

impl Course<'_> {
    /// Runs the graph once. Returns true if the environment accepts no further action.
    async fn pass(&mut self) -> Result<bool, AskError> {
        let mut done = false;
        for level in self.graph.levels() {
            done |= self.level(level).await?;
        }
        Ok(done)
    }

    /// Asks independent nodes. Returns true if the environment accepts no further action.
    async fn level(&mut self, level: &[usize]) -> Result<bool, AskError> {
        // One branch per node: nodes may share a seat, and each is rewarded for its own turn.
        let branches: Vec<Team<Workflow>> = level.iter().map(|_| self.team.branch()).collect();
        let asks = level.iter().zip(&branches).map(|(&i, branch)| self.ask(i, branch));
        let said = join_all(asks).await;
        for (&i, branch) in level.iter().zip(&branches) {
            let seat = branch.seat::<Worker>(self.graph.seat(i));
            let Some(turn) = seat.last() else { continue };
            if !self.graph.nodes()[i].trains {
                seat.mask_turn(&turn);
            }
            self.spoken.push((i, turn));
        }
        let mut done = false;
        for ((&i, branch), said) in level.iter().zip(&branches).zip(said) {
            done |= self.hear(i, branch, said?).await?;
        }
        Ok(done)
    }

    /// Asks a node. The turn gets its path now, not when the reply is awaited.
    fn ask(
        &self,
        node: usize,
        branch: &Team<Workflow>,
    ) -> impl Future<Output = Result<NodeReply, AskError>> {
        let Node { role, prompt, tag, .. } = &self.graph.nodes()[node];
        let [role, text] = [role, prompt].map(|template| fill(template, &self.known));
        let work = Work { role, text };
        let seat = branch.seat::<Worker>(self.graph.seat(node));
        seat.ask_with(&work, |reply| NodeReply::read(reply, tag.as_deref()))
    }

    /// Processes the reply of a node. Returns true if the environment accepts no further action.
    async fn hear(
        &mut self,
        place: usize,
        branch: &Team<Workflow>,
        NodeReply { reply, content }: NodeReply,
    ) -> Result<bool, AskError> {
        let node = &self.graph.nodes()[place];
        if node.own_reward != 0.0 && self.team.judge(&content).await?.solved {
            branch.seat::<Worker>(self.graph.seat(place)).add_reward("own", node.own_reward);
        }
        let mut done = false;
        if node.acts {
            let action = Action::Text(content.clone());
            let seen = match &node.environment {
                None => self.team.act(action).await?,
                Some(name) => self.team.act_in(name, action).await?,
            };
            done = seen.done && node.environment.is_none();
            self.known.insert(SEEN.to_owned(), seen.text);
        }
        if place + 1 == self.graph.nodes().len() {
            self.answer = Some(content.clone());
        }
        let seen = self.known.get(SEEN).cloned().unwrap_or_default();
        let names = ["reply", "content", SEEN].map(str::to_owned);
        let parts = names.into_iter().zip([reply, content, seen]).collect();
        self.known.insert(node.id.clone(), fill(&node.shown, &parts));
        Ok(done)
    }

    /// Masks all turns so far.
    fn mask_turns(&self) {
        for (node, turn) in &self.spoken {
            self.team.seat::<Worker>(self.graph.seat(*node)).mask_turn(turn);
        }
    }

    /// Removes from each turn the part of the team's score that does not belong to it.
    async fn share(&self) -> Result<(), AskError> {
        let Some(answer) = &self.answer else { return Ok(()) };
        let nodes = self.graph.nodes();
        if self.spoken.iter().all(|(node, _)| nodes[*node].team_reward == 1.0) {
            return Ok(());
        }
        let score = self.team.judge(answer).await?.reward;
        for (node, turn) in &self.spoken {
            let seat = self.team.seat::<Worker>(self.graph.seat(*node));
            seat.add_turn_reward(turn, "team", (nodes[*node].team_reward - 1.0) * score);
        }
        Ok(())
    }
}
