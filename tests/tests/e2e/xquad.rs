//! The search team on real paragraphs and questions.

use maverl::trajectory::{Episode, Turn};
use maverl_tests::lab::{Ended, Lab, Run};

use crate::lab;

/// Runs two steps of the search team on XQuAD with settings; `None`, with the reason printed, if the data are missing.
fn search(lab: &Lab, set: &[&str]) -> Option<(Ended, Run)> {
    let Some(shared) = std::env::var_os("MAVERL_TEST_DATA") else {
        println!("skipped: MAVERL_TEST_DATA is not set");
        return None;
    };
    let data = std::path::Path::new(&shared).join("data/xquad.en.json");
    let config = format!(
        r#"
seed = 7
steps = 2
task = {{ data = {data:?}, tasks_per_step = 2, group_size = 4 }}
orchestra = {{ name = "search/route" }}
environment = {{ name = "search", corpus = {data:?}, top_k = 3 }}
sampling = {{ max_tokens = 24 }}
rollout = {{ overflow = "truncate_observation" }}
eval = {{ tasks = 4 }}
"#
    );
    lab.write("xquad.toml", &config);
    let args = ["train", "xquad.toml", "--out", "run"];
    let args = [&args[..], &set.iter().flat_map(|set| ["--set", set]).collect::<Vec<_>>()].concat();
    Some((lab.run(&args).succeeded(), Run(lab.path("run"))))
}

/// Returns the share in the message about BM25.
fn recall(ended: &Ended) -> f64 {
    let note = ended.stderr.lines().find(|line| line.contains("BM25 recall@3")).unwrap();
    println!("{note}");
    assert!(note.ends_with("893 questions"), "{note}");
    let share = note.split(": ").nth(1).unwrap().split(' ').next().unwrap();
    share.parse().unwrap()
}

#[test]
fn any_qwen2_directory_trains_on_real_paragraphs_and_questions() {
    let lab = lab();
    lab.model("random", 512);
    // A random model writes no tag; a reward for length gives it a training signal.
    let set = ["models.any.path=\"random\"", "rewards.length.weight=1"];
    let Some((ended, run)) = search(&lab, &set) else { return };
    assert!(recall(&ended) >= 0.95);
    for row in run.steps() {
        assert_eq!(row["rollout/unscored"], 0.0);
        assert!(row["policy/any/rows"].as_f64().unwrap() >= 8.0, "{row:#}");
        assert_eq!(row["mismatch/any/logp_abs_max"], 0.0);
    }
    assert_ne!(run.weights(0, "any"), run.weights(2, "any"));
    assert_eq!(run.json("summary.json")["complete"], true);
}

#[test]
fn paragraphs_too_long_for_the_shipped_model_are_shortened() {
    let lab = lab();
    let Some((ended, run)) = search(&lab, &["models.tiny.path=\"builtin:tiny\""]) else { return };
    assert!(recall(&ended) >= 0.95);
    assert!(run.steps().iter().all(|row| row["rollout/unscored"] == 0.0));
    let episodes: Vec<Episode> = [1, 2].into_iter().flat_map(|step| run.episodes(step)).collect();
    let informed = |turn: &&Turn| turn.prompt.iter().any(|said| said.content.contains("Doc 1:"));
    let informed: Vec<&Turn> =
        episodes.iter().flat_map(|episode| &episode.turns).filter(informed).collect();
    println!("{} turns saw paragraphs", informed.len());
    let shortened = informed.iter().any(|turn| turn.shortened > 0);
    assert!(informed.is_empty() || shortened, "three paragraphs fit no small context");
}
