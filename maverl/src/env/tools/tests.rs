#![allow(clippy::unwrap_used)]

use std::fs;

use maverl_macros::tool;
use schemars::JsonSchema;
use serde::Deserialize;

use super::*;

mod cheats;
mod files;
#[cfg(feature = "sqlite")]
mod sqlite;

/// Starts an environment with options.
fn environment(options: Value) -> ToolsEnvironment {
    let mut tools: ToolsEnvironment = serde_json::from_value(options).unwrap();
    tools.start(Path::new("")).unwrap();
    tools
}

fn task(data: Value) -> Task {
    let Value::Object(data) = data else { panic!("{data}") };
    let (id, source) = ("1".to_owned(), "test".to_owned());
    Task { id, source, question: "What is to be done?".to_owned(), data }
}

fn session(tools: &ToolsEnvironment, task: &Task) -> Session {
    let state = Environment::open(tools, task, 0).now_or_never().unwrap().unwrap();
    Session { task: task.clone(), seed: 0, actions: 0, state }
}

/// Returns the observation of a call.
async fn call(
    tools: &ToolsEnvironment,
    session: &mut Session,
    name: &str,
    arguments: Value,
) -> String {
    let action = Action::Tool { name: name.to_owned(), arguments };
    Environment::act(tools, session, action).await.unwrap().text
}

async fn say(tools: &ToolsEnvironment, session: &mut Session, text: &str) -> String {
    Environment::act(tools, session, Action::Text(text.to_owned())).await.unwrap().text
}

