#![allow(clippy::unwrap_used)]

use futures::future::BoxFuture;

use super::*;
use crate::agent::ReplyError;
use crate::algo;
use crate::algo::testing::plan;
use crate::client::testing::{response, serve};
use crate::config::RewardServerConfig;
use crate::reward::Rewards;
use crate::rollout::rewards::RewardServer;
use crate::rollout::rewards::{ScoredRewards, Scorer};
use crate::rollout::testing::{
    Critic, Fixture, Flow, OPEN, Speaker, Talker, Word, line, lock, runner, task,
};
use crate::rollout::{ValueSource, WeightedReward};
use crate::task::Action;
use crate::trajectory::{FaultKind, RewardOf, RewardPart};

fn part(name: &str, value: f64, of: RewardOf) -> RewardPart {
    RewardPart { name: name.to_owned(), value, of }
}

/// Sends each line to the speaker in turn and answers with the last word.
fn asks(lines: &'static [&'static str]) -> Flow {
    Flow::new(move |_, team| {
        Box::pin(async move {
            let mut answer = None;
            for text in lines {
                answer = Some(team.ask::<Speaker>(&line(text)).await?.0);
            }
            Ok(answer)
        })
    })
}

/// Repeats the prompt, so that a test writes the replies.
fn parrot() -> Talker {
    Talker { say: |ask, _| ask.prompt.user.clone(), ..Talker::default() }
}

async fn play(runner: &EpisodeRunner) -> Episode {
    runner.play(EpisodeRequest { task: task("p"), index: 0, seed: 3 }).await
}

#[track_caller]
fn fault(episode: &Episode) -> &Fault {
    assert!(episode.rewards.is_empty());
    match &episode.outcome {
        Outcome::Unscored(fault) => fault,
        Outcome::Scored(score) => panic!("the episode is scored: {score:?}"),
    }
}

fn samples(episode: Episode) -> Vec<f64> {
    let plan = plan(&[("t/speaker", true), ("t/critic", true)]);
    algo::samples(&[episode], &plan).iter().map(|sample| sample.reward).collect()
}

#[tokio::test]
async fn a_good_answer_is_scored() {
    let episode = play(&runner(asks(&["<w>hm</w>", "<w>yes</w>"]), parrot())).await;
    assert_eq!(episode.answer.as_deref(), Some("yes"));
    assert!(episode.score().unwrap().solved && episode.rewards.is_empty());
    assert_eq!(samples(episode), [1.0, 1.0]);
}

#[tokio::test]
async fn an_unhandled_malformed_reply_ends_scored_and_costs_its_turn() {
    let episode = play(&runner(asks(&["<w>hm</w>", "hm", "<w>yes</w>"]), parrot())).await;
    assert_eq!((episode.answer.clone(), episode.turns.len()), (None, 2));
    assert_eq!(episode.score(), Some(&Score::binary(false)));
    assert_eq!(episode.rewards, [part(RewardPart::INVALID_REPLY, -0.25, RewardOf::Turn(1))]);
    assert_eq!(samples(episode), [0.0, -0.25]);
}

#[tokio::test]
async fn a_handled_malformed_or_truncated_reply_costs_its_turn_too() {
    let flow = Flow::new(|_, team| {
        Box::pin(async move {
            for text in ["hm", "<w>yes</w>...", "<w>yes</w>"] {
                if let Ok(word) = team.ask::<Speaker>(&line(text)).await {
                    return Ok(Some(word.0));
                }
            }
            Ok(None)
        })
    });
    let episode = play(&runner(flow, parrot())).await;
    assert!(episode.score().unwrap().solved);
    assert_eq!(samples(episode), [0.75, 0.75, 1.0]);
}

#[tokio::test]
async fn a_penalty_of_zero_leaves_no_part() {
    let mut runner = runner(asks(&["hm"]), parrot());
    runner.rewards.penalties.clear();
    assert!(play(&runner).await.rewards.is_empty());
}

/// Sends one prompt, then acts, and answers yes regardless of the observation.
fn careless(action: &'static str) -> Flow {
    Flow::new(move |_, team| {
        Box::pin(async move {
            team.ask::<Speaker>(&line("<w>look</w>")).await?;
            team.act(Action::Text(action.to_owned())).await.ok();
            Ok(Some("yes".to_owned()))
        })
    })
}

