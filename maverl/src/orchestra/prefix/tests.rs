#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::*;
use crate::rollout::testing::{Critic, Flow, Speaker, Talker, line, runner, task};
use crate::rollout::{EpisodeRequest, EpisodeRunner};
use crate::task::Action;
use crate::trajectory::Outcome;

/// A backend whose words depend on the seed of the request.
fn random_words() -> Talker {
    Talker { say: |ask, _| format!("<w>w{}</w>", ask.seed % 1_000), yields: |ask| ask.seed % 3 }
}

/// Asks in a conversation, acts, asks three critics concurrently, and asks again.
fn flow() -> Flow {
    Flow::new(|_, team| {
        Box::pin(async move {
            let mut chat = team.chat::<Speaker>();
            let first = chat.respond(&line("begin")).await?;
            let seen = team.act(Action::Text(first.0.clone())).await?;
            let again = chat.respond(&line(&seen.text)).await?;
            let [zero, one, two] = [0, 1, 2].map(|index| team.seat::<Critic>(index));
            let asked = line(&again.0);
            let (a, b, c) = futures::join!(zero.ask(&asked), one.ask(&asked), two.ask(&asked));
            let all = format!("{} {} {}", a?.0, b?.0, c?.0);
            Ok(Some(team.ask::<Speaker>(&line(&all)).await?.0))
        })
    })
}

fn request() -> EpisodeRequest {
    EpisodeRequest { task: task("p"), index: 1, seed: 17 }
}

fn point(at: &TurnPath, alternative: u32, continuation: u32) -> BranchPoint {
    crate::algo::testing::branch_point(1, at.clone(), (alternative, continuation))
}

async fn play(runner: &EpisodeRunner, prefix: Prefix) -> Episode {
    runner.play_from(request(), Some(Arc::new(prefix))).await
}

#[tokio::test]
async fn a_branch_has_the_recorded_turns_to_the_bit_and_goes_on_by_itself() {
    let runner = runner(flow(), random_words());
    let played = runner.play(request()).await;
    assert_eq!(played.turns.len(), 6);
    for (number, turn) in played.turns.iter().enumerate() {
        let point = point(&turn.path, 1, 0);
        let branch = play(&runner, Prefix::new(&played, point.clone())).await;
        assert!(branch.score().is_some(), "{:?}", branch.outcome);
        assert_eq!(branch.branch, Some(point));
        assert_eq!(branch.turns[..number], played.turns[..number], "turn {number}");
        for (own, other) in branch.turns[number..].iter().zip(&played.turns[number..]) {
            assert_ne!(own.tokens.as_ref().unwrap().seed, other.tokens.as_ref().unwrap().seed);
            assert_ne!(own.reply, other.reply, "turn {number}");
        }
        assert_eq!(branch.turns[number].prompt, turn.prompt);
    }
}

#[tokio::test]
async fn a_branch_that_samples_its_recorded_turns_again_is_the_same() {
    let runner = runner(flow(), random_words());
    let played = runner.play(request()).await;
    for turn in &played.turns {
        for (alternative, continuation) in [(0, 1), (1, 0), (1, 2)] {
            let point = point(&turn.path, alternative, continuation);
            let branch = play(&runner, Prefix::new(&played, point.clone())).await;
            assert_eq!(play(&runner, Prefix::sampled(point)).await, branch);
        }
    }
}

#[tokio::test]
async fn branches_do_not_see_each_other() {
    let runner = runner(flow(), random_words());
    let played = runner.play(request()).await;
    let at = &played.turns[1].path;
    let points = [(0, 1), (1, 0), (1, 1), (2, 0)].map(|(j, r)| point(at, j, r));
    let alone =
        async |point: &BranchPoint| play(&runner, Prefix::new(&played, point.clone())).await;
    let (a, b, c, d) =
        futures::join!(alone(&points[0]), alone(&points[1]), alone(&points[2]), alone(&points[3]));
    let together = [a, b, c, d];
    for (point, branch) in points.iter().zip(&together) {
        assert_eq!(&alone(point).await, branch);
    }
    let replies = |branch: &Episode, turn: usize| branch.turns[turn].reply.clone();
    assert_eq!(replies(&together[0], 1), replies(&played, 1), "reply 0 is the played one");
    assert_ne!(replies(&together[0], 2), replies(&played, 2), "and goes on in another way");
    assert_eq!(replies(&together[1], 1), replies(&together[2], 1), "one reply, two plays");
    assert_ne!(replies(&together[1], 2), replies(&together[2], 2));
    assert_ne!(replies(&together[1], 1), replies(&together[3], 1));
}

#[tokio::test]
async fn another_prompt_or_observation_is_a_fault_that_names_its_place() {
    let runner = runner(flow(), random_words());
    let played = runner.play(request()).await;
    let told = async |change: fn(&mut Episode)| {
        let mut changed = played.clone();
        change(&mut changed);
        let last = &played.turns[5].path;
        match play(&runner, Prefix::new(&changed, point(last, 1, 0))).await.outcome {
            Outcome::Unscored(fault) => fault.to_string(),
            Outcome::Scored(_) => panic!("scored"),
        }
    };
    let found = told(|played| played.turns[3].prompt[1].content.push('!')).await;
    assert!(
        found.starts_with("orchestra: the prompt of turn 3 of `t/critic#1` differs"),
        "{found}"
    );
    let found =
        told(|played| played.turns[2].seat = crate::trajectory::Seat::only("t/critic")).await;
    assert!(found.contains("the prompt of turn 2 of `t/critic` differs"), "{found}");
    let found = told(|played| played.acts[0].observation.push('!')).await;
    assert!(found.contains("environment: action 0 before turn 1 differs"), "{found}");
    assert!(found.contains("the observation was"), "{found}");
    let found = told(|played| played.acts[0].action = Action::Text("x".to_owned())).await;
    assert!(found.contains("the action was Text(\"x\"), now"), "{found}");
}
