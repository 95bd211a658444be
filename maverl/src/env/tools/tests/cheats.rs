//! Attempts to be rewarded without doing the task.

use super::*;

/// Plays calls, and returns the reward of an answer.
async fn reward(
    tools: &ToolsEnvironment,
    task: &Task,
    calls: &[(&str, Value)],
    answer: Option<&str>,
) -> f64 {
    let mut episode = session(tools, task);
    for (name, arguments) in calls {
        call(tools, &mut episode, name, arguments.clone()).await;
    }
    Environment::score(tools, &episode, answer).await.unwrap().reward
}

#[tokio::test]
async fn calling_is_worth_nothing_by_itself() {
    let names = ["calculator", "files", "obedient", "broken"];
    let tools = environment(json!({"tools": names}));
    let hasty = environment(json!({"tools": names, "timeout_s": 0.02}));
    let wants = task(json!({"answers": ["1888187"]}));
    let exact = [("calculator", json!({"expression": "4817 * 392 - 77"}))];
    assert_eq!(reward(&tools, &wants, &exact, Some("1888187")).await, 1.0);
    assert_eq!(
        reward(&tools, &wants, &[], Some("1,888,187")).await,
        1.0,
        "how it is known is free"
    );
    let useless = [
        ("calculator", json!({})),
        ("calculator", json!({"expression": "1"})),
        ("calculator", json!({"expression": "1/0"})),
        ("nothing", json!({})),
        ("list_files", json!({})),
        ("obedient", json!({"manner": "hangs"})),
        ("obedient", json!({"manner": "breaks"})),
        ("broken", json!({})),
    ];
    for calls in [&useless[..], &exact[..], &[]] {
        for answer in [
            None,
            Some(""),
            Some("4817 * 392 - 77"),
            Some("error: the value"),
            Some("1888187 or 1888188"),
            Some("1888186 1888187 1888188"),
            Some("calculator: 1888187"),
            Some("x = 1888187"),
            Some("NaN"),
            Some("1888187/1"),
            Some("done"),
        ] {
            assert_eq!(reward(&hasty, &wants, calls, answer).await, 0.0, "{answer:?}");
        }
    }
}

#[tokio::test]
async fn files_count_as_they_are_in_the_end_and_no_others_may_be_there() {
    let tools = environment(json!({"tools": ["files"]}));
    let wants = task(json!({
        "files": {"a.txt": "old", "keep.txt": "kept"},
        "goal": {"files": {"b.txt": "new words", "a.txt": null}},
    }));
    let write = |path: &str, text: &str| ("write_file", json!({"path": path, "text": text}));
    let delete = |path: &str| ("delete_file", json!({"path": path}));
    let done = [write("b.txt", "new words"), delete("a.txt")];
    assert_eq!(reward(&tools, &wants, &done, None).await, 1.0, "without an answer too");
    let again =
        [write("c.txt", "draft"), delete("c.txt"), write("b.txt", "new words\n"), delete("a.txt")];
    assert_eq!(reward(&tools, &wants, &again, Some("done")).await, 1.0);
    for calls in [
        vec![],
        vec![write("b.txt", "new words")],
        vec![delete("a.txt")],
        vec![write("b.txt", "new"), delete("a.txt")],
        vec![write("b.txt", "old new words other words"), delete("a.txt")],
        vec![write("b.txt", "new words"), delete("a.txt"), write("c.txt", "new words")],
        vec![write("b.txt", "new words"), delete("a.txt"), write("keep.txt", "lost")],
        vec![write("b.txt", "new words"), delete("a.txt"), delete("keep.txt")],
        vec![write("b.txt", "new words"), delete("a.txt"), write("b.txt", "")],
        vec![write("./x/../b.txt", "new words"), delete("a.txt")],
    ] {
        let answer = Some("b.txt: new words");
        assert_eq!(reward(&tools, &wants, &calls, answer).await, 0.0, "{calls:?}");
    }
}

