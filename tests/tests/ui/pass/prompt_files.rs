//! Prompts from files next to the source file.

use maverl::prelude::*;

#[derive(Input)]
struct Evidence {
    question: String,
    #[input(observation)]
    passages: Vec<String>,
}

#[derive(Reply)]
#[reply(tag = "answer")]
struct Answer(#[expect(dead_code, reason = "only its format is looked at")] String);

#[agent(name = "files/answerer", input = Evidence, output = Answer, prompt = "prompts/answerer.md")]
struct Answerer;

#[test]
fn the_file_is_the_prompt() {
    let evidence =
        Evidence { question: "Who?".into(), passages: vec!["A {{ x }}".into(), "B".into()] };
    let prompt = Answerer.prompt(&evidence);
    assert_eq!(prompt.system.as_deref(), Some("You answer Who? from passages.\n\nBe brief."));
    let user = "Passages:\nA {{ x }}\nB\n\nAgain: A {{ x }}\nB\n\nWho?\n\
                Reply with exactly one <answer>...</answer> block.";
    assert_eq!(prompt.user, user);
}

#[test]
fn observations_are_marked_where_they_stand() {
    let evidence = Evidence { question: "Wer? Ä".into(), passages: vec!["ü".into()] };
    let prompt = Answerer.prompt(&evidence);
    let texts = prompt.observations.iter().map(|range| &prompt.user[range.clone()]);
    assert_eq!(texts.collect::<Vec<_>>(), ["ü", "ü"]);
}
