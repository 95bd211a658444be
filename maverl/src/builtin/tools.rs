//! Tasks for an agent with a calculator, files and a small database, in three levels of difficulty.
//!
//! Each task has its solution: the calls and the answer. The solution is never shown. Every table is generated for its
//! task, so its rows cannot be known without a query. On the first level only the required tool is available; above it,
//! one of all tools must be chosen.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::splits::number_splits;
use crate::rng::SplitMix64;
use crate::task::Task;

/// Name of the data source in a configuration.
pub const NAME: &str = "builtin:tools";
/// Splits of the shipped tasks, with the number of tasks of each level and kind.
pub const SPLITS: [(&str, usize); 3] = [("train", 100), ("validation", 10), ("test", 30)];
/// Levels of difficulty.
pub const LEVELS: [u32; 3] = [1, 2, 3];

const SEED: u64 = 61;
const ITEMS: [&str; 10] =
    ["bell", "book", "coin", "cup", "fan", "lamp", "pen", "ring", "shoe", "vase"];
const WORDS: [&str; 16] = [
    "apple", "bread", "cloud", "dream", "earth", "flame", "grass", "house", "light", "music",
    "night", "ocean", "paper", "river", "stone", "water",
];
const NAMES: [&str; 12] =
    ["a", "b", "c", "data", "list", "log", "memo", "note", "plan", "text", "todo", "work"];
/// Rows of a table.
const ROWS: usize = 4;

/// Returns the shipped tasks by split.
pub fn errands() -> Vec<(&'static str, Vec<Task>)> {
    invent(SEED)
}

/// Generates tasks from a seed, by split, with levels and kinds mixed. `data` of a task holds its initial state
/// (`files`, `database`), its goal (`answers`, `goal`), its `level`, and in `solution` the calls and the answer that
/// solve it.
pub fn invent(seed: u64) -> Vec<(&'static str, Vec<Task>)> {
    let mut draw = SplitMix64::new(seed);
    let mut asked = BTreeSet::new();
    number_splits(&SPLITS, || {
        let kinds = LEVELS.iter().flat_map(|&level| KINDS.map(|kind| (kind, level)));
        kinds.map(|(kind, level)| fresh(kind, level, &mut asked, &mut draw)).collect()
    })
}

/// Generator of tasks of a level.
type ErrandKind = fn(u32, &mut SplitMix64) -> ToolErrand;

/// Kinds of tasks, and the tools that they need.
const KINDS: [(&str, &str, ErrandKind); 3] =
    [("sum", "calculator", sum), ("file", "files", file), ("table", "sqlite", table)];

/// Generates a task that no other split has.
fn fresh(
    (kind, tool, errand): (&str, &str, ErrandKind),
    level: u32,
    asked: &mut BTreeSet<String>,
    draw: &mut SplitMix64,
) -> Task {
    loop {
        let mut errand = errand(level, draw);
        let given = errand.data.get("database").or(errand.data.get("files"));
        if !asked.insert(format!("{}{}", errand.question, given.unwrap_or(&Value::Null))) {
            continue;
        }
        let solution = json!({"calls": errand.calls, "answer": errand.answer});
        errand.data.insert("solution".to_owned(), solution);
        errand.data.insert("level".to_owned(), json!(level));
        if level == LEVELS[0] {
            errand.data.insert("tools".to_owned(), json!([tool]));
        }
        let source = format!("tools/{kind}");
        return Task { id: String::new(), source, question: errand.question, data: errand.data };
    }
}

/// A task under construction.
struct ToolErrand {
    question: String,
    data: Map<String, Value>,
    calls: Vec<Value>,
    answer: String,
}

impl ToolErrand {
    /// Creates a task that asks for an answer.
    fn asking(question: String, answer: &impl ToString, calls: Vec<Value>) -> Self {
        let answer = answer.to_string();
        let data = Map::from_iter([("answers".to_owned(), json!([answer]))]);
        Self { question, data, calls, answer }
    }

    /// Creates a task that asks for a change of state.
    fn doing(question: String, goal: Value, calls: Vec<Value>) -> Self {
        let data = Map::from_iter([("goal".to_owned(), goal)]);
        Self { question, data, calls, answer: "done".to_owned() }
    }

    fn with_value(mut self, key: &str, value: Value) -> Self {
        self.data.insert(key.to_owned(), value);
        self
    }
}

