#![allow(clippy::unwrap_used)]

mod choices;
mod conversations;

use std::num::NonZeroUsize;

use super::*;
use crate::config::{EvalConfig, EvalData, Ids};
use crate::trajectory::Role;

/// Creates a directory with one file.
fn file(name: &str, content: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(name), content).unwrap();
    dir
}

fn read(name: &str, content: &str, split: &str) -> Result<Vec<Task>, DataError> {
    let config = TaskConfig { data: name.to_owned(), ..TaskConfig::default() };
    load(&config, split, file(name, content).path())
}

fn answers(task: &Task) -> Vec<String> {
    serde_json::from_value(task.data["answers"].clone()).unwrap()
}

#[test]
fn the_built_in_world_has_its_own_splits() {
    let config = TaskConfig::default();
    for split in facts::SPLITS {
        let tasks = load(&config, split, Path::new("/nowhere")).unwrap();
        assert_eq!(tasks, facts::tasks(split).unwrap());
    }
    let error = load(&config, "dev", Path::new("")).unwrap_err().to_string();
    assert!(error.contains("no tasks in split `dev`; it has `test`: "), "{error}");
}

#[test]
fn rows_say_the_same_in_every_form() {
    let rows = r#"{"question": "Who?", "answers": ["Ada", "Ada T."], "id": "a"}
{"question": "Who?", "answer": "Ada", "id": 7, "source": "mine"}
{"question": "Who?", "golden_answers": ["Ada"], "level": 3}

{"prompt": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Who?"}], "data_source": "nq", "reward_model": {"style": "rule", "ground_truth": {"target": ["Ada"]}}, "extra_info": {"index": 4}}
{"prompt": [{"role": "user", "content": "Who?"}], "reward_model": {"ground_truth": "Ada"}, "data_source": "nq"}
{"prompt": "Who?"}
"#;
    let tasks = read("rows.jsonl", rows, ALL).unwrap();
    assert!(tasks.iter().all(|task| task.question == "Who?"));
    let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["a", "7", "3", "5", "6", "7"]);
    let sources: Vec<&str> = tasks.iter().map(|task| task.source.as_str()).collect();
    assert_eq!(sources, ["rows", "mine", "rows", "nq", "nq", "rows"]);
    assert_eq!(answers(&tasks[0]), ["Ada", "Ada T."]);
    assert!(tasks[1..5].iter().all(|task| answers(task) == ["Ada"]));
    assert_eq!(tasks[2].data["level"], 3);
    assert_eq!(tasks[3].data["index"], 4);
    assert!(tasks[5].data.is_empty());
}