#[tokio::test]
async fn an_environment_fault_is_unscored_even_if_swallowed_and_leaves_no_sample() {
    let episode = play(&runner(careless("fail"), parrot())).await;
    assert_eq!(*fault(&episode), Fault::new(FaultKind::Environment, "the retriever is down"));
    assert_eq!((episode.turns.len(), episode.answer.as_deref()), (1, Some("yes")));
    assert!(samples(episode).is_empty());
}

#[tokio::test]
async fn a_worker_fault_is_unscored() {
    let episode = play(&runner(asks(&["<w>a</w>", "worker fault"]), parrot())).await;
    assert_eq!((fault(&episode).kind, episode.turns.len()), (FaultKind::Worker, 1));
}

#[tokio::test]
async fn a_timeout_is_unscored_and_keeps_the_turns_so_far() {
    let mut runner = runner(careless("sleep"), parrot());
    runner.timeout = Duration::from_millis(500);
    let episode = play(&runner).await;
    let message = "the episode took longer than `rollout.timeout_s` = 0.5";
    assert_eq!(*fault(&episode), Fault::new(FaultKind::Timeout, message));
    assert_eq!(episode.turns.len(), 1);
}

#[tokio::test]
async fn a_judge_that_hangs_costs_its_episode_alone() {
    let mut runner = runner(asks(&["<w>score sleep</w>"]), parrot());
    runner.timeout = Duration::from_millis(500);
    let episode = play(&runner).await;
    assert_eq!((fault(&episode).kind, episode.turns.len()), (FaultKind::Timeout, 1));
    assert!(play(&self::runner(asks(&["<w>yes</w>"]), parrot())).await.score().is_some());
}

async fn play_task(runner: &EpisodeRunner, id: &str) -> Episode {
    runner.play(EpisodeRequest { task: task(id), index: 0, seed: 3 }).await
}

#[tokio::test]
async fn an_environment_that_cannot_open_score_or_close_makes_the_episode_unscored() {
    let yes = || runner(asks(&["<w>yes</w>"]), parrot());
    let unscored = async |runner: EpisodeRunner, id: &str, expected: &str, turns: usize| {
        let episode = play_task(&runner, id).await;
        assert_eq!(*fault(&episode), Fault::new(FaultKind::Environment, expected), "{id}");
        assert_eq!(episode.turns.len(), turns, "{id}");
    };
    unscored(yes(), "open fail", "no container is free", 0).await;
    let score_fails = runner(asks(&["<w>score fail</w>"]), parrot());
    unscored(score_fails, "p", "the judge is down", 1).await;
    unscored(yes(), "close fail", "the container does not end", 1).await;
    // A fault of the episode is not hidden by one of its end.
    let episode = play_task(&runner(asks(&["worker fault"]), parrot()), "close fail").await;
    assert_eq!(fault(&episode).kind, FaultKind::Worker);
}

#[tokio::test]
async fn every_session_that_was_opened_is_closed_however_its_episode_ends() {
    let panics = || Flow::new(|_, _| Box::pin(async { panic!("lost count") }));
    let flows = [
        ("scored", asks(&["<w>yes</w>"])),
        ("malformed", asks(&["hm"])),
        ("fault", asks(&["worker fault"])),
        ("panic", panics()),
        ("acting", careless("sleep")),
        ("action panic", careless("panic")),
        ("scoring", asks(&["<w>score sleep</w>"])),
        ("score panic", asks(&["<w>score panic</w>"])),
    ];
    for (id, flow) in flows {
        let mut runner = runner(flow, parrot());
        runner.timeout = Duration::from_millis(50);
        let id = format!("closed: {id}");
        play_task(&runner, &id).await;
        assert!(!lock(&OPEN).contains(&id), "{id}");
    }
}

#[tokio::test]
async fn sessions_of_further_environments_are_opened_and_closed_too() {
    let further = |runner: &mut EpisodeRunner| {
        let fixture: Arc<dyn DynEnvironment> = Arc::new(Fixture);
        runner.environments = Arc::new(BTreeMap::from([("notes".to_owned(), fixture)]));
    };
    let mut runner = runner(asks(&["<w>yes</w>"]), parrot());
    further(&mut runner);
    let episode = play_task(&runner, "open fail").await;
    assert_eq!(fault(&episode).message, "no container is free");
    let episode = play_task(&runner, "close fail").await;
    assert_eq!(fault(&episode).message, "the container does not end");
    assert!(play_task(&runner, "beside").await.score().is_some());
    assert!(!lock(&OPEN).contains("beside"));
}

