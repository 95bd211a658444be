//! Workflows that are written in a configuration: a graph of nodes, each of which asks an agent.

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

use graph::{QUESTION, SEEN};
use template::fill;

/// Asks along a graph of nodes that is read from the configuration; the last node's reply is the answer.
///
/// A node is asked as soon as all that it waits for have spoken; nodes that wait for nothing of each other are asked at
/// once.
#[orchestra(name = "workflow/graph", agents(Worker[nodes]))]
pub struct Workflow {
    /// The nodes, `[[orchestra.nodes]]`.
    pub nodes: Graph,
    /// How often the graph is gone through, unless the world takes no further action.
    pub passes: NonZeroU32,
    /// Which passes train: `all`, or `last`.
    pub trains: Passes,
}

/// Some passes through a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Passes {
    /// Every one.
    #[default]
    All,
    /// That after which there was no other.
    Last,
}

impl Default for Workflow {
    fn default() -> Self {
        let (nodes, trains) = Default::default();
        Self { nodes, passes: NonZeroU32::MIN, trains }
    }
}

impl Orchestra for Workflow {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let known = [(QUESTION, task.question.as_str()), (SEEN, "(none)")];
        let mut course = Course {
            team,
            graph: &self.nodes,
            known: known.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
            spoken: Vec::new(),
            answer: None,
        };
        for _ in 0..self.passes.get() {
            if self.trains == Passes::Last {
                course.rest();
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
}

/// The reply of a node, and what counts of it.
struct NodeReply {
    reply: String,
    content: String,
}

impl NodeReply {
    /// Reads a reply of which the block of a tag counts, or without one all of it.
    fn read(reply: String, tag: Option<&str>) -> Result<Self, ReplyError> {
        let content = match tag {
            Some(name) => block(&reply, name)?.to_owned(),
            None => reply.clone(),
        };
        Ok(Self { reply, content })
    }
}

/// An episode under way.
struct Course<'w> {
    team: &'w Team<Workflow>,
    graph: &'w Graph,
    /// What templates show, by name.
    known: BTreeMap<String, String>,
    /// Which node spoke where.
    spoken: Vec<(usize, TurnPath)>,
    answer: Option<String>,
}

impl Course<'_> {
    /// Goes through the graph once. Says whether the world takes no further action.
    async fn pass(&mut self) -> Result<bool, AskError> {
        let mut done = false;
        for level in self.graph.levels() {
            done |= self.level(level).await?;
        }
        Ok(done)
    }

    /// Asks nodes that wait for nothing of each other. Says whether the world takes no further action.
    async fn level(&mut self, level: &[usize]) -> Result<bool, AskError> {
        // A branch for each: nodes may share a seat, and each is paid for its own turn.
        let branches: Vec<Team<Workflow>> = level.iter().map(|_| self.team.branch()).collect();
        let ask = |(&i, branch): (&usize, &Team<Workflow>)| {
            let Node { role, prompt, tag, .. } = &self.graph.nodes()[i];
            let work = Work { role: role.clone(), text: fill(prompt, &self.known) };
            let read = |reply| NodeReply::read(reply, tag.as_deref());
            branch.seat::<Worker>(self.graph.seat(i)).ask_with(&work, read)
        };
        let said = join_all(level.iter().zip(&branches).map(ask)).await;
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

    /// Takes in what a node said. Says whether the world takes no further action.
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

    /// Lets everything that was said so far rest.
    fn rest(&self) {
        for (node, turn) in &self.spoken {
            self.team.seat::<Worker>(self.graph.seat(*node)).mask_turn(turn);
        }
    }

    /// Takes from each turn what is not its own of the score of the team's answer.
    async fn share(&self) -> Result<(), AskError> {
        let part = |node: usize| self.graph.nodes()[node].team_reward - 1.0;
        let Some(answer) = &self.answer else { return Ok(()) };
        if self.spoken.iter().all(|(node, _)| part(*node) == 0.0) {
            return Ok(());
        }
        let score = self.team.judge(answer).await?.reward;
        for (node, turn) in &self.spoken {
            let seat = self.team.seat::<Worker>(self.graph.seat(*node));
            seat.add_turn_reward(turn, "team", part(*node) * score);
        }
        Ok(())
    }
}
