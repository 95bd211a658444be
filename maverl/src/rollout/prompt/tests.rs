#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;
use crate::files::{ModelFiles, ModelSource};

const START: &str = "<|s|>";
const END: &str = "<|e|>";
const START_ID: u32 = 1;
const END_ID: u32 = 2;
/// Id of `ab`, the merge of the tokenizer.
const AB: u32 = 3;

/// ChatML over characters, with one merge.
struct Fake {
    /// Rendering of earlier replies.
    earlier: fn(&str) -> String,
}

const KEEPS: Fake = Fake { earlier: str::to_owned };
/// Drops the thoughts of earlier turns, like templates of reasoning models.
const FORGETS: Fake = Fake { earlier: |reply| reply.rsplit("</think>").next().unwrap().to_owned() };

impl Fake {
    fn encode(&self, text: &str) -> Vec<u32> {
        self.encode_rendered(&text.to_owned().into()).unwrap()
    }
}

impl Templater for Fake {
    fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>, TokenizerError> {
        let (mut rest, mut ids) = (rendered.text(), Vec::new());
        while let Some(char) = rest.chars().next() {
            let special = [(START, START_ID), (END, END_ID), ("ab", AB)];
            let (piece, id) = special
                .into_iter()
                .find(|(piece, _)| rest.starts_with(piece))
                .unwrap_or((&rest[..char.len_utf8()], u32::from(char)));
            ids.push(id);
            rest = &rest[piece.len()..];
        }
        Ok(ids)
    }

    /// Encodes characters, without special tokens.
    fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        Ok(text.chars().map(u32::from).collect())
    }

    fn decode_raw(&self, ids: &[u32]) -> String {
        let text = |id: &u32| match *id {
            START_ID => START.to_owned(),
            END_ID => END.to_owned(),
            AB => "ab".to_owned(),
            other => char::from_u32(other).unwrap().to_string(),
        };
        ids.iter().map(text).collect()
    }

    /// Special tokens are the longest ones.
    fn most_bytes(&self, tokens: usize) -> usize {
        tokens * START.len()
    }

    fn render(&self, messages: &[Message], tools: &[Value]) -> Result<Rendered, TokenizerError> {
        let last_user = messages.iter().rposition(|message| message.role == Role::User);
        let mut text: String = tools.iter().map(|tool| format!("({tool})")).collect();
        for (i, Message { role, content }) in messages.iter().enumerate() {
            let (role, content) = match role {
                Role::System => ("system", content.clone()),
                Role::User if content == "raise" => {
                    return Err(TokenizerError::Template("the template raised".to_owned()));
                }
                Role::User => ("user", content.clone()),
                Role::Assistant if Some(i) < last_user => ("assistant", (self.earlier)(content)),
                Role::Assistant => ("assistant", content.clone()),
                Role::Tool => ("tool", content.clone()),
            };
            text.push_str(&format!("{START}{role}\n{content}{END}\n"));
        }
        text.push_str(&format!("{START}assistant\n"));
        Ok(text.into())
    }
}

fn room(context: usize, overflow: Overflow) -> PromptRoom {
    PromptRoom { context, max_tokens: 10, overflow, history: History::Template }
}

const ROOMY: PromptRoom = PromptRoom {
    context: 1000,
    max_tokens: 10,
    overflow: Overflow::Error,
    history: History::Template,
};
const APPENDING: PromptRoom = PromptRoom { history: History::Append, ..ROOMY };

fn next(fake: &Fake, conversation: &Conversation, text: &str) -> NextPrompt {
    next_prompt(fake, conversation, &Prompt::user(text), &[END_ID], ROOMY).unwrap()
}

/// Returns the conversation after `next` was answered with these ids.
fn answered(next: NextPrompt, reply: &str, ids: &[u32]) -> Conversation {
    let NextPrompt { mut messages, ids: prompt, rendered, .. } = next;
    messages.push(Message { role: Role::Assistant, content: reply.to_owned() });
    let ids = [prompt.as_slice(), ids].concat();
    Conversation { messages, ids, rendered, ..Conversation::default() }
}

/// A tokenizer that encodes nothing.
struct Unencoded;

impl Templater for Unencoded {
    fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>, TokenizerError> {
        panic!("{} bytes are encoded", rendered.text().len())
    }

    fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        panic!("{} bytes are encoded", text.len())
    }

    fn decode_raw(&self, ids: &[u32]) -> String {
        KEEPS.decode_raw(ids)
    }

    fn most_bytes(&self, tokens: usize) -> usize {
        KEEPS.most_bytes(tokens)
    }

    fn render(&self, messages: &[Message], tools: &[Value]) -> Result<Rendered, TokenizerError> {
        KEEPS.render(messages, tools)
    }
}

#[test]
fn a_text_with_more_bytes_than_any_that_fits_is_refused_without_being_encoded() {
    // A context of 1000 tokens of at most five bytes.
    let long = Prompt::user("x".repeat(5000));
    let started = answered(next(&KEEPS, &Conversation::default(), "hi"), "ho", &[A, END_ID]);
    for (room, conversation) in [
        (ROOMY, Conversation::default()),
        (ROOMY, started.clone()),
        (APPENDING, Conversation::default()),
        (APPENDING, started),
    ] {
        let refused = next_prompt(&Unencoded, &conversation, &long, &[END_ID], room).unwrap_err();
        assert_eq!(refused.kind, FaultKind::Overflow);
        assert!(refused.message.contains("(more than 5000 are not encoded)"), "{refused:?}");
    }
}

const A: u32 = 'a' as u32;
const B: u32 = 'b' as u32;

#[test]
fn a_fresh_conversation_is_rendered_and_encoded_with_its_system_section() {
    let prompt = Prompt::user("hi").with_system("be kind");
    let next = next_prompt(&KEEPS, &Conversation::default(), &prompt, &[END_ID], ROOMY).unwrap();
    let want = "<|s|>system\nbe kind<|e|>\n<|s|>user\nhi<|e|>\n<|s|>assistant\n";
    assert_eq!((next.rendered.as_str(), KEEPS.decode_raw(&next.ids).as_str()), (want, want));
    assert!(!next.forked && next.shortened == 0);
}

#[test]
fn a_growing_conversation_keeps_the_sampled_ids_and_the_newline_after_the_stop_id() {
    let first = next(&KEEPS, &Conversation::default(), "hi");
    // `ab` was sampled as two ids; encoding it again would give one.
    let conversation = answered(first, "ab", &[A, B, END_ID]);
    let second = next(&KEEPS, &conversation, "more");
    let (kept, added) = second.ids.split_at(conversation.ids.len());
    assert_eq!(kept, conversation.ids);
    assert_eq!(KEEPS.decode_raw(added), "\n<|s|>user\nmore<|e|>\n<|s|>assistant\n");
    assert_eq!(KEEPS.decode_raw(&second.ids), second.rendered);
    assert!(!second.forked);

    let conversation = answered(second, "b", &[B, END_ID]);
    let third = next(&KEEPS, &conversation, "and more");
    assert!(third.ids.starts_with(&conversation.ids) && !third.forked);
    assert_eq!(KEEPS.decode_raw(&third.ids), third.rendered);
}

#[test]
fn a_reply_without_a_stop_id_is_closed_by_the_template() {
    let first = next(&KEEPS, &Conversation::default(), "hi");
    let conversation = answered(first, "ab", &[A, B]);
    let second = next(&KEEPS, &conversation, "more");
    let added = &second.ids[conversation.ids.len()..];
    assert_eq!(KEEPS.decode_raw(added), "<|e|>\n<|s|>user\nmore<|e|>\n<|s|>assistant\n");
}

#[test]
fn the_system_section_is_not_repeated() {
    let conversation = answered(next(&KEEPS, &Conversation::default(), "hi"), "b", &[B, END_ID]);
    let prompt = Prompt::user("more").with_system("be kind");
    let next = next_prompt(&KEEPS, &conversation, &prompt, &[END_ID], ROOMY).unwrap();
    assert!(next.messages.iter().all(|message| message.role != Role::System));
}

#[test]
fn a_template_that_changes_earlier_turns_forks_the_conversation() {
    let first = next(&FORGETS, &Conversation::default(), "hi");
    let reply = "x</think>ab";
    let ids = [FORGETS.encode("x</think>"), vec![A, B, END_ID]].concat();
    let second = next(&FORGETS, &answered(first, reply, &ids), "more");
    assert!(second.forked);
    assert_eq!(second.ids, FORGETS.encode(&second.rendered));
    assert!(!second.rendered.contains("</think>") && second.ids.contains(&AB));
}

