//! Tokens that an environment wrote into the conversations of trained seats.

use std::ops::Range;

use crate::algo::Sample;
use crate::plan::Plan;
use crate::trajectory::{Episode, Turn};

/// Observation of an action, as tokens of the prompt of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observed {
    /// Index of the sample.
    pub(crate) sample: usize,
    /// Tokens of its prompt.
    pub(crate) tokens: Range<usize>,
}

/// Returns the observations in the prompts of samples whose loss has a coefficient for them. `token_bytes` returns the bytes of a
/// token of a policy.
///
/// An observation belongs to the first turn of a conversation whose prompt has it, after the prompt and the reply of the turn before.
/// Its tokens are those that lie in the text of the environment as a whole, without white space at both ends: no header of a role
/// and nothing that an agent or a template writes around it. A text that was shortened, or that the template changes, has no tokens, and
/// neither has one that is there more often than the environment wrote it, such as a digit. Branches, which repeat the turns of another
/// episode, have none.
pub(crate) fn observed(
    plan: &Plan,
    episodes: &[Episode],
    samples: &[Sample],
    token_bytes: impl Fn(usize, u32) -> Vec<u8>,
) -> Vec<Observed> {
    let mut found = Vec::new();
    for (index, sample) in samples.iter().enumerate() {
        let episode = &episodes[sample.episode];
        if plan.seats[sample.seat].loss.observation_coef > 0.0 && episode.branch.is_none() {
            let spans = spans_of(episode, sample.turn, |id| token_bytes(sample.policy, id));
            found.extend(spans.into_iter().map(|tokens| Observed { sample: index, tokens }));
        }
    }
    found
}

/// Returns the tokens of the observations that are new in the prompt of a turn.
fn spans_of(
    episode: &Episode,
    turn: usize,
    token_bytes: impl Fn(u32) -> Vec<u8>,
) -> Vec<Range<usize>> {
    let own = &episode.turns[turn];
    let before = episode.turns[..turn].iter().filter(|before| before.seat == own.seat);
    let before = before.filter_map(|before| Some((continued_tokens(before, own)?, before)));
    let (Some((start, before)), Some(tokens)) =
        (before.max_by_key(|(start, _)| *start), &own.tokens)
    else {
        return Vec::new();
    };
    let (mut text, mut ends) = (Vec::new(), Vec::new());
    for &id in &tokens.prompt[start..] {
        text.extend(token_bytes(id));
        ends.push(text.len());
    }
    let acts = episode.acts.iter().filter(|act| act.path > before.path && act.path <= own.path);
    let observed: Vec<&[u8]> = acts.map(|act| act.observation.trim().as_bytes()).collect();
    let (mut spans, mut from) = (Vec::new(), 0);
    for (index, wanted) in observed.iter().enumerate() {
        let places = places_of(wanted, &text[from..]);
        let written = observed[index..].iter().filter(|other| *other == wanted).count();
        let Some(at) = places.first().filter(|_| places.len() <= written) else { continue };
        let place = from + at..from + at + wanted.len();
        from = place.end;
        let tokens = whole_tokens(&ends, place);
        if !tokens.is_empty() {
            spans.push(start + tokens.start..start + tokens.end);
        }
    }
    spans
}

/// Returns the number of tokens of a turn, prompt and reply, that the prompt of a later one begins with; `None` if it does not begin
/// with them. A prompt that continues a reply omits its stop token.
fn continued_tokens(before: &Turn, own: &Turn) -> Option<usize> {
    let (before, own) = (before.tokens.as_ref()?, own.tokens.as_ref()?);
    let rest = own.prompt.strip_prefix(&before.prompt[..])?;
    let (_, unended) = before.completion.split_last()?;
    let replies = [&before.completion[..], unended];
    let reply = replies.into_iter().find(|reply| rest.starts_with(reply))?;
    Some(before.prompt.len() + reply.len())
}

/// Returns the places of a text in another, of which none begins in the one before; none for an empty one.
fn places_of(wanted: &[u8], text: &[u8]) -> Vec<usize> {
    let (mut places, mut from) = (Vec::new(), 0);
    let next = |from: usize| text[from..].windows(wanted.len()).position(|it| it == wanted);
    while let Some(at) = (!wanted.is_empty()).then(|| next(from)).flatten() {
        places.push(from + at);
        from += at + wanted.len();
    }
    places
}

