//! Seats of the team, and its environments.

use super::*;

#[test]
fn an_environment_must_understand_the_orchestra() {
    check(
        &everything(),
        r#"
[orchestra]
name = "search/route"
[environment]
name = "quiz"
"#,
        r#"
  x orchestra `search/route` sends `search` actions, and environment `quiz` does not understand them
   ,-[run.toml:4:8]
 4 | name = "quiz"
   :        ^^^^^^
   `----
  help: environments that do: `library`
"#,
    );
}

#[test]
fn agents_that_do_not_sit_in_the_team_are_reported() {
    check(
        &everything(),
        r#"
[orchestra]
name = "search/route"
[environment]
name = "library"
[agents."debate/debater"]
[agents.verifier]
[agents."search/verifer"]
[agents."chess/king"]
[rewards.brevety]
"#,
        r#"
  x agent `debate/debater` is not a member of orchestra `search/route`
   ,-[run.toml:5:9]
 5 | [agents."debate/debater"]
   :         ^^^^^^^^^^^^^^^^
   `----
  help: the members of `search/route` are `search/answerer`, `search/searcher` and `search/verifier`
  x no agent is called `verifier`
   ,-[run.toml:6:9]
 6 | [agents.verifier]
   :         ^^^^^^^^
   `----
  help: did you mean `search/verifier`?
  x no agent is called `search/verifer`
   ,-[run.toml:7:9]
 7 | [agents."search/verifer"]
   :         ^^^^^^^^^^^^^^^^
   `----
  help: did you mean `search/verifier`?
  x no agent is called `chess/king`
   ,-[run.toml:8:9]
 8 | [agents."chess/king"]
   :         ^^^^^^^^^^^^
   `----
  help: the members of `search/route` are `search/answerer`, `search/searcher` and `search/verifier`
  x no reward function is called `brevety`
   ,-[run.toml:9:10]
 9 | [rewards.brevety]
   :          ^^^^^^^
   `----
  help: did you mean `brevity`?
"#,
    );
}

#[test]
fn seats_that_are_not_there_are_reported() {
    check(
        &everything(),
        r#"
[orchestra]
name = "debate/vote"
[environment]
name = "quiz"
[agents."debate/debater".seats.3]
frozen = true
[agents."debate/debater".seats.x]
frozen = true
[agents."debate/debater".seats.1.seats.2]
frozen = true
"#,
        r#"
  x agent `debate/debater` has no seat 3
   ,-[run.toml:5:32]
 5 | [agents."debate/debater".seats.3]
   :                                ^
   `----
  help: its seats are 0 to 2
  x `agents."debate/debater".seats.x`: seat `x` is not a number; seats are numbered from 0
   ,-[run.toml:7:32]
 7 | [agents."debate/debater".seats.x]
   :                                ^
   `----
  x seat 1 of agent `debate/debater` has no seats of its own
   ,-[run.toml:9:34]
 9 | [agents."debate/debater".seats.1.seats.2]
   :                                  ^^^^^
   `----
"#,
    );
}

#[test]
fn a_role_that_sits_once_has_no_seats() {
    check(
        &search(),
        r#"
[agents."search/verifier".seats.0]
frozen = true
"#,
        r#"
  x agent `search/verifier` has no seat 0
   ,-[run.toml:1:33]
 1 | [agents."search/verifier".seats.0]
   :                                 ^
   `----
  help: it sits once: write the keys in its own table
"#,
    );
}

#[test]
fn data_that_is_not_there_is_reported_with_the_place_where_it_was_looked_for() {
    check(
        &search(),
        r#"
[task]
data = "builtin:fcts"
"#,
        r#"
  x no built-in data is called "fcts"
   ,-[run.toml:2:8]
 2 | data = "builtin:fcts"
   :        ^^^^^^^^^^^^^^
   `----
  help: did you mean `facts`?
"#,
    );
    // A short base, so that the message is on one line.
    let at = |toml: &str| {
        let file = File::Text { name: "run.toml".into(), text: toml.into(), base: "/tmp".into() };
        problems(&Sources { file: Some(file), ..Sources::default() }, &search())
    };
    let found = at("[eval]\ndata = \"no/questions.jsonl\"");
    assert!(found.contains("there is no file `/tmp/no/questions.jsonl`\n"), "{found}");
    assert!(found.contains("help: a path is relative to the file that names it"), "{found}");
    let found = at("[task]\ndata = \"~/questions.jsonl\"");
    let wanted =
        "there is no file `/tmp/~/questions.jsonl`; `~` is not expanded: write the whole path";
    assert!(found.contains(wanted), "{found}");
}
