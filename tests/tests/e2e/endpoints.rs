//! Agents that are served by endpoints.

use serde_json::Value;

use crate::lab;

/// The closer has a script.
const SCRIPTED: [&str; 3] = [
    "endpoints.closer.script=\"script.jsonl\"",
    "agents.\"duo/closer\".endpoint=\"closer\"",
    "steps=2",
];

#[test]
fn a_scripted_member_plays_is_paid_for_and_is_never_trained() {
    let lab = lab();
    lab.write("script.jsonl", "{\"contains\": \"Close\", \"reply\": \"even\"}\n");
    let run = lab.train("run", &SCRIPTED);
    let mut closed = 0;
    for episode in run.episodes(1) {
        // A truncated opening ends the episode.
        let [opener, closer] = &episode.turns[..] else { continue };
        closed += 1;
        assert!(opener.tokens.is_some() && closer.tokens.is_none());
        assert_eq!((closer.policy.as_str(), closer.reply.as_str()), ("closer", "even"));
        assert_eq!(episode.answer.as_deref(), Some("even"));
    }
    assert!(closed > 0, "no episode came to its closer");
    let timing = String::from_utf8(run.bytes("timing.jsonl")).unwrap();
    let rows: Vec<Value> = timing.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let asked = rows.iter().filter_map(|row| row["endpoint/closer/requests"].as_f64()).next();
    assert_eq!(asked, Some(f64::from(closed)), "{timing}");
    assert!(run.steps().iter().all(|row| row["rollout/unscored"] == 0.0));
}

#[test]
fn a_script_without_a_line_for_it_stops_the_run_and_says_so() {
    let lab = lab();
    lab.write("script.jsonl", "{\"seat\": \"duo/opener\", \"reply\": \"even\"}\n");
    lab.fails("run", &[&SCRIPTED[..], &["eval.before_and_after=false"]].concat())
        .says(&["no line of its script is for `duo/closer`"]);
}