/// Returns the tokens that lie within a range of bytes. `ends` has the byte at which each token ends.
fn whole_tokens(ends: &[usize], place: Range<usize>) -> Range<usize> {
    let mut first = ends.partition_point(|&end| end <= place.start);
    let begin = if first == 0 { 0 } else { ends[first - 1] };
    if begin < place.start {
        first += 1;
    }
    first..ends.partition_point(|&end| end <= place.end).max(first)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::{episode, plan, turn};
    use crate::algo::{add_observations, batches, samples};
    use crate::runtime::ObservedText;
    use crate::task::Action;
    use crate::trajectory::{Act, TurnPath};

    /// Bytes of a token: its id is a letter, and 256 is the two letters `> `.
    fn bytes(_: usize, id: u32) -> Vec<u8> {
        if id == 256 { b"> ".to_vec() } else { vec![id as u8] }
    }

    fn ids(text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    fn act(place: u32, observation: &str) -> Act {
        Act {
            path: TurnPath(vec![place]),
            nth: 0,
            environment: None,
            action: Action::Text("go".to_owned()),
            observation: observation.to_owned(),
            done: false,
        }
    }

    /// Returns an episode of one seat that plays three turns of a conversation, with two actions between them.
    fn played() -> Episode {
        let mut turns = vec![turn("t/a", 0), turn("t/a", 1), turn("t/a", 2)];
        let second = [ids("Q:go;<"), vec![256], ids("a door\n:")].concat();
        let third = [second.clone(), ids("in;<a room:")].concat();
        let texts = [(ids("Q:"), ids("go;")), (second, ids("in;")), (third, ids("end"))];
        for (turn, (prompt, completion)) in turns.iter_mut().zip(texts) {
            let tokens = turn.tokens.as_mut().unwrap();
            tokens.logprobs = vec![-1.0; completion.len()];
            (tokens.prompt, tokens.completion) = (prompt, completion);
        }
        let mut played = episode("p", 0, 1.0, turns);
        played.acts = vec![act(1, " a door\n"), act(2, "a room")];
        played
    }

    fn texts(episodes: &[Episode], found: &[Observed], samples: &[Sample]) -> Vec<String> {
        let text = |observed: &Observed| {
            let sample = &samples[observed.sample];
            let tokens = episodes[sample.episode].turns[sample.turn].tokens.as_ref().unwrap();
            let ids = &tokens.prompt[observed.tokens.clone()];
            String::from_utf8(ids.iter().flat_map(|&id| bytes(0, id)).collect()).unwrap()
        };
        found.iter().map(text).collect()
    }

    #[test]
    fn an_observation_is_in_one_row_of_a_conversation_without_what_is_written_around_it() {
        let mut plan = plan(&[("t/a", true)]);
        let episodes = [played()];
        let rows = samples(&episodes, &plan);
        assert!(observed(&plan, &episodes, &rows, bytes).is_empty(), "the coefficient is 0");
        plan.seats[0].loss.observation_coef = 0.1;
        let found = observed(&plan, &episodes, &rows, bytes);
        assert_eq!(texts(&episodes, &found, &rows), ["a door", "a room"]);
        assert_eq!(found.iter().map(|it| it.sample).collect::<Vec<_>>(), [1, 2]);
        let advantages = vec![vec![0.5; 3]; 3];
        let mut batch = batches(&plan, &episodes, &rows, &advantages, 0);
        add_observations(&plan, (&episodes, &rows), &found, &mut batch);
        let [.., door, room] = &batch[0].1.rows[..] else { panic!("{batch:?}") };
        assert_eq!((batch[0].1.rows.len(), batch[0].1.trained_rows().count()), (5, 3));
        assert_eq!(
            (door.observation, door.skipped),
            (Some(ObservedText { coef: 0.1, row: 1 }), true)
        );
        assert_eq!([&door.prompt[..], &door.completion].concat(), {
            let whole = &episodes[0].turns[1].tokens.as_ref().unwrap().prompt;
            whole[..whole.len() - 2].to_vec()
        });
        assert_eq!(room.completion, ids("a room"));
    }

    #[test]
    fn a_text_that_is_not_in_the_prompt_or_begins_a_conversation_has_no_tokens() {
        let mut plan = plan(&[("t/a", true)]);
        plan.seats[0].loss.observation_coef = 0.1;
        let mut episodes = [played()];
        episodes[0].acts = vec![act(0, "Q"), act(1, "a window"), act(1, ""), act(2, "room")];
        let rows = samples(&episodes, &plan);
        let found = observed(&plan, &episodes, &rows, bytes);
        assert_eq!(texts(&episodes, &found, &rows), ["room"]);
        // The conversation was rendered again, so nothing continues.
        episodes[0].turns[2].tokens.as_mut().unwrap().prompt[1] = 7;
        assert!(observed(&plan, &episodes, &rows, bytes).is_empty());
    }

    #[test]
    fn a_text_that_is_written_elsewhere_too_has_no_tokens_unless_the_environment_wrote_it_twice() {
        let mut plan = plan(&[("t/a", true)]);
        plan.seats[0].loss.observation_coef = 0.1;
        let mut episodes = [played()];
        // "Result 1 of 3: 1": the first digit is not of the environment.
        let second = ids("Q:go;<1 of 3: 1>:");
        let third = [second.clone(), ids("in;<3, 3>:")].concat();
        for (turn, prompt) in episodes[0].turns[1..].iter_mut().zip([second, third]) {
            turn.tokens.as_mut().unwrap().prompt = prompt;
        }
        episodes[0].acts = vec![act(1, "1"), act(2, "3"), act(2, "3")];
        let rows = samples(&episodes, &plan);
        let found = observed(&plan, &episodes, &rows, bytes);
        assert_eq!(texts(&episodes, &found, &rows), ["3", "3"]);
    }

    #[test]
    fn a_text_that_continues_a_reply_follows_it_without_its_stop_token() {
        let mut plan = plan(&[("t/a", true)]);
        plan.seats[0].loss.observation_coef = 0.1;
        let mut episodes = [played()];
        episodes[0].turns.truncate(2);
        episodes[0].turns[1].tokens.as_mut().unwrap().prompt = ids("Q:go<a door>");
        let rows = samples(&episodes, &plan);
        let found = observed(&plan, &episodes, &rows, bytes);
        assert_eq!(texts(&episodes, &found, &rows), ["a door"]);
    }
}
