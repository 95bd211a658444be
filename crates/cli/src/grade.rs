//! `maverl grade`: verdicts on answers in a file, without a model.

mod code;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::{Failure, number, paths, print};
use maverl::data::{self, read_text};
use maverl::env::{nli, search};
use maverl::run_dir::disk::temporary;
use maverl_answers::Judgment;

/// Maximum number of bad rows in a message.
const SHOWN: usize = 100;

#[derive(Args)]
pub(super) struct GradeArgs {
    /// Rule that grades.
    #[arg(value_enum)]
    rule: Rule,
    /// Rows to grade, one JSON object per line (compressed if the name ends in `.gz`): `{"answer": "..", "truth": ".."}`;
    /// `truth` may be a list of alternatives. For `code`, `{"completion": "..", "task": {..}}`, where the task is a row of
    /// training data.
    #[arg(long, value_name = "FILE.jsonl")]
    input: PathBuf,
    /// Output: the same rows with `verdict`, `extracted`, `reason` and `reward`.
    #[arg(long, value_name = "FILE.jsonl", value_parser = paths::to_write())]
    output: PathBuf,
    /// Grade the last number of an answer that marks none (only `math`).
    #[arg(long)]
    last_number: bool,
    /// Interpreter of the programs (only `code`).
    #[arg(long, default_value = "python3")]
    python: String,
    /// Refuse to run programs if this machine lacks a layer of the sandbox (only `code`).
    #[arg(long)]
    strict: bool,
    /// Time limit of a program in seconds (only `code`).
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = number::seconds)]
    seconds: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rule {
    /// Mathematical equality of the marked answer, or of the whole text where nothing is marked.
    Math,
    /// Exact match after the usual normalization.
    Em,
    /// The label of natural language inference that is given: entailment, neutral or contradiction.
    Nli,
    /// Programs, by running the task's tests in a sandbox.
    Code,
}

/// Result of one row.
struct Grade {
    verdict: &'static str,
    extracted: Option<String>,
    reason: &'static str,
}

/// Grades every row of a file.
pub(super) fn grade(args: &GradeArgs) -> Result<ExitCode, Failure> {
    let text = read_text(&args.input).map_err(|error| paths::unreadable(&args.input, &error))?;
    let mut bad = Vec::new();
    let graded: Vec<Map<String, Value>> = match args.rule {
        Rule::Code => {
            let rows = rows(&text, &args.input, code::row)?;
            let graded = code::grade_programs(rows, &args.python, args.strict, args.seconds)?;
            // Every line has a row, since bad lines end the command earlier.
            for ((line, _), (_, trouble)) in lines(&text).zip(&graded) {
                bad.extend(trouble.as_ref().map(|what| place_problem(&args.input, line, what)));
            }
            graded.into_iter().map(|(row, _)| row).collect()
        }
        Rule::Math => {
            let graded = rows(&text, &args.input, row)?.into_iter().map(|row| {
                grade_row(row, |answer, truths| mathematical(answer, truths, args.last_number))
            });
            graded.collect()
        }
        Rule::Em => {
            rows(&text, &args.input, row)?.into_iter().map(|row| grade_row(row, exact)).collect()
        }
        Rule::Nli => {
            let rows = rows(&text, &args.input, labeled_row)?;
            rows.into_iter().map(|row| grade_row(row, grade_by_inference)).collect()
        }
    };
    let right = graded.iter().filter(|row| row["reward"] == 1.0).count();
    let partial = temporary(&args.output);
    write(&graded, &partial).and_then(|()| std::fs::rename(&partial, &args.output)).map_err(
        |error| {
            // A remaining partial file only takes space. The first error is the one to report.
            let _ = std::fs::remove_file(&partial);
            Failure(format!("cannot write {}: {error}", args.output.display()))
        },
    )?;
    let (n, output) = (graded.len() - bad.len(), args.output.display());
    let done = print(&format!("graded {n} rows, {right} right: {output}"))?;
    if bad.is_empty() { Ok(done) } else { Err(cannot_be_graded(bad, n)) }
}

fn write(rows: &[Map<String, Value>], path: &Path) -> std::io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    for row in rows {
        serde_json::to_writer(&mut out, row)?;
        out.write_all(b"\n")?;
    }
    out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()
}