#[test]
fn a_packed_file_is_read_as_what_is_in_it() {
    use std::io::Write;

    let dir = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(dir.path().join("rows.jsonl.gz")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    packed.write_all(b"{\"prompt\": \"?\", \"task_id\": \"HumanEval/0\"}").unwrap();
    packed.finish().unwrap();
    let tasks = load(&config("rows.jsonl.gz"), ALL, dir.path()).unwrap();
    assert_eq!((tasks[0].id.as_str(), tasks[0].source.as_str()), ("HumanEval/0", "rows"));
}

fn config(data: &str) -> TaskConfig {
    TaskConfig { data: data.to_owned(), ..TaskConfig::default() }
}

#[test]
fn keys_of_a_file_may_be_given_the_names_that_are_known() {
    let keys = [("question", "query"), ("answer", "labels.gold"), ("level", "a.b")];
    let keys = keys.map(|(ours, theirs)| (ours.to_owned(), theirs.to_owned()));
    let config = TaskConfig { keys: keys.into(), ..config("rows.jsonl") };
    let rows = r#"{"query": "Who?", "labels": {"gold": "Ada", "other": 1}, "a.b": 2}
{"question": "Who?", "answer": "Ada", "level": 2}"#;
    let tasks = load(&config, ALL, file("rows.jsonl", rows).path()).unwrap();
    for task in &tasks {
        assert_eq!((task.question.as_str(), answers(task)), ("Who?", vec!["Ada".to_owned()]));
        assert_eq!(task.level(), Some(2));
    }
    assert_eq!(tasks[0].data["labels"], serde_json::json!({"other": 1}));
    let lacking = file("rows.jsonl", "{\"query\": \"Who?\", \"a.b\": 1}");
    let error = load(&config, ALL, lacking.path()).unwrap_err().to_string();
    let wanted = "rows.jsonl:1: no `labels.gold`, which `task.keys` gives for `answer`, among the keys [\"query\", \"a.b\"]";
    assert!(error.ends_with(wanted), "{error}");
    // A file that looks like HotpotQA is read as rows if its keys are named.
    let listed =
        "[{\"query\": \"Who?\", \"labels\": {\"gold\": \"Ada\"}, \"a.b\": 1, \"context\": []}]";
    assert_eq!(load(&config, ALL, file("rows.jsonl", listed).path()).unwrap().len(), 1);
    // The test set of a data set has the same columns.
    let held_out = crate::config::EvalConfig {
        data: Some(EvalData::One("test.jsonl".to_owned())),
        ..Default::default()
    };
    let dir = file("test.jsonl", rows);
    assert_eq!(load(&held_out.held_out(&config), ALL, dir.path()).unwrap().len(), 2);
}

#[test]
fn held_out_tasks_are_read_with_the_ignored_columns_and_the_format_of_the_training_data() {
    let row = "{\"question\": \"?\", \"prompt\": [{\"role\": \"user\", \"content\": \"?\"}], \"context\": [], \"answer\": 1}";
    let config = TaskConfig {
        ignore: vec!["prompt".to_owned()],
        format: DataFormat::Jsonl,
        ..config("train.jsonl")
    };
    let dir = file("test.jsonl", row);
    let sets = [("a".to_owned(), "test.jsonl".to_owned())].into_iter().collect();
    for data in [EvalData::One("test.jsonl".to_owned()), EvalData::Several(sets)] {
        let eval = EvalConfig { data: Some(data), ..EvalConfig::default() };
        let tasks = load(&eval.held_out(&config), "test", dir.path()).unwrap();
        assert_eq!(tasks[0].data["answers"][0], "1");
    }
}

#[test]
fn described_data_are_the_task_that_a_run_reads() {
    let shown = |data: &str, text: &str, split: &str| {
        let dir = file(data, text);
        let config = TaskConfig { split: split.to_owned(), ..config(data) };
        let (described, rows) = (describe(&config, dir.path()), raw_rows(&config, dir.path(), 9));
        let run = load(&config, split, dir.path());
        (described.unwrap(), rows.unwrap(), run.ok())
    };
    let rows = "{\"question\": \"a\", \"answer\": 0.10, \"split\": \"train\"}\n\
                {\"question\": \"b\", \"answer\": 2, \"split\": \"test\"}\n";
    for (split, question, answer) in [("train", "a", "0.10"), ("test", "b", "2")] {
        let (described, rows, run) = shown("rows.jsonl", rows, split);
        assert_eq!((rows.len(), &rows[0]["question"]), (1, &Value::from(question)));
        let task = described.task.unwrap();
        assert_eq!((&task, &task.data["answers"][0]), (&run.unwrap()[0], &Value::from(answer)));
    }
    let squad = r#"{"data": [{"title": "T", "paragraphs": [{"context": "C", "qas": [
        {"id": "a", "question": "Q?", "answers": [{"text": "A"}]}]}]}]}"#;
    let (described, _, run) = shown("dev.json", squad, ALL);
    assert_eq!(described.task.unwrap(), run.unwrap()[0]);
    let (described, rows, _) = shown("builtin:facts", "", "train");
    assert_eq!(rows.len(), 9);
    assert_eq!(described.first["question"], described.task.unwrap().question.as_str());
    // Rows that are no tasks are those of their key `split`.
    let rows =
        "{\"chosen\": \"a\", \"split\": \"train\"}\n{\"chosen\": \"b\", \"split\": \"test\"}\n";
    let (described, rows, _) = shown("pairs.jsonl", rows, "test");
    assert!(described.no_task.unwrap().starts_with("no `question`"));
    assert_eq!((rows.len(), &rows[0]["chosen"]), (1, &Value::from("b")));
}

#[test]
fn ids_of_a_file_may_be_left_aside() {
    let config = TaskConfig { ids: Ids::Line, ..config("rows.json") };
    for rows in [
        "{\"id\": 7, \"question\": \"?\"}\n\n{\"id\": 7, \"question\": \"?\"}",
        "[{\"_id\": \"7\", \"question\": \"?\", \"answer\": \"\", \"context\": []}, \
          {\"_id\": \"7\", \"question\": \"?\", \"answer\": \"\", \"context\": []}]",
    ] {
        let placed = placed(&config, ALL, file("rows.json", rows).path()).unwrap();
        let mut rows = placed.tasks.names().zip(&placed.lines);
        assert!(rows.len() == 2 && rows.all(|((id, _), line)| id == line.to_string()));
    }
}

/// Creates a gzip-compressed file.
fn packed(name: &str, write: impl FnOnce(&mut dyn std::io::Write)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(dir.path().join(name)).unwrap();
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    write(&mut packed);
    packed.finish().unwrap();
    dir
}

