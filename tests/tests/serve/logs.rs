//! Logs of the servers, which have no control character of a client or of a task.

use serde_json::{Value, json};

use super::{Server, lab};

/// A text that clears the screen, sets the title of the terminal, and turns the direction of what follows.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;title\u{7}\r\u{9b}31m\u{85}\u{7f}\u{202e}\u{2066}\u{200b}";

/// Returns a body with hostile names and texts of fields beside these.
fn hostile(mut body: Value) -> Value {
    body[format!("f{HOSTILE}")] = HOSTILE.into();
    body["user"] = HOSTILE.into();
    body["stop"] = HOSTILE.into();
    body
}

#[test]
fn no_log_of_a_server_has_a_control_character_of_a_client_or_of_a_task() {
    let lab = lab();
    let row = |n: usize| {
        json!({
            "id": format!("a{HOSTILE}{n}"),
            "source": format!("s{HOSTILE}"),
            "question": format!("{HOSTILE}What is {n} + 1?"),
            "answer": format!("{}", n + 1),
        })
    };
    lab.write("hostile.jsonl", &(0..9).map(|n| format!("{}\n", row(n))).collect::<String>());
    let config = "[task]\ndata = \"hostile.jsonl\"\n[orchestra]\nname = \"solo/answer\"\n[environment]\nname = \"math\"\n\
                  [sampling]\nmax_tokens = 4\n[models.tiny]\npath = \"builtin:tiny\"\n";
    lab.write("hostile.toml", config);
    let message = json!({ "role": "user", "content": HOSTILE });
    let chat = json!({ "model": HOSTILE, "messages": [message], "max_tokens": 4 });
    let team = json!({ "messages": [message], "max_tokens": 4 });
    let completion = json!({ "prompt": HOSTILE, "max_tokens": 4 });
    let judged =
        json!({ "query": HOSTILE, "prompts": [HOSTILE], "label": HOSTILE, "labels": [HOSTILE] });
    let path = format!("/v1/{}", HOSTILE.replace(|c: char| !c.is_ascii_graphic(), "%1B"));
    for (args, posts) in [
        (
            &["model", "--model", "builtin:tiny"][..],
            vec![
                ("/v1/chat/completions", chat.clone()),
                ("/v1/chat/completions", team.clone()),
                ("/v1/completions", completion),
            ],
        ),
        (
            &["team", "hostile.toml"],
            vec![("/v1/chat/completions", chat), ("/v1/chat/completions", team)],
        ),
        (&["reward", "--judge", "math"], vec![("/rm", judged.clone()), ("/get_reward", judged)]),
        (
            &["environment", "hostile.toml"],
            vec![
                ("/math/tasks", json!({ "split": HOSTILE })),
                ("/math/tasks", json!({ "split": "train" })),
                ("/math/task", json!({ "split": "train", "index": HOSTILE })),
            ],
        ),
    ] {
        let server = Server::start(&lab, args);
        for (route, body) in &posts {
            for body in [body.clone(), hostile(body.clone())] {
                let (status, _) = server.post(route, &body);
                assert!((200..500).contains(&status), "{args:?} {route}: {status}");
            }
        }
        server.get(&path);
        assert_eq!(server.stop(), Some(0), "{args:?}");
        let log = std::fs::read_to_string(lab.path("server.log")).unwrap();
        let obeyed =
            |c: char| (c.is_control() && c != '\n') || ('\u{200b}'..='\u{206f}').contains(&c);
        assert_eq!(log.find(obeyed), None, "{args:?}: {log:?}");
        assert!(!log.is_empty(), "{args:?} logs nothing");
    }
}
