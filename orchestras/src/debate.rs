//! Teams that debate a question.

mod rule;
mod shaping;
#[cfg(test)]
mod tests;

pub use rule::rule;
pub use shaping::{Horizon, Share};

use std::num::NonZeroU32;

use agents::Solution;
use agents::debate::{Debater, Hearing, Judge, Motion, Ruling};
use futures::future::{join, join_all};
use maverl::ballot::{Ballot, Ties, alike};
use maverl::prelude::*;
use maverl::trajectory::{Fault, FaultKind, TurnPath};
use serde::{Deserialize, Serialize};

/// Debates in rounds; the last answers are put to a vote, or a judge decides.
#[orchestra(name = "debate/rounds", agents(Debater[debaters], Judge))]
#[derive(Settings)]
pub struct Rounds {
    /// Number of debaters.
    #[setting(default = 2)]
    pub debaters: NonZeroU32,
    /// Number of statements of each debater.
    #[setting(default = 2)]
    pub rounds: NonZeroU32,
    /// `simultaneous`: all reply concurrently, given the statements of the round before. `sequential`: one after
    /// another, given the latest statements. `moderated`: concurrently, and after each round the judge may end the
    /// debate or name a point to discuss.
    pub protocol: Protocol,
    /// `free`: each debater argues for its own opinion. `assigned`: each argues for one of the task's `choices`, and
    /// the judge must be persuaded.
    pub sides: Sides,
    /// Ends the debate when all debaters agree.
    pub until_consensus: bool,
    /// Choice among tied answers: `first`, `random`, or `none` for no answer.
    pub ties: Ties,
    /// Reward of a debater for a statement with a correct answer, if sides are free.
    pub own_reward: f64,
    /// Rounds whose answers that reward covers: `current`, `discounted` (the current and later rounds), or `last`.
    pub horizon: Horizon,
    /// Debaters whose answers that reward covers: `own`, or `all`.
    pub share: Share,
    /// Discount per round of the horizon `discounted`.
    #[setting(default = 0.3)]
    pub discount: f64,
    /// Reward of a debater whose answer is the outcome, minus the mean of that over all debaters, so that the sum is
    /// zero.
    pub lead_reward: f64,
}

/// Order of statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// All concurrently, without a judge.
    #[default]
    Simultaneous,
    /// One after another, without a judge.
    Sequential,
    /// All concurrently, followed by the judge.
    Moderated,
}

/// Position that a debater argues for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sides {
    /// Its own opinion.
    #[default]
    Free,
    /// An assigned choice.
    Assigned,
}

/// A running debate.
struct Debate<'d> {
    rules: &'d Rounds,
    team: &'d Team<Rounds>,
    question: &'d str,
    /// Position of each debater, if positions are assigned.
    sides: Vec<String>,
    /// Last well-formed statement of each debater.
    floor: Vec<Option<Solution>>,
    /// Point that the judge wants to have discussed.
    matter: Option<String>,
    /// Turns of each round with their values.
    rounds: Vec<Vec<Mark>>,
}

/// A debater's turn in a round, with its value: 1 for a correct answer.
#[derive(Clone, Default)]
struct Mark {
    turn: Option<TurnPath>,
    worth: f64,
}

impl Orchestra for Rounds {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let sides = self.assign_positions(task)?;
        let floor = vec![None; self.debaters.get() as usize];
        let question = &task.question;
        let (matter, rounds) = (None, Vec::new());
        let mut debate = Debate { rules: self, team, question, sides, floor, matter, rounds };
        let outcome = debate.run().await?;
        debate.close(outcome.as_deref());
        Ok(outcome)
    }
}