#[test]
fn what_unpacks_to_more_than_its_bound_is_refused_with_the_key_that_raises_it() {
    let mib = |n| std::num::NonZeroU64::new(n).unwrap();
    let config = TaskConfig { max_mib: mib(3), max_row_mib: mib(1), ..config("rows.jsonl.gz") };
    let fill = |text: &'static [u8], times: usize| {
        move |out: &mut dyn std::io::Write| (0..times).for_each(|_| out.write_all(text).unwrap())
    };
    let whole = " bytes and unpacks to more than 3 MiB; raise `task.max_mib` if that is meant";
    let row = "a row of more than 1 MiB; raise `task.max_row_mib` if that is meant";
    let row_text: &'static [u8] = b"{\"question\": \"?\"}\n";
    let long = format!("{{\"question\": \"{}\"}}\n", "x".repeat(400));
    let long_text: &'static [u8] = long.into_bytes().leak();
    for (dir, wanted) in [
        (
            packed("rows.jsonl.gz", fill(row_text, 20_000)),
            " bytes and unpacks to more than 12288 rows; raise",
        ),
        (packed("rows.jsonl.gz", fill(long_text, 20_000)), whole),
        (packed("rows.jsonl.gz", fill(b"\n\n\n\n\n\n\n\n", 500_000)), whole),
        (packed("rows.jsonl.gz", fill(b"        ", 500_000)), whole),
        (packed("rows.jsonl.gz", fill(b"{\"a\": [", 500_000)), row),
        (packed("rows.jsonl.gz", fill(b"[ {\"a\": 1, ", 500_000)), row),
        (packed("rows.jsonl.gz", fill(b"{\"data\": [{\"a\": 1, ", 500_000)), "no SQuAD file"),
    ] {
        let error = load(&config, ALL, dir.path()).unwrap_err().to_string();
        assert!(error.contains(wanted) && error.contains("rows.jsonl.gz"), "{error}");
    }
    // The row limit also applies to an uncompressed file.
    let long = format!("{{\"question\": \"{}\"}}", "x".repeat(1 << 20));
    let error = load(&config, ALL, file("rows.jsonl.gz", &long).path()).unwrap_err().to_string();
    assert!(error.contains(&format!(":1: {row}")), "{error}");
    let larger = TaskConfig { max_mib: mib(8), ..config };
    let dir = packed("rows.jsonl.gz", fill(row_text, 20_000));
    assert_eq!(load(&larger, ALL, dir.path()).unwrap().len(), 20_000);
}

#[test]
fn a_file_that_is_not_there_is_named_by_the_place_where_it_was_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    for (name, hint) in
        [("no.jsonl", ""), ("~/no.jsonl", "; `~` is not expanded: write the whole path")]
    {
        let error = load(&config(name), ALL, dir.path()).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("`{at}/{name}` cannot be read: No such file")),
            "{error}"
        );
        assert!(error.ends_with(&format!("(os error 2){hint}")), "{error}");
    }
}

/// Published columns of MATH-500, AIME (twice), DeepScaleR, MATH and SQuAD.
#[test]
fn rows_of_known_data_sets_are_tasks() {
    let rows = [
        r#"{"problem": "?", "solution": "It is \\boxed{3}.", "answer": "3", "subject": "Algebra", "level": 2, "unique_id": "test/algebra/1.json"}"#,
        r#"{"ID": "2024-II-4", "Problem": "?", "Solution": "So 3.", "Answer": 3}"#,
        r#"{"id": 60, "problem": "?", "solution": "3", "answer": "3", "url": "x", "year": "2024"}"#,
        r#"{"problem": "?", "answer": "3", "solution": ""}"#,
        r#"{"problem": "?", "level": "Level 5", "type": "Algebra", "solution": "3"}"#,
        r#"{"id": "q", "title": "T", "context": "It is 3.", "question": "?", "answers": {"text": ["3"], "answer_start": [6]}}"#,
    ];
    let listed = format!("[{}]", rows.join(", "));
    for text in [rows.join("\n"), listed] {
        let tasks = read("rows.json", &text, ALL).unwrap();
        let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
        assert_eq!(ids, ["test/algebra/1.json", "2024-II-4", "60", "4", "5", "q"]);
        for task in &tasks {
            assert_eq!((task.question.as_str(), answers(task)), ("?", vec!["3".to_owned()]));
        }
        assert!(tasks[0].data.contains_key("solution") && tasks[4].data.contains_key("solution"));
    }
}

#[test]
fn squad_paragraphs_support_their_questions() {
    let text = r#"{"version": "1.1", "data": [{"title": "Super_Bowl", "paragraphs": [
        {"context": "It was loud.", "qas": [
            {"id": "q1", "question": "How was it?", "answers": [{"text": "loud", "answer_start": 7}]},
            {"id": "q2", "question": "Unanswerable?", "answers": []}]},
        {"context": "It was long.", "qas": []}]}]}"#;
    for text in [text.to_owned(), text.replace('\n', " ")] {
        let tasks = read("squad.json", &text, ALL).unwrap();
        assert_eq!(tasks.len(), 1);
        assert_eq!(answers(&tasks[0]), ["loud"]);
        let documents =
            corpus("squad.json", file("squad.json", &text).path(), Bounds::default()).unwrap();
        assert_eq!(tasks[0].data["support"][0], documents[0].key.as_str());
        assert_eq!(documents[0].line(), "(Super Bowl) It was loud.");
        assert_eq!(documents.len(), 2);
    }
}