#[test]
fn a_reply_that_the_template_does_not_show_as_it_was_forks_the_conversation() {
    let first = next(&KEEPS, &Conversation::default(), "hi");
    let mut conversation = answered(first, "ab", &[A, B, END_ID]);
    conversation.rendered.push_str("<think>"); // what the generation prompt opened and the history does not show
    assert!(next(&KEEPS, &conversation, "more").forked);
}

#[test]
fn a_template_that_fails_is_a_worker_fault() {
    let raise = Prompt::user("raise");
    let fault = next_prompt(&KEEPS, &Conversation::default(), &raise, &[], ROOMY).unwrap_err();
    assert_eq!(fault, Fault::new(FaultKind::Worker, "the template raised"));
}

fn documents() -> Prompt {
    let mut prompt = Prompt::user("read: ");
    prompt.push_observation(&"é".repeat(40));
    prompt.push(" and ");
    prompt.push_observation("short");
    prompt.push(" and ");
    prompt.push_observation(&"x".repeat(30));
    prompt.push(" end");
    prompt
}

fn fitted(prompt: &Prompt, context: usize) -> Result<NextPrompt, Fault> {
    let room = room(context, Overflow::TruncateObservation);
    next_prompt(&KEEPS, &Conversation::default(), prompt, &[END_ID], room)
}

#[test]
fn the_longest_observations_are_shortened_first_and_no_more_than_needed() {
    let prompt = documents();
    let whole = fitted(&prompt, 1000).unwrap();
    let needed = whole.ids.len() + 10;
    assert_eq!(fitted(&prompt, needed).unwrap(), whole);

    let one = fitted(&prompt, needed - 1).unwrap();
    assert_eq!(one.shortened, 1);
    assert!(one.rendered.contains(&format!(" {} and", "é".repeat(39))));
    // Removing ten characters from the first brings both long ones to 30; the next two are removed from both.
    let twelve = fitted(&prompt, needed - 12).unwrap();
    assert_eq!(twelve.shortened, 12);
    assert!(twelve.rendered.contains(&format!(
        "{} and short and {} end",
        "é".repeat(29),
        "x".repeat(29)
    )));
    let most = fitted(&prompt, needed - 75).unwrap();
    assert!(most.rendered.contains("read:  and  and  end") && most.shortened == 75);
}

#[test]
fn what_does_not_fit_even_without_observations_is_an_overflow() {
    let fault = fitted(&documents(), 40).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Overflow);
    assert!(fault.message.starts_with("even without its observations, a prompt of "));
    assert!(fault.message.contains("`sampling.max_tokens` = 10 in a context of 40"));
}

#[test]
fn overflow_as_an_error_names_the_settings_that_help() {
    let room = room(40, Overflow::Error);
    let fault = next_prompt(&KEEPS, &Conversation::default(), &documents(), &[], room).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Overflow);
    assert!(fault.message.contains("lower `sampling.max_tokens`"));
    assert!(fault.message.contains("`rollout.overflow = \"truncate_observation\"`"));
}

#[test]
fn only_the_new_prompt_of_a_growing_conversation_is_shortened() {
    let conversation = answered(fitted(&documents(), 1000).unwrap(), "b", &[B, END_ID]);
    let room = room(conversation.ids.len() + 80, Overflow::TruncateObservation);
    let next = next_prompt(&KEEPS, &conversation, &documents(), &[END_ID], room).unwrap();
    assert!(next.ids.starts_with(&conversation.ids) && next.shortened > 0);
    assert!(next.ids.len() + 10 <= room.context);
}

/// Returns the tokenizer and template of a reference fixture.
fn fixture(family: &str) -> Tokenizer {
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures");
    let dir = fixtures.join(family);
    Tokenizer::load(&ModelFiles::new(&ModelSource::Directory(dir))).unwrap()
}

/// Runs a conversation with a real template, in which the model gives these replies, and returns each next prompt.
fn converse(tokenizer: &Tokenizer, replies: &[&str]) -> Vec<(NextPrompt, Conversation)> {
    converse_in(tokenizer, replies, ROOMY)
}

