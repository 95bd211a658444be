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
use maverl::env::search::texts;
use maverl::prelude::*;
use maverl::trajectory::{Fault, FaultKind, TurnPath};
use serde::{Deserialize, Serialize};

/// Debates in rounds; the last answers are voted on, or a judge decides.
#[orchestra(name = "debate/rounds", agents(Debater[debaters], Judge))]
pub struct Rounds {
    /// How many debate.
    pub debaters: NonZeroU32,
    /// How often each speaks.
    pub rounds: NonZeroU32,
    /// `simultaneous`: all speak at once, with what was said in the round before; `sequential`: one after another, with what
    /// was said last; `moderated`: at once, and after each round the judge may end the debate or say what to discuss.
    pub protocol: Protocol,
    /// `free`: each debater says what it believes; `assigned`: each argues for one of the task's `choices`, and the judge
    /// must be persuaded.
    pub sides: Sides,
    /// End as soon as all say the same.
    pub until_consensus: bool,
    /// Which of several leaders of the vote wins: `first`, `random`, or `none` for no answer.
    pub ties: Ties,
    /// What a debater earns for a statement whose answer is right, if sides are free.
    pub own_reward: f64,
    /// The rounds that a statement earns that for: `current`, `discounted` (it and those after it), or `last`.
    pub horizon: Horizon,
    /// Whose right answers it earns that for: `own`, or `all`.
    pub share: Share,
    /// What a right answer of the next round weighs, if the horizon is `discounted`.
    pub discount: f64,
    /// MAPoRL's weights of persuading and being persuaded, if sides are free: for changing one's mind to that of the others,
    /// and away from it; for the others' doing so away from one's own, and to it.
    pub influence_reward: [f64; 4],
    /// What a debater earns if the outcome is its answer, less the mean of what all would earn by that: zero in sum.
    pub lead_reward: f64,
}

/// Who speaks when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// All at once, without a judge.
    #[default]
    Simultaneous,
    /// One after another, without a judge.
    Sequential,
    /// All at once, and then the judge.
    Moderated,
}

/// What a debater argues for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sides {
    /// What it believes.
    #[default]
    Free,
    /// What it is told.
    Assigned,
}

impl Default for Rounds {
    fn default() -> Self {
        let two = NonZeroU32::MIN.saturating_add(1);
        Self {
            debaters: two,
            rounds: two,
            protocol: Protocol::Simultaneous,
            sides: Sides::Free,
            until_consensus: false,
            ties: Ties::First,
            own_reward: 0.0,
            horizon: Horizon::Current,
            share: Share::Own,
            discount: 0.3,
            influence_reward: [0.0; 4],
            lead_reward: 0.0,
        }
    }
}

/// A debate under way.
struct Debate<'d> {
    rules: &'d Rounds,
    team: &'d Team<Rounds>,
    question: &'d str,
    /// What each argues for, if that is assigned.
    sides: Vec<String>,
    /// What each said last that could be understood.
    floor: Vec<Option<Solution>>,
    /// What the judge wants to have discussed.
    matter: Option<String>,
    /// Each round's turns, and what they are worth.
    rounds: Vec<Vec<Mark>>,
}

/// A debater's turn in a round, and what it is worth: 1 if its answer is right.
#[derive(Clone, Default)]
struct Mark {
    turn: Option<TurnPath>,
    worth: f64,
}

