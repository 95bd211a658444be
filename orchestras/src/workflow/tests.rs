#![allow(clippy::unwrap_used)]

use maverl::orchestra::SeatCount;
use maverl::registry::Build;
use serde_json::{Value, json};

use super::*;
use crate::testing::{answer, paid, play, play_on, seats};

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
    // The math environment accepts two attempts.
    assert_eq!((episode.turns.len(), episode.answer.as_deref()), (2, Some("42")));
}

#[test]
fn a_node_has_the_messages_of_the_task_where_its_templates_name_them() {
    let messages = [
        ("system", json!("Use \\boxed{}.")),
        (
            "history",
            json!([
                { "role": "user", "content": "My number is 7." },
                { "role": "assistant", "content": "ok {{ question }}" },
            ]),
        ),
    ];
    let nodes = json!([
        { "id": "a", "role": "{{ system }}", "prompt": "{{ history }}\nUser: {{ question }}" },
        { "id": "b", "role": "Be brief. {{system}}", "prompt": "{{ a }} {{ system }}" },
    ]);
    let flow = || workflow(&nodes).unwrap();
    assert_eq!(flow().passes_on(), ["system", "history"]);
    assert!(diamond().passes_on().is_empty());
    let shown = |data: &[(&str, Value)]| {
        let episode = play_on(flow(), data, |seat, _| seat.to_owned());
        let turn = |turn: &Turn| {
            let texts = turn.prompt.iter().map(|m| format!("{:?}: {}", m.role, m.content));
            texts.collect::<Vec<_>>().join("|")
        };
        episode.turns.iter().map(turn).collect::<Vec<_>>()
    };
    let question = "What is 6 times 7?";
    assert_eq!(
        shown(&messages),
        [
            format!(
                "System: Use \\boxed{{}}.|User: User: My number is 7.\nAssistant: ok {{{{ question }}}}\nUser: {question}"
            ),
            "System: Be brief. Use \\boxed{}.|User: workflow/worker#0 Use \\boxed{}.".to_owned(),
        ]
    );
    assert_eq!(
        shown(&[]),
        [
            format!("User: (none)\nUser: {question}"),
            "System: Be brief. |User: workflow/worker#0 ".to_owned(),
        ]
    );
}

/// Returns a drafter and a checker that comes after it without seeing its reply; only the drafter sees the bench's
/// observation.
fn pair() -> Value {
    json!([
        { "id": "draft", "prompt": "{{ question }}", "role": "You draft.", "acts": true, "environment": "bench",
          "shown": "{{ seen }}", "team_reward": 0.25 },
        { "id": "check", "prompt": "{{ question }} again", "after": ["draft"], "trains": false },
        { "id": "answer", "prompt": "{{ draft }}", "tag": "answer" },
    ])
}

/// Plays a workflow whose bench is a math environment of its own.
fn on_a_bench(flow: Workflow) -> Episode {
    let script = |_: &Seat, messages: &[maverl::trajectory::Message]| match messages
        .last()
        .unwrap()
        .content
        .as_str()
    {
        "What is 6 times 7?" => "42".to_owned(),
        _ => answer("42"),
    };
    let environment = maverl::env::math::MathEnvironment::default;
    maverl::rollout::Scripted::new(flow, environment(), script)
        .environment("bench", environment())
        .play_blocking(&crate::testing::task())
}