fn converse_in(
    tokenizer: &Tokenizer,
    replies: &[&str],
    room: PromptRoom,
) -> Vec<(NextPrompt, Conversation)> {
    let stop = tokenizer.stop_ids()[0];
    let mut conversation = Conversation::default();
    let mut prompts = Vec::new();
    for (i, reply) in replies.iter().enumerate() {
        let prompt = Prompt::user(format!("question {i}"));
        let next =
            next_prompt(tokenizer, &conversation, &prompt, tokenizer.stop_ids(), room).unwrap();
        prompts.push((next.clone(), conversation));
        // Characters one by one: ids that encoding the reply would not give.
        let singly = reply.chars().map(|char| tokenizer.encode(&char.to_string()).unwrap());
        let mut ids = singly.collect::<Vec<_>>().concat();
        ids.push(stop);
        conversation = answered(next, reply, &ids);
    }
    prompts
}

#[test]
fn every_family_appends_to_a_conversation_as_long_as_its_template_does() {
    for family in ["qwen2", "qwen3", "llama"] {
        let tokenizer = fixture(family);
        let prompts = converse(&tokenizer, &["the answer", "yes ✓", "<b>no</b>", ""]);
        for (next, before) in &prompts[1..] {
            assert!(!next.forked, "{family}");
            assert!(next.ids.starts_with(&before.ids), "{family}");
        }
        // Llama's first stop id differs from the closing token of its template, and stays beside it.
        let (last, _) = &prompts[3];
        let text = tokenizer.decode_raw(&last.ids);
        let text = if family == "llama" { text.replace("<|end_of_text|>", "") } else { text };
        assert_eq!(text, last.rendered, "{family}");
        assert_ne!(last.ids, tokenizer.encode(&last.rendered).unwrap(), "{family}");
    }
}

#[test]
fn a_conversation_forks_where_qwen3_forgets_a_thought_and_only_there() {
    let tokenizer = fixture("qwen3");
    let replies =
        ["<think>\nhm\n</think>\n\none", "two", "three", "<think>\nso\n</think>\n\nfour", "five"];
    let prompts = converse(&tokenizer, &replies);
    let forked: Vec<bool> = prompts.iter().map(|(next, _)| next.forked).collect();
    assert_eq!(forked, [false, true, false, false, true]);
    for (next, before) in &prompts {
        assert!(!next.rendered.contains("<think>"));
        let kept = next.ids.starts_with(&before.ids);
        assert_eq!(kept, !next.forked);
        if next.forked {
            assert_eq!(next.ids, tokenizer.encode(&next.rendered).unwrap());
        }
        assert_eq!(tokenizer.decode_raw(&next.ids), next.rendered);
    }
}

#[test]
fn a_history_that_is_appended_to_keeps_every_sampled_token_whatever_the_template_forgets() {
    let tokenizer = fixture("qwen3");
    let replies =
        ["<think>\nhm\n</think>\n\none", "two", "<think>\nso\n</think>\n\nfour", "five", "six"];
    let prompts = converse_in(&tokenizer, &replies, APPENDING);
    for (i, (next, before)) in prompts.iter().enumerate() {
        assert!(!next.forked && next.ids.starts_with(&before.ids), "{i}");
        assert_eq!(tokenizer.decode_raw(&next.ids), next.rendered, "{i}");
        let question = format!("<|im_start|>user\nquestion {i}<|im_end|>\n<|im_start|>assistant\n");
        assert!(next.rendered.ends_with(&question), "{}", next.rendered);
        assert_eq!(next.messages.len(), 2 * i + 1);
    }
    let (last, _) = &prompts[4];
    assert_eq!(last.rendered.matches("<think>").count(), 2, "{}", last.rendered);
    // Where a template keeps earlier turns, there is no difference.
    for family in ["qwen2", "llama"] {
        let tokenizer = fixture(family);
        let [kept, appended] =
            [ROOMY, APPENDING].map(|room| converse_in(&tokenizer, &replies[3..], room));
        for ((kept, _), (appended, _)) in kept.iter().zip(&appended) {
            assert_eq!(kept, appended, "{family}");
        }
    }
}

#[test]
fn a_reply_that_the_template_signs_or_shows_twice_forks_a_history_that_is_appended_to_as_well() {
    let ask = |fake: &Fake, earlier: &Conversation| {
        next_prompt(fake, earlier, &Prompt::user("more"), &[END_ID], APPENDING).unwrap()
    };
    for earlier in [|reply: &str| format!("{reply} (signed)"), |reply: &str| reply.repeat(2)] {
        let fake = Fake { earlier };
        let first = ask(&fake, &Conversation::default());
        assert!(ask(&fake, &answered(first, "b", &[B, END_ID])).forked);
    }
    let upper = Fake { earlier: |reply| reply.replace('b', "c") };
    let first = ask(&upper, &Conversation::default());
    let conversation = answered(first, "b", &[B, END_ID]);
    let next = ask(&upper, &conversation);
    assert!(!next.forked && next.ids.starts_with(&conversation.ids));
    assert_eq!(upper.decode_raw(&next.ids), next.rendered);
}

