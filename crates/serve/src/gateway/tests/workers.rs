//! Workers: claims, leases, and workers that end.

use super::*;
use crate::gateway::workers::Worker;

/// Key of the worker of the tests.
const KEY: &str = "key-of-the-worker-4711";

/// A team whose episodes are claimed by a worker that attached from outside.
struct Attached {
    gateway: Arc<Gateway>,
    runner: Arc<EpisodeRunner>,
    worker: Arc<Worker>,
}

impl Attached {
    fn new(change: impl FnOnce(&mut ProgramOptions)) -> Self {
        let mut options =
            ProgramOptions { command: Vec::new(), mode: Mode::Worker, ..options(&["a"]) };
        change(&mut options);
        let gateway = Arc::new(Gateway::bind(options, Path::new("")).unwrap());
        let worker = gateway.shared.workers.admit(KEY);
        let of = Arc::clone(&gateway);
        let flow = Flow::new(move |_, team| {
            let gateway = Arc::clone(&of);
            Box::pin(async move { team.play_by(&*gateway, seats()).await })
        });
        Self {
            gateway,
            runner: Arc::new(runner(flow, Talker { say: loud, yields: |_| 1 })),
            worker,
        }
    }

    fn play(&self, id: &str) -> JoinHandle<Episode> {
        let (runner, task) = (Arc::clone(&self.runner), task(id));
        tokio::spawn(async move { runner.play(EpisodeRequest { task, index: 0, seed: 3 }).await })
    }

    async fn post(&self, path: &str, body: &Value, key: &str) -> Answer {
        let url: Uri = self.gateway.shared.url.parse().unwrap();
        let address: SocketAddr = url.authority().unwrap().as_str().parse().unwrap();
        let head = format!("authorization: Bearer {key}\r\n");
        let sent = crate::testing::request(path, Some(body), &head);
        tokio::task::spawn_blocking(move || exchange(address, sent.as_bytes())).await.unwrap()
    }

    /// Claims one episode; returns its id and its key.
    async fn claim(&self) -> (String, String) {
        let body = json!({"worker": "w", "max": 1, "wait_s": 20});
        let claimed = self.post("/claim", &body, KEY).await;
        assert_eq!(claimed.status, 200, "{}", claimed.body);
        let episode = &claimed.json()["episodes"][0];
        let text = |key: &str| episode[key].as_str().unwrap().to_owned();
        (text("id"), text("api_key"))
    }
}

