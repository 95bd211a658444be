//! Branches of episodes: played, recorded, trained on, resumed and replayed.

use maverl::run_dir::read_samples;
use maverl::trajectory::Episode;
use maverl_tests::lab::{Run, train_args};

use crate::algorithms::replays;
use crate::lab;

const SET: [&str; 1] = ["eval.before_and_after=false"];

/// Estimators that compare branches, and their settings.
const ESTIMATORS: [(&str, &[&str]); 3] = [
    ("counterfactual", &["algorithm.advantage.kind=\"counterfactual\""]),
    ("continuations", &["algorithm.advantage.kind=\"continuations\""]),
    ("siblings", &["algorithm.advantage.by=\"branch\""]),
];

/// Asserts that each branch has the turns of its episode before the branch, to the bit, and others from it on.
fn assert_begun(episodes: &[Episode]) {
    for branch in episodes.iter().filter(|episode| episode.branch.is_some()) {
        let point = branch.branch.as_ref().unwrap();
        let is_played = |other: &&Episode| {
            other.branch.is_none() && other.task.id == branch.task.id && other.index == point.of
        };
        let played = episodes.iter().find(is_played).unwrap();
        let at = branch.turns.iter().position(|turn| turn.path == point.at).unwrap();
        let recalled = if point.alternative == 0 { at + 1 } else { at };
        assert_eq!(branch.turns[..recalled], played.turns[..recalled], "{point:?}");
        let seed = |episode: &Episode| episode.turns[at].tokens.as_ref().unwrap().seed;
        let prompt = |episode: &Episode| episode.turns[at].tokens.as_ref().unwrap().prompt.clone();
        assert_eq!(prompt(branch), prompt(played));
        assert_eq!(seed(branch) == seed(played), point.alternative == 0, "{point:?}");
    }
}

#[test]
fn branches_begin_like_their_episodes_and_give_the_credit_of_turns() {
    let lab = lab();
    for (name, set) in ESTIMATORS {
        let run = lab.train(name, &[&SET[..], set, &["steps=2"]].concat());
        let episodes = run.episodes(2);
        let (branches, played): (Vec<&Episode>, Vec<&Episode>) =
            episodes.iter().partition(|episode| episode.branch.is_some());
        let turns: usize = played.iter().map(|episode| episode.turns.len()).sum();
        assert_eq!((played.len(), branches.len()), (8, 3 * turns), "{name}: three other replies");
        assert_begun(&episodes);
        let sampled = |episode: &&Episode| {
            episode.turns.iter().filter(|turn| !episode.recalls(&turn.path)).count()
        };
        let row = &run.steps()[1];
        let number = |key: &str| row[key].as_f64().unwrap();
        assert_eq!(number("rollout/episodes"), 8.0, "{name}: branches are in no other statistic");
        assert_eq!(number("branch/episodes"), branches.len() as f64);
        assert_eq!(number("branch/points"), turns as f64);
        assert_eq!(number("branch/turns"), branches.iter().map(sampled).sum::<usize>() as f64);
        let rows = if name == "siblings" { 4 * turns } else { turns };
        assert_eq!(number("policy/tiny/rows"), rows as f64, "{name}");
        assert_eq!(row["mismatch/tiny/logp_abs_max"], 0.0, "{name}");
        assert!(row["policy/tiny/grad_norm"].as_f64().unwrap() > 0.0, "{name}");
        replays(&lab, name, 2);
    }
}

#[test]
fn the_credit_of_a_turn_is_its_reward_less_that_of_its_branches() {
    let lab = lab();
    let run = lab.train("run", &[&SET[..], ESTIMATORS[0].1, &["steps=1"]].concat());
    let (episodes, samples) = (run.episodes(1), read_samples(&samples_file(&run)).unwrap());
    let played = episodes.iter().filter(|episode| episode.branch.is_none());
    let turns: usize = played.map(|episode| episode.turns.len()).sum();
    assert_eq!(samples.samples.len(), turns);
    for sample in &samples.samples {
        let played = &episodes[sample.episode];
        let path = &played.turns[sample.turn].path;
        let others = episodes.iter().filter(|episode| {
            let at = |point: &maverl::trajectory::BranchPoint| {
                point.of == played.index && point.at == *path
            };
            episode.task.id == played.task.id && episode.branch.as_ref().is_some_and(at)
        });
        let rewards: Vec<f64> =
            others.map(|other| other.turn_reward(sample.turn).unwrap()).collect();
        assert_eq!(rewards.len(), 3);
        let mean = rewards.iter().sum::<f64>() / 3.0;
        let credit = played.turn_reward(sample.turn).unwrap() - mean;
        assert!((sample.advantage - credit).abs() < 1e-12, "{} {credit}", sample.advantage);
    }
}