#[test]
fn hotpot_is_read_as_published_and_as_columns() {
    let published = r#"[{"_id": "x1", "question": "Q?", "answer": "yes", "supporting_facts": [["B", 0], ["A", 0], ["B", 1]],
        "context": [["A", ["One.", " Two."]], ["B", ["Three."]]]}]"#;
    let columns = r#"[{"question": "Q?", "answer": "yes", "supporting_facts": {"title": ["B", "A", "B"], "sent_id": [0, 0, 1]},
        "context": {"title": ["A", "B"], "sentences": [["One.", " Two."], ["Three."]]}}]"#;
    for (text, id) in [(published, "x1"), (columns, "1")] {
        let tasks = read("hotpot.json", text, ALL).unwrap();
        assert_eq!((tasks[0].id.as_str(), answers(&tasks[0])), (id, vec!["yes".to_owned()]));
        assert_eq!(tasks[0].data["support"], serde_json::json!(["B", "A"]));
        let documents =
            corpus("hotpot.json", file("hotpot.json", text).path(), Bounds::default()).unwrap();
        assert_eq!(documents[0].text, "One. Two.");
        assert_eq!(documents[1].line(), "(B) Three.");
    }
}

#[test]
fn documents_have_text_or_contents() {
    let text = r#"{"id": "b", "title": "T", "text": "Body"}
{"id": "a", "contents": "\"T\"\nBody"}
"#;
    let documents = corpus("c.jsonl", file("c.jsonl", text).path(), Bounds::default()).unwrap();
    let lines: Vec<String> = documents.iter().map(Document::line).collect();
    assert_eq!(lines, ["(T) Body", "(T) Body"]);
    assert_eq!(documents[0].key, "a");
}

#[test]
fn a_file_without_splits_is_split_by_id() {
    let rows = |ids: std::ops::Range<u32>| -> String {
        ids.map(|id| format!("{{\"id\": \"q{id}\", \"question\": \"?\"}}\n")).collect()
    };
    let all = rows(0..2000);
    let sizes = facts::SPLITS.map(|split| read("q.jsonl", &all, split).unwrap().len());
    assert_eq!(sizes.iter().sum::<usize>(), 2000);
    assert!(sizes[0].abs_diff(1600) < 80 && sizes[1].abs_diff(200) < 60, "{sizes:?}");
    let few = read("q.jsonl", &rows(0..1000), "test").unwrap();
    assert_eq!(few, read("q.jsonl", &all, "test").unwrap()[..few.len()]);
}

#[test]
fn a_split_in_the_row_counts() {
    let rows = r#"{"question": "1", "split": "test"}
{"prompt": "2", "extra_info": {"split": "dev"}}"#;
    assert_eq!(read("q.jsonl", rows, "test").unwrap()[0].question, "1");
    assert_eq!(read("q.jsonl", rows, "dev").unwrap()[0].question, "2");
    assert!(read("q.jsonl", rows, "train").is_err());
}

#[test]
fn a_limit_takes_the_first() {
    let config = TaskConfig { limit: NonZeroUsize::new(3), ..TaskConfig::default() };
    let tasks = load(&config, "test", Path::new("")).unwrap();
    assert_eq!(tasks, facts::tasks("test").unwrap()[..3]);
}

#[test]
fn tasks_above_a_level_are_left_out_and_none_at_all_is_an_error() {
    let with = |max_level, limit: usize| {
        let limit = std::num::NonZero::new(limit);
        let data = "builtin:arithmetic".to_owned();
        let config = TaskConfig { data, max_level, limit, ..TaskConfig::default() };
        load(&config, "test", Path::new(""))
    };
    let levels = |tasks: Vec<Task>| tasks.iter().filter_map(Task::level).collect::<Vec<_>>();
    assert_eq!(levels(with(Some(2), 0).unwrap()).len(), 500);
    assert_eq!(levels(with(Some(2), 4).unwrap()), [1, 2, 1, 2]);
    let error = with(Some(0), 0).unwrap_err().to_string();
    assert!(error.contains("`task.max_level` is 0, and the lowest level"), "{error}");
    let rows = r#"{"question": "?", "answer": "1", "level": "Level 4"}
{"question": "?", "answer": "1"}"#;
    let dir = file("rows.jsonl", rows);
    let config =
        TaskConfig { data: "rows.jsonl".to_owned(), max_level: Some(3), ..TaskConfig::default() };
    let tasks = load(&config, ALL, dir.path()).unwrap();
    assert_eq!(levels(tasks), [] as [u64; 0], "what has no level stays");
}