fn counts(tools: &ToolsEnvironment, session: &Session) -> [f64; 3] {
    let score = Environment::score(tools, session, None).now_or_never().unwrap().unwrap();
    ["calls", "refused_calls", "failed_calls"].map(|name| score.metrics[name].as_f64().unwrap())
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Manner {
    Breaks,
    Hangs,
    Refuses,
    Works,
}

#[derive(Deserialize, JsonSchema)]
struct How {
    manner: Manner,
}

/// Does what it is told.
#[tool]
async fn obedient(how: How) -> Result<String, String> {
    match how.manner {
        Manner::Breaks => panic!("as it was told"),
        Manner::Hangs => std::future::pending().await,
        Manner::Refuses => Err("it will not".to_owned()),
        Manner::Works => Ok("done".to_owned()),
    }
}

/// Breaks.
#[tool]
fn broken() -> u32 {
    panic!("always")
}

#[tokio::test]
async fn calls_are_checked_carried_out_and_counted() {
    let tools = environment(json!({"tools": ["calculator", "obedient", "broken"]}));
    let mut session = session(&tools, &task(json!({"answers": ["42"]})));
    let mut seen =
        async |name: &str, arguments: Value| call(&tools, &mut session, name, arguments).await;
    assert_eq!(seen("calculator", json!({"expression": "6 * 7"})).await, "42");
    assert_eq!(seen("obedient", json!({"manner": "works"})).await, "done");
    // The problem with a call is described in helpful words.
    for (name, arguments, wanted) in [
        ("calculator", json!({}), "`expression` is missing"),
        ("calculator", json!({"expression": 6}), "`expression` is 6; write string"),
        ("calculator", json!({"expression": "6", "base": 2}), "`base` is not known"),
        ("calculator", json!(["6"]), "write an object"),
        (
            "calculater",
            json!({}),
            "there is no tool `calculater`; there is `calculator`, `obedient`",
        ),
        ("obedient", json!({"manner": "dances"}), "write one of \"breaks\""),
    ] {
        let text = seen(name, arguments).await;
        assert!(text.starts_with("error: ") && text.contains(wanted), "{text}");
    }
    // A failure inside a tool is described too, and does not end the episode.
    for (name, arguments, wanted) in [
        ("calculator", json!({"expression": "1/0"}), "error: "),
        ("obedient", json!({"manner": "refuses"}), "error: it will not"),
        ("obedient", json!({"manner": "breaks"}), "error: `obedient` broke"),
        ("broken", json!({}), "error: it broke"),
    ] {
        let text = seen(name, arguments).await;
        assert!(text.starts_with(wanted), "{text}");
    }
    assert_eq!(counts(&tools, &session), [12.0, 6.0, 4.0]);
}

#[tokio::test]
async fn a_call_that_hangs_is_ended_and_counted() {
    let tools = environment(json!({"tools": ["obedient"], "timeout_s": 0.05}));
    let mut session = session(&tools, &task(json!({"answers": ["42"]})));
    let text = call(&tools, &mut session, "obedient", json!({"manner": "hangs"})).await;
    assert!(text.starts_with("error: it took longer than 0.05 seconds"), "{text}");
    assert_eq!(counts(&tools, &session), [1.0, 0.0, 1.0]);
}

#[tokio::test]
async fn a_text_may_have_several_calls_of_either_family() {
    let tools = environment(json!({"tools": ["calculator"]}));
    let mut session = session(&tools, &task(json!({"answers": ["42"]})));
    let one = |x: &str| {
        format!(
            "<tool_call>{{\"name\": \"calculator\", \"arguments\": {{\"expression\": \"{x}\"}}}}</tool_call>"
        )
    };
    assert_eq!(say(&tools, &mut session, &format!("{}{}", one("1+1"), one("2+2"))).await, "2\n4");
    let llama = "{\"name\": \"calculator\", \"parameters\": {\"expression\": \"3+3\"}}";
    assert_eq!(say(&tools, &mut session, llama).await, "6");
    let text = say(&tools, &mut session, "<tool_call>calculator(1)</tool_call>").await;
    assert!(text.starts_with("error: a tool call is no JSON object"), "{text}");
    let text = say(&tools, &mut session, "look").await;
    assert!(
        text.starts_with("error: a tool call is no JSON object") && text.ends_with("look"),
        "{text}"
    );
    assert_eq!(counts(&tools, &session), [5.0, 2.0, 0.0]);
}

#[tokio::test]
async fn calls_and_results_are_bounded() {
    let tools = environment(json!({"tools": ["calculator"], "max_calls": 2, "max_chars": 8}));
    let mut session = session(&tools, &task(json!({"answers": ["42"]})));
    let large = json!({"expression": "2^100"});
    let text = call(&tools, &mut session, "calculator", large).await;
    assert_eq!(text, "12676506 ... (23 more characters)");
    let action =
        || Action::Tool { name: "calculator".to_owned(), arguments: json!({"expression": "1"}) };
    assert!(Environment::act(&tools, &mut session, action()).await.unwrap().done);
    let text = Environment::act(&tools, &mut session, action()).await.unwrap().text;
    assert_eq!(text, "error: no more than 2 calls are carried out");
    // A text with thousands of calls does not bypass the limit, and costs no time.
    let many = "<tool_call>{\"name\": \"calculator\"}</tool_call>".repeat(5000);
    assert!(say(&tools, &mut session, &many).await.len() < 100);
}

#[tokio::test]
async fn programs_and_documents_are_tools_too() {
    let mut python =
        ToolsEnvironment { tools: vec!["python".to_owned()], ..ToolsEnvironment::default() };
    if let Err(error) = python.start(Path::new("")) {
        println!("skipped: {error}");
        return;
    }
    let mut episode = session(&python, &task(json!({"answers": ["42"]})));
    let mut run =
        async |code: &str| call(&python, &mut episode, "python", json!({"code": code})).await;
    assert_eq!(run("print(6 * 7)").await, "42");
    assert_eq!(run("x = 1").await, "(it prints nothing)");
    let failed = run("print('half')\n1 / 0").await;
    assert!(failed.starts_with("error: the program exited with status 1\n"), "{failed}");
    assert!(failed.contains("ZeroDivisionError") && failed.ends_with("half"), "{failed}");
    assert!(run("import socket; socket.socket()").await.starts_with("error: "));

    let search = environment(json!({"tools": ["search"], "search": {"top_k": 1}}));
    let question = crate::builtin::facts::tasks("test").unwrap()[0].question.clone();
    let mut episode = session(&search, &task(json!({"answers": ["42"]})));
    let found = call(&search, &mut episode, "search", json!({"query": question})).await;
    assert!(found.starts_with("Doc 1: "), "{found}");
}

#[test]
fn options_that_cannot_be_met_are_named() {
    let look = |options: Value| {
        let tools: ToolsEnvironment = serde_json::from_value(options).unwrap();
        tools.validate(Path::new(""), &TaskList::default()).unwrap_err().to_string()
    };
    for (options, wanted) in [
        (
            json!({"tools": ["calculater"]}),
            "`tools` has `calculater`, which is none; there is `broken`, `calculator`",
        ),
        (json!({"max_calls": 0}), "`max_calls` is 0"),
        (json!({"timeout_s": 0.0}), "`timeout_s` is 0"),
        (json!({"bad_call_cost": -1.0}), "`bad_call_cost` is -1"),
        (
            json!({"files": {"directory": "/no/such"}}),
            "`files.directory`: `/no/such` cannot be opened",
        ),
        (json!({"tools": ["python"], "python": {"command": "/no/python"}}), "`python.command`: "),
        (json!({"tools": ["search"], "search": {"top_k": 0}}), "`search`: `top_k` is 0"),
    ] {
        let error = look(options);
        assert!(error.starts_with(wanted), "{error}");
    }
    assert!(serde_json::from_value::<ToolsEnvironment>(json!({"files": {"dir": ""}})).is_err());
    let twice = json!({"tools": ["calculator", "calculator"]});
    let mut twice: ToolsEnvironment = serde_json::from_value(twice).unwrap();
    let error = twice.start(Path::new("")).unwrap_err().to_string();
    assert!(error.contains("two tools are called `calculator`"), "{error}");
}

#[test]
fn a_task_without_anything_to_judge_by_is_refused() {
    let tools = environment(json!({"tools": ["calculator"]}));
    for (data, wanted) in [
        (json!({}), "nothing to judge by"),
        (json!({"goal": 3}), "`goal` is 3"),
        (json!({"goal": {"file": {}}}), "`goal` has `file`"),
        (json!({"goal": {"files": {"a": 1}}}), "`goal.files` is"),
        (json!({"goal": {"query": "SELECT 1"}}), "`goal` wants a `query`, a text, and its `rows`"),
    ] {
        let error = tools.report(&[task(data)]).unwrap_err().to_string();
        assert!(error.starts_with("the task `1` of `test`: ") && error.contains(wanted), "{error}");
    }
    let files = task(json!({"files": {"a": "b"}, "answers": ["b"]}));
    let warnings = tools.validate(Path::new(""), &[files].iter().collect()).unwrap();
    assert_eq!(warnings, ["1 of 1 tasks have `files`, but `tools` has no `files`"]);
}

#[test]
fn a_task_that_cannot_be_begun_reached_or_missed_is_refused() {
    let tools = environment(json!({"tools": ["calculator", "files"]}));
    let rows = |query: &str, rows: Value| json!({"goal": {"query": query, "rows": rows}});
    let answer = |key: &str, value: Value| json!({"answers": ["42"], key: value});
    let unchanged = "`goal.files` is as an episode begins";
    let path = "is no path of a file here; write one like notes/today.txt";
    for (data, wanted) in [
        (json!({"goal": {"files": {}}}), unchanged),
        (json!({"files": {"a": "x"}, "goal": {"files": {}}}), unchanged),
        (json!({"files": {"a": "x"}, "goal": {"files": {"a": "x\n"}}}), unchanged),
        (json!({"goal": {"files": {"/b": "x"}}}), &format!("`goal.files`: `/b` {path}")),
        (json!({"goal": {"files": {"../b": null}}}), &format!("`goal.files`: `../b` {path}")),
        (json!({"goal": {"files": {"./b": "x"}}}), "`goal.files` has \"./b\"; write \"b\""),
        (rows("SELECT 1", json!([1])), "`goal.rows` has 1; write each row as a list"),
        (rows("SELECT 1", json!([[true]])), "`goal.rows` has [true]; write each row"),
        (rows("SELECT 1", json!([[]])), "`goal.rows` has []; write each row"),
        (rows("DELETE FROM t", json!([])), "`goal.query` is \"DELETE FROM t\"; write a SELECT"),
        (json!({"answers": [""]}), "`answer` is \"\", which nothing that is said can be"),
        (json!({"answers": ["42", "the"]}), "`answer` is \"the\""),
        (
            answer("tools", json!(["calculator", "calc"])),
            "`tools` has \"calc\", which is none; there is `calculator`, `files`",
        ),
        (
            answer("tools", json!("calculator")),
            "`tools` is \"calculator\"; write a list of `calculator`, `files`",
        ),
        (answer("tools", json!([1])), "`tools` has 1"),
        (answer("files", json!(["a"])), "`files` is [\"a\"]; write texts by path"),
        (answer("files", json!({"a": 1})), "`files` is {\"a\":1}; write texts by path"),
        (answer("files", json!({"../a": "x"})), &format!("`files`: `../a` {path}")),
        (answer("database", json!(5)), "`database` is 5; write SQL, a text"),
    ] {
        let wanted = format!("the task `1` of `test`: {wanted}");
        let tasks = [task(data)];
        for error in [
            tools.report(&tasks).unwrap_err().to_string(),
            tools.validate(Path::new(""), &tasks.iter().collect()).unwrap_err().to_string(),
        ] {
            assert!(error.starts_with(&wanted), "{error}");
        }
    }
    for data in [
        // Beside another requirement, unchanged files are a goal too.
        json!({"files": {"a": "x"}, "answers": ["x"], "goal": {"files": {}}}),
        json!({"goal": {"files": {"a/b.txt": "x"}}}),
        json!({"files": {"a": "x"}, "goal": {"files": {"a": null}}}),
        rows("-- none are left\nselect * from t", json!([])),
        rows("WITH c AS (SELECT 1) SELECT * FROM c", json!([[1], ["x"], [null]])),
        json!({"answers": ["-3", "C++"], "tools": [], "files": null}),
    ] {
        tools.report(&[task(data)]).unwrap();
    }
    let elsewhere = task(json!({"answers": ["42"], "tools": ["python"]}));
    let warnings = tools.validate(Path::new(""), &[elsewhere].iter().collect()).unwrap();
    assert!(warnings[0].starts_with("1 of 1 tasks name `tools` of which"), "{warnings:?}");
}

#[tokio::test]
async fn a_task_may_have_fewer_tools() {
    let tools = environment(json!({"tools": ["calculator", "files"]}));
    let few = task(json!({"tools": ["calculator"], "answers": ["42"]}));
    let names: Vec<String> = tools.tools(&few).into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["calculator"]);
    assert_eq!(tools.tools(&task(json!({"answers": ["42"]}))).len(), 5);
    let mut session = session(&tools, &few);
    let text = call(&tools, &mut session, "list_files", json!({})).await;
    assert_eq!(text, "error: there is no tool `list_files`; there is `calculator`");
}
