//! Prompts with a hint, which a teacher reads in place of the prompt of the turn.

use serde_json::{Map, Value, json};

use crate::algo::Sample;
use crate::config::HintPlace;
use crate::plan::HintPlan;
use crate::rollout::render_turn;
use crate::text::{TextTemplate, Tokenizer, TokenizerError};
use crate::trajectory::{Episode, Message, Role, Turn};

/// Returns the prompt of a turn with a hint, as token ids; `None` if the hint is empty. The prompt is rendered again from its
/// messages.
pub(super) fn hinted_prompt(
    tokenizer: &Tokenizer,
    hint: &HintPlan,
    episodes: &[Episode],
    sample: &Sample,
) -> Result<Option<Vec<u32>>, TokenizerError> {
    let variables = hint_variables(episodes, sample);
    let text = TextTemplate::parse(&hint.template)?.render(&variables)?;
    let text = cut_text(tokenizer, text.trim(), hint.max_tokens)?;
    if text.is_empty() {
        return Ok(None);
    }
    let turn = &episodes[sample.episode].turns[sample.turn];
    let mut hinted = Turn { tokens: None, ..turn.clone() };
    insert_hint(&mut hinted.prompt, hint.place, &text);
    tokenizer.encode_rendered(&render_turn(tokenizer, &hinted)?).map(Some)
}

/// Returns what a template of a hint may name: the keys of the task's row, and what is known after the episode.
fn hint_variables(episodes: &[Episode], sample: &Sample) -> Map<String, Value> {
    let episode = &episodes[sample.episode];
    let (task, turn) = (&episode.task, &episode.turns[sample.turn]);
    let mut variables = task.data.clone();
    if let Some(first) = task.texts("answers").into_iter().next() {
        variables.entry("answer").or_insert(Value::String(first));
    }
    let known = [
        ("id", json!(task.id)),
        ("source", json!(task.source)),
        ("question", json!(task.question)),
        ("reward", json!(sample.reward)),
        ("feedback", json!(turn.error.as_deref().unwrap_or_default())),
        ("success", json!(right_sibling(episodes, sample).unwrap_or_default())),
    ];
    variables.extend(known.map(|(name, value)| (name.to_owned(), value)));
    variables
}

/// Returns the reply to the same ask in the first other episode that solved the task.
fn right_sibling<'e>(episodes: &'e [Episode], sample: &Sample) -> Option<&'e str> {
    let turn = &episodes[sample.episode].turns[sample.turn];
    let others = episodes.iter().enumerate().filter(|(index, other)| {
        let same = other.task.id == sample.task.id && other.task.source == sample.task.source;
        let solved = other.score().is_some_and(|score| score.solved);
        *index != sample.episode && same && solved
    });
    let mut turns = others.flat_map(|(_, other)| &other.turns);
    let found = turns
        .find(|other| other.seat == turn.seat && other.path == turn.path && other.error.is_none());
    found.map(|turn| turn.reply.as_str())
}

/// Cuts a text after so many tokens.
fn cut_text(
    tokenizer: &Tokenizer,
    text: &str,
    max_tokens: usize,
) -> Result<String, TokenizerError> {
    let ids = tokenizer.encode_plain(text)?;
    let cut = ids.get(..max_tokens).filter(|cut| cut.len() < ids.len());
    Ok(cut.map_or_else(|| text.to_owned(), |cut| tokenizer.decode(cut)))
}

/// Adds a hint to the messages of a prompt.
fn insert_hint(messages: &mut Vec<Message>, place: HintPlace, hint: &str) {
    let message = |role| move |message: &&mut Message| message.role == role;
    match place {
        HintPlace::User => match messages.iter_mut().rev().find(message(Role::User)) {
            Some(user) => user.content = format!("{hint}\n\n{}", user.content),
            None => messages.push(Message { role: Role::User, content: hint.to_owned() }),
        },
        HintPlace::System => match messages.iter_mut().find(message(Role::System)) {
            Some(system) => system.content = format!("{}\n\n{hint}", system.content),
            None => messages.insert(0, Message { role: Role::System, content: hint.to_owned() }),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::samples;
    use crate::algo::testing::{episode, plan, turn};
    use crate::files::{ModelFiles, ModelSource};

    fn said(reply: &str) -> Turn {
        let prompt = vec![Message { role: Role::User, content: "Where is it?".to_owned() }];
        Turn { reply: reply.to_owned(), prompt, ..turn("t/a", 0) }
    }

    fn played() -> [Episode; 3] {
        let replies = [("here", 0.0), ("there", 1.0), ("everywhere", 1.0)];
        let mut index = 0..;
        replies.map(|(reply, reward)| {
            let mut episode = episode("p", index.next().unwrap(), reward, vec![said(reply)]);
            episode.task.data.insert("answers".to_owned(), json!(["the hill", "a hill"]));
            episode
        })
    }

    fn prompts(template: &str, place: HintPlace, max_tokens: usize) -> Vec<Option<String>> {
        let source = ModelSource::Builtin("tiny".to_owned());
        let tokenizer = Tokenizer::load(&ModelFiles::new(&source)).unwrap();
        let hint = HintPlan { template: template.to_owned(), place, max_tokens };
        let episodes = played();
        let samples = samples(&episodes, &plan(&[("t/a", true)]));
        let hinted = samples.iter().map(|sample| {
            let ids = hinted_prompt(&tokenizer, &hint, &episodes, sample).unwrap();
            ids.map(|ids| tokenizer.decode_raw(&ids))
        });
        hinted.collect()
    }

    #[test]
    fn a_hint_has_the_answer_the_reward_and_the_reply_of_a_right_sibling() {
        let template = "{{ answer }}, {{ reward }}, {{ success }}";
        let found = prompts(template, HintPlace::User, 99);
        for (prompt, hint) in found.iter().zip([
            "the hill, 0.0, there",
            "the hill, 1.0, everywhere",
            "the hill, 1.0, there",
        ]) {
            let prompt = prompt.as_deref().unwrap();
            assert!(prompt.contains(&format!("{hint}\n\nWhere is it?")), "{prompt:?}");
        }
    }

    #[test]
    fn a_hint_is_cut_placed_and_left_out_if_it_is_empty() {
        let found = prompts("{{ answer }}", HintPlace::System, 99);
        let prompt = found[0].as_deref().unwrap();
        assert!(prompt.find("the hill").unwrap() < prompt.find("Where is it?").unwrap());
        assert!(!prompt.contains("hill\n\nWhere"), "{prompt:?}");
        let found = prompts("{{ answer }}", HintPlace::User, 1);
        assert!(!found[0].as_deref().unwrap().contains("the hill"), "{found:?}");
        let only_wrong = "{% if reward == 0 %}{{ success }}{% endif %}";
        let found = prompts(only_wrong, HintPlace::User, 99);
        assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, false]);
    }
}