#[tokio::test]
async fn opening_and_closing_have_the_time_limit_of_the_episode() {
    for (id, turns) in [("open sleep", 0), ("close sleep", 1), ("close panic", 1)] {
        let mut runner = runner(asks(&["<w>yes</w>"]), parrot());
        runner.timeout = Duration::from_millis(500);
        let episode = play_task(&runner, id).await;
        let kind = if id.ends_with("panic") { FaultKind::Panic } else { FaultKind::Timeout };
        assert_eq!((fault(&episode).kind, episode.turns.len()), (kind, turns), "{id}");
    }
}

#[tokio::test]
async fn a_panic_anywhere_is_unscored_and_keeps_the_turns_so_far() {
    let orchestra = || {
        Flow::new(|_, team| {
            Box::pin(async move {
                team.ask::<Speaker>(&line("<w>a</w>")).await?;
                panic!("lost {}", "count")
            })
        })
    };
    let cases = [
        (orchestra(), 1, "the orchestra or an agent panicked: lost count"),
        (careless("panic"), 1, "the orchestra or an agent panicked: the environment broke"),
        (asks(&["<w>a</w>", "prompt panic"]), 1, "the orchestra or an agent panicked: "),
        (asks(&["<w>a</w>", "parser panic"]), 2, "the orchestra or an agent panicked: "),
        (asks(&["<w>score panic</w>"]), 1, "the environment's score panicked: "),
    ];
    for (flow, turns, message) in cases {
        let episode = play(&runner(flow, parrot())).await;
        let fault = fault(&episode);
        assert_eq!((fault.kind, episode.turns.len()), (FaultKind::Panic, turns), "{message}");
        assert!(fault.message.starts_with(message), "{}", fault.message);
    }
    let request = EpisodeRequest { task: task("open panic"), index: 0, seed: 3 };
    let episode = runner(asks(&[]), parrot()).play(request).await;
    assert!(fault(&episode).message.starts_with("the environment panicked: "));
}

#[tokio::test]
async fn a_score_that_is_not_finite_is_a_fault() {
    let episode = play(&runner(asks(&["<w>nan</w>"]), parrot())).await;
    assert_eq!(fault(&episode).kind, FaultKind::Environment);
    let message = &fault(&episode).message;
    let wanted = "the environment's score is NaN; a reward is a number from -1e9 to 1e9";
    assert!(message.starts_with(wanted), "{message}");
}

/// Plays an episode with parts of the reward of these values, in the order of their names `a`, `b`, ...
async fn with_parts(values: &[f64], weight: f64) -> Episode {
    let mut runner = runner(asks(&["<w>a</w>"]), parrot());
    let reward = |name: char, value: f64| {
        let rewards = Rewards::none().turn(0, value);
        let source = ValueSource::Scorer(Arc::new(Fixed(Ok(ScoredRewards {
            rewards,
            skipped: None,
            ..Default::default()
        }))));
        WeightedReward { name: name.to_string(), weight, source }
    };
    runner.rewards.parts = ('a'..).zip(values).map(|(name, value)| reward(name, *value)).collect();
    play(&runner).await
}