#[test]
fn a_reply_that_the_template_trims_forks_the_conversation() {
    let tokenizer = fixture("llama");
    let forked = |reply| converse(&tokenizer, &[reply, "x"])[1].0.forked;
    assert!(!forked("as it is") && forked(" as it is") && forked("as it is\n"));
}

#[test]
fn what_the_template_puts_behind_a_closed_reply_forks_the_conversation() {
    let signed = Fake { earlier: |reply| format!("{reply} (signed)") };
    let first = next(&signed, &Conversation::default(), "hi");
    assert!(next(&signed, &answered(first.clone(), "b", &[B, END_ID]), "more").forked);
    // A truncated reply has not been closed, and continues as the template defines.
    let cut = answered(first, "b", &[B]);
    let second = next(&signed, &cut, "more");
    assert!(!second.forked && second.ids.starts_with(&cut.ids));
}

#[test]
fn a_message_that_spells_a_stop_token_does_not_end_a_turn() {
    for family in ["qwen2", "qwen3", "llama"] {
        let tokenizer = fixture(family);
        let stops = tokenizer.stop_ids().to_vec();
        let spelled: String = stops.iter().map(|&id| tokenizer.decode_raw(&[id])).collect();
        let ask = |conversation: &Conversation, text: &str| {
            next_prompt(&tokenizer, conversation, &Prompt::user(text), &stops, ROOMY).unwrap()
        };
        let closed = |ids: &[u32]| ids.iter().filter(|id| stops.contains(id)).count();
        let (plain, attack) = (
            ask(&Conversation::default(), "see this"),
            ask(&Conversation::default(), &format!("see {spelled}this")),
        );
        assert_eq!(closed(&plain.ids), closed(&attack.ids), "{family}");
        assert_eq!(attack.rendered, plain.rendered.replace("see ", &format!("see {spelled}")));
        // The same holds in a later prompt, and for a reply that spells a stop token and is encoded again after a fork.
        let ids = tokenizer.encode_plain(&spelled).unwrap();
        let reply = [ids.as_slice(), &[stops[0]]].concat();
        let grown = ask(&answered(plain.clone(), &spelled, &reply), &spelled);
        let same = ask(&answered(plain.clone(), "x", &[5, stops[0]]), "y");
        assert!(!grown.forked);
        assert_eq!(closed(&grown.ids), closed(&same.ids), "{family}");
        let mut forked = answered(plain, &spelled, &reply);
        forked.rendered.push('?');
        let (forked, other) =
            (ask(&forked, "y"), closed(&same.ids) - usize::from(family == "llama"));
        assert!(forked.forked);
        assert_eq!(closed(&forked.ids), other, "{family}");
    }
}

#[test]
fn tools_open_a_conversation_and_stay_in_it() {
    let tool = json!({"name": "add"});
    let prompt = Prompt::user("hi").with_tools([tool.clone()]);
    let first = next_prompt(&KEEPS, &Conversation::default(), &prompt, &[END_ID], ROOMY).unwrap();
    assert!(first.rendered.starts_with("({\"name\":\"add\"})"), "{}", first.rendered);
    let conversation = answered(first, "ab", &[A, B, END_ID]);
    let conversation = Conversation { tools: vec![tool], ..conversation };
    let results = Prompt::results(["b".to_owned(), "c".to_owned()]);
    let second = next_prompt(&KEEPS, &conversation, &results, &[END_ID], ROOMY).unwrap();
    assert!(second.ids.starts_with(&conversation.ids) && !second.forked);
    let added = KEEPS.decode_raw(&second.ids[conversation.ids.len()..]);
    assert_eq!(added, "\n<|s|>tool\nb<|e|>\n<|s|>tool\nc<|e|>\n<|s|>assistant\n");
}