#[test]
fn nodes_have_roles_worlds_shares_and_turns_that_rest() {
    let flow = workflow(&pair()).unwrap();
    assert_eq!(flow.environments(), ["bench"]);
    let episode = on_a_bench(flow);
    assert_eq!(episode.score().unwrap().reward, 1.0);
    let system = |turn: &Turn| turn.prompt[0].role == maverl::trajectory::Role::System;
    assert_eq!(episode.turns.iter().map(system).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(episode.turns.iter().map(|t| t.masked).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(paid(&episode, "team"), [("workflow/worker#0".to_owned(), -0.75)]);
    assert_eq!([0, 1, 2].map(|turn| episode.turn_reward(turn).unwrap()), [0.25, 1.0, 1.0]);
}

#[test]
fn with_the_last_pass_alone_those_before_it_rest() {
    let passes = NonZeroU32::new(2).unwrap();
    let flow = Workflow { passes, trains: Passes::Last, ..workflow(&pair()).unwrap() };
    let masked: Vec<bool> = on_a_bench(flow).turns.iter().map(|turn| turn.masked).collect();
    assert_eq!(masked, [true, true, true, false, true, false]);
}

#[test]
fn a_world_that_is_not_there_is_a_fault_of_the_orchestra() {
    let episode = crate::testing::ended(workflow(&pair()).unwrap(), |_, _| "42".to_owned());
    assert!(crate::testing::fails_with(&episode, "no environment is called `bench`"));
}

#[test]
fn nodes_that_share_a_seat_and_speak_at_once_are_paid_for_their_own_turns() {
    let nodes = json!([
        { "id": "one", "prompt": "first", "seat": 0, "own_reward": 1.0 },
        { "id": "two", "prompt": "second", "seat": 0, "own_reward": 1.0 },
        { "id": "last", "prompt": "{{ one }}{{ two }}", "seat": 0 },
    ]);
    let episode = play(workflow(&nodes).unwrap(), |_, shown| match shown {
        "first" => "42".to_owned(),
        _ => "41".to_owned(),
    });
    let of: Vec<_> = episode.rewards.iter().map(|part| part.of.clone()).collect();
    assert_eq!(of, [maverl::trajectory::RewardOf::Turn(0)]);
}

#[test]
fn a_reply_without_its_block_is_a_malformed_turn_and_ends_the_episode_without_an_answer() {
    for (reply, error) in [
        ("42", "no <answer>...</answer> block"),
        ("<answer> </answer>", "no <answer>...</answer> block"),
        ("<answer>42", "the <answer> block is not properly opened and closed"),
    ] {
        let episode = play(Workflow::default(), move |_, _| reply.to_owned());
        assert_eq!((episode.turns.len(), &episode.answer), (1, &None), "{reply}");
        assert_eq!(episode.turns[0].error.as_deref(), Some(error), "{reply}");
    }
}

#[test]
fn every_malformed_reply_of_nodes_that_are_asked_at_once_is_recorded() {
    let nodes = json!([
        { "id": "left", "prompt": "left", "tag": "l" },
        { "id": "middle", "prompt": "middle", "tag": "l" },
        { "id": "right", "prompt": "right", "tag": "r" },
        { "id": "last", "prompt": "{{ left }}{{ middle }}{{ right }}" },
    ]);
    let episode = play(workflow(&nodes).unwrap(), |_, shown| match shown {
        "middle" => "<l>fine</l>".to_owned(),
        _ => "no block".to_owned(),
    });
    let errors: Vec<Option<&str>> = episode.turns.iter().map(|t| t.error.as_deref()).collect();
    assert_eq!(errors, [Some("no <l>...</l> block"), None, Some("no <r>...</r> block")]);
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
        (json!([node("system", "x")]), "`system` cannot be the id of a node"),
        (json!([{ "id": "a", "prompt": "x", "role": "{{ system" }]), "has `{{` without `}}`"),
        (json!([node("a", "{{ question")]), "has `{{` without `}}`"),
        (json!([{ "id": "a", "prompt": "x", "seat": 1 }]), "a seat above the number of nodes"),
        (json!([{ "id": "a", "prompt": "x", "shown": "{{ a }}" }]), "and no `a`"),
        (
            json!([{ "id": "a", "prompt": "x", "after": ["b"] }]),
            "node `a` comes after `b`, which is no node",
        ),
        (json!([{ "id": "a", "prompt": "x", "after": ["a"] }]), "`a` wait for each other"),
        (json!([{ "id": "a", "prompt": "x", "environment": "b" }]), "add `acts = true`"),
        (json!([{ "id": "a", "prompt": "x", "trains": false }]), "no node trains"),
        (
            json!([{ "id": "a", "prompt": "x", "role": "{{ seen }}" }]),
            "`role` of node `a` has `system`, and no `seen`",
        ),
        (json!([{ "id": "a", "prompt": "x", "retries": 2 }]), "retries"),
    ];
    for (nodes, words) in cases {
        let error = workflow(&nodes).err().unwrap();
        assert!(error.contains(words), "{error}");
    }
}
