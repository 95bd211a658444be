//! Generates demonstrations: plays the search team on tasks with known search paths, with a configurable error rate.

use std::collections::BTreeMap;
use std::sync::Arc;

use agents::search::{Answerer, Searcher, Verifier};
use maverl::builtin::{Document, facts};
use maverl::env::DynEnvironment;
use maverl::env::search::SearchEnvironment;
use maverl::orchestra::{Ask, EpisodeState, Member, Response};
use maverl::prelude::*;
use maverl::rng::SplitMix64;
use maverl::rollout::Script;

use super::Route;

/// Knows the search path to a task's answer, and errs at each decision with a given probability.
struct Oracle {
    /// Documents that lead to the answer, in reading order.
    path: Vec<Document>,
    answer: String,
    /// Every title of the corpus, for plausible errors.
    titles: Arc<[String]>,
    /// Probability that a decision is wrong.
    noise: f64,
}

/// Generates `n` turns of the team on tasks of generated corpora like `builtin:facts` (with none of its facts), with
/// one search result per query. Each decision is wrong with probability `noise`: flipped verdicts, queries for the
/// wrong document, answers copied from the wrong place, and sometimes a reply without its tags. Decisions after an
/// error are based on the information then available.
///
/// # Errors
///
/// If the environment fails.
pub async fn demonstrations(seed: u64, n: usize, noise: f64) -> Result<Vec<Turn>, EnvError> {
    let mut seeds = SplitMix64::new(seed);
    let mut turns = Vec::new();
    while turns.len() < n {
        let facts_base = facts::FactBase::invent(seeds.bits());
        let environment: Arc<dyn DynEnvironment> =
            Arc::new(SearchEnvironment::over(facts_base.corpus(), 1)?);
        let corpus = Corpus::of(&facts_base.corpus());
        let tasks = facts_base.tasks("train").expect("`train` is one of SPLITS");
        for task in tasks.iter().take(TASKS_PER_WORLD) {
            let oracle = Oracle::new(task, &corpus, noise);
            turns.extend(oracle.play(task, seeds.bits(), &environment).await?.1);
        }
    }
    turns.truncate(n);
    Ok(turns)
}

/// Number of tasks per corpus. The next corpus reuses the names for other facts, so the model learns to search instead
/// of memorizing facts.
const TASKS_PER_WORLD: usize = 500;

/// Documents by key, with their titles.
struct Corpus {
    documents: BTreeMap<String, Document>,
    titles: Arc<[String]>,
}

impl Corpus {
    fn of(documents: &[Document]) -> Self {
        Self {
            documents: documents.iter().map(|doc| (doc.key.clone(), doc.clone())).collect(),
            titles: documents.iter().map(|document| document.title.clone()).collect(),
        }
    }
}

impl Oracle {
    fn new(task: &Task, corpus: &Corpus, noise: f64) -> Self {
        let path = task.texts("support").into_iter();
        Self {
            path: path.filter_map(|key| corpus.documents.get(&key).cloned()).collect(),
            answer: task.texts("answers").into_iter().next().unwrap_or_default(),
            titles: Arc::clone(&corpus.titles),
            noise,
        }
    }

    /// Plays one episode of [`Route`]. Returns the score and the turns.
    async fn play(
        self,
        task: &Task,
        seed: u64,
        environment: &Arc<dyn DynEnvironment>,
    ) -> Result<(Score, Vec<Turn>), EnvError> {
        let backend = Script::responding("oracle", move |ask, _| Response::text(self.reply(ask)));
        let backend = Arc::new(backend);
        let members = BTreeMap::from([
            (
                Seat::only(Verifier::NAME),
                Member { agent: Arc::new(Verifier), backend: backend.clone() },
            ),
            (
                Seat::only(Searcher::NAME),
                Member { agent: Arc::new(Searcher), backend: backend.clone() },
            ),
            (Seat::only(Answerer::NAME), Member { agent: Arc::new(Answerer), backend }),
        ]);
        let environment = Arc::clone(environment);
        let table = Arc::new(EpisodeState::new(task.clone(), seed, Arc::new(members), environment));
        table.open().await?;
        let team = Team::new(Arc::clone(&table));
        let answer = Route::default().run(task, &team).await.ok().flatten();
        let score = table.score(answer.as_deref()).await;
        table.close().await?;
        Ok((score?, table.turns()))
    }

