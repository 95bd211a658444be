//! Rows of natural language inference, as ANLI, SNLI and MultiNLI have them.

use serde_json::{Map, Value};

use crate::world::nli::{Label, data, question};

/// The question of a row with a hypothesis, whose other keys are put into the form of a task; `None` for other rows.
pub(super) fn task(object: &mut Map<String, Value>) -> Result<Option<String>, String> {
    let Some(Value::String(hypothesis)) = object.get("hypothesis").cloned() else {
        return Ok(None);
    };
    // ANLI's own files call the premise the context.
    let premise = object.remove("premise").or_else(|| object.remove("context"));
    let Some(Value::String(premise)) = premise else {
        return Err("a row with a `hypothesis` needs a `premise`, a text".to_owned());
    };
    let found = object.remove("label").or_else(|| object.remove("gold_label"));
    let label = found.as_ref().and_then(Label::read).ok_or_else(|| {
        let found = found.as_ref().map_or("missing".to_owned(), Value::to_string);
        format!(
            "`label` is {found}; write entailment, neutral or contradiction (or e, n, c; 0, 1, 2)"
        )
    })?;
    if let Some(id) = object.remove("uid")
        && !object.contains_key("id")
    {
        object.insert("id".to_owned(), id);
    }
    object.extend(data(&premise, &hypothesis, label));
    Ok(Some(question(&premise, &hypothesis)))
}