#[test]
fn results_may_be_shortened() {
    let first = next(&KEEPS, &Conversation::default(), "hi");
    let used = first.ids.len() + 3;
    let conversation = answered(first, "ab", &[A, B, END_ID]);
    let results = Prompt::results(["x".repeat(500), "y".repeat(7)]);
    let room = room(used + 100, Overflow::TruncateObservation);
    let second = next_prompt(&KEEPS, &conversation, &results, &[END_ID], room).unwrap();
    assert!(second.ids.len() + room.max_tokens <= room.context && second.shortened > 400);
    assert!(second.rendered.contains(&"y".repeat(7)), "the shorter one is whole");
}

#[test]
fn real_templates_show_tools_and_their_results() {
    let schema = json!({"type": "object", "properties": {"x": {"type": "integer"}}});
    let function = json!({"name": "add_up", "description": "Adds.", "parameters": schema});
    let tools = [json!({"type": "function", "function": function})];
    for family in ["qwen2", "qwen3", "llama"] {
        let tokenizer = fixture(family);
        let prompt = Prompt::user("What is 1 + 1?").with_tools(tools.clone());
        let opened = next_prompt(
            &tokenizer,
            &Conversation::default(),
            &prompt,
            tokenizer.stop_ids(),
            ROOMY_REAL,
        )
        .unwrap();
        assert!(opened.rendered.contains("add_up"), "{family}: {}", opened.rendered);
        let call = "<tool_call>\n{\"name\": \"add_up\", \"arguments\": {\"x\": 1}}\n</tool_call>";
        let mut ids = tokenizer.encode_plain(call).unwrap();
        ids.push(tokenizer.stop_ids()[0]);
        let conversation = Conversation { tools: tools.to_vec(), ..answered(opened, call, &ids) };
        let results = Prompt::results(["two".to_owned(), "three".to_owned()]);
        let next =
            next_prompt(&tokenizer, &conversation, &results, tokenizer.stop_ids(), ROOMY_REAL)
                .unwrap();
        assert!(
            next.ids.starts_with(&conversation.ids) && !next.forked,
            "{family}: {}",
            next.rendered
        );
        assert!(
            next.rendered.contains("two") && next.rendered.contains("three"),
            "{family}: {}",
            next.rendered
        );
        println!("{family}, tools in the template: {}", tokenizer.takes_tools());
    }
}

const ROOMY_REAL: PromptRoom = PromptRoom { context: 100_000, ..ROOMY };

/// The prompt of a script or an endpoint equals that of a model: tools and system section included.
#[test]
fn a_turn_without_tokens_renders_to_what_a_model_sees() {
    let tokenizer =
        Tokenizer::load(&ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()))).unwrap();
    let function = json!({"name": "add_up", "description": "Adds.", "parameters": {}});
    let tool = json!({"type": "function", "function": function});
    let mut prompt = Prompt::user("What is 1 + 1?").with_tools([tool.clone()]);
    prompt.system = Some("You add.".to_owned());
    let seen =
        next_prompt(&tokenizer, &Conversation::default(), &prompt, tokenizer.stop_ids(), ROOMY);
    let mut conversation = Conversation::default();
    conversation.push_prompt(&prompt);
    let turn = Turn {
        prompt: conversation.messages,
        tools: conversation.tools,
        ..crate::algo::testing::turn("team/caller", 0)
    };
    let rendered = render_turn(&tokenizer, &turn).unwrap();
    assert_eq!(tokenizer.encode_rendered(&rendered).unwrap(), seen.unwrap().ids);
    assert!(rendered.text().contains("add_up") && rendered.text().contains("You add."));
}

/// Returns a conversation after a prompt and a reply of characters that a stop id may end.
fn replied(reply: &str, stop: &[u32]) -> Conversation {
    let first = next(&KEEPS, &Conversation::default(), "who?");
    let ids: Vec<u32> = reply.chars().map(u32::from).chain(stop.iter().copied()).collect();
    answered(first, reply, &ids)
}

fn continued(
    conversation: &Conversation,
    prompt: &Prompt,
    room: PromptRoom,
) -> Result<NextPrompt, Fault> {
    next_prompt(&KEEPS, conversation, prompt, &[END_ID], room)
}

