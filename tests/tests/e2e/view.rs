//! Records of a run for `maverl view` and `maverl show`.

use maverl::run_dir::{EpisodeRow, TRAIN, read_episode, read_samples};
use maverl::trajectory::TurnPath;

use crate::lab;

#[test]
fn a_run_records_its_actions_rows_and_samples_and_show_prints_them() {
    let lab = lab();
    let run = lab.train("run", &["steps=2"]);
    let rows = String::from_utf8(run.bytes("episodes.jsonl")).unwrap();
    let rows: Vec<EpisodeRow> =
        rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let stages: Vec<&str> = rows.iter().map(|row| row.stage.as_str()).collect();
    assert_eq!((stages.first(), stages.last()), (Some(&"before"), Some(&"after-greedy")));
    let mut acted = 0;
    for row in rows.iter().filter(|row| row.stage == TRAIN) {
        let path = run.0.join(format!("rollouts/step-{:06}.jsonl.zst", row.step));
        let episode = read_episode(&path, row.at).unwrap();
        assert_eq!((&episode.task.id, episode.index), (&row.task, row.index));
        let Some(act) = episode.acts.first() else {
            assert_eq!(episode.turns.len(), 1, "a malformed first reply ends the episode");
            continue;
        };
        acted += 1;
        assert_eq!((&act.path, act.nth), (&TurnPath(vec![1]), 0), "before the second ask");
        let asked = episode.turns.get(1).and_then(|turn| turn.prompt.last());
        assert!(asked.is_none_or(|asked| asked.content.contains(&act.observation)));
    }
    assert!(acted > 0, "some episode has an action");
    for (step, metrics) in (1..).zip(run.steps()) {
        let path = run.0.join(format!("samples/step-{step:06}.jsonl.zst"));
        let samples = read_samples(&path).unwrap();
        for sample in &samples.samples {
            let found = samples.arithmetic(sample).unwrap().advantage;
            assert!((found - sample.advantage).abs() < 1e-9, "{sample:?}: {found}");
        }
        let Some(rows) = metrics["policy/tiny/rows"].as_f64() else { continue };
        assert_eq!(samples.samples.len() as f64, rows);
        let mean = samples.samples.iter().map(|sample| sample.advantage).sum::<f64>() / rows;
        let expected = metrics["policy/tiny/adv_mean"].as_f64().unwrap();
        assert!((mean - expected).abs() < 1e-5, "{mean}, {expected}");
    }
    assert_eq!(run.json("plan.json")["summary"]["seats"][0]["seat"], "duo/closer");
    assert!(!run.0.join("progress.json").exists());
    let shown = lab.run(&["show", "run", "1", "--worst", "2"]).succeeded().stdout;
    for part in ["question", "reply", "score"] {
        assert!(shown.contains(part), "{part:?} is missing in\n{shown}");
    }
    lab.run(&["show", "run", "9/t0/0"]).failed().says(&["its steps are 1 to 2"]);
    lab.run(&["view", "nowhere"]).failed().says(&["nowhere"]);
}

#[test]
fn the_advantages_of_every_estimator_are_recorded_as_they_are_trained_on() {
    let lab = lab();
    for name in ["grpo", "rloo", "gigpo", "reinforce++", "ppo"] {
        let preset = format!("algorithm.name=\"{name}\"");
        let set = ["steps=1", "eval.before_and_after=false", preset.as_str()];
        let run = lab.train(name, &set);
        let samples = read_samples(&run.0.join("samples/step-000001.jsonl.zst")).unwrap();
        assert!(!samples.samples.is_empty(), "{name}");
        for sample in &samples.samples {
            if let Some(found) = samples.arithmetic(sample) {
                let close = (found.advantage - sample.advantage).abs() < 1e-6;
                assert!(close, "{name}: {sample:?}: {found:?}");
            }
        }
        let values = samples.samples.iter().filter(|sample| !sample.values.is_empty()).count();
        assert!(values > 0 || name != "ppo", "{name}");
    }
}
