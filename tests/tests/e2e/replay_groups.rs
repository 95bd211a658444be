//! Groups of earlier steps that are trained on again (`algorithm.replay`).

use std::collections::BTreeMap;
use std::process::Child;
use std::time::{Duration, Instant};

use maverl::run_dir::read_samples;
use maverl_tests::lab::{Ended, Lab, Run, train_args};
use serde_json::Value;

use crate::algorithms::replays;
use crate::kill::{kill_after, kills_wanted, spawn, uniform};
use crate::lab;

/// Groups of two episodes, many of which are flat, and a buffer of three.
const SET: [&str; 8] = [
    "algorithm.replay.groups=3",
    "algorithm.loss.correction=\"truncate\"",
    "task.tasks_per_step=4",
    "task.group_size=2",
    "eval.before_and_after=false",
    "models.tiny.optim.lr=1e-2",
    "checkpoint.every=1",
    "steps=8",
];

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("`{name}` is missing in {row:#}"))
}

/// Returns settings with further ones.
fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SET[..], more].concat()
}

/// Returns the advantages of each task in a step of a run, by source and id.
fn by_task(run: &Run, step: u64) -> BTreeMap<(String, String), Vec<f64>> {
    let episodes = run.episodes(step);
    let samples = read_samples(&run.0.join(format!("samples/step-{step:06}.jsonl.zst"))).unwrap();
    let mut tasks: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    for sample in samples.samples {
        let task = &episodes[sample.episode].task;
        let key = (task.source.clone(), task.id.clone());
        tasks.entry(key).or_default().push(sample.advantage);
    }
    tasks
}

#[test]
fn flat_groups_are_replaced_by_the_best_ones_with_the_log_probs_that_they_were_sampled_with() {
    let lab = lab();
    let run = lab.train("run", &SET);
    let (mut scores, mut replayed, mut flat_steps): (Vec<f64>, f64, usize) = (Vec::new(), 0.0, 0);
    for row in run.steps() {
        let step = row["step"].as_u64().unwrap();
        let tasks = by_task(&run, step);
        let is_flat = |own: &&Vec<f64>| own.iter().all(|advantage| *advantage == 0.0);
        let flat: Vec<&Vec<f64>> = tasks.values().filter(is_flat).collect();
        let groups = number(&row, "replay/groups");
        assert_eq!(groups, flat.len().min(scores.len()) as f64, "step {step}");
        // What is left of the step, and the groups in place of the first flat ones.
        let own: usize = tasks.values().map(Vec::len).sum();
        let replaced: usize = flat.iter().take(groups as usize).map(|own| own.len()).sum();
        let samples = number(&row, "replay/samples");
        assert_eq!(samples > 0.0, groups > 0.0);
        let trained = (own - replaced) as f64 + samples;
        if flat.len() < tasks.len() || groups > 0.0 {
            assert_eq!(number(&row, "policy/tiny/rows"), trained, "step {step}");
            // Weights of earlier steps sampled them, and those of this step all others.
            let mismatch = number(&row, "mismatch/tiny/logp_abs_max");
            assert_eq!(mismatch > 0.0, groups > 0.0, "step {step}: {mismatch}");
        }
        flat_steps += usize::from(flat.len() == tasks.len() && groups > 0.0);
        if groups > 0.0 {
            let [mean, most] = ["mean", "max"].map(|of| number(&row, &format!("replay/age_{of}")));
            assert!(1.0 <= mean && mean <= most && most < step as f64, "step {step}: {row:#}");
        }
        let score = |own: &Vec<f64>| own.iter().map(|a| a.abs()).sum::<f64>() / own.len() as f64;
        let record = run.0.join(format!("samples/step-{step:06}.jsonl.zst"));
        for group in read_samples(&record).unwrap().replayed {
            let key = (group.source, group.task);
            assert_eq!(by_task(&run, group.step)[&key], group.advantages, "those of its own step");
        }
        scores.extend(tasks.values().filter(|own| !is_flat(own)).map(score));
        scores.sort_by(|a, b| b.total_cmp(a));
        scores.truncate(3);
        assert_eq!(number(&row, "replay/kept"), scores.len() as f64, "step {step}");
        replayed += groups;
    }
    assert!(replayed >= 3.0, "{replayed} groups");
    println!("{replayed} groups were replayed, {flat_steps} flat steps learned from them");
    let kept = &run.json("checkpoints/step-000008/algorithm.json")["replay"];
    let kept = kept.as_array().unwrap().iter().map(|group| group["score"].as_f64().unwrap());
    assert_eq!(kept.collect::<Vec<_>>(), scores, "the best of the run");
    for step in [4, 8] {
        replays(&lab, "run", step);
    }
}

