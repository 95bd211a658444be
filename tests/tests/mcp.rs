//! Tools of servers that speak the Model Context Protocol, by pipe and by HTTP.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use maverl::env::tools::ToolsEnvironment;
use maverl::env::{EnvError, Environment, Session};
use maverl::task::{Action, Task, TaskList};
use serde_json::{Value, json};

const SERVER: &str = env!("CARGO_BIN_EXE_mcp_server");

#[expect(clippy::needless_pass_by_value, reason = "what `json!` makes at the call")]
fn made(server: Value) -> Result<ToolsEnvironment, EnvError> {
    let options = json!({"tools": ["calculator"], "mcp": {"test": server}});
    let mut tools: ToolsEnvironment = serde_json::from_value(options).unwrap();
    tools.validate(Path::new(""), &TaskList::default())?;
    tools.start(Path::new(""))?;
    Ok(tools)
}

async fn session(tools: &ToolsEnvironment) -> Session {
    let data = [("answers".to_owned(), json!(["1"]))].into_iter().collect();
    let (id, source) = ("1".to_owned(), "test".to_owned());
    let task = Task { id, source, question: "What?".to_owned(), data };
    let state = tools.open(&task, 0).await.unwrap();
    Session { task, seed: 0, actions: 0, state }
}

async fn call(
    tools: &ToolsEnvironment,
    session: &mut Session,
    name: &str,
    arguments: Value,
) -> Result<String, EnvError> {
    let action = Action::Tool { name: name.to_owned(), arguments };
    Ok(tools.act(session, action).await?.text)
}

