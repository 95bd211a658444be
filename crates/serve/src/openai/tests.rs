#![allow(clippy::unwrap_used)]

use maverl::tools::Call;
use serde::Serialize;
use serde_json::json;

use super::answer::{
    CachedTokens, ChoicePart as _, ChunkChoice as _, Extra, FinishReason, Header, TokenUsage,
};
use super::chat::{ChatChunkChoice, ChatLogprobs, Delta, PartTokens, ToolCall};
use super::completions::TextChoice;
use super::generate::{GenerateAnswer, GenerateChoice, GenerateLogprobs};
use super::models::{Lineage, ModelCard, ModelList};
use super::origin::{AnswerOrigin, Seed, Several};
use super::responses::{ResponsesAnswer, response_events};
use super::tokens::{TextLogprobs, TokenLogprob};
use super::writer::{AnswerWriter as _, WholeWriter};

/// Compares the bytes of an answer, in which clients find keys in this order.
fn check(answer: &impl Serialize, expected: &str) {
    assert_eq!(serde_json::to_string(answer).unwrap(), expected);
}

fn header() -> Header {
    Header { id: "x-1".into(), created: 7, model: "m".into(), system_fingerprint: None }
}

fn call() -> ToolCall {
    let call = Call { name: "f".into(), arguments: json!({"a": 1}).as_object().unwrap().clone() };
    ToolCall { id: "call_1".into(), ..ToolCall::new(3, 0, &call) }
}

fn logprobs() -> ChatLogprobs {
    let token = TokenLogprob {
        token: "a".into(),
        logprob: -0.5,
        bytes: vec![97],
        top_logprobs: Some(Vec::new()),
    };
    ChatLogprobs { content: vec![token], refusal: () }
}

#[tokio::test]
async fn a_chat_completion_has_its_fields_in_their_order() {
    let mut writer = WholeWriter::default();
    writer.write(ChatChunkChoice::first(0)).await;
    let tokens = PartTokens { logprobs: Some(logprobs()), ids: Some(vec![5]) };
    writer.write(ChatChunkChoice::new(0, Delta::reasoning("so".into()), tokens)).await;
    writer.write(ChatChunkChoice::new(0, Delta::call(call()), PartTokens::default())).await;
    writer.write(ChatChunkChoice::end(0, FinishReason::ToolCalls, Some(None))).await;
    let header = Header { system_fingerprint: Some("fp_1".into()), ..header() };
    let prompt_tokens_details = Some(CachedTokens { cached_tokens: 1 });
    let usage = TokenUsage { prompt_tokens_details, ..TokenUsage::new(2, 1) };
    let maverl = Some(AnswerOrigin::new(Seed::Number(3), 4));
    let extra = Extra { maverl, prompt_token_ids: Some(vec![1, 2]) };
    check(
        &writer.finish(header, usage, extra),
        "{\"id\":\"x-1\",\"object\":\"chat.completion\",\"created\":7,\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":\
         {\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"reasoning_content\":\"so\",\"tool_calls\":[{\"id\":\"call_1\",\
         \"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]},\"logprobs\":{\"content\":[{\"token\":\
         \"a\",\"logprob\":-0.5,\"bytes\":[97],\"top_logprobs\":[]}],\"refusal\":null},\"finish_reason\":\"tool_calls\",\
         \"stop_reason\":null,\"token_ids\":[5]}],\"system_fingerprint\":\"fp_1\",\"usage\":{\"prompt_tokens\":2,\
         \"completion_tokens\":1,\"total_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":1}},\"maverl\":{\"seed\":3,\
         \"version\":4},\"prompt_token_ids\":[1,2]}",
    );
}

#[test]
fn a_delta_has_what_is_new_alone() {
    check(&ChatChunkChoice::first(0).delta, "{\"role\":\"assistant\",\"content\":\"\"}");
    check(&Delta::content("a".into()), "{\"content\":\"a\"}");
    check(&Delta::default(), "{}");
    check(
        &Delta::call(call()),
        "{\"tool_calls\":[{\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"},\
         \"index\":0}]}",
    );
}

