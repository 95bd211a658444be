//! Responses of OpenAI's newer protocol. Nothing is stored: a request has the whole conversation as its `input`.

mod answer;
mod events;
mod request;

pub(crate) use answer::ResponsesAnswer;
pub(crate) use events::response_events;
pub(crate) use request::{as_chat, message};