fn samples_file(run: &Run) -> std::path::PathBuf {
    run.0.join("samples/step-000001.jsonl.zst")
}

#[test]
fn a_run_with_branches_is_resumed_to_the_byte_and_a_budget_adds_branches() {
    let lab = lab();
    let more = ["rollout.branch.continuations=2", "rollout.branch.turns=30"];
    let set = [&SET[..], ESTIMATORS[0].1, &more].concat();
    let whole = lab.train("whole", &[&set[..], &["steps=4"]].concat());
    lab.train("parted", &[&set[..], &["steps=2"]].concat());
    lab.run(&["train", "--resume", "parted", "--steps", "4"]).succeeded();
    let parted = Run(lab.path("parted"));
    assert_eq!(whole.bytes("metrics.jsonl"), parted.bytes("metrics.jsonl"));
    replays(&lab, "whole", 4);
    let free = lab.train("free", &[&SET[..], ESTIMATORS[0].1, &more[..1], &["steps=1"]].concat());
    let (some, all) = (whole.episodes(1), free.episodes(1));
    assert!(some.len() > 8 && some.len() < all.len(), "{} of {}", some.len(), all.len());
    assert!(some.iter().all(|episode| all.contains(episode)), "none of them changes");
    assert_begun(&all);
}

#[test]
fn two_ranks_play_the_branches_that_one_plays() {
    let lab = lab();
    let set = [&SET[..], ESTIMATORS[2].1, &["steps=1"]].concat();
    let one = lab.train("one", &set);
    let args = train_args("two", &set);
    lab.run(&[&args[..], &["--ranks-per-node", "2"]].concat()).succeeded();
    let two = Run(lab.path("two"));
    assert_eq!(one.episodes(1), two.episodes(1));
}

/// Estimators whose branches draw whole seats, or begin after other replies than the played ones.
const OTHERS: [(&str, &[&str]); 3] = [
    ("shapley", &["algorithm.advantage.kind=\"shapley\""]),
    ("joint", &["algorithm.advantage.by=\"branch\"", "rollout.branch.keep=\"all\""]),
    ("best", &["algorithm.advantage.by=\"branch\"", "rollout.branch.keep=\"best\""]),
];

#[test]
fn coalitions_joint_actions_and_best_replies_are_trained_on_resumed_and_replayed() {
    let lab = lab();
    for (name, set) in OTHERS {
        let set = [&SET[..], set, &["rollout.branch.width=2"]].concat();
        let whole = lab.train(name, &[&set[..], &["steps=2"]].concat());
        let parted = format!("{name}-parted");
        lab.train(&parted, &[&set[..], &["steps=1"]].concat());
        lab.run(&["train", "--resume", &parted, "--steps", "2"]).succeeded();
        let parted = Run(lab.path(&parted));
        assert_eq!(whole.bytes("metrics.jsonl"), parted.bytes("metrics.jsonl"), "{name}");
        replays(&lab, name, 2);
        let episodes = whole.episodes(2);
        let branches = episodes.iter().filter(|episode| episode.branch.is_some()).count();
        assert!(branches > 0 && episodes.iter().all(|it| it.score().is_some()), "{name}");
        let row = &whole.steps()[1];
        let number = |key: &str| row[key].as_f64().unwrap();
        assert_eq!(number("branch/episodes"), branches as f64, "{name}");
        assert_eq!(row["mismatch/tiny/logp_abs_max"], 0.0, "{name}");
        let played: usize = episodes
            .iter()
            .filter(|episode| episode.branch.is_none())
            .map(|episode| episode.turns.len())
            .sum();
        let rows = number("policy/tiny/rows");
        match name {
            "shapley" => assert_eq!(rows, played as f64, "the played turns"),
            _ => assert!(rows > played as f64, "{name}: {rows} rows of {played} turns"),
        }
    }
}