#[test]
fn a_choice_that_has_no_calls_has_a_content_even_if_that_is_empty() {
    let mut choice = ChatChunkChoice::choice(0);
    ChatChunkChoice::end(0, FinishReason::Length, None).add_to(&mut choice);
    check(
        &choice,
        "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"logprobs\":null,\
         \"finish_reason\":\"length\"}",
    );
}

#[test]
fn a_chunk_of_a_text_has_its_fields_in_their_order() {
    let logprobs = TextLogprobs {
        tokens: vec!["a".into(), "b".into()],
        token_logprobs: vec![None, Some(-0.5)],
        top_logprobs: vec![None, Some(json!({"b": -0.5}).as_object().unwrap().clone())],
        text_offset: vec![0, 1],
    };
    let choice = TextChoice {
        index: 0,
        text: "ab".into(),
        logprobs: Some(logprobs),
        finish_reason: None,
        stop_reason: Some(None),
        token_ids: Some(vec![5, 6]),
        prompt_token_ids: None,
    };
    let header = header();
    check(
        &TextChoice::chunk(&header, vec![choice], Some(None), Extra::default()),
        "{\"id\":\"x-1\",\"object\":\"text_completion\",\"created\":7,\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"ab\",\
         \"logprobs\":{\"tokens\":[\"a\",\"b\"],\"token_logprobs\":[null,-0.5],\"top_logprobs\":[null,{\"b\":-0.5}],\
         \"text_offset\":[0,1]},\"finish_reason\":null,\"stop_reason\":null,\"token_ids\":[5,6]}],\"usage\":null}",
    );
}

#[tokio::test]
async fn a_response_and_its_events_have_their_fields_in_their_order() {
    let mut writer = WholeWriter::default();
    let hi = Delta::content("hi".into());
    writer.write(ChatChunkChoice::new(0, hi, PartTokens::default())).await;
    writer.write(ChatChunkChoice::end(0, FinishReason::Stop, None)).await;
    let maverl = Some(AnswerOrigin::new(Seed::Text("3".into()), 4));
    let extra = Extra { maverl, prompt_token_ids: None };
    let response = ResponsesAnswer::from(&writer.finish(header(), TokenUsage::new(2, 1), extra));
    let head = "{\"id\":\"x-1\",\"object\":\"response\",\"created_at\":7,\"status\":\"completed\",\"error\":null,\
                \"incomplete_details\":null,\"instructions\":null,\"model\":\"m\",\"output\":[";
    let item = "{\"type\":\"message\",\"id\":\"msg_x-1\",\"status\":\"completed\",\"role\":\"assistant\",\"content\":[{\"type\":\
                \"output_text\",\"text\":\"hi\",\"annotations\":[],\"logprobs\":[]}]}";
    let tail = "],\"parallel_tool_calls\":true,\"previous_response_id\":null,\"store\":false,\"text\":{\"format\":{\"type\":\"text\"}},\
                \"tool_choice\":\"auto\",\"tools\":[],\"metadata\":{},\"usage\":{\"input_tokens\":2,\"input_tokens_details\":\
                {\"cached_tokens\":0},\"output_tokens\":1,\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":3},\
                \"maverl\":{\"seed\":\"3\",\"version\":4}}";
    let whole = format!("{head}{item}{tail}");
    check(&response, &whole);
    let events = response_events(&response);
    assert_eq!(events.len(), 9);
    check(
        &events[4],
        "{\"delta\":\"hi\",\"logprobs\":[],\"item_id\":\"msg_x-1\",\"content_index\":0,\"type\":\"response.output_text.delta\",\
         \"output_index\":0,\"sequence_number\":4}",
    );
    let done = "\"type\":\"response.output_item.done\",\"output_index\":0,\"sequence_number\":7}";
    check(&events[7], &format!("{{\"item\":{item},{done}"));
    let last = "{\"type\":\"response.completed\",\"response\":";
    check(&events[8], &format!("{last}{whole},\"sequence_number\":8}}"));
}

