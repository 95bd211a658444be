//! Several choices of tasks that are read in one pass.

use super::*;

/// Returns rows with and without splits and levels.
fn rows() -> String {
    let row = |i: usize| {
        let split = ["", r#", "split": "train""#, r#", "split": "test""#, ""][i % 4];
        format!(
            r#"{{"id": "t-{i}", "question": "Q{i}?", "answer": "{i}", "level": {}{split}}}"#,
            i % 5
        )
    };
    (0..300).map(|i| row(i) + "\n").collect()
}

/// Returns a text of the tasks of a choice or of its error.
fn shown(chosen: ChosenTasks) -> String {
    match chosen {
        Ok(PlacedTasks { tasks, lines }) => {
            format!("{:?} {lines:?}", tasks.iter().collect::<Vec<Task>>())
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn choices_in_one_pass_are_those_of_a_pass_for_each() {
    let dir = file("rows.jsonl", &rows());
    let splits =
        [("train", None), ("test", Some(3)), (ALL, Some(7)), ("dev", None), ("test", None)];
    let choices =
        splits.map(|(split, limit)| TaskChoice { split, limit: limit.and_then(NonZeroUsize::new) });
    let mixture: BTreeMap<String, crate::config::ComponentConfig> = ["one", "two"]
        .map(|name| {
            let component = crate::config::ComponentConfig {
                data: "rows.jsonl".to_owned(),
                ..Default::default()
            };
            (name.to_owned(), component)
        })
        .into();
    for config in [
        config("rows.jsonl"),
        TaskConfig { max_level: Some(2), ..config("rows.jsonl") },
        config("builtin:arithmetic"),
        TaskConfig { mixture, ..TaskConfig::default() },
    ] {
        let together = placed_choices(&config, &choices, dir.path()).unwrap();
        for (choice, tasks) in choices.iter().zip(together) {
            let one = TaskConfig { limit: choice.limit, ..config.clone() };
            assert_eq!(shown(tasks), shown(placed(&one, choice.split, dir.path())), "{choice:?}");
        }
    }
}

#[test]
fn an_error_about_a_row_is_that_of_every_choice() {
    let dir = file("rows.jsonl", &format!("{}{{\"question\": \"\"}}\n", rows()));
    let choices =
        [TaskChoice { split: "train", limit: None }, TaskChoice { split: "test", limit: None }];
    let error = placed_choices(&config("rows.jsonl"), &choices, dir.path()).unwrap_err();
    let alone = placed(&config("rows.jsonl"), "test", dir.path()).unwrap_err();
    assert_eq!(error.to_string(), alone.to_string());
}
