//! Ends of episodes: by the program, by its crash, by time, and by clients that leave.

use std::io::Write as _;
use std::net::TcpStream;

use super::*;

/// Plays an episode of a shell program.
async fn shell(text: &str, change: impl FnOnce(&mut ProgramOptions)) -> Episode {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(&["a"]);
    options.command = ["sh", "-c", text].map(str::to_owned).into();
    change(&mut options);
    let runner = program(options, &dir, |_| 1);
    runner.play(EpisodeRequest { task: task("p"), index: 0, seed: 3 }).await
}

/// Returns the answer, or the fault.
fn outcome(episode: &Episode) -> Result<Option<&str>, String> {
    match &episode.outcome {
        Outcome::Scored(_) => Ok(episode.answer.as_deref()),
        Outcome::Unscored(fault) => Err(fault.to_string()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_of_a_program_says_how_its_episode_ends() {
    for (text, expected) in [
        ("echo '{\"answer\": \"no\"}'; echo '{\"answer\": \"yes\"}'; echo bye", Ok(Some("yes"))),
        ("echo nothing", Ok(None)),
        ("exit 65", Ok(None)),
        ("echo busy >&2; exit 75", Err("program: the program ended with exit status: 75: busy")),
        ("exit 3", Err("crash: the program ended with exit status: 3")),
        ("kill -9 $$", Err("crash: the program ended with signal: 9 (SIGKILL)")),
        (
            "echo '{\"answer\": [1]}'",
            Err("program: the program's report: `answer` is [1]; write a text or null"),
        ),
        (
            "echo '{\"answer\": 1, \"reward\": 1}'",
            Err("program: the program's report: `reward` is given"),
        ),
    ] {
        let episode = shell(text, |_| ()).await;
        let found = outcome(&episode);
        match expected {
            Ok(answer) => assert_eq!(found, Ok(answer), "{text}"),
            Err(part) => assert!(
                found.as_ref().is_err_and(|fault| fault.starts_with(part)),
                "{text}: {found:?}"
            ),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_and_programs_without_a_report_are_counted() {
    for (text, crashes, unreported) in [
        ("exit 3", 1.0, 0.0),
        ("exit 65", 0.0, 0.0),
        ("echo nothing", 0.0, 1.0),
        ("echo '{\"answer\": null}'", 0.0, 0.0),
    ] {
        let episode = shell(text, |options| options.on_crash = OnCrash::Score).await;
        assert_eq!(outcome(&episode), Ok(None), "{text}");
        assert_eq!(metric(&episode, "gateway/crashes"), Some(crashes), "{text}");
        assert_eq!(metric(&episode, "gateway/unreported"), Some(unreported), "{text}");
        let warned = maverl::metrics::unreported_warning(&[episode]).is_some();
        assert_eq!(warned, unreported > 0.0, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_a_clean_environment_and_its_key_is_in_no_message() {
    let text = "env | sort >&2; exit 3";
    let episode = shell(text, |options| {
        options.env.insert("MINE".to_owned(), "here".to_owned());
    })
    .await;
    let fault = outcome(&episode).unwrap_err();
    assert!(fault.contains("MINE=here") && fault.contains("OPENAI_API_KEY=***"), "{fault}");
    assert!(!fault.contains("mv-") && !fault.contains("CARGO"), "{fault}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_start_is_a_fault() {
    let episode = shell("", |options| options.command = vec!["no-such-4711".to_owned()]).await;
    assert!(outcome(&episode).unwrap_err().contains("there is no `no-such-4711`"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_hangs_ends_with_its_children_and_its_episode() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(&["a"]);
    let text = "trap '' TERM; sleep 300 & echo $! > child.tmp; mv child.tmp child; wait";
    options.command = ["sh", "-c", text].map(str::to_owned).into();
    let mut runner = program(options, &dir, |_| 1);
    runner.timeout = Duration::from_secs(6);
    let episode = runner.play(EpisodeRequest { task: task("p"), index: 0, seed: 3 }).await;
    assert!(outcome(&episode).unwrap_err().starts_with("timeout: "));
    let child = std::fs::read_to_string(dir.path().join("child")).unwrap();
    // A zombie has no command line.
    let command = format!("/proc/{}/cmdline", child.trim());
    let begin = Instant::now();
    while std::fs::read(&command).is_ok_and(|line| !line.is_empty()) {
        assert!(begin.elapsed() < Duration::from_secs(600), "the child lives");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_the_policy_is_scored_and_its_turn_is_malformed() {
    let played = Played::start(options(&["a"])).await;
    let said = played.chat("a", json!([user("hi")])).await;
    let failure = json!({"by": "policy", "message": "no number", "completion": said["id"]});
    assert_eq!(played.post("/fail", failure).await.status, 200);
    let episode = played.episode.await.unwrap();
    assert_eq!(outcome(&episode), Ok(None));
    assert_eq!(episode.turns[0].error.as_deref(), Some("no number"));
    assert_eq!(episode.turn_reward(0), Some(-0.25));
    let played = Played::start(options(&["a"])).await;
    let failure = json!({"by": "program", "message": "the disk is full"});
    assert_eq!(played.post("/fail", failure).await.status, 200);
    let episode = played.episode.await.unwrap();
    assert_eq!(outcome(&episode), Err("program: the disk is full".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_a_refused_call_is_scored() {
    let played = Played::start(ProgramOptions { max_turns: most(1), ..options(&["a"]) }).await;
    played.chat("a", json!([user("1")])).await;
    let body = json!({"model": "a", "messages": [user("2")]});
    assert_eq!(played.post("/v1/chat/completions", body).await.status, 400);
    let pid = std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let text = std::fs::read(entry.path().join("environ")).ok()?;
        let key = played.key.as_bytes();
        text.windows(key.len()).any(|part| part == key).then(|| entry.file_name())
    });
    // The shell and its `sleep` both have the key; either ends the program.
    let pid = pid.unwrap().into_string().unwrap();
    assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    assert_eq!(outcome(&played.episode.await.unwrap()), Ok(None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_that_of_one_episode_while_it_is_open() {
    let (one, other) = (Played::start(options(&["a"])).await, Played::start(options(&["a"])).await);
    let body = json!({"model": "a", "messages": [user("hi")]});
    let ask = async |key: &str, path: &str| {
        let head = format!("authorization: Bearer {key}\r\n");
        let sent = crate::testing::request(path, Some(&body), &head);
        let address = one.address;
        tokio::task::spawn_blocking(move || exchange(address, sent.as_bytes()))
            .await
            .unwrap()
            .status
    };
    let path = format!("/episodes/{}/v1/chat/completions", one.id);
    assert_eq!(ask(&other.key, &path).await, 401);
    assert_eq!(ask(&one.key, "/v1/chat/completions").await, 200);
    assert_eq!(ask(&one.key, "/episodes/episode-0/v1/chat/completions").await, 401);
    let (key, finish) = (one.key.clone(), json!({"answer": "yes"}));
    let turns = |played: Played| async move { played.finish("yes").await.turns.len() };
    let again = one.send("/finish", Some(&finish), "").await.status;
    // The second request is the same as the first.
    let second = one.send("/finish", Some(&finish), "").await.status;
    let different = one.post("/finish", json!({"answer": "no"})).await;
    assert_eq!((again, second, different.status), (200, 200, 409));
    assert!(different.head.contains("x-should-retry: false"), "{}", different.head);
    assert_eq!(ask(&key, "/v1/chat/completions").await, 409);
    assert_eq!(turns(other).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_client_leaves_is_cancelled_and_not_recorded() {
    let options = ProgramOptions { grace_s: 0.05, ..options(&["a"]) };
    let played = Played::with(options, |ask| match ask.prompt.messages[0].content.as_str() {
        "slow" => u64::MAX,
        _ => 1,
    })
    .await;
    let body = json!({"model": "a", "messages": [user("slow")]});
    let head = format!("authorization: Bearer {}\r\n", played.key);
    let sent = crate::testing::request("/v1/chat/completions", Some(&body), &head);
    let mut stream = TcpStream::connect(played.address).unwrap();
    stream.write_all(sent.as_bytes()).unwrap();
    played.until_turns(1).await;
    drop(stream);
    played.until_turns(0).await;
    played.chat("a", json!([user("hi")])).await;
    assert_eq!(paths(&played.finish("yes").await), ["0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_under_way_at_the_end_is_not_recorded() {
    let played = Played::with(options(&["a"]), |_| u64::MAX).await;
    let body = json!({"model": "a", "messages": [user("slow")]});
    let head = format!("authorization: Bearer {}\r\n", played.key);
    let sent = crate::testing::request("/v1/chat/completions", Some(&body), &head);
    let address = played.address;
    let waiting = tokio::task::spawn_blocking(move || exchange(address, sent.as_bytes()));
    played.until_turns(1).await;
    assert_eq!(played.finish("yes").await.turns.len(), 0);
    let answer = waiting.await.unwrap();
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (409, &json!("episode_closed")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reward_of_a_program_is_the_score_where_the_environment_takes_it() {
    for (text, expected) in [
        ("echo '{\"reward\": 0.5}'", Ok((0.5, false))),
        ("echo '{\"reward\": 1, \"answer\": \"x\"}'", Ok((1.0, true))),
        ("echo '{\"answer\": \"x\"}'", Err("`reward` is missing")),
        ("true", Err("without a reward")),
        ("echo '{\"reward\": 2}'", Err("from 0 to 1")),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(&["a"]);
        options.command = ["sh", "-c", text].map(str::to_owned).into();
        let mut runner = program(options, &dir, |_| 1);
        runner.environment = Arc::new(maverl::env::reported::Reported::default());
        let episode = runner.play(EpisodeRequest { task: task("p"), index: 0, seed: 3 }).await;
        match expected {
            Ok(expected) => {
                let score = episode.score().unwrap();
                assert_eq!((score.reward, score.solved), expected, "{text}");
            }
            Err(part) => assert!(outcome(&episode).unwrap_err().contains(part), "{text}"),
        }
    }
}