#[test]
fn a_model_and_what_a_team_did_have_their_fields_in_their_order() {
    let lineage = Lineage { root: "r".into(), parent: None, max_model_len: Some(9) };
    let card = |lineage| ModelCard::new("m".into(), 7, lineage);
    check(&card(None), "{\"id\":\"m\",\"object\":\"model\",\"created\":7,\"owned_by\":\"maverl\"}");
    let list = ModelList::from_iter([card(Some(lineage))]);
    check(
        &list,
        "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\",\"created\":7,\"owned_by\":\"maverl\",\"root\":\"r\",\
         \"parent\":null,\"max_model_len\":9}]}",
    );
    let outcome = Some(Several::One("answer".to_owned()));
    let origin = AnswerOrigin { outcome, ..AnswerOrigin::new(Seed::Number(3), 4) };
    check(&origin, "{\"seed\":3,\"version\":4,\"outcome\":\"answer\"}");
    let outcome = ["answer", "no_answer"].map(str::to_owned).into_iter().collect();
    let origin = AnswerOrigin { outcome: Some(outcome), ..AnswerOrigin::new(Seed::Number(3), 4) };
    check(&origin, "{\"seed\":3,\"version\":4,\"outcome\":[\"answer\",\"no_answer\"]}");
}

#[tokio::test]
async fn an_answer_of_token_ids_joins_its_parts() {
    let part = |id: Option<u32>| GenerateChoice {
        logprobs: Some(GenerateLogprobs {
            content: logprobs().content.into_iter().filter(|_| id.is_some()).collect(),
        }),
        finish_reason: id.is_none().then_some(FinishReason::Length),
        token_ids: id.into_iter().collect(),
        ..GenerateChoice::choice(0)
    };
    let mut writer = WholeWriter::default();
    for id in [Some(5), Some(6), None] {
        writer.write(part(id)).await;
    }
    let token = "{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97],\"top_logprobs\":[]}";
    check(
        &GenerateAnswer {
            request_id: "x".into(),
            choices: writer.choices(),
            prompt_logprobs: (),
            kv_transfer_params: (),
            maverl: AnswerOrigin::new(Seed::Number(3), 4),
        },
        &format!(
            "{{\"request_id\":\"x\",\"choices\":[{{\"index\":0,\"logprobs\":{{\"content\":[{token},{token}]}},\
             \"finish_reason\":\"length\",\"token_ids\":[5,6]}}],\"prompt_logprobs\":null,\"kv_transfer_params\":null,\
             \"maverl\":{{\"seed\":3,\"version\":4}}}}"
        ),
    );
}

#[tokio::test]
async fn parts_of_a_text_completion_joined_are_its_choice() {
    let logprobs = |token: &str, offset| TextLogprobs {
        tokens: vec![token.into()],
        token_logprobs: vec![None],
        top_logprobs: vec![None],
        text_offset: vec![offset],
    };
    let part = |text: &str, offset| TextChoice {
        text: text.into(),
        logprobs: Some(logprobs(text, offset)),
        stop_reason: Some(None),
        token_ids: Some(vec![offset as u32]),
        ..TextChoice::choice(0)
    };
    let mut writer = WholeWriter::default();
    let first = TextChoice { prompt_token_ids: Some(vec![9]), ..TextChoice::choice(0) };
    let (finish_reason, stop_reason) = (Some(FinishReason::Stop), Some(Some("x".into())));
    let last = TextChoice { finish_reason, stop_reason, ..TextChoice::choice(0) };
    for part in [first, part("a", 0), part("b", 1), last] {
        writer.write(part).await;
    }
    check(
        &writer.finish(header(), TokenUsage::new(1, 2), Extra::default()),
        "{\"id\":\"x-1\",\"object\":\"text_completion\",\"created\":7,\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\
         \"ab\",\"logprobs\":{\"tokens\":[\"a\",\"b\"],\"token_logprobs\":[null,null],\"top_logprobs\":[null,null],\
         \"text_offset\":[0,1]},\"finish_reason\":\"stop\",\"stop_reason\":\"x\",\"token_ids\":[0,1],\"prompt_token_ids\":\
         [9]}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3}}",
    );
}