#[test]
fn the_question_of_mbpp_is_its_text() {
    let rows = r#"{"task_id": 1, "text": "Write g.", "code": "def g():\n    pass", "test_list": ["assert g()"]}
{"task_id": 2, "prompt": "Write h.", "text": "other", "test_list": ["assert h()"]}"#;
    let dir = file("rows.jsonl", rows);
    let config = TaskConfig { data: "rows.jsonl".to_owned(), ..TaskConfig::default() };
    let tasks = load(&config, ALL, dir.path()).unwrap();
    let questions: Vec<&str> = tasks.iter().map(|task| task.question.as_str()).collect();
    assert_eq!(questions, ["Write g.", "Write h."]);
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (content, expected) in [
        (
            "{\"question\": \"?\"}\n{\"query\": \"?\"}",
            ":2: no `question`, `problem` or `prompt` among the keys [\"query\"]",
        ),
        ("{\"question\": \"?\"}\n{oops", ":2: no JSON object: "),
        ("{\"question\": 3}", ":1: `question` is 3; write a text"),
        ("{\"text\": \"?\", \"label\": 1}", ":1: no `question`, `problem` or `prompt` among"),
        ("{\"question\": \"?\", \"answers\": []}", ":1: `answers` is empty"),
        (
            "{\"question\": \"?\", \"answers\": [{}]}",
            ":1: `answers` holds something that is neither",
        ),
        ("{\"prompt\": \"?\", \"reward_model\": {}}", ":1: `reward_model` has no `ground_truth`"),
        ("{\"data\": [\n{\"title\": 3}]}", ":2: no SQuAD file"),
        ("[{\"question\": \"?\", \"context\": []}]", ":1: no HotpotQA file"),
        ("[{\"question\": \"?\"}, 3]", ":2: no JSON object: invalid type: integer `3`"),
        ("[{\"question\": \"?\"}", ":1: no list of JSON objects: it ends before its `]`"),
        ("[{\"question\": \"?\"}, {\"query\": 3}]", ":2: no `question`"),
        ("id,question\n", ":1: starts with \"id,question"),
        (
            "{\"id\": 1, \"question\": \"?\"}\n\n{\"id\": 1, \"question\": \"!\"}",
            "bad.json:3: the id `1` is that of row 1 too; ids are part of every seed: give each its own, or write \
             `task.ids = \"line\"`",
        ),
        (
            "{\"question\": \"?\"}\n{\"question\": \" \"}",
            "bad.json:2: the question of task `2` is empty",
        ),
        ("", "no tasks in split `all`; it has none at all"),
    ] {
        let error = read("bad.json", content, ALL).unwrap_err().to_string();
        assert!(error.contains(expected), "{content}: {error}");
        assert!(error.contains("bad.json"), "{error}");
    }
    let missing = load(
        &TaskConfig { data: "no.jsonl".into(), ..TaskConfig::default() },
        ALL,
        Path::new("/x"),
    );
    assert!(missing.unwrap_err().to_string().starts_with("`/x/no.jsonl` cannot be read: "));
    let load = |name: &str| {
        let data = format!("builtin:{name}");
        load(&TaskConfig { data, ..TaskConfig::default() }, ALL, Path::new(""))
    };
    let unknown = load("x").unwrap_err().to_string();
    for name in BUILT_IN {
        assert!(!load(name).unwrap().is_empty(), "{name}");
        assert!(unknown.contains(&format!("`builtin:{name}`")), "{name}: {unknown}");
    }
}

