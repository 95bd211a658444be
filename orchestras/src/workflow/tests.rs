#![allow(clippy::unwrap_used)]

use maverl::orchestra::SeatCount;
use maverl::registry::Build;
use serde_json::{Value, json};

use super::*;
use crate::testing::{answer, paid, play, seats};

fn workflow(nodes: &Value) -> Result<Workflow, String> {
    Workflow::build(&json!({ "nodes": nodes }))
}

fn diamond() -> Workflow {
    let nodes = json!([
        { "id": "act", "prompt": "{{ question }} {{ left }} {{ right }}", "tag": "answer", "own_reward": 0.5 },
        { "id": "left", "prompt": "left of {{ plan }}", "shown": "L{{ content }}", "tag": "l" },
        { "id": "right", "prompt": "right of {{ plan }}" },
        { "id": "plan", "prompt": "{{ question }}", "seat": 0 },
        { "id": "last", "prompt": "{{act}}", "seat": 0, "tag": "answer" },
    ]);
    workflow(&nodes).unwrap()
}

#[test]
fn templates_make_the_order() {
    let graph = diamond().nodes;
    let levels: Vec<&[usize]> = graph.levels().collect();
    assert_eq!(levels, [&[3][..], &[1, 2], &[0], &[4]]);
    assert_eq!(graph.seats(), 3);
}

#[test]
fn a_node_is_shown_what_those_before_it_said_and_the_last_one_answers() {
    let episode = play(diamond(), |_, shown| match shown {
        "What is 6 times 7?" => "think {{ question }}".to_owned(),
        "left of think {{ question }}" => "so <l>6</l>".to_owned(),
        "right of think {{ question }}" => "7".to_owned(),
        "What is 6 times 7? L6 7" => answer("42"),
        "<answer>42</answer>" => answer("42."),
        other => panic!("{other}"),
    });
    let worker = |i: usize| format!("workflow/worker#{i}");
    assert_eq!(seats(&episode), [worker(0), worker(1), worker(2), worker(0), worker(0)]);
    assert_eq!(episode.answer.as_deref(), Some("42."));
    assert_eq!(paid(&episode, "own"), [(worker(0), 0.5)]);
}

#[test]
fn a_node_that_acts_shows_the_world_and_passes_end_with_it() {
    let nodes = json!([{ "id": "try", "prompt": "{{ question }} {{ seen }}", "acts": true }]);
    let passes = NonZeroU32::new(5).unwrap();
    let flow = Workflow { passes, ..workflow(&nodes).unwrap() };
    let episode =
        play(flow, |_, shown| if shown.contains("(none)") { "41" } else { "42" }.to_owned());
    // The math world takes two attempts.
    assert_eq!((episode.turns.len(), episode.answer.as_deref()), (2, Some("42")));
}

#[test]
fn a_reply_without_its_block_ends_the_episode_without_an_answer() {
    let episode = play(Workflow::default(), |_, _| "42".to_owned());
    assert_eq!((episode.turns.len(), episode.answer), (1, None));
}

#[test]
fn nodes_that_make_no_workflow_are_refused_with_the_reason() {
    let node = |id: &str, prompt: &str| json!({ "id": id, "prompt": prompt });
    let cases = [
        (json!([]), "at least one node"),
        (json!([node("a", "{{ b }}"), node("b", "{{ a }}")]), "`a`, `b` wait for each other"),
        (json!([node("a", "{{ b }}")]), "node `a` shows `b`, which is no node"),
        (json!([node("a", "x"), node("a", "y")]), "`a` cannot be the id of a node"),
        (json!([node("seen", "x")]), "`seen` cannot be the id of a node"),
        (json!([node("a", "{{ question")]), "has `{{` without `}}`"),
        (json!([{ "id": "a", "prompt": "x", "seat": 1 }]), "a seat above the number of nodes"),
        (json!([{ "id": "a", "prompt": "x", "shown": "{{ a }}" }]), "and no `a`"),
        (json!([{ "id": "a", "prompt": "x", "after": ["b"] }]), "after"),
    ];
    for (nodes, words) in cases {
        let error = workflow(&nodes).err().unwrap();
        assert!(error.contains(words), "{error}");
    }
}
