//! HumanEval: every canonical solution passes, and every stub fails.

use std::io::Read;
use std::path::Path;

use rayon::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Row {
    task_id: String,
    prompt: String,
    entry_point: String,
    canonical_solution: String,
    test: String,
}

fn rows() -> Option<Vec<Row>> {
    let Some(data) = std::env::var_os("MAVERL_TEST_DATA") else {
        eprintln!("skipped: MAVERL_TEST_DATA is not set, so HumanEval is not there");
        return None;
    };
    let file = std::fs::File::open(Path::new(&data).join("data/HumanEval.jsonl.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn report(sandbox: &Sandbox, row: &Row, completion: &str) -> ExamReport {
    let source = format!("{}{completion}", row.prompt);
    let tests = [ExamTest::Check { check: row.test.clone() }];
    let (entry, setup) = (row.entry_point.as_str(), row.prompt.as_str());
    let exam = Exam { source: &source, entry, setup, tests: &tests, ..Exam::default() };
    sandbox.examine(&exam, &ProgramLimits::default()).unwrap()
}

#[test]
fn every_canonical_solution_of_humaneval_passes() {
    let (Some(rows), Some(sandbox)) = (rows(), sandbox()) else { return };
    let begin = Instant::now();
    let failed: Vec<String> = rows
        .par_iter()
        .step_by(stride(8))
        .filter_map(|row| {
            let report = report(sandbox, row, &row.canonical_solution);
            (!report.passed()).then(|| format!("{}: {report:?}", row.task_id))
        })
        .collect();
    let seconds = begin.elapsed().as_secs_f64();
    println!("{} of {} failed in {seconds:.2} s", failed.len(), rows.len().div_ceil(stride(8)));
    assert_eq!(rows.len(), 164);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn no_stub_of_humaneval_passes() {
    let (Some(rows), Some(sandbox)) = (rows(), sandbox()) else { return };
    let passed: Vec<&str> = rows
        .par_iter()
        .step_by(stride(8))
        .filter(|row| report(sandbox, row, "    pass\n").passed())
        .map(|row| row.task_id.as_str())
        .collect();
    assert!(passed.is_empty(), "{passed:?}");
}
