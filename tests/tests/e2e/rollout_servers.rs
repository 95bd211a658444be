//! Runs whose replies inference servers sample.

use maverl_tests::inference::{InferenceServer, Manner, Protocol};
use maverl_tests::lab::{Lab, Run};
use serde_json::Value;

use crate::lab;

const LORA: &str = "models.tiny.lora.rank=4";

/// Returns the settings of a run over servers.
pub(crate) fn over(kind: &str, servers: &[&InferenceServer]) -> Vec<String> {
    let urls: Vec<&str> = servers.iter().map(|server| server.url()).collect();
    [
        "steps=2".to_owned(),
        "eval.tasks=2".to_owned(),
        "models.tiny.rollout_servers=\"fast\"".to_owned(),
        format!("rollout_servers.fast.kind={kind:?}"),
        format!("rollout_servers.fast.urls={urls:?}"),
        "rollout_servers.fast.weights_dir=\"weights\"".to_owned(),
        "rollout_servers.fast.retries=1".to_owned(),
    ]
    .into()
}

fn serve(lab: &Lab, protocol: Protocol, manner: Manner) -> InferenceServer {
    InferenceServer::start(protocol, &lab.path("model"), manner)
}

fn train(lab: &Lab, out: &str, set: &[String], more: &[&str]) -> Run {
    let set: Vec<&str> = set.iter().map(String::as_str).chain(more.iter().copied()).collect();
    lab.train(out, &set)
}

/// Panics unless the log-probs of every step are those of the trainer, and the weights of every step were used.
fn exact(run: &Run) {
    let steps = run.steps();
    assert_eq!(steps.len(), 2);
    for (at, row) in steps.iter().enumerate() {
        assert_eq!(row["mismatch/tiny/logp_abs_max"], 0.0, "{row}");
        assert_eq!(row["rollout/unscored"], 0.0);
        assert!(row["policy/tiny/grad_norm"].as_f64() > Some(0.0));
        let episodes = run.episodes(at as u64 + 1);
        let versions = episodes.iter().flat_map(|episode| &episode.turns);
        for turn in versions {
            assert_eq!(turn.tokens.as_ref().unwrap().version, at as u64);
        }
    }
}

#[test]
fn replies_of_servers_have_the_log_probs_of_the_trainer_in_every_step() {
    let lab = lab();
    let sglang = serve(&lab, Protocol::Sglang, Manner::default());
    let whole = train(&lab, "whole", &over("sglang", &[&sglang]), &[]);
    exact(&whole);
    let timing = String::from_utf8(whole.bytes("timing.jsonl")).unwrap();
    let row: Value = timing
        .lines()
        .filter_map(|row| serde_json::from_str(row).ok())
        .find(|row: &Value| row.get("rollout_server/fast/requests").is_some())
        .unwrap();
    assert!(row["rollout_server/fast/tokens"].as_f64() > Some(0.0));
    assert_eq!(row["rollout_server/fast/failures"], 0.0);

    // Full weights and an adapter have the same episodes over either protocol.
    let vllm = serve(&lab, Protocol::Vllm, Manner { busy: 1, ..Manner::default() });
    let other = train(&lab, "vllm-whole", &over("vllm", &[&vllm]), &[]);
    exact(&other);
    other.equals(&whole);

    let sglang = serve(&lab, Protocol::Sglang, Manner::default());
    let vllm = serve(&lab, Protocol::Vllm, Manner::default());
    let one = train(&lab, "sglang", &over("sglang", &[&sglang]), &[LORA]);
    let other = train(&lab, "vllm", &over("vllm", &[&vllm]), &[LORA]);
    exact(&one);
    other.equals(&one);
    // The current version and the one before.
    assert_eq!([sglang.adapters().len(), vllm.adapters().len()], [2, 2]);
    // Weights for the servers are removed at the end.
    assert_eq!(std::fs::read_dir(lab.path("weights")).unwrap().count(), 0);
}

#[test]
fn a_server_that_is_lost_or_restarts_changes_no_result() {
    let lab = lab();
    let good = serve(&lab, Protocol::Vllm, Manner::default());
    let whole = train(&lab, "whole", &over("vllm", &[&good]), &[LORA]);
    let dies = serve(&lab, Protocol::Vllm, Manner { dies_after: Some(12), ..Manner::default() });
    let lost = train(&lab, "lost", &over("vllm", &[&good, &dies]), &[LORA]);
    assert!((12..20).contains(&dies.generations()));
    lost.equals(&whole);
    let manner = Manner { forgets_after: Some(14), ..Manner::default() };
    let restarts = serve(&lab, Protocol::Vllm, manner);
    train(&lab, "restarted", &over("vllm", &[&restarts]), &[LORA]).equals(&whole);
    let good = serve(&lab, Protocol::Vllm, Manner::default());
    let whole = train(&lab, "full", &over("vllm", &[&good]), &[]);
    let restarts = serve(&lab, Protocol::Vllm, manner);
    train(&lab, "full-restarted", &over("vllm", &[&restarts]), &[]).equals(&whole);
}