impl Rounds {
    /// Assigns a position to each debater; empty if sides are free.
    fn assign_positions(&self, task: &Task) -> Result<Vec<String>, AskError> {
        if self.sides == Sides::Free {
            return Ok(Vec::new());
        }
        let choices = task.texts("choices");
        let wrong = match (self.protocol, choices.len()) {
            (Protocol::Moderated, 2..) => {
                return Ok(choices.into_iter().cycle().take(self.debaters.get() as usize).collect());
            }
            (Protocol::Moderated, _) => {
                format!("the task `{}` has no two `choices` to assign", task.id)
            }
            _ => "`orchestra.sides` is \"assigned\", and nobody judges; set `orchestra.protocol` to \"moderated\"".to_owned(),
        };
        Err(Fault::new(FaultKind::Orchestra, wrong).into())
    }
}

impl Debate<'_> {
    async fn run(&mut self) -> Result<Option<String>, AskError> {
        for _ in 0..self.rules.rounds.get() {
            self.rounds.push(vec![Mark::default(); self.floor.len()]);
            match self.rules.protocol {
                Protocol::Sequential => self.in_turn().await?,
                Protocol::Simultaneous | Protocol::Moderated => self.at_once().await?,
            }
            if self.rules.protocol == Protocol::Moderated
                && let Some(verdict) = self.moderate().await?
            {
                return Ok(Some(verdict));
            }
            if self.rules.until_consensus && self.agree() {
                break;
            }
        }
        let ballot: Ballot = self.answers().collect();
        Ok(ballot.winner(self.rules.ties, self.team.seed()))
    }

    async fn in_turn(&mut self) -> Result<(), AskError> {
        for i in 0..self.floor.len() {
            let said = self.team.seat::<Debater>(i).ask(&self.motion(i)).await;
            self.state(i, said).await?;
        }
        Ok(())
    }

    async fn at_once(&mut self) -> Result<(), AskError> {
        let seats = 0..self.floor.len();
        let asks = seats.map(|i| self.team.seat::<Debater>(i).ask(&self.motion(i)));
        for (i, said) in join_all(asks).await.into_iter().enumerate() {
            self.state(i, said).await?;
        }
        Ok(())
    }

    /// Returns the input of a debater.
    fn motion(&self, i: usize) -> Motion {
        let task = match self.sides.get(i) {
            None => "What is the answer?".to_owned(),
            Some(side) => format!("Argue that the answer is {side}."),
        };
        let mut heard: Vec<String> = self.statements(0..self.floor.len(), Some(i)).collect();
        heard.extend(self.matter.iter().map(|matter| format!("Judge: {matter}")));
        Motion { question: self.question.to_owned(), heard, task }
    }

    /// Returns the last statements of some debaters, each after its speaker. The numbers of debaters are the same for
    /// every reader; `reader`'s own statement is marked as its own.
    fn statements(
        &self,
        order: impl Iterator<Item = usize>,
        reader: Option<usize>,
    ) -> impl Iterator<Item = String> {
        order.filter_map(move |i| self.statement(i, reader))
    }

    /// Returns the last statement of a debater after its speaker; `None` if it has made none.
    fn statement(&self, debater: usize, reader: Option<usize>) -> Option<String> {
        let text = &self.floor[debater].as_ref()?.text;
        Some(if reader == Some(debater) {
            format!("You: {text}")
        } else {
            format!("Debater {}: {text}", debater + 1)
        })
    }

    /// Records a debater's statement; after a malformed reply its previous statement remains.
    async fn state(&mut self, i: usize, said: Result<Solution, AskError>) -> Result<(), AskError> {
        let mut mark = Mark { turn: self.team.seat::<Debater>(i).last(), worth: 0.0 };
        if let Some(mut statement) = AskError::or_none(said)? {
            match self.sides.get(i) {
                // A debater cannot leave its assigned side.
                Some(side) => statement.answer.clone_from(side),
                None if self.rules.own_reward == 0.0 => {}
                None => {
                    let right = self.team.judge(&statement.answer).await?.solved;
                    mark.worth = f64::from(right);
                }
            }
            self.floor[i] = Some(statement);
        }
        if let Some(round) = self.rounds.last_mut() {
            round[i] = mark;
        }
        Ok(())
    }

    /// Asks the judge with the statements in both orders; a verdict counts if it is the same in both.
    async fn moderate(&mut self) -> Result<Option<String>, AskError> {
        let n = self.floor.len();
        let question = self.question.to_owned();
        let ahead: Vec<String> = self.statements(0..n, None).collect();
        let behind: Vec<String> = self.statements((0..n).rev(), None).collect();
        let [ahead, behind] = [ahead, behind]
            .map(|heard| self.team.ask::<Judge>(&Hearing { question: question.clone(), heard }));
        let (ahead, behind) = join(ahead, behind).await;
        let rulings = [AskError::or_none(ahead)?, AskError::or_none(behind)?];
        self.report(&rulings);
        self.matter = rulings.iter().flatten().find_map(|ruling| match ruling {
            Ruling::Discuss(matter) => Some(matter.clone()),
            Ruling::Answer(_) => None,
        });
        Ok(match rulings {
            [Some(Ruling::Answer(a)), Some(Ruling::Answer(b))] if alike(&a, &b) => Some(a),
            _ => None,
        })
    }

    /// Logs the influence of order and length on the judge's verdicts, where debaters disagree.
    fn report(&self, rulings: &[Option<Ruling>; 2]) {
        let spoke: Vec<&Solution> = self.floor.iter().flatten().collect();
        let longest = spoke.iter().max_by_key(|statement| statement.text.len());
        let (Some(longest), false) = (longest, self.agree()) else { return };
        for (ruling, first) in rulings.iter().zip([spoke.first(), spoke.last()]) {
            let (Some(Ruling::Answer(verdict)), Some(first)) = (ruling, first) else { continue };
            let [first, longest] = [first, longest].map(|it| alike(verdict, &it.answer));
            self.team.log_metric("judge_first_favored", f64::from(first));
            self.team.log_metric("judge_longest_favored", f64::from(longest));
        }
        if let [Some(Ruling::Answer(a)), Some(Ruling::Answer(b))] = rulings {
            self.team.log_metric("judge_order_flip", f64::from(!alike(a, b)));
        }
    }

    fn answers(&self) -> impl Iterator<Item = &str> {
        self.floor.iter().flatten().map(|statement| statement.answer.as_str())
    }

    /// Returns true if all debaters have replied and agree.
    fn agree(&self) -> bool {
        let first = self.answers().next();
        self.floor.iter().all(Option::is_some)
            && first.is_some_and(|first| self.answers().all(|answer| alike(first, answer)))
    }

    /// Rewards the statements.
    fn settle(&self) {
        let Rounds { own_reward, horizon, share, discount, .. } = *self.rules;
        let rounds = self.rounds.iter();
        let worth: Vec<Vec<f64>> =
            rounds.map(|round| round.iter().map(|mark| mark.worth).collect()).collect();
        let own = shaping::shape_rewards(&worth, horizon, share, discount);
        for (round, own) in self.rounds.iter().zip(own) {
            for (i, mark) in round.iter().enumerate() {
                let (seat, Some(turn)) = (self.team.seat::<Debater>(i), &mark.turn) else {
                    continue;
                };
                seat.add_turn_reward(turn, "own", own_reward * own[i]);
            }
        }
    }

    /// Rewards the outcome, and logs the rule-based rating of the last statements.
    fn close(&self, outcome: Option<&str>) {
        self.settle();
        let n = self.floor.len();
        let leads = self.floor.iter().map(|statement| leads(statement.as_ref(), outcome));
        let leads: Vec<f64> = leads.map(f64::from).collect();
        let mean = leads.iter().sum::<f64>() / n as f64;
        for (i, lead) in leads.iter().enumerate() {
            let value = self.rules.lead_reward * (lead - mean);
            self.team.seat::<Debater>(i).add_seat_reward("lead", value);
        }
        for statement in self.floor.iter().flatten() {
            self.team.log_metric("rule_judge", rule(&statement.text, self.question));
        }
    }
}

/// Returns true if the answer of a statement is the outcome.
fn leads(statement: Option<&Solution>, outcome: Option<&str>) -> bool {
    statement.zip(outcome).is_some_and(|(said, outcome)| alike(&said.answer, outcome))
}