fn fault(episode: &Episode) -> String {
    match &episode.outcome {
        Outcome::Unscored(fault) => fault.to_string(),
        Outcome::Scored(_) => panic!("the episode is scored"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_claims_episodes_and_finishes_them() {
    let attached = Attached::new(|_| ());
    let episodes = [attached.play("p"), attached.play("q")];
    for _ in 0..2 {
        let (id, key) = attached.claim().await;
        let body = json!({"model": "a", "messages": [user("hi")]});
        let path = format!("/episodes/{id}/v1/chat/completions");
        assert_eq!(attached.post(&path, &body, &key).await.status, 200);
        let path = format!("/episodes/{id}/finish");
        assert_eq!(attached.post(&path, &json!({"answer": "yes"}), &key).await.status, 200);
        let beat = json!({"episodes": [id]});
        // The episode ends beside the answer to the worker, at the latest within some heartbeats.
        let mut closed = attached.post("/heartbeat", &beat, KEY).await.json();
        for _ in 0..10_000 {
            if closed == json!({"closed": [id]}) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
            closed = attached.post("/heartbeat", &beat, KEY).await.json();
        }
        assert_eq!(closed, json!({"closed": [id]}));
    }
    for episode in episodes {
        let episode = episode.await.unwrap();
        assert_eq!((episode.turns.len(), episode.answer.as_deref()), (1, Some("yes")));
    }
    let none = attached.post("/claim", &json!({"wait_s": 0.05}), KEY).await;
    assert_eq!(none.status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_workers_and_of_episodes_are_not_the_same() {
    let attached = Attached::new(|_| ());
    let episode = attached.play("p");
    let (id, key) = attached.claim().await;
    assert_eq!(attached.post("/claim", &json!({}), &key).await.status, 401);
    assert_eq!(attached.post("/heartbeat", &json!({"episodes": []}), "wrong").await.status, 401);
    let path = format!("/episodes/{id}/finish");
    assert_eq!(attached.post(&path, &json!({"answer": "yes"}), KEY).await.status, 401);
    assert_eq!(attached.post(&path, &json!({"answer": "yes"}), &key).await.status, 200);
    assert!(episode.await.unwrap().score().unwrap().solved);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_makes_no_request_loses_its_episode() {
    let attached = Attached::new(|options| options.lease_s = 2.0);
    let episode = attached.play("p");
    let (id, _) = attached.claim().await;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(3000) {
        let beat = json!({"episodes": [id]});
        assert_eq!(
            attached.post("/heartbeat", &beat, KEY).await.json(),
            json!({"closed": []}),
            "a heartbeat keeps it"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let fault = fault(&episode.await.unwrap());
    assert!(fault.contains("made no request for 2 s"), "{fault}");
    let scored = Attached::new(|options| {
        options.lease_s = 0.2;
        options.on_crash = OnCrash::Score;
    });
    let episode = scored.play("p");
    scored.claim().await;
    assert_eq!(episode.await.unwrap().score().map(|score| score.solved), Some(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_worker_ends_its_episode_and_no_other() {
    let attached = Attached::new(|_| ());
    let first = attached.play("p");
    attached.claim().await;
    attached.worker.end();
    assert_eq!(fault(&first.await.unwrap()), "crash: the worker of the episode ended");
    attached.gateway.shared.workers.admit(KEY);
    let second = attached.play("q");
    let (id, key) = attached.claim().await;
    let path = format!("/episodes/{id}/finish");
    assert_eq!(attached.post(&path, &json!({"answer": "yes"}), &key).await.status, 200);
    assert!(second.await.unwrap().score().unwrap().solved);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_episode_is_ready_when_a_worker_waits_for_it() {
    let attached = Attached::new(|_| ());
    let soon = Duration::from_millis(50);
    assert!(tokio::time::timeout(soon, attached.gateway.ready()).await.is_err());
    let claim = async {
        let body = json!({"max": 2, "wait_s": 20});
        attached.post("/claim", &body, KEY).await
    };
    let mut episode = None;
    let play = async {
        attached.gateway.ready().await;
        attached.gateway.ready().await;
        assert!(tokio::time::timeout(soon, attached.gateway.ready()).await.is_err());
        episode = Some(attached.play("p"));
    };
    let (claimed, ()) = tokio::join!(claim, play);
    assert_eq!(claimed.json()["episodes"].as_array().unwrap().len(), 1);
    // The place of a claim that was answered is taken back.
    assert!(tokio::time::timeout(soon, attached.gateway.ready()).await.is_err());
    episode.unwrap().abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_end_at_once_are_a_fault_with_their_words() {
    let attached = Attached::new(|options| {
        options.command = ["sh", "-c", "echo broken >&2; exit 3"].map(str::to_owned).into();
        options.processes = 1;
    });
    attached.gateway.ready().await;
    let fault = fault(&attached.play("p").await.unwrap());
    for part in ["program: workers end before they claim an episode", "exit status: 3: broken"] {
        assert!(fault.contains(part), "{fault}");
    }
}

/// A worker in shell, which claims episodes with `curl` and plays each as the text says: `$id` and `$key` are its.
fn shell_worker(plays: &str) -> Vec<String> {
    let text = format!(
        r#"post() {{ curl -sS -H "authorization: Bearer $2" -d "$3" "$MAVERL_GATEWAY_URL$1"; }}
           while :; do
             told=$(post /claim "$MAVERL_GATEWAY_KEY" '{{"wait_s": 5}}') || exit 1
             id=$(echo "$told" | grep -o '"id":"episode[^"]*"' | cut -d'"' -f4)
             key=$(echo "$told" | grep -o '"api_key":"[^"]*"' | cut -d'"' -f4)
             task=$(echo "$told" | grep -o '"task":{{[^}}]*}}[^}}]*}}')
             [ -n "$id" ] || exit 0
             {plays}
           done"#
    );
    vec!["sh".to_owned(), "-c".to_owned(), text]
}

fn without_curl(test: &str) -> bool {
    let missing = std::process::Command::new("curl").arg("--version").output().is_err();
    if missing {
        eprintln!("{test}: skipped, there is no curl");
    }
    missing
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_or_hangs_is_started_again_and_costs_its_own_episode_alone() {
    if without_curl("workers that die") {
        return;
    }
    let plays = r#"case "$task" in
        *'"id":"die"'*) echo "last words $key" >&2; kill -9 $$;;
        *'"id":"hang"'*) sleep 300;;
        *) echo "played $key"; post "/episodes/$id/finish" "$key" '{"answer": "yes"}' > /dev/null;;
    esac"#;
    let attached = Attached::new(|options| {
        options.command = shell_worker(plays);
        options.processes = 2;
        options.lease_s = 1.0;
    });
    let ids = ["a", "die", "b", "hang", "c", "d", "die", "e"];
    let episodes: Vec<_> = ids.iter().map(|id| attached.play(id)).collect();
    for (id, episode) in ids.iter().zip(episodes) {
        let episode = episode.await.unwrap();
        match *id {
            "die" => {
                assert_eq!(fault(&episode), "crash: the worker of the episode ended");
                assert!(episode.log.contains("last words ***"), "{}", episode.log);
            }
            "hang" => assert!(fault(&episode).contains("made no request for 1 s")),
            _ => {
                assert!(episode.score().unwrap().solved, "{id}");
                assert!(!episode.log.contains("mv-"), "{}", episode.log);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_after_the_end_of_the_run_is_gone() {
    let attached = Attached::new(|_| ());
    let episode = attached.play("p");
    attached.claim().await;
    attached.gateway.shared.workers.close();
    let gone = attached.post("/claim", &json!({}), KEY).await;
    assert_eq!((gone.status, &gone.json()["error"]["code"]), (410, &json!("run_over")));
    episode.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_of_a_worker_take_no_episode() {
    let attached = Attached::new(|_| ());
    let episode = attached.play("p");
    for (path, body) in [
        ("/claim", json!([])),
        ("/claim", json!({"max": 0})),
        ("/claim", json!({"max": "x"})),
        ("/claim", json!({"max": 1000})),
        ("/claim", json!({"wait_s": -1})),
        ("/claim", json!({"wait_s": 31})),
        ("/claim", json!({"worker": 5})),
        ("/claim", json!({"other": 1})),
        ("/heartbeat", json!(null)),
        ("/heartbeat", json!({"episodes": 5})),
        ("/heartbeat", json!({"episodes": [1]})),
    ] {
        let answer = attached.post(path, &body, KEY).await;
        assert_eq!(answer.status, 400, "{path} {body}: {}", answer.body);
        assert!(!answer.message().is_empty());
    }
    let (id, key) = attached.claim().await;
    let path = format!("/episodes/{id}/finish");
    assert_eq!(attached.post(&path, &json!({"answer": "yes"}), &key).await.status, 200);
    assert!(episode.await.unwrap().score().unwrap().solved);
}