#[tokio::test]
async fn rewards_whose_sum_or_square_is_no_number_make_their_episode_unscored_and_name_the_part() {
    let limit = "a reward is a number from -1e9 to 1e9";
    for (values, weight, wanted) in [
        (&[1.5e308, 1.5e308, 1.5e308][..], 1.0, "reward `a` is 1.5e308; "),
        (&[0.5, 1e200], 1.0, "reward `b` is 1e200; "),
        (&[-1e200], 1.0, "reward `a` is -1e200; "),
        (&[1e160], 1.0, "reward `a` is 1e160; "),
        (&[1.000_001e9], 1.0, "reward `a` is 1000001000.0; "),
        (&[f64::INFINITY], 1.0, "reward `a` is inf; "),
        (&[f64::NEG_INFINITY], 1.0, "reward `a` is -inf; "),
        (&[f64::NAN], 1.0, "reward `a` is NaN; "),
        (&[f64::MAX], 2.0, "reward `a` is inf; "),
        (&[10.0], 1e9, "reward `a` is 10000000000.0; "),
        (
            &[6e8, 6e8],
            1.0,
            "reward `b` is 600000000.0, after which those of the episode add up to 1200000000.0; ",
        ),
        // Parts that cancel each other are of other turns after credit.
        (&[9e8, -9e8], 1.0, "reward `b` is -900000000.0, after which"),
    ] {
        let episode = with_parts(values, weight).await;
        let Fault { kind, message } = fault(&episode);
        assert_eq!(*kind, FaultKind::Environment);
        assert!(message.starts_with(wanted) && message.contains(limit), "{values:?}: {message}");
        assert!(episode.rewards.is_empty());
    }
    for values in [&[1e9 - 1.0][..], &[-1e9 + 1.0], &[5e-324, -5e-324], &[4e8, -4e8]] {
        let episode = with_parts(values, 1.0).await;
        assert_eq!(episode.rewards.len(), values.len(), "{values:?}");
    }
}

#[tokio::test]
async fn a_number_of_a_server_that_is_no_reward_makes_its_episode_alone_unscored() {
    // The second request is that of the second episode; the answer to it has this number.
    for (number, wanted) in [
        ("1e200", "reward `remote` is 1e200; a reward is a number from -1e9 to 1e9"),
        ("-1e10", "reward `remote` is -10000000000.0; a reward is a number from"),
        ("1e400", "reward `remote`: http://"),
        ("NaN", "reward `remote`: http://"),
        ("\"1e200\"", "reward `remote`: http://"),
    ] {
        let (url, asked) = serve(move |n, received| {
            let id = &received.body["items"][0]["id"];
            let reward = if n == 1 { number } else { "0.5" };
            response(200, &format!("{{\"items\": [{{\"id\": {id}, \"reward\": {reward}}}]}}"))
        });
        let url = format!("{url}/v1/score");
        let config = RewardServerConfig { url, retries: 0, wait_ms: 0, ..Default::default() };
        let mut runner = runner(asks(&["<w>a</w>"]), parrot());
        let server = Arc::new(RewardServer::new(&config).unwrap());
        let source = ValueSource::Scorer(server);
        runner.rewards.parts =
            vec![WeightedReward { name: "remote".to_owned(), weight: 1.0, source }];
        for episode in 0..3 {
            let played = play(&runner).await;
            if episode == 1 {
                let Fault { kind, message } = fault(&played);
                assert_eq!(*kind, FaultKind::Environment, "{number}");
                assert!(message.starts_with(wanted), "{number}: {message}");
            } else {
                assert_eq!(played.rewards, [part("remote", 0.5, RewardOf::Turn(0))], "{number}");
            }
        }
        assert_eq!(asked.lock().unwrap().len(), 3);
    }
}

fn with(reward: fn(&Episode) -> Rewards) -> EpisodeRunner {
    let mut runner = runner(asks(&["<w>a</w>", "<w>yes</w>"]), parrot());
    let source = ValueSource::Function(reward);
    runner.rewards.parts = vec![WeightedReward { name: "brevity".to_owned(), weight: 2.0, source }];
    runner
}

/// Gives every episode the same result.
struct Fixed(Result<ScoredRewards, String>);

impl Scorer for Fixed {
    fn score<'a>(&'a self, _: &'a Episode) -> BoxFuture<'a, Result<ScoredRewards, String>> {
        async { self.0.clone() }.boxed()
    }
}