#[test]
fn mistakes_in_a_corpus_are_named() {
    for (content, expected) in [
        ("", "`c.jsonl` has no documents; write one JSON object a line"),
        ("{\"id\": 1}", ":1: no `text` or `contents` among the keys"),
        (
            "{\"id\": 1, \"text\": \"a\"}\n{\"id\": 1, \"text\": \"b\"}",
            "c.jsonl:2: the id `1` is that of row 1 too; documents are found by their ids",
        ),
    ] {
        let error = corpus("c.jsonl", file("c.jsonl", content).path(), Bounds::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn demonstrations_are_read_in_both_of_their_forms() {
    let rows = r#"{"messages": [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]}
{"prompt": "1 + 1?", "completion": "2"}
{"prompt": [{"role": "user", "content": "1 + 1?"}], "completion": [{"role": "assistant", "content": "2"}]}"#;
    let dir = file("d.jsonl", rows);
    let path = dir.path().join("d.jsonl");
    for demonstration in demonstrations(&path, &TaskConfig::default()).unwrap() {
        let messages = &demonstration.chat.messages;
        let read: Vec<_> = messages.iter().map(|it| (it.role(), it.text())).collect();
        assert_eq!(read, [("user", "1 + 1?"), ("assistant", "2")]);
        assert_eq!(demonstration.replies(), [1]);
    }
}

#[test]
fn a_demonstration_ends_with_the_assistant() {
    for (row, expected) in [
        (
            r#"{"messages": [{"role": "user", "content": "?"}]}"#,
            "must end with the assistant's reply",
        ),
        (r#"{"messages": [{"role": "assistant", "content": "!"}]}"#, "reply to something"),
        (r#"{"messages": 3}"#, "`messages` is 3; write a list of messages"),
        (r#"{"prompt": "?"}"#, ":1: no `messages`, nor `prompt` and `completion`"),
        ("", "has no demonstrations; write one JSON object a line"),
    ] {
        let dir = file("d.jsonl", row);
        let path = dir.path().join("d.jsonl");
        let error = demonstrations(&path, &TaskConfig::default()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Returns a task whose columns have other names, and some of whose columns are not read.
fn named(keys: &[(&str, &str)], ignore: &[&str]) -> TaskConfig {
    let keys = keys.iter().map(|(ours, theirs)| ((*ours).to_owned(), (*theirs).to_owned()));
    let ignore = ignore.iter().map(|key| (*key).to_owned()).collect();
    TaskConfig { keys: keys.collect(), ignore, ..TaskConfig::default() }
}

/// Reads the demonstrations of `d.jsonl`.
fn shown(dir: &tempfile::TempDir, task: &TaskConfig) -> Result<Vec<Demonstration>, String> {
    demonstrations(&dir.path().join("d.jsonl"), task).map_err(|error| error.to_string())
}

#[test]
fn demonstrations_have_the_columns_of_known_data_sets_or_those_that_task_keys_names() {
    let cases: [(&str, &[(&str, &str)]); 8] = [
        // GSM8K.
        (r#"{"question": "1 + 1?", "answer": "1 + 1 = <<1+1=2>>2\n#### 2"}"#, &[]),
        // MATH.
        (
            r#"{"problem": "1 + 1?", "level": "Level 1", "type": "Algebra", "solution": "1 + 1 = <<1+1=2>>2\n#### 2"}"#,
            &[],
        ),
        (
            r#"{"question": "1 + 1?", "answer": "1 + 1 = <<1+1=2>>2\n#### 2"}"#,
            &[("prompt", "question"), ("completion", "answer")],
        ),
        // Alpaca.
        (
            r#"{"instruction": "1 + 1?", "input": "", "output": "1 + 1 = <<1+1=2>>2\n#### 2"}"#,
            &[("prompt", "instruction"), ("completion", "output")],
        ),
        // verl's form of GSM8K.
        (
            r#"{"prompt": [{"role": "user", "content": "1 + 1?"}], "extra_info": {"answer": "1 + 1 = <<1+1=2>>2\n#### 2"}}"#,
            &[("completion", "extra_info.answer")],
        ),
        (
            r#"{"chat": [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "1 + 1 = <<1+1=2>>2\n#### 2"}]}"#,
            &[("messages", "chat")],
        ),
        // A name that `task.keys` gives goes before those of known data sets.
        (
            r#"{"question": "no", "answer": "no", "q": "1 + 1?", "a": "1 + 1 = <<1+1=2>>2\n#### 2"}"#,
            &[("prompt", "q"), ("completion", "a")],
        ),
        (
            r#"{"prompt": "1 + 1?", "completion": "1 + 1 = <<1+1=2>>2\n#### 2", "question": "no", "answer": "no"}"#,
            &[],
        ),
    ];
    for (row, keys) in cases {
        let dir = file("d.jsonl", row);
        let found = shown(&dir, &named(keys, &["input", "extra_info"])).unwrap();
        let messages: Vec<_> =
            found[0].chat.messages.iter().map(|it| (it.role(), it.text())).collect();
        let expected = [("user", "1 + 1?"), ("assistant", "1 + 1 = <<1+1=2>>2\n#### 2")];
        assert_eq!(messages, expected, "{row}");
    }
    let row = r#"{"question": "1 + 1?", "answers": ["2"]}"#;
    let dir = file("d.jsonl", row);
    let error = shown(&dir, &named(&[], &[])).unwrap_err();
    assert!(error.contains("`task.keys` names columns that the file calls otherwise"), "{error}");
    let error = shown(&dir, &named(&[], &["answers"])).unwrap_err();
    assert!(
        error.contains("`task.keys = { prompt = \"..\", completion = \"..\" }` names them"),
        "{error}"
    );
    let error = shown(&dir, &named(&[("completion", "answer")], &[])).unwrap_err();
    assert!(error.contains(":1: no `answer`, which `task.keys` gives for `completion`"), "{error}");
}

#[test]
fn pairs_have_the_columns_that_task_keys_names() {
    let row = r#"{"question": "1 + 1?", "good": "2", "bad": "3"}"#;
    let dir = file("d.jsonl", row);
    let path = dir.path().join("d.jsonl");
    let read = |keys: &[(&str, &str)]| preferences(&path, &named(keys, &[]));
    let keys = [("prompt", "question"), ("chosen", "good"), ("rejected", "bad")];
    let pair = &read(&keys).unwrap()[0];
    let replies = [&pair.chosen, &pair.rejected].map(|reply| reply.as_ref().unwrap().text());
    assert_eq!((replies, pair.prompt.messages[0].text()), (["2", "3"], "1 + 1?"));
    let error = read(&[]).unwrap_err().to_string();
    assert!(error.contains("`task.keys` names columns that the file calls otherwise"), "{error}");
}

/// Returns the number of tasks of a split of a file that is named for evaluation, beside training data of another name.
fn evaluated(name: &str, text: &str, split: &str) -> Result<usize, DataError> {
    let data = Some(EvalData::One(name.to_owned()));
    let eval = EvalConfig { data, ..EvalConfig::default() };
    let (config, dir) = (eval.held_out(&config("train.jsonl")), file(name, text));
    load(&config, split, dir.path()).map(|tasks| tasks.len())
}

#[test]
fn a_file_that_is_named_for_evaluation_is_evaluated_whole_unless_it_has_splits() {
    let rows = |n: usize| -> String {
        (0..n).map(|i| format!("{{\"question\": \"{i}+1?\", \"answer\": {}}}\n", i + 1)).collect()
    };
    for n in [1, 3, 10, 30, 100] {
        for split in ["test", "validation", "train", "dev", ALL] {
            assert_eq!(evaluated("held.jsonl", &rows(n), split).unwrap(), n, "{split}");
        }
    }
    let list = format!("[{}]", rows(7).trim_end().replace('\n', ","));
    assert_eq!(evaluated("held.json", &list, "test").unwrap(), 7);
    let squad = r#"{"data": [{"title": "T", "paragraphs": [{"context": "C", "qas": [
        {"id": "a", "question": "Q?", "answers": [{"text": "A"}]},
        {"id": "b", "question": "R?", "answers": [{"text": "B"}]}]}]}]}"#;
    assert_eq!(evaluated("dev.json", squad, "test").unwrap(), 2);
    let hotpot = r#"[{"question": "Q?", "answer": "A", "context": [["T", ["S"]]]}]"#;
    assert_eq!(evaluated("dev.json", hotpot, "test").unwrap(), 1);
    // A row that names its split is of that alone, others are of all.
    let split = |name: &str| {
        format!("{{\"question\": \"?\", \"id\": \"{name}\", \"split\": \"{name}\"}}\n")
    };
    let named = split("train") + &split("test");
    assert_eq!(evaluated("held.jsonl", &named, "test").unwrap(), 1);
    assert_eq!(evaluated("held.jsonl", &(named.clone() + &rows(2)), "test").unwrap(), 3);
    let error = evaluated("held.jsonl", &named, "dev").unwrap_err().to_string();
    assert_eq!(error, "`held.jsonl` has no tasks in split `dev`; it has `test`: 1, `train`: 1");
    // At most `eval.tasks`, the first ones.
    let tasks = std::num::NonZeroUsize::new(4).unwrap();
    let held = Some(EvalData::One("held.jsonl".to_owned()));
    let eval = EvalConfig { data: held.clone(), tasks, ..EvalConfig::default() };
    let dir = file("held.jsonl", &rows(30));
    let few = load(&eval.held_out(&config("train.jsonl")), "test", dir.path()).unwrap();
    assert_eq!(few.iter().map(|task| task.id.as_str()).collect::<Vec<_>>(), ["1", "2", "3", "4"]);
    // The training data under its own name, and without a file of its own, have the splits of training.
    for eval in [EvalConfig::default(), EvalConfig { data: held, ..EvalConfig::default() }] {
        let of =
            |split| load(&eval.held_out(&config("held.jsonl")), split, dir.path()).unwrap().len();
        let all = ["train", "validation", "test"].map(of);
        assert_eq!(all.iter().sum::<usize>(), 30);
        assert!(all.iter().all(|n| *n < 30), "{all:?}");
    }
}

#[test]
fn a_doubled_key_of_a_row_is_an_error_with_its_line() {
    let doubled = "{\"question\": \"?\", \"answer\": \"2\", \"answer\": \"3\"}";
    let good = "{\"question\": \"?\", \"answer\": \"2\"}";
    let lines = format!("{good}\n\n{doubled}\n");
    let wanted =
        "rows.jsonl:3: no JSON object: the key `answer` is there twice; keep one at line 1 column ";
    let error = load(&config("rows.jsonl"), ALL, file("rows.jsonl", &lines).path()).unwrap_err();
    assert!(error.to_string().contains(wanted), "{error}");
    let list = format!("[{good}, {doubled}]");
    let error = load(&config("rows.json"), ALL, file("rows.json", &list).path()).unwrap_err();
    assert!(error.to_string().contains("rows.json:2: no JSON object: the key `answer`"), "{error}");
    let hotpot =
        r#"[{"question": "Q?", "answer": "A", "level": 1, "level": 2, "context": [["T", ["S"]]]}]"#;
    let error = load(&config("rows.json"), ALL, file("rows.json", hotpot).path()).unwrap_err();
    assert!(error.to_string().contains("the key `level` is there twice"), "{error}");
    for row in [
        r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "content": "c"}]}"#,
        r#"{"prompt": "a", "completion": "b", "completion": "c"}"#,
    ] {
        let dir = file("rows.jsonl", row);
        let error =
            demonstrations(&dir.path().join("rows.jsonl"), &TaskConfig::default()).unwrap_err();
        assert!(error.to_string().contains("rows.jsonl:1: no JSON object: the key `co"), "{error}");
    }
    let dir =
        file("rows.jsonl", r#"{"prompt": "a", "chosen": "b", "rejected": "c", "chosen": "d"}"#);
    let path = dir.path().join("rows.jsonl");
    let error = preferences(&path, &TaskConfig::default()).unwrap_err().to_string();
    assert!(error.contains("rows.jsonl:1: no JSON object: the key `chosen`"), "{error}");
    let dir =
        file("rows.jsonl", r#"{"prompt": "a", "completion": "b", "label": true, "label": false}"#);
    let path = dir.path().join("rows.jsonl");
    let error = labeled(&path, &TaskConfig::default()).unwrap_err().to_string();
    assert!(error.contains("rows.jsonl:1: no JSON object: the key `label`"), "{error}");
    let dir = file("docs.jsonl", r#"{"id": 1, "text": "a", "text": "b"}"#);
    let error = corpus("docs.jsonl", dir.path(), Bounds::default()).unwrap_err().to_string();
    assert!(error.contains("docs.jsonl:1: no JSON object: the key `text`"), "{error}");
}

#[test]
fn answers_and_ids_that_are_numbers_or_truth_values_are_what_the_file_says() {
    let read = |row: &str| -> Task {
        let dir = file("rows.jsonl", row);
        load(&config("rows.jsonl"), ALL, dir.path()).unwrap().remove(0)
    };
    for written in [
        "7",
        "-0",
        "2.50",
        "1e3",
        "1E-7",
        "9223372036854775808",
        "18446744073709551616",
        "-9223372036854775809",
        "123456789012345678901234567890",
        "3.14159265358979323846",
        "0.1000000000000000055511151231257827",
        "1e400",
        "true",
        "false",
    ] {
        for row in [
            format!("{{\"question\": \"?\", \"answer\": {written}}}"),
            format!("{{\"question\": \"?\", \"Answer\": {written}}}"),
            format!("{{\"question\": \"?\", \"answers\": [{written}]}}"),
            format!("{{\"question\": \"?\", \"golden_answers\": [ {written} ]}}"),
            format!("{{\"question\": \"?\", \"ground_truth\": {{\"target\": {written}}}}}"),
            format!("{{\"question\": \"?\", \"reward_model\": {{\"ground_truth\": {written}}}}}"),
            format!("{{\"question\": \"?\", \"solution\": {written}}}"),
        ] {
            assert_eq!(answers(&read(&row)), [written], "{row}");
        }
        let id = format!(
            "{{\"question\": \"?\", \"answer\": 1, \"extra_info\": {{\"id\": {written}}}}}"
        );
        assert_eq!(read(&id).id, written);
    }
    let keys = [("answer", "gold.value"), ("id", "no")];
    let keys = keys.map(|(ours, theirs)| (ours.to_owned(), theirs.to_owned()));
    let config = TaskConfig { keys: keys.into(), ..config("rows.jsonl") };
    let row = r#"{"question": "?", "gold": {"value": 1.10}, "no": 36893488147419103232, "level": 2, "x": 1.10}"#;
    let task = load(&config, ALL, file("rows.jsonl", row).path()).unwrap().remove(0);
    assert_eq!(
        (answers(&task), task.id.as_str()),
        (vec!["1.10".to_owned()], "36893488147419103232")
    );
    // Other numbers stay numbers.
    assert_eq!((task.level(), &task.data["x"]), (Some(2), &serde_json::json!(1.1)));
    let dir = file("docs.jsonl", r#"{"id": 18446744073709551616, "text": 1.50}"#);
    let document = corpus("docs.jsonl", dir.path(), Bounds::default()).unwrap().remove(0);
    assert_eq!((document.key.as_str(), document.text.as_str()), ("18446744073709551616", "1.50"));
}