fn call(name: &str, arguments: &Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

fn run_sql(sql: &str) -> Value {
    call("sqlite", &json!({"sql": sql}))
}

/// Creates a calculation: small numbers, one step, or three steps.
fn sum(level: u32, draw: &mut SplitMix64) -> ToolErrand {
    let (expression, value) = match level {
        1 => {
            let (a, b) = (draw.between(1, 20), draw.between(1, 20));
            (format!("{a} + {b}"), a + b)
        }
        2 => {
            let (a, b) = (draw.between(101, 999), draw.between(11, 99));
            (format!("{a} * {b}"), a * b)
        }
        _ => {
            let (a, b) = (draw.between(1001, 9999), draw.between(101, 999));
            let (c, d) = (draw.between(11, 99), draw.between(2, 99));
            (format!("({a} + {b}) * {c} - {d}"), (a + b) * c - d)
        }
    };
    let calls = vec![call("calculator", &json!({"expression": expression}))];
    ToolErrand::asking(format!("What is {expression}?"), &value, calls)
}

/// Creates a task to write a file: a word, the content of another file, or two files joined.
fn file(level: u32, draw: &mut SplitMix64) -> ToolErrand {
    let mut names = NAMES;
    draw.shuffle(&mut names);
    let [from, second, to] = [0, 1, 2].map(|i| format!("{}.txt", names[i]));
    let texts = [0, 1].map(|_| format!("{} {}", draw.pick(&WORDS), draw.pick(&WORDS)));
    let [text, more] = &texts;
    let both = format!("{text} {more}");
    let (question, written, sources) = match level {
        1 => (format!("Write {text} into the file {to}."), text, vec![]),
        2 => (format!("Copy what the file {from} says into the file {to}."), text, vec![&from]),
        _ => {
            let question = format!(
                "Write what {from} says, a space, and what {second} says into the file {to}."
            );
            (question, &both, vec![&from, &second])
        }
    };
    let reads = sources.iter().map(|path| call("read_file", &json!({"path": path})));
    let write = call("write_file", &json!({"path": to, "text": written}));
    let calls = reads.chain([write]).collect();
    let errand = ToolErrand::doing(question, json!({"files": {&to: written}}), calls);
    if sources.is_empty() {
        return errand;
    }
    let files = sources.into_iter().zip(&texts).map(|(path, text)| (path.clone(), json!(text)));
    errand.with_value("files", files.collect())
}

/// Creates a task about a table: read a cell, sum over it, or change it.
fn table(level: u32, draw: &mut SplitMix64) -> ToolErrand {
    let mut items = ITEMS;
    draw.shuffle(&mut items);
    let mut rows: Vec<(&str, i64, i64)> = items[..ROWS]
        .iter()
        .map(|item| (*item, draw.between(2, 60), draw.between(2, 99)))
        .collect();
    let values: Vec<String> =
        rows.iter().map(|(item, n, price)| format!("('{item}', {n}, {price})")).collect();
    let database = format!(
        "CREATE TABLE stock (item TEXT, number INTEGER, price INTEGER); INSERT INTO stock VALUES {};",
        values.join(", ")
    );
    let at = draw.index(ROWS);
    let (item, n, _) = rows[at];
    const TELLS: &str = "The table stock has item, number and price.";
    let errand = match level {
        1 => {
            let sql = format!("SELECT number FROM stock WHERE item = '{item}'");
            let question = format!("{TELLS} What is the number of the item {item}?");
            ToolErrand::asking(question, &n, vec![run_sql(&sql)])
        }
        2 => {
            let worth: i64 = rows.iter().map(|(_, n, price)| n * price).sum();
            let question = format!("{TELLS} What is number times price, summed up over all items?");
            let call = run_sql("SELECT SUM(number * price) FROM stock");
            ToolErrand::asking(question, &worth, vec![call])
        }
        _ => {
            let price = draw.between(100, 199);
            rows[at].2 = price;
            rows.sort_unstable();
            let question = format!("{TELLS} Set the price of the item {item} to {price}.");
            let rows: Vec<Value> = rows.iter().map(|row| json!(row)).collect();
            let query = "SELECT item, number, price FROM stock ORDER BY item";
            let sql = format!("UPDATE stock SET price = {price} WHERE item = '{item}'");
            ToolErrand::doing(question, json!({"query": query, "rows": rows}), vec![run_sql(&sql)])
        }
    };
    errand.with_value("database", json!(database))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_split_is_the_same_each_time_and_shares_no_errand() {
        let all = errands();
        assert_eq!(all, errands());
        let mut seen = BTreeSet::new();
        for ((split, tasks), (name, each)) in all.iter().zip(SPLITS) {
            assert_eq!((*split, tasks.len()), (name, each * LEVELS.len() * KINDS.len()));
            for task in tasks {
                let given = (task.data.get("database"), task.data.get("files"));
                assert!(seen.insert(format!("{}{given:?}", task.question)), "{}", task.question);
            }
        }
        assert_ne!(invent(1), invent(2));
    }

    #[test]
    fn a_question_never_has_its_answer() {
        for task in errands().into_iter().flat_map(|(_, tasks)| tasks) {
            if let Some(answer) = task.data.get("answers").and_then(|answers| answers[0].as_str()) {
                let mut words = task.question.split(|c: char| !c.is_ascii_digit());
                // About one in a hundred small sums contains its result by chance.
                let small = task.source == "tools/sum" && task.data["level"] == 1;
                assert!(small || !words.any(|word| word == answer), "{}: {answer}", task.question);
            }
        }
    }
}
