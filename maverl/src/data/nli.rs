//! Rows of natural language inference in the forms of ANLI, SNLI and MultiNLI.

use serde_json::{Map, Value};

use crate::builtin::nli::{Label, data, question};

/// Keys of the hypothesis with the matching keys of the premise. ANLI's files call the premise the context; SNLI and
/// MultiNLI number the sentences.
const PAIRS: [(&str, &[&str]); 2] =
    [("hypothesis", &["premise", "context"]), ("sentence2", &["sentence1"])];
/// Keys of the label; the first one present is used.
const LABELS: [&str; 2] = ["label", "gold_label"];

/// Returns the question of a row with a hypothesis, and converts its other keys to the form of a task; `None` for other
/// rows.
pub(super) fn task(object: &mut Map<String, Value>) -> Result<Option<String>, String> {
    let Some((hypothesis, premise)) = pair(object)? else { return Ok(None) };
    let label = label(object)?;
    if let Some(id) = object.remove("uid")
        && !object.contains_key("id")
    {
        object.insert("id".to_owned(), id);
    }
    object.extend(data(&premise, &hypothesis, label));
    Ok(Some(question(&premise, &hypothesis)))
}

/// Returns the hypothesis and the premise; `None` for other rows, such as pairs of sentences without a `gold_label`.
fn pair(object: &mut Map<String, Value>) -> Result<Option<(String, String)>, String> {
    for (key, premises) in PAIRS {
        let Some(Value::String(hypothesis)) = object.get(key).cloned() else { continue };
        if key != "hypothesis" && !object.contains_key("gold_label") {
            continue;
        }
        let premise = premises.iter().find_map(|key| object.remove(*key));
        let Some(Value::String(premise)) = premise else {
            return Err(format!("a row with a `{key}` needs a `{}`, a text", premises[0]));
        };
        object.remove(key);
        return Ok(Some((hypothesis, premise)));
    }
    Ok(None)
}

fn label(object: &mut Map<String, Value>) -> Result<Label, String> {
    const WANTED: &str = "entailment, neutral or contradiction (or e, n, c; 0, 1, 2)";
    let found = LABELS.iter().find_map(|key| Some((key, object.remove(*key)?)));
    let Some((key, value)) = found else {
        return Err(format!("the row has no `label`; write {WANTED}"));
    };
    match Label::read(&value) {
        Some(label) => Ok(label),
        None if value == -1 || value == "-1" || value == "-" => Err(format!(
            "`{key}` is {value}: those who labeled the row came to no consensus; leave such rows out of the file"
        )),
        None => Err(format!("`{key}` is {value}; write {WANTED}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn read(row: Value) -> (Result<Option<String>, String>, Map<String, Value>) {
        let Value::Object(mut object) = row else { panic!("{row} is no object") };
        (task(&mut object), object)
    }

    #[test]
    fn rows_are_read_as_they_are_published() {
        for row in [
            json!({"premise": "A.", "hypothesis": "B.", "label": 1}),
            json!({"uid": "7", "context": "A.", "hypothesis": "B.", "label": "n"}),
            json!({"sentence1": "A.", "sentence2": "B.", "gold_label": "neutral", "pairID": "3"}),
        ] {
            let (question, object) = read(row);
            assert!(question.unwrap().unwrap().starts_with("Premise: A.\nHypothesis: B.\n"));
            assert_eq!(object["premise"], "A.");
            assert_eq!(object["hypothesis"], "B.");
            assert_eq!(object["answers"], json!(["neutral"]));
        }
        // Pairs of sentences may belong to another task.
        let other = json!({"sentence1": "A.", "sentence2": "B.", "label": 1});
        assert_eq!(read(other).0, Ok(None));
    }

    #[test]
    fn a_row_without_a_label_is_told_by_its_own_key() {
        let row = |key: &str, label: Value| {
            let mut row = json!({"premise": "A.", "hypothesis": "B."});
            row[key] = label;
            read(row).0.unwrap_err()
        };
        let said = row("gold_label", json!("maybe"));
        assert!(said.starts_with("`gold_label` is \"maybe\"; write entailment"), "{said}");
        for (key, label) in [("label", json!(-1)), ("gold_label", json!("-"))] {
            let said = row(key, label.clone());
            assert!(said.starts_with(&format!("`{key}` is {label}: ")), "{said}");
            assert!(said.contains("no consensus; leave such rows out of the file"), "{said}");
        }
        let said = row("other", json!(0));
        assert!(said.starts_with("the row has no `label`; write entailment"), "{said}");
        let said = read(json!({"sentence2": "B.", "gold_label": "neutral"})).0.unwrap_err();
        assert_eq!(said, "a row with a `sentence2` needs a `sentence1`, a text");
    }
}