#[tokio::test]
async fn a_server_of_rewards_that_fails_makes_the_episode_unscored_and_never_zero() {
    let scored = async |result: Result<ScoredRewards, String>| {
        let mut runner = runner(asks(&["<w>a</w>"]), parrot());
        let source = ValueSource::Scorer(Arc::new(Fixed(result)));
        runner.rewards.parts =
            vec![WeightedReward { name: "remote".to_owned(), weight: 2.0, source }];
        play(&runner).await
    };
    let episode = scored(Err("http://a: down".to_owned())).await;
    assert_eq!(fault(&episode).kind, FaultKind::Environment);
    assert_eq!(fault(&episode).message, "reward `remote`: http://a: down");
    assert!(episode.rewards.is_empty() && episode.turns.len() == 1);
    let rewards = Rewards::none().turn(0, 0.25);
    let episode =
        scored(Ok(ScoredRewards { rewards, skipped: Some(3), ..Default::default() })).await;
    assert_eq!(episode.rewards, [part("remote", 0.5, RewardOf::Turn(0))]);
    assert_eq!(episode.score().unwrap().metrics["skipped/remote"], 3);
    let endless = Rewards::none().turn(0, f64::NAN);
    let episode =
        scored(Ok(ScoredRewards { rewards: endless, skipped: None, ..Default::default() })).await;
    assert!(fault(&episode).message.starts_with("reward `remote` is NaN;"));
}

#[tokio::test]
async fn reward_functions_add_named_weighted_parts() {
    let runner = with(|episode| {
        assert_eq!(episode.answer.as_deref(), Some("yes"));
        Rewards::episode(0.5).seat(Seat::only("t/critic"), 0.0).turn(1, -0.125)
    });
    let episode = play(&runner).await;
    let want = [part("brevity", 1.0, RewardOf::Episode), part("brevity", -0.25, RewardOf::Turn(1))];
    assert_eq!(episode.rewards, want);
    assert_eq!(samples(episode), [2.0, 1.75]);
}

#[tokio::test]
async fn a_reward_that_fails_makes_the_episode_unscored() {
    type Reward = fn(&Episode) -> Rewards;
    let cases: [(Reward, FaultKind, &str); 4] = [
        (|_| panic!("no"), FaultKind::Panic, "reward `brevity` panicked: no"),
        (|_| Rewards::episode(f64::INFINITY), FaultKind::Environment, "reward `brevity` is inf;"),
        (
            |_| Rewards::none().turn(2, 1.0),
            FaultKind::Environment,
            "reward `brevity` is for turn 2 of an episode of 2 turns",
        ),
        (
            |_| Rewards::none().seat(Seat::only("t/nobody"), 1.0),
            FaultKind::Environment,
            "reward `brevity` is for seat `t/nobody`",
        ),
    ];
    for (reward, kind, message) in cases {
        let episode = play(&with(reward)).await;
        assert_eq!(fault(&episode).kind, kind);
        assert!(fault(&episode).message.starts_with(message), "{}", fault(&episode).message);
        assert_eq!(episode.turns.len(), 2);
    }
}

/// Requires one verdict of a critic and accepts no other answer.
fn wants(verdict: &'static str) -> Flow {
    Flow::new(move |_, team| {
        Box::pin(async move {
            let read = move |word: Word| {
                if word.0 == verdict {
                    Ok(word.0)
                } else {
                    Err(ReplyError::Other(format!("`{}` is no verdict", word.0)))
                }
            };
            Ok(Some(team.only::<Critic>().ask_with(&line("<w>a</w>"), read).await?))
        })
    })
}

#[tokio::test]
async fn a_reply_that_the_orchestra_refuses_costs_its_turn_like_one_that_the_parser_refuses() {
    let episode = play(&runner(wants("b"), parrot())).await;
    assert_eq!(episode.score(), Some(&Score::binary(false)));
    assert_eq!(episode.turns[0].error.as_deref(), Some("`a` is no verdict"));
    assert_eq!(samples(episode), [-0.25]);
    let episode = play(&runner(wants("a"), parrot())).await;
    assert_eq!((episode.answer.as_deref(), &episode.turns[0].error), (Some("a"), &None));
}

#[tokio::test]
async fn a_malformed_reply_that_is_recorded_at_no_turn_is_a_fault_of_the_orchestra() {
    let flow = Flow::new(|_, team| {
        Box::pin(async move {
            let word = team.ask::<Critic>(&line("<w>a</w>")).await?;
            Err(AskError::Reply(ReplyError::Other(format!("`{}` is no verdict", word.0))))
        })
    });
    let episode = play(&runner(flow, parrot())).await;
    let wanted = "the orchestra ended with a malformed reply (`a` is no verdict) that is recorded at no turn; read replies \
                  with `SeatOf::ask_with`";
    assert_eq!(*fault(&episode), Fault::new(FaultKind::Orchestra, wanted));
    assert_eq!(episode.turns.len(), 1);
}
