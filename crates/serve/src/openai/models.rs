//! Lists of models: `GET /v1/models`.

use serde::Serialize;

/// The models of a server.
#[derive(Debug, Serialize)]
pub(crate) struct ModelList {
    object: ListObject,
    data: Vec<ModelCard>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum ListObject {
    List,
}

impl FromIterator<ModelCard> for ModelList {
    fn from_iter<I: IntoIterator<Item = ModelCard>>(cards: I) -> Self {
        Self { object: ListObject::List, data: cards.into_iter().collect() }
    }
}

/// A model.
#[derive(Debug, Serialize)]
pub(crate) struct ModelCard {
    id: String,
    object: ModelObject,
    created: u64,
    owned_by: &'static str,
    #[serde(flatten)]
    lineage: Option<Lineage>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum ModelObject {
    Model,
}

/// Model that another one was made from, and its context.
#[derive(Debug, Serialize)]
pub(crate) struct Lineage {
    pub(crate) root: String,
    pub(crate) parent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_model_len: Option<usize>,
}

impl ModelCard {
    pub(crate) fn new(id: String, created: u64, lineage: Option<Lineage>) -> Self {
        Self { id, object: ModelObject::Model, created, owned_by: "maverl", lineage }
    }
}