async fn names(tools: &ToolsEnvironment) -> Vec<String> {
    tools.tools(&session(tools).await.task).into_iter().map(|tool| tool.name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_a_program_are_called_like_any_other() {
    let server = json!({"command": [SERVER, "--well"], "timeout_s": 20.0});
    let tools = made(server).unwrap();
    assert_eq!(
        names(&tools).await,
        ["calculator", "reverse", "fail", "refuse", "hang", "die", "resources"]
    );
    let mut episode = session(&tools).await;
    let given = call(&tools, &mut episode, "reverse", json!({"text": "abc"})).await;
    assert_eq!(given.as_deref(), Ok("cba"));
    // Arguments are validated against the schema before the request.
    let wrong = call(&tools, &mut episode, "reverse", json!({"text": 3})).await.unwrap();
    assert_eq!(wrong, "error: the arguments of `reverse` are wrong: `text` is 3; write string");
    assert_eq!(
        call(&tools, &mut episode, "fail", json!({})).await.as_deref(),
        Ok("error: it failed")
    );
    let refused = call(&tools, &mut episode, "refuse", json!({})).await.unwrap();
    assert_eq!(refused, "error: not like this");
    // Concurrent calls from many episodes.
    let many = (0..50).map(|i| {
        let tools = &tools;
        async move {
            let mut episode = session(tools).await;
            call(tools, &mut episode, "reverse", json!({"text": format!("{i:02}")})).await.unwrap()
        }
    });
    let mut given = Vec::new();
    for one in many {
        given.push(one.await);
    }
    assert!(
        given
            .iter()
            .enumerate()
            .all(|(i, text)| *text == format!("{i:02}").chars().rev().collect::<String>())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_resources_are_shown_and_others_by_their_address() {
    let tools = made(json!({"command": [SERVER, "--well"], "timeout_s": 60.0})).unwrap();
    let mut episode = session(&tools).await;
    let given = call(&tools, &mut episode, "resources", json!({})).await.unwrap();
    let wanted = "downloaded\nthe file\n(a resource: file:///b)\n(a resource: file:///c)";
    assert_eq!(given, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_is_started_again_up_to_three_times_in_a_row() {
    let tools = made(json!({"command": [SERVER, "--well"], "timeout_s": 60.0})).unwrap();
    let mut episode = session(&tools).await;
    let (die, text) = (json!({}), json!({"text": "abc"}));
    let mut deaths = Vec::new();
    for deaths_in_a_row in [1, 2, 4] {
        for _ in 0..deaths_in_a_row {
            // It is not the policy's fault: the episode has no score.
            let error = call(&tools, &mut episode, "die", die.clone()).await.unwrap_err();
            deaths.push(error.to_string());
        }
        let given = call(&tools, &mut episode, "reverse", text.clone()).await;
        assert_eq!(given.is_ok(), deaths_in_a_row < 4, "{given:?}");
    }
    let ends = [
        "started again (1 of 3 times)",
        "started again (1 of 3 times)",
        "started again (2 of 3 times)",
        "started again (1 of 3 times)",
        "started again (2 of 3 times)",
        "started again (3 of 3 times)",
        "it was started again 3 times without an answer in between, and is not once more",
    ];
    for (death, end) in deaths.iter().zip(ends) {
        assert!(death.starts_with("the server `test` of `mcp`: "), "{death}");
        assert!(death.ends_with(end), "{death}, {end}");
    }
    assert_eq!(deaths.len(), ends.len());
    // The other tools are as before.
    let sum = call(&tools, &mut episode, "calculator", json!({"expression": "1+1"})).await;
    assert_eq!(sum.as_deref(), Ok("2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_started_again_however_it_ends() {
    let tools = made(json!({"command": [SERVER, "--well"], "timeout_s": 60.0})).unwrap();
    let ask = async |name: &str, arguments: Value| {
        // An episode has a limit of calls.
        call(&tools, &mut session(&tools).await, name, arguments).await
    };
    let text = json!({"text": "abc"});
    for how in
        ["", "code", "abort", "half of a line", "no message", "another id", "last words", "soon"]
    {
        let mut ended = ask("die", json!({"how": how})).await;
        // A server that ends after its answer is found ended by a later call.
        while ended.is_ok() {
            ended = ask("reverse", text.clone()).await;
        }
        let error = ended.unwrap_err().to_string();
        assert!(error.ends_with("it was started again (1 of 3 times)"), "{how}: {error}");
        assert!(how != "last words" || error.contains("out of memory"), "{error}");
        assert_eq!(ask("reverse", text.clone()).await.as_deref(), Ok("cba"), "{how}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_a_server_leaves_unanswered_start_it_again_once() {
    let tools = made(json!({"command": [SERVER, "--well"], "timeout_s": 60.0})).unwrap();
    let (tools, text) = (&tools, json!({"text": "abc"}));
    let one = |name: &'static str| async move {
        call(tools, &mut session(tools).await, name, json!({})).await.unwrap_err().to_string()
    };
    let (waits, others, dies) = tokio::join!(one("hang"), one("hang"), async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        one("die").await
    });
    let times =
        |end: &str| [&waits, &others, &dies].iter().filter(|error| error.ends_with(end)).count();
    assert_eq!(times("it was started again (1 of 3 times)"), 1, "{waits} {others} {dies}");
    assert_eq!(times("it was started again"), 2, "{waits} {others} {dies}");
    let given = call(tools, &mut session(tools).await, "reverse", text).await;
    assert_eq!(given.as_deref(), Ok("cba"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_started_again_is_named_and_the_other_tools_are_as_before() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("server");
    std::fs::copy(SERVER, &copy).unwrap();
    let tools = made(json!({"command": [copy, "--well"], "timeout_s": 60.0})).unwrap();
    let mut episode = session(&tools).await;
    std::fs::remove_file(&copy).unwrap();
    for _ in 0..4 {
        let error = call(&tools, &mut episode, "die", json!({})).await.unwrap_err().to_string();
        assert!(error.starts_with("the server `test` of `mcp`: "), "{error}");
    }
    let sum = call(&tools, &mut episode, "calculator", json!({"expression": "1+1"})).await;
    assert_eq!(sum.as_deref(), Ok("2"));
}

/// Serves MCP over HTTP with a list of tools that depends on the cursor, and returns its address.
fn listing(page: impl Fn(Option<&str>) -> Value + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let page = std::sync::Arc::new(page);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let page = std::sync::Arc::clone(&page);
            let reply = move |request: &Value| match request["method"].as_str() {
                Some("tools/list") => {
                    json!({"result": page(request["params"]["cursor"].as_str())})
                }
                _ => replied(request),
            };
            std::thread::spawn(move || drop(answer(stream, reply)));
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_tools_without_an_end_names_the_server() {
    let tool = |name: String| json!({"name": name, "inputSchema": {"type": "object"}});
    let page = move |name: &str, next: Value| json!({"tools": [tool(name.to_owned())], "nextCursor": next});
    let count = std::sync::atomic::AtomicU64::new(0);
    let number = move || count.fetch_add(1, std::sync::atomic::Ordering::SeqCst).to_string();
    let constant = listing(move |_| page("a", json!("same")));
    let alternating =
        listing(move |cursor| page("a", json!(if cursor == Some("x") { "y" } else { "x" })));
    let endless = listing(move |_| {
        let n = number();
        page(&n, json!(n))
    });
    for (url, told) in [
        (constant, "`nextCursor` is \"same\" again"),
        (alternating, "`nextCursor` is \"x\" again"),
        (endless, "lists its tools on more than 200 pages"),
    ] {
        let error = made(json!({"url": url, "timeout_s": 600.0})).err().unwrap().to_string();
        assert!(error.starts_with("the server `test` of `mcp` lists its tools"), "{error}");
        assert!(error.contains(told), "{error}");
    }
    // Pages that end: without a cursor, with none, and with an empty one.
    for last in [json!({}), json!({"nextCursor": null}), json!({"nextCursor": ""})] {
        let url = listing(move |cursor| match cursor {
            None => page("a", json!("2")),
            Some(_) => {
                let mut last = last.clone();
                last["tools"] = json!([tool("b".to_owned())]);
                last
            }
        });
        let tools = made(json!({"url": url, "timeout_s": 60.0})).unwrap();
        assert_eq!(names(&tools).await, ["calculator", "a", "b"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_takes_too_long_is_told_so_and_leaves_the_server() {
    let tools = made(
        json!({"command": [SERVER, "--well"], "tools": ["hang", "reverse"], "timeout_s": 3.0}),
    )
    .unwrap();
    assert_eq!(names(&tools).await, ["calculator", "reverse", "hang"]);
    let mut episode = session(&tools).await;
    let late = call(&tools, &mut episode, "hang", json!({})).await.unwrap();
    assert_eq!(late, "error: it took longer than 3 seconds");
    let given = call(&tools, &mut episode, "reverse", json!({"text": "abc"})).await;
    assert_eq!(given.as_deref(), Ok("cba"));
}

#[test]
fn a_server_that_cannot_be_used_is_named_with_the_reason() {
    for (server, wanted) in [
        (json!({}), "`mcp` \"test\" has neither `command` nor `url`"),
        (json!({"command": ["x"], "url": "http://x"}), "`mcp` \"test\" has both"),
        (json!({"url": "localhost"}), "`mcp` \"test\" has a `url` that is none"),
        (json!({"command": ["x"], "timeout_s": 0.0}), "`mcp` \"test\" has a `timeout_s`"),
        (json!({"command": ["/no/such/program"]}), "the server `test` of `mcp` cannot be started"),
        (json!({"command": [SERVER]}), "the server `test` of `mcp` does not speak the protocol"),
        (
            json!({"command": [SERVER, "--well"], "tools": ["sing"]}),
            "the server `test` of `mcp` has no tool `sing`; it has reverse",
        ),
        (
            json!({"url": "http://127.0.0.1:9/mcp", "timeout_s": 5.0}),
            "the server `test` of `mcp` at http://127.0.0.1:9/mcp does not answer",
        ),
        (
            json!({"command": ["sleep", "60"], "timeout_s": 0.3}),
            "the server `test` of `mcp` did not answer within 0.3 seconds",
        ),
        (
            json!({"url": "http://127.0.0.1:9", "key_env": "NO_SUCH_VARIABLE_HERE"}),
            "the server `test` of `mcp` wants the environment variable",
        ),
    ] {
        let error = made(server).err().unwrap().to_string();
        assert!(error.starts_with(wanted), "{error}");
    }
    let error = made(json!({"command": [SERVER]})).err().unwrap().to_string();
    assert!(error.ends_with("it wrote: cannot work like this"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_an_address_are_called_over_http() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || drop(answer(stream, replied)));
        }
    });
    let tools = made(json!({"url": url, "timeout_s": 20.0})).unwrap();
    assert_eq!(names(&tools).await, ["calculator", "double"]);
    let mut episode = session(&tools).await;
    assert_eq!(call(&tools, &mut episode, "double", json!({"n": 21})).await.as_deref(), Ok("42"));
    let refused = call(&tools, &mut episode, "double", json!({"n": -1})).await.unwrap();
    assert_eq!(refused, "error: only numbers from 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_for_the_server_that_the_options_name() {
    let (asked, heads) = std::sync::mpsc::channel();
    let record = move |mut stream: TcpStream, answer: String| {
        let mut head = vec![0; 4096];
        let length = stream.read(&mut head).unwrap_or(0);
        let _ = asked.send(String::from_utf8_lossy(&head[..length]).into_owned());
        let _ =
            write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = elsewhere.local_addr().unwrap();
    let reached = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = std::sync::Arc::clone(&reached);
    std::thread::spawn(move || {
        for _ in elsewhere.incoming().flatten() {
            seen.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    });
    for status in [301, 302, 303, 307, 308] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let record = record.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                record(stream, format!("{status} Moved\r\nLocation: http://{to}/mcp"));
            }
        });
        // Any variable that is set is a key.
        let server =
            json!({"url": format!("http://{at}/mcp"), "key_env": "PATH", "timeout_s": 60.0});
        let error = made(server).err().unwrap().to_string();
        assert!(error.contains("does not answer"), "{error}");
        let head = heads.recv().unwrap().to_lowercase();
        assert!(head.contains("authorization: bearer "), "{head}");
    }
    assert!(!reached.load(std::sync::atomic::Ordering::SeqCst));
}

/// Answers one request of streamable HTTP with JSON.
fn answer(stream: TcpStream, reply: impl Fn(&Value) -> Value) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut length, mut first) = (String::new(), 0, String::new());
    while reader.read_line(&mut line)? > 2 {
        let lower = line.to_ascii_lowercase();
        if first.is_empty() {
            first = line.clone();
        }
        length =
            lower.strip_prefix("content-length:").map_or(length, |n| n.trim().parse().unwrap());
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (status, body) = match (first.starts_with("POST"), request.get("id")) {
        (false, _) => ("405 Method Not Allowed", String::new()),
        (true, None) => ("202 Accepted", String::new()),
        (true, Some(id)) => {
            let mut reply = reply(&request);
            reply["jsonrpc"] = json!("2.0");
            reply["id"] = id.clone();
            ("200 OK", reply.to_string())
        }
    };
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn replied(request: &Value) -> Value {
    let params = &request["params"];
    match request["method"].as_str().unwrap_or_default() {
        "initialize" => json!({"result": {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "test", "version": "1"},
        }}),
        "tools/list" => json!({"result": {"tools": [{
            "name": "double",
            "description": "Twice a number.",
            "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        }]}}),
        "tools/call" => match params["arguments"]["n"].as_i64() {
            Some(n @ 0..) => {
                json!({"result": {"content": [{"type": "text", "text": (2 * n).to_string()}]}})
            }
            _ => json!({"error": {"code": -32602, "message": "only numbers from 0"}}),
        },
        _ => json!({"error": {"code": -32601, "message": "no such method"}}),
    }
}