/// A row with its texts to grade.
struct Row {
    object: Map<String, Value>,
    answer: String,
    truths: Vec<String>,
}

/// Reads every row, or returns all that are invalid.
fn rows<T>(
    text: &str,
    path: &Path,
    row: impl Fn(Map<String, Value>) -> Result<T, String>,
) -> Result<Vec<T>, Failure> {
    let (mut rows, mut bad) = (Vec::new(), Vec::new());
    for (number, line) in lines(text) {
        let object = data::object(line, &["id", "answer", "truth"]);
        let object = object.map_err(|error| format!("no JSON object: {error}"));
        match object.and_then(&row) {
            Ok(row) => rows.push(row),
            Err(what) => bad.push(place_problem(path, number, &what)),
        }
    }
    match (bad.len(), rows.len()) {
        (0, 0) => Err(Failure(format!("{} has no rows", path.display()))),
        (0, _) => Ok(rows),
        (_, good) => Err(cannot_be_graded(bad, good)),
    }
}

/// Returns the non-empty lines with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty())
}

/// Formats a problem with its place in the file.
fn place_problem(path: &Path, line: usize, what: &str) -> String {
    format!("{}:{line}: {what}", path.display())
}

/// Returns the error about the bad rows of a file with `good` valid ones.
fn cannot_be_graded(mut bad: Vec<String>, good: usize) -> Failure {
    let n = bad.len();
    let more = if n > SHOWN { format!("\n... and {} more", n - SHOWN) } else { String::new() };
    bad.truncate(SHOWN);
    let (bad, all) = (bad.join("\n"), n + good);
    Failure(format!("{n} of {all} rows cannot be graded\n{bad}{more}"))
}

fn row(object: Map<String, Value>) -> Result<Row, String> {
    let answer = text(code::required_value(&object, "answer")?, "answer")?;
    let truths = match code::required_value(&object, "truth")? {
        Value::Array(truths) => truths.iter().map(|truth| text(truth, "truth")).collect(),
        truth => text(truth, "truth").map(|truth| vec![truth]),
    }?;
    if truths.is_empty() {
        return Err("`truth` is empty; write at least one answer".to_owned());
    }
    Ok(Row { answer, truths, object })
}

/// Reads a row whose truths are labels.
fn labeled_row(object: Map<String, Value>) -> Result<Row, String> {
    let row = row(object)?;
    let truth = &row.object["truth"];
    let truths = truth.as_array().map_or(std::slice::from_ref(truth), Vec::as_slice);
    match truths.iter().find(|truth| nli::Label::read(truth).is_none()) {
        Some(other) => Err(format!(
            "`truth` is {other}; write entailment, neutral or contradiction (or e, n, c; 0, 1, 2)"
        )),
        None => Ok(row),
    }
}

fn text(value: &Value, key: &str) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(format!("`{key}` is {other}; write a text or a number")),
    }
}

fn grade_row(row: Row, judge: impl Fn(&str, &[String]) -> Grade) -> Map<String, Value> {
    let Row { mut object, answer, truths } = row;
    let Grade { verdict, extracted, reason } = judge(&answer, &truths);
    let reward = if verdict == "equal" { 1.0 } else { 0.0 };
    object.extend([
        ("verdict".to_owned(), json!(verdict)),
        ("extracted".to_owned(), json!(extracted)),
        ("reason".to_owned(), json!(reason)),
        ("reward".to_owned(), json!(reward)),
    ]);
    object
}

fn mathematical(answer: &str, truths: &[String], last_number: bool) -> Grade {
    let extracted = maverl_answers::answer_or_guess(answer, last_number)
        .or_else(|| maverl_answers::answer_or_guess(answer, false))
        .unwrap_or_default();
    let truths: Vec<&str> = truths.iter().map(String::as_str).collect();
    let Judgment { verdict, reason } = maverl_answers::judge_answer(extracted, &truths);
    Grade { verdict: verdict.as_str(), extracted: Some(extracted.to_owned()), reason }
}

fn exact(answer: &str, truths: &[String]) -> Grade {
    let equal = truths.iter().any(|truth| search::exact_match(answer, truth));
    let (verdict, reason) = if equal {
        ("equal", "it is a reference word for word")
    } else {
        ("unequal", "it is no reference word for word")
    };
    Grade { verdict, extracted: Some(search::normalize(answer)), reason }
}

