//! Lists of models in Anthropic's form.

use axum::http::HeaderMap;
use serde::Serialize;

use crate::refusal::ANTHROPIC_VERSION;

/// Returns true if a request for models is one of this protocol: its clients send a version.
pub(crate) fn asks_for_models(headers: &HeaderMap) -> bool {
    headers.contains_key(ANTHROPIC_VERSION)
}

/// The models of a server, in one page.
#[derive(Debug, Serialize)]
pub(crate) struct MessageModels {
    data: Vec<MessageModel>,
    has_more: bool,
    first_id: Option<String>,
    last_id: Option<String>,
}

impl FromIterator<MessageModel> for MessageModels {
    fn from_iter<I: IntoIterator<Item = MessageModel>>(models: I) -> Self {
        let data: Vec<MessageModel> = models.into_iter().collect();
        let [first_id, last_id] =
            [data.first(), data.last()].map(|model| model.map(|model| model.id.clone()));
        Self { data, has_more: false, first_id, last_id }
    }
}

/// A model.
#[derive(Debug, Serialize)]
pub(crate) struct MessageModel {
    id: String,
    r#type: ModelKind,
    display_name: String,
    created_at: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum ModelKind {
    Model,
}

impl MessageModel {
    /// Creates a model that was loaded at a time in seconds since 1970.
    pub(crate) fn new(id: String, created: u64) -> Self {
        let seconds = i64::try_from(created).unwrap_or_default();
        let created_at = jiff::Timestamp::from_second(seconds).unwrap_or_default().to_string();
        Self { display_name: id.clone(), id, r#type: ModelKind::Model, created_at }
    }
}