#[test]
fn ranks_share_servers_and_have_the_losses_of_one() {
    let lab = lab();
    let server = serve(&lab, Protocol::Sglang, Manner::default());
    let set = over("sglang", &[&server]);
    let more = ["eval.before_and_after=false", "runtime.threads=1"];
    let one = train(&lab, "one", &set, &more);
    let server = serve(&lab, Protocol::Sglang, Manner::default());
    let set = over("sglang", &[&server]);
    let set: Vec<&str> = set.iter().map(String::as_str).chain(more).collect();
    let two = crate::ranks::train(&lab, "two", 2, &set);
    exact(&two);
    crate::ranks::alike(&one, &two);
    assert_eq!(one.episodes(1), two.episodes(1));
    assert_eq!(two.json("provenance.json")["ranks"], 2);
}

#[test]
fn a_run_that_loses_all_servers_ends_with_their_names_and_resumes_with_others() {
    let lab = lab();
    let good = serve(&lab, Protocol::Vllm, Manner::default());
    let short =
        ["eval.before_and_after=false", "checkpoint.every=1", "rollout.max_unscored=0", LORA];
    let whole = train(&lab, "whole", &over("vllm", &[&good]), &short);
    let dies = serve(&lab, Protocol::Vllm, Manner { dies_after: Some(23), ..Manner::default() });
    let set = over("vllm", &[&dies]);
    let set: Vec<&str> = set.iter().map(String::as_str).chain(short).collect();
    lab.fails("run", &set).says(&["rollout servers `fast`", dies.url()]);
    let urls = format!("rollout_servers.fast.urls=[{:?}]", good.url());
    lab.run(&["train", "--resume", "run", "--set", &urls]).succeeded();
    Run(lab.path("run")).equals(&whole);
}

#[test]
fn servers_with_another_model_or_that_ignore_weights_are_refused_before_the_first_episode() {
    let lab = lab();
    let ignores =
        serve(&lab, Protocol::Vllm, Manner { ignores_weights: true, ..Manner::default() });
    let set = over("vllm", &[&ignores]);
    let set: Vec<&str> = set.iter().map(String::as_str).chain([LORA]).collect();
    let parts = ["rollout servers `fast`", "it does not use the weights that it is given"];
    lab.fails("run", &set).says(&parts);
    assert!(!lab.path("run").join("rollouts").join("step-000001.jsonl.zst").exists());
    let ignores =
        serve(&lab, Protocol::Sglang, Manner { ignores_weights: true, ..Manner::default() });
    let set = over("sglang", &[&ignores]);
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    lab.fails("full", &set).says(&["it does not use the weights that it is given"]);
    let set = over("vllm", &[&ignores]);
    let set: Vec<&str> = set.iter().map(String::as_str).chain([LORA]).collect();
    lab.fails("kind", &set).says(&["/v1/load_lora_adapter: status 404"]);
    for (out, manner, part) in [
        (
            "full-vllm",
            Manner { ignores_weights: true, ..Manner::default() },
            "it does not use the weights that it is given",
        ),
        (
            "part",
            Manner { keeps_embedding: true, ..Manner::default() },
            "it does not use the weights that it is given, or not all of them",
        ),
        ("plain", Manner { plain: true, ..Manner::default() }, "`VLLM_SERVER_DEV_MODE=1`"),
        ("closed", Manner { closed: true, ..Manner::default() }, "`--enable-scale-out`"),
    ] {
        let server = serve(&lab, Protocol::Vllm, manner);
        let set = over("vllm", &[&server]);
        lab.fails(out, &set.iter().map(String::as_str).collect::<Vec<_>>()).says(&[part]);
    }
}

#[test]
fn settings_of_servers_are_checked_with_all_problems_at_once() {
    let lab = lab();
    let set = [
        "models.tiny.rollout_servers=\"fats\"",
        "rollout_servers.fast.urls=[\"ftp://a\", \"http://b/v1\"]",
        "rollout_servers.fast.key_env=\"NO_SUCH_KEY\"",
    ];
    lab.fails("run", &set).says(&[
        "no table `[rollout_servers.fats]`",
        "did you mean `fast`?",
        "rollout servers `fast` have no `kind`",
        "which does not begin with http:// or https://",
        "which has a path",
        "`NO_SUCH_KEY` is not set",
    ]);
    let set = [
        "models.tiny.rollout_servers=\"fast\"",
        "rollout_servers.fast.kind=\"vllm\"",
        "rollout_servers.fast.urls=[\"http://a\"]",
    ];
    lab.fails("run", &set).says(&["have no `weights_dir`"]);
}