impl Orchestra for Rounds {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let sides = self.assigned(task)?;
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
    /// What each debater is to argue for; nothing if sides are free.
    fn assigned(&self, task: &Task) -> Result<Vec<String>, AskError> {
        if self.sides == Sides::Free {
            return Ok(Vec::new());
        }
        let choices = texts(task, "choices");
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

    /// What a debater is asked with.
    fn motion(&self, i: usize) -> Motion {
        let task = match self.sides.get(i) {
            None => "What is the answer?".to_owned(),
            Some(side) => format!("Argue that the answer is {side}."),
        };
        let mut heard: Vec<String> = self.statements(0..self.floor.len(), Some(i)).collect();
        heard.extend(self.matter.iter().map(|matter| format!("Judge: {matter}")));
        Motion { question: self.question.to_owned(), heard, task }
    }

    /// What these said last, after who said it. Numbers are the same for every reader; `reader` reads its own as its own.
    fn statements(
        &self,
        order: impl Iterator<Item = usize>,
        reader: Option<usize>,
    ) -> impl Iterator<Item = String> {
        let line = move |i: usize| {
            let text = &self.floor[i].as_ref()?.text;
            Some(match reader == Some(i) {
                true => format!("You: {text}"),
                false => format!("Debater {}: {text}", i + 1),
            })
        };
        order.filter_map(line)
    }

    /// Takes in what a debater said; what cannot be understood leaves what it said before.
    async fn state(&mut self, i: usize, said: Result<Solution, AskError>) -> Result<(), AskError> {
        let mut mark = Mark { turn: self.team.seat::<Debater>(i).last(), worth: 0.0 };
        if let Some(mut statement) = AskError::or_none(said)? {
            match self.sides.get(i) {
                // Nobody leaves the assigned side.
                Some(side) => statement.answer.clone_from(side),
                None if self.rules.own_reward == 0.0 && self.rules.influence_reward == [0.0; 4] => {
                }
                None => {
                    let right = self.team.judge(&statement.answer).await?.solved;
                    mark.worth = f64::from(u8::from(right));
                }
            }
            self.floor[i] = Some(statement);
        }
        if let Some(round) = self.rounds.last_mut() {
            round[i] = mark;
        }
        Ok(())
    }

    /// Asks the judge, with the statements in both orders; a verdict counts if it is the same in both.
    async fn moderate(&mut self) -> Result<Option<String>, AskError> {
        let n = self.floor.len();
        let question = self.question.to_owned();
        let ahead: Vec<String> = self.statements(0..n, None).collect();
        let behind: Vec<String> = self.statements((0..n).rev(), None).collect();
        let ask = |heard| self.team.ask::<Judge>(&Hearing { question: question.clone(), heard });
        let (ahead, behind) = join(ask(ahead), ask(behind)).await;
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

    /// Notes what the judge's verdicts owe to the order and the length of the statements, where debaters disagree.
    fn report(&self, rulings: &[Option<Ruling>; 2]) {
        let spoke: Vec<&Solution> = self.floor.iter().flatten().collect();
        let longest = spoke.iter().max_by_key(|statement| statement.text.len());
        let (Some(longest), false) = (longest, self.agree()) else { return };
        let share = |holds: bool| f64::from(u8::from(holds));
        for (ruling, first) in rulings.iter().zip([spoke.first(), spoke.last()]) {
            let (Some(Ruling::Answer(verdict)), Some(first)) = (ruling, first) else { continue };
            self.team.log_metric("judge_first_favored", share(alike(verdict, &first.answer)));
            self.team.log_metric("judge_longest_favored", share(alike(verdict, &longest.answer)));
        }
        if let [Some(Ruling::Answer(a)), Some(Ruling::Answer(b))] = rulings {
            self.team.log_metric("judge_order_flip", share(!alike(a, b)));
        }
    }

    fn answers(&self) -> impl Iterator<Item = &str> {
        self.floor.iter().flatten().map(|statement| statement.answer.as_str())
    }

    /// Whether everybody has spoken and says the same.
    fn agree(&self) -> bool {
        let first = self.answers().next();
        self.floor.iter().all(Option::is_some)
            && first.is_some_and(|first| self.answers().all(|answer| alike(first, answer)))
    }

    /// Pays for what statements are worth, and for what they changed.
    fn settle(&self) {
        let Rounds { own_reward, horizon, share, discount, influence_reward, .. } = *self.rules;
        let row = |round: &Vec<Mark>| round.iter().map(|mark| mark.worth).collect();
        let worth: Vec<Vec<f64>> = self.rounds.iter().map(row).collect();
        let own = shaping::shaped(&worth, horizon, share, discount);
        let influence = shaping::influence(&worth, influence_reward, 1.0);
        for ((round, own), influence) in self.rounds.iter().zip(own).zip(influence) {
            for (i, mark) in round.iter().enumerate() {
                let (seat, Some(turn)) = (self.team.seat::<Debater>(i), &mark.turn) else {
                    continue;
                };
                seat.add_turn_reward(turn, "own", own_reward * own[i]);
                seat.add_turn_reward(turn, "influence", influence[i]);
            }
        }
    }

    /// Pays for the outcome, and notes what a judge by rules thinks of the last statements.
    fn close(&self, outcome: Option<&str>) {
        self.settle();
        let n = self.floor.len();
        let leads = |statement: &Option<Solution>| {
            statement
                .as_ref()
                .zip(outcome)
                .is_some_and(|(said, outcome)| alike(&said.answer, outcome))
        };
        let leads: Vec<f64> = self.floor.iter().map(|s| f64::from(u8::from(leads(s)))).collect();
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