#[tokio::test]
async fn bad_calls_cost_less_than_the_goal_is_worth() {
    let tools = environment(json!({"tools": ["calculator"], "bad_call_cost": 0.1, "max_calls": 3}));
    let wants = task(json!({"answers": ["42"]}));
    let bad = ("calculator", json!({}));
    let cost = async |n: usize, answer| reward(&tools, &wants, &vec![bad.clone(); n], answer).await;
    assert_eq!(cost(0, Some("42")).await, 1.0);
    assert_eq!(cost(2, Some("42")).await, 0.8);
    assert_eq!(cost(2, None).await, -0.2);
    assert_eq!(cost(50, Some("42")).await, 0.5);
    assert_eq!(cost(50, None).await, -0.5);
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_database_counts_as_it_is_in_the_end() {
    let tools = environment(json!({"tools": ["sqlite"]}));
    let wants = task(json!({
        "database": "CREATE TABLE stock (item TEXT, number INTEGER); INSERT INTO stock VALUES ('lamp', 3), ('cup', 7);",
        "goal": {"query": "SELECT item, number FROM stock ORDER BY item", "rows": [["cup", 7], ["lamp", 5]]},
    }));
    let sql = |statement: &str| ("sqlite", json!({"sql": statement}));
    let done = [sql("UPDATE stock SET number = 5 WHERE item = 'lamp'")];
    assert_eq!(reward(&tools, &wants, &done, None).await, 1.0);
    for calls in [
        vec![],
        vec![sql("SELECT 'cup', 7 UNION SELECT 'lamp', 5")],
        vec![sql("UPDATE stock SET number = 5")],
        vec![sql("INSERT INTO stock VALUES ('lamp', 5)")],
        vec![sql("UPDATE stock SET number = '5 lamps' WHERE item = 'lamp'")],
        vec![sql("BEGIN"), sql("UPDATE stock SET number = 6 WHERE item = 'lamp'"), sql("ROLLBACK")],
        vec![done[0].clone(), sql("DELETE FROM stock WHERE item = 'cup'")],
        // A goal that can no longer be checked counts as missed, and the episode is still scored.
        vec![sql("DROP TABLE stock")],
        vec![done[0].clone(), sql("DROP TABLE stock")],
    ] {
        assert_eq!(reward(&tools, &wants, &calls, Some("lamp 5")).await, 0.0, "{calls:?}");
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn every_shipped_errand_is_done_by_its_solution_and_not_by_less() {
    let mut tools = ToolsEnvironment::default();
    tools.start(Path::new("")).unwrap();
    for (_, tasks) in crate::builtin::tools::errands() {
        tools.report(&tasks).unwrap();
        // All kinds and levels alternate.
        for task in tasks.iter().take(90) {
            let solution = &task.data["solution"];
            let calls: Vec<(&str, Value)> = solution["calls"]
                .as_array()
                .unwrap()
                .iter()
                .map(|call| (call["name"].as_str().unwrap(), call["arguments"].clone()))
                .collect();
            let answer = solution["answer"].as_str();
            assert_eq!(reward(&tools, task, &calls, answer).await, 1.0, "{task:?}");
            let asks = task.data.contains_key("answers");
            let less = if asks { &calls[..] } else { &calls[..calls.len() - 1] };
            let echo = if asks { Some(task.question.as_str()) } else { answer };
            assert_eq!(reward(&tools, task, less, echo).await, 0.0, "{task:?}");
            if let ("tools/table", true) = (task.source.as_str(), asks) {
                // The whole observation is not an answer.
                let mut episode = session(&tools, task);
                let all =
                    call(&tools, &mut episode, "sqlite", json!({"sql": "SELECT * FROM stock"}))
                        .await;
                assert_eq!(tools.score_session(&episode, Some(&all)).unwrap().reward, 0.0, "{all}");
            }
        }
    }
}