/// Writes a mixture of experts with a long context, and returns the settings of a run over servers that sample for it.
pub(crate) fn over_experts(lab: &Lab, kind: &str, server: &InferenceServer) -> Vec<String> {
    let mut set = over(kind, &[server]);
    set.push("models.tiny.path=\"experts\"".to_owned());
    set.push("sampling.max_tokens=12".to_owned());
    set.push("rollout_servers.fast.router_replay=true".to_owned());
    assert!(lab.path("experts").is_dir(), "`write_experts` comes first");
    set
}

/// Writes a mixture of experts with a long context into a directory of a lab.
pub(crate) fn write_experts(lab: &Lab) {
    let from = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/families/qwen3_moe");
    let to = lab.path("experts");
    std::fs::create_dir_all(&to).unwrap();
    let files =
        ["generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];
    for file in files {
        std::fs::copy(format!("{from}/{file}"), to.join(file)).unwrap();
    }
    let text = std::fs::read_to_string(format!("{from}/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["max_position_embeddings"] = 2048.into();
    lab.write("experts/config.json", &config.to_string());
}

fn serve_experts(lab: &Lab, protocol: Protocol, manner: Manner) -> InferenceServer {
    let manner = Manner { routes: true, ..manner };
    InferenceServer::start(protocol, &lab.path("experts"), manner)
}

#[test]
fn experts_that_servers_return_are_recorded_and_replayed_in_updates() {
    let lab = lab();
    write_experts(&lab);
    let mut runs = Vec::new();
    for (kind, protocol, lora) in [
        ("sglang", Protocol::Sglang, None),
        ("vllm", Protocol::Vllm, None),
        ("vllm", Protocol::Vllm, Some(LORA)),
    ] {
        let server = serve_experts(&lab, protocol, Manner::default());
        let more: Vec<&str> = lora.into_iter().collect();
        let out = format!("{kind}-{}", more.len());
        let run = train(&lab, &out, &over_experts(&lab, kind, &server), &more);
        exact(&run);
        for row in run.steps() {
            for layer in [0, 2] {
                assert_eq!(row[format!("moe/tiny/layer_{layer}/replay_changed")], 0.0, "{row}");
            }
        }
        for turn in run.episodes(1).iter().flat_map(|episode| &episode.turns) {
            let tokens = turn.tokens.as_ref().unwrap();
            let routes = tokens.routes.as_ref().unwrap();
            let all = tokens.prompt.len() + tokens.completion.len();
            assert_eq!((routes.tokens(), routes.width()), (all - 1, 6));
        }
        runs.push(run);
    }
    runs[0].equals(&runs[1]);
    // The experts of the trainer's own routers are the same: replay changes no bit.
    let server = serve_experts(&lab, Protocol::Sglang, Manner::default());
    let set = over_experts(&lab, "sglang", &server);
    let off = ["rollout_servers.fast.router_replay=false"];
    let plain = train(&lab, "plain", &set, &off);
    for (row, replayed) in plain.steps().iter().zip(runs[0].steps()) {
        let norm = "policy/tiny/grad_norm";
        let [one, other] = [row, &replayed].map(|row| row[norm].as_f64().unwrap());
        assert!((one - other).abs() <= 1e-5 * one, "{one} and {other}");
        assert_eq!(row.get("moe/tiny/layer_0/replay_changed"), None);
    }
    let manner = Manner { other_experts: true, ..Manner::default() };
    let server = serve_experts(&lab, Protocol::Sglang, manner);
    let other = train(&lab, "other", &over_experts(&lab, "sglang", &server), &[]);
    let row = &other.steps()[0];
    assert_eq!(row["moe/tiny/layer_0/replay_changed"], 1.0, "{row}");
    assert!(row["mismatch/tiny/logp_abs_max"].as_f64() > Some(1e-3), "{row}");
}

#[test]
fn servers_without_experts_and_models_without_them_are_refused_by_name() {
    let lab = lab();
    write_experts(&lab);
    let server = InferenceServer::start(Protocol::Vllm, &lab.path("experts"), Manner::default());
    let set = over_experts(&lab, "vllm", &server);
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    lab.fails("run", &set).says(&["routed_experts", "--enable-return-routed-experts"]);
    let dense = [&set[..], &["models.tiny.path=\"model\""]].concat();
    let parts = ["`rollout_servers.fast.router_replay` is true", "is no mixture of experts"];
    lab.fails("dense", &dense).says(&parts);
}
