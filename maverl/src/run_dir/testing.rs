//! Episodes and run directories for tests, those of other crates included.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{EpisodePosition, Origin, Provenance, RunDir};
use crate::config::Config;
use crate::task::{Score, Task};
use crate::trajectory::{Episode, Finish, Outcome, Seat, Tokens, Turn, TurnPath};

/// Returns an episode of the seat `t/a` with `turns` turns of two tokens.
pub fn episode(id: &str, index: u32, solved: bool, turns: u32) -> Episode {
    let turn = |i: u32| Turn {
        path: TurnPath(vec![i]),
        seat: Seat::only("t/a"),
        policy: "small".into(),
        prompt: Vec::new(),
        tools: Vec::new(),
        reply: "yes".into(),
        error: None,
        truncated: false,
        shortened: 0,
        forked: false,
        masked: false,
        tokens: Some(Tokens {
            prompt: vec![1, 2, 3],
            completion: vec![4, 5],
            logprobs: vec![-0.1, -0.7],
            version: 0,
            seed: u64::from(i),
            temperature: 1.0,
            finish: Finish::Stop,
            routes: None,
        }),
        teacher: None,
    };
    let task = Task {
        id: id.into(),
        source: "facts".into(),
        question: "who?".into(),
        data: serde_json::Map::new(),
    };
    Episode {
        task,
        index,
        seed: 7,
        branch: None,
        turns: (0..turns).map(turn).collect(),
        acts: Vec::new(),
        answer: Some("yes".into()),
        outcome: Outcome::Scored(Score::binary(solved)),
        rewards: Vec::new(),
        log: String::new(),
    }
}

/// Writes the rollouts of a step.
pub fn write_step(dir: &mut RunDir, step: u64, episodes: &[Episode]) -> Vec<EpisodePosition> {
    let mut rollouts = dir.begin_rollouts(step).unwrap();
    episodes.iter().for_each(|episode| rollouts.append(episode).unwrap());
    dir.list_rollouts(step, rollouts).unwrap()
}

/// Returns the origin of a run without data.
pub fn origin() -> Origin {
    let provenance = Provenance {
        version: "0".into(),
        data: BTreeMap::from([("train".into(), "a".repeat(64))]),
        files: Default::default(),
        weights: BTreeMap::from([("small".into(), "b".repeat(64))]),
        device: "cpu".into(),
        threads: 2,
        ranks: 1,
        exact: true,
    };
    let base = PathBuf::from("/");
    Origin { given: "seed = 7\n".into(), config: Config::default(), base, provenance }
}