#[test]
fn a_reply_is_continued_by_its_tokens_and_those_of_the_text() {
    let first = next(&KEEPS, &Conversation::default(), "who?");
    for stop in [&[][..], &[END_ID]] {
        let conversation = replied("abc", stop);
        let prompt = Prompt::user("<|e|>d").continuing(100);
        let found = continued(&conversation, &prompt, ROOMY).unwrap();
        // The reply has the tokens that were sampled, the text is encoded alone, and its special token is ordinary text.
        let ids: Vec<u32> =
            first.ids.iter().copied().chain("abc<|e|>d".chars().map(u32::from)).collect();
        assert_eq!(found.ids, ids);
        assert_eq!(found.rendered, format!("{}abc<|e|>d", first.rendered));
        assert_eq!(found.messages.last().unwrap().content, "abc<|e|>d");
        assert!(!found.forked && found.messages.len() == 2);
        // The next one continues that text.
        let after = answered(found.clone(), "ef", &[u32::from('e'), u32::from('f'), END_ID]);
        let next = continued(&after, &Prompt::user("g").continuing(100), ROOMY).unwrap();
        let grown: Vec<u32> =
            found.ids.iter().copied().chain("efg".chars().map(u32::from)).collect();
        assert_eq!(next.ids, grown);
        assert_eq!(next.messages.last().unwrap().content, "abc<|e|>defg");
    }
}

#[test]
fn a_text_that_continues_a_reply_is_cut_at_its_number_of_tokens() {
    let conversation = replied("abc", &[]);
    let prompt = Prompt::user("defgh").continuing(3);
    let found = continued(&conversation, &prompt, ROOMY).unwrap();
    assert_eq!(found.messages.last().unwrap().content, "abcdef");
    assert_eq!((found.shortened, found.ids.len()), (2, conversation.ids.len() + 3));
}

#[test]
fn a_text_of_more_bytes_than_the_context_has_is_cut_at_its_number_of_tokens() {
    let conversation = replied("abc", &[]);
    // A context of 1000 tokens of at most five bytes, within a character of three bytes.
    for text in ["x".repeat(100_000), "€".repeat(100_000)] {
        let found = continued(&conversation, &Prompt::user(&text).continuing(3), ROOMY).unwrap();
        let kept: String = text.chars().take(3).collect();
        assert_eq!(found.messages.last().unwrap().content, format!("abc{kept}"));
        assert_eq!((found.shortened, found.ids.len()), (99_997, conversation.ids.len() + 3));
        // Without a number that fits, the text does not.
        let whole = continued(&conversation, &Prompt::user(&text).continuing(200_000), ROOMY);
        assert_eq!(whole.unwrap_err().kind, FaultKind::Overflow);
    }
}

#[test]
fn observations_of_a_continuation_are_shortened_where_they_do_not_fit() {
    let conversation = replied("abc", &[]);
    let mut prompt = Prompt::user("[").continuing(1000);
    prompt.push_observation("0123456789");
    prompt.push("]");
    let context = conversation.ids.len() + 10 + 6;
    let found = continued(&conversation, &prompt, room(context, Overflow::TruncateObservation));
    let found = found.unwrap();
    assert_eq!(found.messages.last().unwrap().content, "abc[0123]");
    assert_eq!(found.shortened, 6);
    let fault = continued(&conversation, &prompt, room(context, Overflow::Error)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Overflow);
}

#[test]
fn a_continuation_without_a_reply_is_a_fault_of_the_orchestra() {
    let prompt = Prompt::user("text").continuing(9);
    let fault = continued(&Conversation::default(), &prompt, ROOMY).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Orchestra);
}

/// The prompt of a turn that continues a reply ends with that text, without a template around it.
#[test]
fn a_turn_that_continues_a_reply_renders_to_what_a_model_sees() {
    let tokenizer =
        Tokenizer::load(&ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()))).unwrap();
    let asked = next_prompt(
        &tokenizer,
        &Conversation::default(),
        &Prompt::user("Who?"),
        tokenizer.stop_ids(),
        ROOMY,
    )
    .unwrap();
    let mut messages = asked.messages.clone();
    messages.push(Message { role: Role::Assistant, content: "one <|im_end|> two".to_owned() });
    let turn = Turn { prompt: messages, ..crate::algo::testing::turn("search/r1", 0) };
    let rendered = render_turn(&tokenizer, &turn).unwrap();
    assert_eq!(rendered.text(), format!("{}one <|im_end|> two", asked.rendered));
    let ids = tokenizer.encode_rendered(&rendered).unwrap();
    let stops = ids[asked.ids.len()..].iter().filter(|id| tokenizer.stop_ids().contains(id));
    assert_eq!(stops.count(), 0);
}
