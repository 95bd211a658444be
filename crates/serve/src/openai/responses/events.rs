//! Events of a streamed answer, which is complete before the first one.

use serde::Serialize;

use super::answer::{OutputText, ResponseItem, ResponseStatus, ResponsesAnswer};

/// An event of a stream.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum ResponseEvent {
    Response {
        r#type: &'static str,
        response: Box<ResponsesAnswer>,
        sequence_number: usize,
    },
    Item {
        #[serde(flatten)]
        data: ItemEvent,
        r#type: &'static str,
        output_index: usize,
        sequence_number: usize,
    },
}

/// Item, part or text that an event reports.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum ItemEvent {
    Item { item: ResponseItem },
    Part { part: OutputText, item_id: String, content_index: usize },
    TextDelta { delta: String, logprobs: [(); 0], item_id: String, content_index: usize },
    TextDone { text: String, logprobs: [(); 0], item_id: String, content_index: usize },
    ArgumentsDelta { item_id: String, delta: String },
    ArgumentsDone { item_id: String, name: String, arguments: String },
}

/// Returns the events of an answer.
pub(crate) fn response_events(answer: &ResponsesAnswer) -> Vec<ResponseEvent> {
    let mut events = ResponseEvents(Vec::new());
    let begun = answer.without_output();
    events.push_response("response.created", begun.clone());
    events.push_response("response.in_progress", begun);
    for (index, item) in answer.output.iter().enumerate() {
        events.push_item(
            "response.output_item.added",
            index,
            ItemEvent::Item { item: item.without_content() },
        );
        events.push_content(index, item);
        events.push_item(
            "response.output_item.done",
            index,
            ItemEvent::Item { item: item.clone() },
        );
    }
    let end = if answer.status == ResponseStatus::Incomplete {
        "response.incomplete"
    } else {
        "response.completed"
    };
    events.push_response(end, answer.clone());
    events.0
}

/// Events in their order, each with its number.
struct ResponseEvents(Vec<ResponseEvent>);

impl ResponseEvents {
    fn push_response(&mut self, r#type: &'static str, response: ResponsesAnswer) {
        let (response, sequence_number) = (Box::new(response), self.0.len());
        self.0.push(ResponseEvent::Response { r#type, response, sequence_number });
    }

    fn push_item(&mut self, r#type: &'static str, output_index: usize, data: ItemEvent) {
        let sequence_number = self.0.len();
        self.0.push(ResponseEvent::Item { data, r#type, output_index, sequence_number });
    }

    /// Adds the events between the first and the last one of an item.
    fn push_content(&mut self, index: usize, item: &ResponseItem) {
        match item {
            ResponseItem::Reasoning { .. } => {}
            ResponseItem::Message { id, content, .. } => {
                for (content_index, part) in content.iter().enumerate() {
                    self.push_text(index, (id, content_index), part);
                }
            }
            ResponseItem::FunctionCall { id, name, arguments, .. } => {
                let (item_id, arguments) = (id.clone(), arguments.clone());
                let delta = ItemEvent::ArgumentsDelta { item_id, delta: arguments.clone() };
                self.push_item("response.function_call_arguments.delta", index, delta);
                let (item_id, name) = (id.clone(), name.clone());
                let done = ItemEvent::ArgumentsDone { item_id, name, arguments };
                self.push_item("response.function_call_arguments.done", index, done);
            }
        }
    }

    /// Adds the events of a text.
    fn push_text(&mut self, index: usize, (id, content_index): (&str, usize), whole: &OutputText) {
        let (item_id, text) = (id.to_owned(), whole.text.clone());
        let part = OutputText::new(String::new());
        let empty = ItemEvent::Part { part, item_id: item_id.clone(), content_index };
        self.push_item("response.content_part.added", index, empty);
        let (delta, logprobs) = (text.clone(), []);
        let delta =
            ItemEvent::TextDelta { delta, logprobs, item_id: item_id.clone(), content_index };
        self.push_item("response.output_text.delta", index, delta);
        let done = ItemEvent::TextDone { text, logprobs, item_id: item_id.clone(), content_index };
        self.push_item("response.output_text.done", index, done);
        let whole = ItemEvent::Part { part: whole.clone(), item_id, content_index };
        self.push_item("response.content_part.done", index, whole);
    }
}