fn grade_by_inference(answer: &str, truths: &[String]) -> Grade {
    let extracted = nli::label(answer).map(nli::Label::word);
    let right = truths.iter().any(|truth| nli::grade(answer, truth) == Some(true));
    let (verdict, reason) = match (right, extracted) {
        (true, _) => ("equal", "it gives the label"),
        (false, None) => ("unequal", "it gives no label, or more than one"),
        (false, Some(_)) => ("unequal", "it gives another label"),
    };
    Grade { verdict, extracted: extracted.map(str::to_owned), reason }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn grade_rows(rule: Rule, input: &str) -> Result<Vec<Value>, Failure> {
        let dir = tempfile::tempdir().unwrap();
        grade(&args(rule, input, dir.path()))?;
        Ok(written(dir.path()))
    }

    fn args(rule: Rule, text: &str, dir: &Path) -> GradeArgs {
        let (input, output) = (dir.join("in.jsonl"), dir.join("out.jsonl"));
        std::fs::write(&input, format!("\u{feff}{text}")).unwrap();
        let (python, strict, seconds) = ("python3".to_owned(), false, 3.0);
        GradeArgs { rule, input, output, last_number: false, python, strict, seconds }
    }

    fn written(dir: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(dir.join("out.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn every_row_gets_a_verdict_and_keeps_what_it_had() {
        let input = r#"{"id": 7, "answer": "so \\boxed{1/2}", "truth": "0.5"}
{"answer": "3", "truth": [1, 2]}

{"answer": "", "truth": "5"}
"#;
        let rows = grade_rows(Rule::Math, input).unwrap();
        let verdicts: Vec<&Value> = rows.iter().map(|row| &row["verdict"]).collect();
        assert_eq!(verdicts, ["equal", "unequal", "unequal"]);
        assert_eq!(rows[0]["id"], 7);
        assert_eq!(rows[0]["extracted"], "1/2");
        assert_eq!(rows[0]["reward"], 1.0);
        let unreadable = r#"{"answer": "1", "truth": "\\frac{1}{"}"#;
        let rows = grade_rows(Rule::Math, unreadable).unwrap();
        assert_eq!(rows[0]["verdict"], "undecided");
        assert!(rows[0]["reason"].as_str().unwrap().starts_with("the reference cannot be read"));
        let rows =
            grade_rows(Rule::Em, "{\"answer\": \"The Tower\", \"truth\": \"tower\"}").unwrap();
        assert_eq!(rows[0]["verdict"], "equal");
    }

    #[test]
    fn labels_are_graded_by_what_is_given() {
        let input = r#"{"answer": "not neutral but entailment", "truth": "e"}
{"answer": "entailment or neutral", "truth": "entailment"}
{"answer": "neutral", "truth": 2}
{"answer": "neutral", "truth": ["c", 1]}
"#;
        let rows = grade_rows(Rule::Nli, input).unwrap();
        let verdicts: Vec<&Value> = rows.iter().map(|row| &row["verdict"]).collect();
        assert_eq!(verdicts, ["equal", "unequal", "unequal", "equal"]);
        assert_eq!(
            (&rows[0]["extracted"], &rows[1]["extracted"]),
            (&json!("entailment"), &Value::Null)
        );
    }

    #[test]
    fn a_truth_that_is_no_label_is_a_bad_row() {
        let bad = [r#""maybe""#, "3", "-1", "1.0", r#""""#, r#""entails""#, r#"["neutral", -1]"#];
        let row = |truth: &str| format!("{{\"answer\": \"neutral\", \"truth\": {truth}}}\n");
        let input = row("1") + &bad.map(row).concat();
        let Failure(message) = grade_rows(Rule::Nli, &input).unwrap_err();
        assert!(message.starts_with("7 of 8 rows cannot be graded"), "{message}");
        let shown = [r#""maybe""#, "3", "-1", "1.0", r#""""#, r#""entails""#, "-1"];
        for (i, truth) in shown.iter().enumerate() {
            let said = format!(":{}: `truth` is {truth}; write entailment, neutral", i + 2);
            assert!(message.contains(&said), "{said}: {message}");
        }
    }

    #[test]
    fn programs_are_run() {
        let task = r#"{"question": "Write f.", "entry_point": "f", "tests": ["assert f(2) == 4", "assert f(3) == 9"]}"#;
        let input = format!(
            r#"{{"completion": "```python\ndef f(x):\n    return x * x\n```", "task": {task}}}
{{"completion": "def f(x):\n    return x + 2", "task": {task}}}
{{"completion": "import os; os._exit(0)", "task": {task}}}"#
        );
        let rows = match grade_rows(Rule::Code, &input) {
            Ok(rows) => rows,
            Err(Failure(message)) if message.starts_with("this machine lacks") => return,
            Err(Failure(message)) => panic!("{message}"),
        };
        let verdicts: Vec<&Value> = rows.iter().map(|row| &row["verdict"]).collect();
        assert_eq!(verdicts, ["passed", "failed", "failed"]);
        assert_eq!((&rows[1]["points"], &rows[1]["of"]), (&json!(1), &json!(2)));
        assert!(
            rows[1]["reason"].as_str().unwrap().contains("test 2: AssertionError"),
            "{}",
            rows[1]
        );
        let Failure(message) =
            grade_rows(Rule::Code, r#"{"completion": "x", "task": {"question": "?"}}"#)
                .unwrap_err();
        assert!(message.contains("nothing to judge a program by"), "{message}");
    }

    #[test]
    fn rows_whose_tests_cannot_be_run_are_named_and_cost_the_others_nothing() {
        let good = r#"{"entry_point": "f", "question": "?", "tests": ["assert f(2) == 4"]}"#;
        let humaneval = r#"{"prompt": "", "entry_point": "f", "test": "x = 1"}"#;
        let row = |task: &str| {
            format!(r#"{{"completion": "def f(x):\n    return x * x", "task": {task}}}"#)
        };
        let input = [
            row(good),
            row(&good.replace("f(2)", "f( ")),
            String::new(),
            row(humaneval),
            row(&good.replace('{', r#"{"test_setup_code": "import no_such_module", "#)),
            row(good),
        ];
        let dir = tempfile::tempdir().unwrap();
        let Err(Failure(message)) = grade(&args(Rule::Code, &input.join("\n"), dir.path())) else {
            panic!("it succeeds");
        };
        if message.starts_with("this machine lacks") {
            return;
        }
        let lines: Vec<&str> = message.lines().collect();
        assert_eq!(lines.len(), 4, "{message}");
        assert_eq!(lines[0], "3 of 5 rows cannot be graded");
        for (line, wanted) in lines[1..].iter().zip([
            ":2: the tests could not be run: SyntaxError",
            ":4: the tests could not be run: ",
            ":5: the tests could not be run: ModuleNotFoundError",
        ]) {
            assert!(line.contains(wanted), "{line}");
        }
        let rows = written(dir.path());
        let of = |key: &str| rows.iter().map(|row| row[key].clone()).collect::<Vec<Value>>();
        assert_eq!(of("verdict"), ["passed", "ungraded", "ungraded", "ungraded", "passed"]);
        assert_eq!(of("reward"), [json!(1.0), json!(null), json!(null), json!(null), json!(1.0)]);
        let reason = rows[1]["reason"].as_str().unwrap();
        assert!(reason.starts_with("the tests could not be run: SyntaxError"), "{reason}");
    }

    #[test]
    fn a_time_that_is_none_is_refused() {
        let row = r#"{"completion": "x", "task": {"question": "?", "answer": "1"}}"#;
        let dir = tempfile::tempdir().unwrap();
        for seconds in [0.0, -1.0, f64::NAN, 1e9] {
            let args = GradeArgs { seconds, ..args(Rule::Code, row, dir.path()) };
            let Failure(message) = grade(&args).unwrap_err();
            let wanted = format!("`--seconds` is {seconds}; write 0.01 to 3600");
            assert_eq!(message, wanted);
        }
    }

    #[test]
    fn all_bad_rows_are_told_at_once() {
        let input =
            "{\"answer\": 1}\nno\n{\"answer\": [], \"truth\": 1}\n{\"answer\": 1, \"truth\": 1}";
        let Failure(message) = grade_rows(Rule::Math, input).unwrap_err();
        assert!(message.starts_with("3 of 4 rows cannot be graded"), "{message}");
        assert!(message.contains(":1: no `truth` among the keys [\"answer\"]"), "{message}");
        assert!(message.contains(":3: `answer` is []; write a text or a number"), "{message}");
    }
}