#[test]
fn a_run_without_a_buffer_has_no_state_and_no_metric_of_one() {
    let lab = lab();
    let rows = lab.train("plain", &SET[1..]).steps();
    let named = |row: &Value| row.as_object().unwrap().keys().any(|key| key.starts_with("replay/"));
    assert!(!rows.iter().any(named), "{rows:#?}");
    assert!(!lab.path("plain/checkpoints/step-000008/algorithm.json").exists());
}

#[test]
fn a_group_is_no_longer_replayed_when_it_is_too_old() {
    let lab = lab();
    let run = lab.train("run", &with(&["algorithm.replay.max_age=1"]));
    let ages: Vec<f64> =
        run.steps().iter().filter_map(|row| row["replay/age_max"].as_f64()).collect();
    assert!(!ages.is_empty() && ages.iter().all(|age| *age == 1.0), "{ages:?}");
}

#[test]
fn a_resumed_run_replays_the_same_groups_also_with_episodes_in_flight() {
    let lab = lab();
    for (name, more) in [("on", &[][..]), ("ahead", &["rollout.staleness=2"][..])] {
        let whole = lab.train(&format!("{name}-whole"), &with(more));
        // All steps are known from the start: batches that are played ahead depend on their number.
        let out = format!("{name}-parted");
        let parted = Run(lab.path(&out));
        let mut child = spawn(&lab, &train_args(&out, &with(more)));
        while child.try_wait().unwrap().is_none() {
            let done = parted.0.join("metrics.jsonl").exists() && parted.steps().len() >= 4;
            if done {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        lab.run(&["train", "--resume", &out]).succeeded();
        parted.equals(&whole);
    }
}

#[test]
fn a_file_of_episodes_that_a_kept_group_needs_is_missed_before_the_next_step() {
    let lab = lab();
    let run = lab.train("run", &with(&["steps=4"]));
    let kept = &run.json("checkpoints/step-000004/algorithm.json")["replay"];
    let step = kept[0]["step"].as_u64().unwrap();
    let file = run.0.join(format!("rollouts/step-{step:06}.jsonl.zst"));
    std::fs::remove_file(&file).unwrap();
    let ended = lab.run(&["train", "--resume", "run", "--steps", "6", "--allow-missing"]).failed();
    let name = format!("rollouts/step-{step:06}.jsonl.zst");
    ended.says(&["cannot replay groups of episodes (`algorithm.replay`) of", &name]);
}

#[test]
fn two_ranks_replay_the_groups_that_one_reads_and_repeat_to_the_byte() {
    let lab = lab();
    let set = with(&["runtime.threads=1", "steps=6"]);
    let [two, again] = ["two", "again"].map(|out| crate::ranks::train(&lab, out, 2, &set));
    assert_eq!(two.bytes("metrics.jsonl"), again.bytes("metrics.jsonl"));
    let groups: f64 = two.steps().iter().map(|row| number(row, "replay/groups")).sum();
    assert!(groups >= 1.0, "{groups}");
    // Later steps of one rank have gradients whose sums are rounded differently.
    let kept = |run: &Run| number(&run.steps()[0], "replay/kept");
    assert_eq!(kept(&lab.train("one", &set)), kept(&two));
}

/// Starts a run, or resumes it if it exists.
fn start(lab: &Lab, out: &str) -> Child {
    let set = with(&["environment.jitter_ms=20"]);
    let args =
        if lab.path(out).exists() { vec!["train", "--resume", out] } else { train_args(out, &set) };
    spawn(lab, &args)
}

#[test]
fn a_run_that_replays_groups_killed_at_random_moments_ends_as_if_it_had_never_been() {
    let lab = lab();
    let begun = Instant::now();
    Ended::of(&start(&lab, "baseline").wait_with_output().unwrap()).succeeded();
    let baseline = Run(lab.path("baseline"));
    let whole = begun.elapsed().as_secs_f64();
    let (mut state, mut kills, mut runs) = (7, 0, 0);
    while kills < kills_wanted() {
        let out = format!("run-{runs}");
        let ended = (0..3).any(|_| {
            let after = Duration::from_secs_f64(0.8 * whole * uniform(&mut state));
            let killed = kill_after(start(&lab, &out), after);
            kills += usize::from(killed);
            !killed
        });
        if !ended {
            Ended::of(&start(&lab, &out).wait_with_output().unwrap()).succeeded();
        }
        let run = Run(lab.path(&out));
        run.equals(&baseline);
        assert!(run.is_tidy());
        runs += 1;
    }
    println!("{kills} kills of {runs} runs, all of which ended as the one that was left alone");
}
