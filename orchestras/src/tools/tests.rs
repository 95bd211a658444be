#![allow(clippy::unwrap_used)]

use maverl::env::tools::ToolsEnvironment;
use maverl::registry::Registry;
use maverl::rollout::Scripted;
use maverl::tools::CallFormat;
use maverl::trajectory::{Message, Role};
use serde_json::json;

use super::*;

fn task() -> Task {
    Task {
        id: "1".to_owned(),
        source: "test".to_owned(),
        question: "What is 12 * 34 + 56?".to_owned(),
        data: [("answers".to_owned(), json!(["464"]))].into_iter().collect(),
    }
}

/// Plays an episode in which `line` returns the reply to a conversation.
fn play(act: Act, line: fn(&[Message]) -> String) -> Episode {
    play_in(CallFormat::Auto, act, line)
}

/// Plays an episode of a model that writes calls in this form.
fn play_in(format: CallFormat, act: Act, line: fn(&[Message]) -> String) -> Episode {
    let options = json!({"tools": ["calculator"]});
    let mut tools: ToolsEnvironment = serde_json::from_value(options).unwrap();
    tools.start(std::path::Path::new("")).unwrap();
    let scripted = Scripted::new(act, tools, move |_, messages| line(messages));
    scripted.calls(format).play_blocking(&task())
}

fn calls(expressions: &[&str]) -> String {
    let call = |x: &&str| {
        let call = json!({"name": "calculator", "arguments": {"expression": x}});
        format!("<tool_call>\n{call}\n</tool_call>")
    };
    expressions.iter().map(call).collect()
}

fn metric(episode: &Episode, name: &str) -> f64 {
    episode.score().unwrap().metrics[name].as_f64().unwrap()
}

#[test]
fn the_team_is_registered_with_what_it_needs() {
    let registry = Registry::collect().unwrap();
    let entry = registry.orchestras["tools/act"];
    assert!(entry.needs.iter().all(|word| registry.environments["tools"].offers.contains(word)));
    assert!(registry.tools.contains_key("calculator"));
}

#[test]
fn results_come_back_as_messages_of_tools_in_the_order_of_the_calls() {
    let episode = play(Act::default(), |messages| match messages.len() {
        1 => format!("Let me see. {}", calls(&["12 * 34", "408 + 56"])),
        _ => format!("<answer>{}</answer>", messages.last().unwrap().content),
    });
    assert_eq!((episode.answer.as_deref(), episode.score().unwrap().reward), (Some("464"), 1.0));
    let roles: Vec<Role> = episode.turns[1].prompt.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Tool]);
    assert_eq!(episode.turns[1].prompt[2].content, "408");
    assert_eq!((metric(&episode, "calls"), metric(&episode, "refused_calls")), (2.0, 0.0));
    let offered = episode.turns.iter().map(|turn| &turn.tools[0]["function"]["name"]);
    assert!(offered.eq(["calculator", "calculator"]), "each turn says what could be called");
}

#[test]
fn calls_in_the_form_of_a_model_are_carried_out_and_recorded_as_they_were_written() {
    let episode = play_in(CallFormat::QwenXml, Act::default(), |messages| {
        match messages.len() {
        1 => "<think>\nhm\n</think>\n\n<tool_call>\n<function=calculator>\n<parameter=expression>\n12 * 34 + 56\n\
              </parameter>\n</function>\n</tool_call>"
            .to_owned(),
        3 => "<tool_call>{\"name\": \"calculator\"}</tool_call>".to_owned(),
        5 => "<tool_call>\n<function=calc>\n</function>\n</tool_call>".to_owned(),
        _ => format!("<answer>{}</answer>", messages[2].content),
    }
    });
    assert_eq!((episode.answer.as_deref(), episode.score().unwrap().reward), (Some("464"), 1.0));
    assert!(episode.turns[0].reply.contains("<function=calculator>"), "{}", episode.turns[0].reply);
    let told = |turn: usize| &episode.turns[turn].prompt.last().unwrap().content;
    assert!(
        told(2).contains("a tool call cannot be read: there is no `<function` in it"),
        "{}",
        told(2)
    );
    assert!(told(3).contains("there is no tool `calc`"), "{}", told(3));
    assert_eq!((metric(&episode, "calls"), metric(&episode, "refused_calls")), (3.0, 2.0));
}

#[test]
fn bad_calls_are_told_and_counted_and_end_nothing() {
    let episode = play(Act::default(), |messages| match messages.len() {
        1 => "<tool_call>calculator(1)</tool_call>".to_owned(),
        3 => calls(&["1/0"]),
        5 => "<tool_call>{\"name\": \"calc\", \"arguments\": {}}</tool_call>".to_owned(),
        _ => "<answer>464</answer>".to_owned(),
    });
    assert_eq!(episode.score().unwrap().reward, 1.0);
    let last = &episode.turns[3].prompt;
    for (at, wanted) in [
        (2, "error: a tool call is no JSON object"),
        (4, "error: that is no"),
        (6, "error: there is no tool `calc`"),
    ] {
        let told = &last[at].content;
        assert!(told.starts_with("error: ") && (at == 4 || told.starts_with(wanted)), "{told}");
    }
    let counted = ["calls", "refused_calls", "failed_calls"].map(|name| metric(&episode, name));
    assert_eq!(counted, [3.0, 2.0, 1.0]);
}

#[test]
fn turns_and_calls_of_a_turn_are_bounded() {
    let two = NonZeroU32::MIN.saturating_add(1);
    let act = Act { max_turns: two, max_calls: two };
    let episode = play(act, |messages| match messages.len() {
        1 => calls(&["1", "2", "3", "4"]),
        _ => {
            let last = messages.last().unwrap();
            assert_eq!(
                last.content,
                "error: no more than 2 calls in a reply; 2 were not carried out"
            );
            calls(&["5"])
        }
    });
    assert_eq!((episode.turns.len(), episode.answer.as_deref()), (2, None));
    assert_eq!((metric(&episode, "calls"), episode.score().unwrap().reward), (3.0, 0.0));
}

#[test]
fn an_answer_beside_calls_came_before_their_results_and_does_not_count() {
    let episode = play(Act::default(), |messages| match messages.len() {
        1 => format!("<answer>463</answer>{}", calls(&["12 * 34 + 56"])),
        _ => "<answer>464</answer>".to_owned(),
    });
    assert_eq!((episode.turns.len(), episode.score().unwrap().reward), (2, 1.0));
}
