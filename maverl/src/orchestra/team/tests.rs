#![allow(clippy::unwrap_used)]

use futures::{FutureExt, join, try_join};

use super::*;
use crate::rollout::testing::{Critic, Flow, Speaker, Talker, line, runner, task};
use crate::rollout::{EpisodeRequest, EpisodeRunner};
use crate::task::Action;
use crate::trajectory::{Episode, Message, Outcome};

async fn play(flow: Flow, talker: Talker) -> Episode {
    played(&runner(flow, talker)).await
}

async fn played(runner: &EpisodeRunner) -> Episode {
    runner.play(EpisodeRequest { task: task("p"), index: 0, seed: 3 }).await
}

#[track_caller]
fn fault(episode: &Episode) -> &Fault {
    match &episode.outcome {
        Outcome::Unscored(fault) => fault,
        Outcome::Scored(_) => panic!("the episode is scored"),
    }
}

fn paths(episode: &Episode) -> Vec<String> {
    episode.turns.iter().map(|turn| turn.path.to_string()).collect()
}

async fn two_asks(team: &Team<Flow>) -> Result<(), AskError> {
    team.ask::<Speaker>(&line("a")).await?;
    team.ask::<Critic>(&line("b")).await?;
    Ok(())
}

#[tokio::test]
async fn turn_paths_and_seeds_do_not_depend_on_the_order_of_completion() {
    let flow = || {
        Flow::new(|_, team| {
            Box::pin(async move {
                let sides = [team.branch(), team.branch(), team.branch()];
                let sides = sides.iter().map(two_asks);
                let (sides, last) =
                    join!(futures::future::try_join_all(sides), team.ask::<Speaker>(&line("last")));
                sides?;
                last?;
                team.ask::<Speaker>(&line("after")).await?;
                Ok(None)
            })
        })
    };
    let delays: [fn(&Ask) -> u64; 4] = [
        |_| 1,
        |ask| u64::from(ask.path.0[0]) * 3,
        |ask| 9 - u64::from(ask.path.0[0]),
        |ask| ask.seed % 11,
    ];
    let mut episodes = Vec::new();
    for yields in delays {
        episodes.push(play(flow(), Talker { yields, ..Talker::default() }).await);
    }
    assert_eq!(paths(&episodes[0]), ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1", "3", "4"]);
    assert!(episodes.iter().all(|episode| *episode == episodes[0]));
    let seeds: std::collections::BTreeSet<_> =
        episodes[0].turns.iter().map(|turn| turn.tokens.as_ref().unwrap().seed).collect();
    assert_eq!(seeds.len(), 8);
}

#[tokio::test]
async fn parts_that_ask_twice_without_a_branch_are_a_fault() {
    let flow = Flow::new(|_, team| {
        Box::pin(async move { try_join!(two_asks(team), two_asks(team)).map(|_| None) })
    });
    let episode = play(flow, Talker::default()).await;
    assert_eq!(fault(&episode).kind, FaultKind::Orchestra);
    assert!(fault(&episode).message.contains("give each part a `team.branch()`"));
}

#[tokio::test]
async fn an_act_that_decides_who_asks_first_is_a_fault() {
    let delays: [fn(&Ask) -> u64; 2] = [|_| 0, |_| 20];
    for yields in delays {
        let flow = Flow::new(|_, team| {
            let acts = async {
                team.act(Action::Text("look".to_owned())).await?;
                team.ask::<Speaker>(&line("a")).await
            };
            let asks = async {
                tokio::task::yield_now().await;
                two_asks(team).await
            };
            async move { try_join!(asks, acts).map(|_| None) }.boxed()
        });
        let episode = play(flow, Talker { yields, ..Talker::default() }).await;
        assert_eq!(fault(&episode).kind, FaultKind::Orchestra, "{episode:?}");
    }
}

#[tokio::test]
async fn branches_may_be_taken_while_others_are_under_way() {
    let flow = Flow::new(|_, team| {
        Box::pin(async move {
            let side = async || two_asks(&team.branch()).await;
            let one = async { team.ask::<Speaker>(&line("one")).await };
            try_join!(one, side(), side(), side()).map(|_| None)
        })
    });
    let episode = play(flow, Talker::default()).await;
    assert!(episode.score().is_some(), "{:?}", episode.outcome);
    assert_eq!(paths(&episode), ["0", "1.0", "1.1", "2.0", "2.1", "3.0", "3.1"]);
}

#[tokio::test]
async fn an_ask_that_nobody_has_polled_yet_races_with_nothing() {
    let flow = Flow::new(|_, team| {
        Box::pin(async move {
            let first = team.ask::<Speaker>(&line("first"));
            two_asks(team).await?;
            first.await?;
            Ok(None)
        })
    });
    let episode = play(flow, Talker::default()).await;
    assert!(episode.score().is_some(), "{:?}", episode.outcome);
    assert_eq!(episode.turns[0].prompt[1].content, "first");
}

#[tokio::test]
async fn each_seat_speaks_for_itself() {
    let flow = Flow::new(|_, team| {
        Box::pin(async move {
            let votes = (0..3).map(|i| team.seat::<Critic>(i).ask(&line("vote")));
            futures::future::try_join_all(votes).await?;
            team.ask::<Critic>(&line("sum up")).await?;
            Ok(None)
        })
    });
    let episode = play(flow, Talker::default()).await;
    let seats: Vec<_> = episode.turns.iter().map(|turn| turn.seat.to_string()).collect();
    assert_eq!(seats, ["t/critic#0", "t/critic#1", "t/critic#2", "t/critic"]);
}

#[tokio::test]
async fn a_seat_where_nobody_sits_is_a_fault_that_names_the_seats() {
    let flow = Flow::new(|_, team| {
        Box::pin(async move { Ok(Some(team.seat::<Critic>(7).ask(&line("vote")).await?.0)) })
    });
    let episode = play(flow, Talker::default()).await;
    let message = &fault(&episode).message;
    assert!(
        message.starts_with("nobody sits at `t/critic#7`; the seats are `t/critic`, `t/critic#0`")
    );
}

#[tokio::test]
async fn a_chat_grows_and_goes_on_after_a_malformed_reply() {
    let flow = Flow::new(|_, team| {
        Box::pin(async move {
            let mut chat = team.chat::<Speaker>();
            chat.respond(&line("first")).await?;
            let error = chat.respond(&line("mumble")).await.unwrap_err();
            assert!(matches!(error, AskError::Reply(ReplyError::Missing { .. })));
            chat.respond(&line("last")).await?;
            Ok(None)
        })
    });
    let say: fn(&Ask, &[Message]) -> String = |ask, _| match ask.prompt.user.as_str() {
        "mumble" => "mm".to_owned(),
        text => format!("<w>{text}</w>"),
    };
    let episode = play(flow, Talker { say, ..Talker::default() }).await;
    let said = |turn: usize| {
        let prompt = &episode.turns[turn].prompt;
        prompt.iter().map(|message| message.content.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(said(0), ["You are t/speaker", "first"]);
    assert_eq!(said(2), ["You are t/speaker", "first", "<w>first</w>", "mumble", "mm", "last"]);
    assert_eq!(episode.turns[1].error.as_deref(), Some("no <w>...</w> block"));
    assert!(episode.turns[2].error.is_none());
}

#[tokio::test]
async fn a_cancelled_say_leaves_the_conversation_as_it_was() {
    let flow = Flow::new(|_, team| {
        Box::pin(async move {
            let mut chat = team.chat::<Speaker>();
            {
                let mut say = Box::pin(chat.respond(&line("never mind")));
                assert!(futures::poll!(&mut say).is_pending());
            }
            chat.respond(&line("hello")).await?;
            Ok(None)
        })
    });
    let episode = play(flow, Talker::default()).await;
    assert_eq!(paths(&episode), ["1"]);
    assert_eq!(episode.turns[0].prompt.len(), 2);
}

#[tokio::test]
async fn a_truncated_reply_is_malformed_even_if_it_could_be_read() {
    let flow = Flow::new(|_, team| {
        Box::pin(async move { Ok(Some(team.ask::<Speaker>(&line("a")).await?.0)) })
    });
    let say: fn(&Ask, &[Message]) -> String = |_, _| "<w>yes</w>...".to_owned();
    let episode = play(flow, Talker { say, ..Talker::default() }).await;
    assert!(!episode.score().unwrap().solved);
    assert_eq!(episode.turns[0].error.as_deref(), Some("the reply was cut off after 13 tokens"));
}