    /// Returns the reply to a prompt.
    fn reply(&self, ask: &Ask) -> String {
        let mut draw = SplitMix64::new(ask.seed);
        let information: String =
            ask.prompt.observations.iter().map(|range| &ask.prompt.user[range.clone()]).collect();
        let known = self.path.iter().take_while(|doc| information.contains(&doc.line())).count();
        let right = !draw.gen_bool(self.noise);
        let (tag, content) = match ask.seat.agent.as_str() {
            Verifier::NAME => {
                let enough = (known == self.path.len()) == right;
                ("verify", if enough { "yes" } else { "no" }.to_owned())
            }
            Searcher::NAME if right => ("search", self.next(known).to_owned()),
            Searcher::NAME => ("search", self.wrong_query(known, &ask.prompt.user, &mut draw)),
            _ if !right => ("answer", self.wrong_answer(&information, &mut draw)),
            _ if known == self.path.len() => ("answer", self.answer.clone()),
            _ => ("answer", "unknown".to_owned()),
        };
        // One error in eight is a format error.
        if right || !draw.gen_bool(0.125) {
            format!("<{tag}>{content}</{tag}>")
        } else if draw.gen_bool(0.5) {
            format!("<{tag}>{content}")
        } else {
            content
        }
    }

    /// Returns the next title to search for when the first `known` documents of the path are known.
    fn next(&self, known: usize) -> &str {
        let next = self.path.get(known).or(self.path.last());
        next.map_or("", |document| &document.title)
    }

    fn wrong_query(&self, known: usize, prompt: &str, draw: &mut SplitMix64) -> String {
        let question = prompt.lines().next().unwrap_or_default();
        let question = question.trim_start_matches("Question: ").trim_end_matches('?');
        let mut words = question.split(' ');
        match draw.index(3) {
            // A known document, or words that match nothing.
            0 if known > 0 => self.path[known - 1].title.clone(),
            0 => words.by_ref().take(3).collect::<Vec<_>>().join(" "),
            // Half of the right title and half of another.
            1 => {
                let (right, other) =
                    (self.next(known), &self.titles[draw.index(self.titles.len())]);
                let cut = right.len().min(right.rfind(' ').map_or(2, |space| space + 3));
                format!("{}{}", &right[..cut], &other[other.len() - 3..])
            }
            // Another title.
            _ => self.titles[draw.index(self.titles.len())].clone(),
        }
    }

    /// Returns a name that occurs in the information but is not the answer.
    fn wrong_answer(&self, information: &str, draw: &mut SplitMix64) -> String {
        let wrong: Vec<&String> = self
            .titles
            .iter()
            .filter(|title| **title != self.answer && information.contains(title.as_str()))
            .collect();
        match wrong.as_slice() {
            [] => self.next(0).to_owned(),
            wrong => draw.pick(wrong).clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Returns the exact match of an oracle over the first `n` tasks of a split, and the maximum number of calls of an
    /// episode.
    async fn exact_match(split: &str, n: usize, noise: f64) -> (f64, usize) {
        let environment: Arc<dyn DynEnvironment> =
            Arc::new(SearchEnvironment::over(facts::corpus(), 1).unwrap());
        let corpus = Corpus::of(&facts::corpus());
        let tasks = facts::tasks(split).unwrap();
        let (mut solved, mut calls) = (0, 0);
        for (i, task) in tasks[..n].iter().enumerate() {
            let oracle = Oracle::new(task, &corpus, noise);
            let (score, turns) = oracle.play(task, i as u64, &environment).await.unwrap();
            solved += usize::from(score.solved);
            calls = calls.max(turns.len());
        }
        (solved as f64 / n as f64, calls)
    }

    #[tokio::test]
    async fn right_decisions_find_every_answer_in_five_calls() {
        let (exact, calls) = exact_match("test", 1000, 0.0).await;
        assert!(exact >= 0.99, "{exact}");
        assert_eq!(calls, 5);
    }

    #[tokio::test]
    async fn every_kind_of_error_costs_answers() {
        let (exact, _) = exact_match("train", 1000, 0.25).await;
        println!("exact match with a quarter of the decisions wrong: {exact}");
        assert!((0.2..0.5).contains(&exact), "{exact}");
        assert_eq!(exact_match("train", 200, 1.0).await.0, 0.0);
    }

    #[tokio::test]
    async fn demonstrations_are_the_same_for_the_same_seed() {
        let first = demonstrations(7, 500, 0.2).await.unwrap();
        assert_eq!(first, demonstrations(7, 500, 0.2).await.unwrap());
        assert_ne!(first, demonstrations(8, 500, 0.2).await.unwrap());
        assert_eq!(first.len(), 500);
        for agent in [Verifier::NAME, Searcher::NAME, Answerer::NAME] {
            let turns = || first.iter().filter(|turn| turn.seat.agent == agent);
            assert!(turns().count() > 50, "{agent}");
            assert!(turns().any(|turn| turn.error.is_some()), "{agent}");
        }
    }
}
