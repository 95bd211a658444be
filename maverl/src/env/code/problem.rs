//! Programming problems, parsed from the forms of data sets.

use maverl_sandbox::ExamTest;
use serde_json::{Map, Value};

use super::entry::{entry, imports, last_defined};
use super::tolerance::tolerance;
use crate::task::Task;

/// Imports that the testers of LiveCodeBench, APPS and verl put before a program. Its names are those of the last import,
/// so that `pow` is the built-in one.
const PREAMBLE: &str = "\
from string import *
from re import *
from datetime import *
from collections import *
from heapq import *
from bisect import *
from copy import *
from math import *
from random import *
from statistics import *
from itertools import *
from functools import *
from operator import *
from io import *
from sys import *
from json import *
from builtins import *
from typing import *
import bisect, collections, copy, datetime, functools, heapq, io, itertools, json, math, operator, os, random, re
import statistics, string, sys, time
";

/// A parsed task.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Name that the program must define; `None` if the program is run as it is.
    pub entry: Option<String>,
    /// Beginning of every program: the prompt of HumanEval, which ends in the head of a function.
    pub prefix: String,
    /// Code that tests may use.
    pub setup: String,
    /// Code that runs before a program that reads names which nothing defines.
    pub preamble: &'static str,
    /// Difference by which a number that is not whole may miss the expected one; `None` wants equality.
    pub tolerance: Option<f64>,
    /// Tests that decide the score.
    pub hidden: Tests,
    /// Tests that attempts are told about.
    pub public: Tests,
}

/// Kind of tests of a program.
#[derive(Debug, Clone, PartialEq)]
pub enum Tests {
    /// Calls of its function.
    Calls(Vec<ExamTest>),
    /// Inputs that it reads and outputs that it must write.
    Streams(Vec<Stream>),
    /// Accepted answers: the program writes one, or the reply marks one.
    Answers(Vec<String>),
    /// Accepted answer given by the output of this program; otherwise like `Answers`.
    Program(String),
}

/// An input, and the output expected for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    /// Standard input.
    pub input: String,
    /// Expected standard output; trailing blanks of lines and trailing empty lines are ignored.
    pub output: String,
}

impl Tests {
    /// Returns the number of tests.
    pub fn len(&self) -> usize {
        match self {
            Self::Calls(tests) => tests.len(),
            Self::Streams(tests) => tests.len(),
            Self::Answers(_) | Self::Program(_) => 1,
        }
    }

    /// Returns true if there are no tests.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Problem {
    /// Reads a task. The forms: HumanEval (`test` with a function `check`, and `entry_point`); statements (`tests`, or
    /// `test_list` as in MBPP, beside `test_imports`); `inputs` and `outputs`, with `fn_name` for calls (also as JSON
    /// text in `input_output` as in APPS, or in the answer as in verl); the `code` of a function `simple_math_problem`
    /// as in TinyGSM; and finally `answers`.
    ///
    /// # Errors
    ///
    /// The missing or invalid field.
    pub fn read(task: &Task) -> Result<Self, String> {
        let data = &task.data;
        let named = text_at(data, "entry_point");
        if let (Some(test), Some(entry)) = (text_at(data, "test"), named) {
            return Ok(humaneval(task, test, entry));
        }
        let (mut setup, tolerance) = (setup(data)?, tolerance(task)?);
        let tests = data.get("tests").or_else(|| data.get("test_list"));
        let code = text_at(data, "code");
        let solution = code.or(text_at(data, "solution"));
        if let (Some(Value::Array(tests)), Some(solution)) = (tests, solution) {
            let tests: Vec<&str> = tests.iter().filter_map(Value::as_str).collect();
            setup.extend(imports(&tests, solution));
        }
        let blank = Self {
            entry: None,
            prefix: String::new(),
            setup: setup.join("\n"),
            preamble: "",
            tolerance,
            hidden: Tests::Streams(Vec::new()),
            public: Tests::Streams(Vec::new()),
        };
        if let Some(rows) = tests {
            let hidden = calls(rows, "tests")?;
            let entry = match named.or(text_at(data, "fn_name")) {
                Some(entry) => entry.to_owned(),
                None => tested(&hidden, &blank.setup, solution)?,
            };
            let public = data.get("public_tests").map(|rows| calls(rows, "public_tests"));
            let public = Tests::Calls(public.transpose()?.unwrap_or_default());
            let (entry, hidden) = (Some(entry), Tests::Calls(hidden));
            return Ok(Self { entry, hidden, public, ..blank });
        }
        if let Some(pairs) = pairs(data)? {
            let entry = text_at(&pairs, "fn_name").map(str::to_owned);
            let hidden = inputs_and_outputs(&pairs, entry.is_some())?;
            let public = match data.get("public_tests") {
                Some(Value::Object(public)) => inputs_and_outputs(public, entry.is_some())?,
                Some(_) => return Err("`public_tests` has no `inputs` and `outputs`".to_owned()),
                None if entry.is_some() => Tests::Calls(Vec::new()),
                None => Tests::Streams(Vec::new()),
            };
            return Ok(Self { entry, preamble: PREAMBLE, hidden, public, ..blank });
        }
        if let Some(code) = code.filter(|code| code.contains("def simple_math_problem(")) {
            let code = format!("{code}\nprint(simple_math_problem())\n");
            return Ok(Self { hidden: Tests::Program(code), ..blank });
        }
        let answers = task.texts("answers");
        if answers.is_empty() {
            let keys: Vec<&String> = data.keys().collect();
            return Err(format!(
                "nothing to judge a program by among the keys {keys:?}; give its row `tests` and `entry_point`, or `inputs` and `outputs`"
            ));
        }
        Ok(Self { hidden: Tests::Answers(answers), ..blank })
    }

    /// Returns the whole program for the program of a reply. After a prompt that ends in the head of a function, the
    /// reply is its body or the whole function.
    pub fn source(&self, program: &str) -> String {
        if self.prefix.is_empty() {
            return program.to_owned();
        }
        let gap = if self.prefix.ends_with('\n') { "" } else { "\n" };
        format!("{}{gap}{program}", self.prefix)
    }
}

fn humaneval(task: &Task, test: &str, entry: &str) -> Problem {
    let head = format!("def {entry}(");
    // A question in words is not code.
    let prompt = if task.question.contains(&head) { task.question.clone() } else { String::new() };
    let given = task.data.get("public_tests").and_then(|rows| calls(rows, "public_tests").ok());
    Problem {
        entry: Some(entry.to_owned()),
        public: Tests::Calls(given.unwrap_or_else(|| examples(&prompt))),
        hidden: Tests::Calls(vec![ExamTest::Check { check: test.to_owned() }]),
        setup: prompt.clone(),
        preamble: "",
        tolerance: None,
        prefix: prompt,
    }
}

/// Returns the examples of a docstring (`>>> f(1)` and its value on the next line) whose value is a literal.
fn examples(prompt: &str) -> Vec<ExamTest> {
    let lines: Vec<&str> = prompt.lines().map(str::trim).collect();
    let pairs = lines.windows(2).filter_map(|pair| Some((pair[0].strip_prefix(">>> ")?, pair[1])));
    let tests = pairs.filter(|(_, value)| is_literal(value));
    tests
        .map(|(call, value)| ExamTest::Code { code: format!("assert {call} == {value}") })
        .collect()
}

fn is_literal(value: &str) -> bool {
    value.starts_with(|c: char| c.is_ascii_digit() || "'\"([{-".contains(c))
        || ["True", "False", "None"].contains(&value)
}

/// Returns code that tests may use: the imports of MBPP (`test_imports`), and other definitions of the row.
fn setup(data: &Map<String, Value>) -> Result<Vec<String>, String> {
    let mut setup = Vec::new();
    for key in ["test_imports", "setup", "test_setup_code"] {
        match data.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::String(code)) => setup.push(code.clone()),
            Some(Value::Array(lines)) if lines.iter().all(Value::is_string) => {
                setup.extend(lines.iter().filter_map(Value::as_str).map(str::to_owned));
            }
            Some(value) => {
                return Err(format!(
                    "`{key}` is {value}; write Python, as a text or a list of lines"
                ));
            }
        }
    }
    setup.retain(|code| !code.trim().is_empty());
    Ok(setup)
}

/// Returns the tested function if the row does not name it: the function that its tests call, else the last one that
/// its solution defines.
fn tested(tests: &[ExamTest], setup: &str, solution: Option<&str>) -> Result<String, String> {
    let statements = tests.iter().filter_map(|test| match test {
        ExamTest::Code { code } | ExamTest::Check { check: code } => Some(code.as_str()),
        ExamTest::Call { .. } => None,
    });
    let statements: Vec<&str> = statements.collect();
    let called = entry(&statements, setup, solution)?;
    called.or_else(|| last_defined(solution?)).ok_or_else(|| {
        "it does not say which function is called; give its row an `entry_point`".to_owned()
    })
}

/// Reads statements as texts, or objects in the form of [`ExamTest`].
fn calls(rows: &Value, key: &str) -> Result<Vec<ExamTest>, String> {
    let rows = as_list(Some(rows), key)?;
    if rows.is_empty() {
        return Err(format!("`{key}` is empty"));
    }
    rows.iter().map(|row| read_test(row, key)).collect()
}

fn read_test(row: &Value, key: &str) -> Result<ExamTest, String> {
    match row {
        Value::String(code) => Ok(ExamTest::Code { code: code.clone() }),
        row => serde_json::from_value(row.clone()).map_err(|_| {
            format!("`{key}` has {row}; write a statement, or `arguments` and `expected`")
        }),
    }
}

fn text_at<'v>(row: &'v Map<String, Value>, key: &str) -> Option<&'v str> {
    row.get(key).and_then(Value::as_str)
}

fn as_list<'v>(value: Option<&'v Value>, key: &str) -> Result<&'v Vec<Value>, String> {
    value.and_then(Value::as_array).ok_or_else(|| format!("`{key}` is no list"))
}

/// Returns the object with `inputs` and `outputs`, wherever the row has it.
fn pairs(data: &Map<String, Value>) -> Result<Option<Map<String, Value>>, String> {
    if data.contains_key("inputs") && data.contains_key("outputs") {
        return Ok(Some(data.clone()));
    }
    let answer = data.get("answers").and_then(|answers| answers.get(0)).and_then(Value::as_str);
    let answer = answer.filter(|text| text.trim_start().starts_with('{'));
    let Some(text) = text_at(data, "input_output").or(answer) else {
        return Ok(None);
    };
    let pairs: Map<String, Value> = serde_json::from_str(text)
        .map_err(|error| format!("its `inputs` and `outputs` are no JSON: {error}"))?;
    Ok(Some(pairs))
}

fn inputs_and_outputs(pairs: &Map<String, Value>, called: bool) -> Result<Tests, String> {
    let inputs = as_list(pairs.get("inputs"), "inputs")?;
    let outputs = as_list(pairs.get("outputs"), "outputs")?;
    if inputs.is_empty() || inputs.len() != outputs.len() {
        let (n, m) = (inputs.len(), outputs.len());
        return Err(format!(
            "it has {n} `inputs` and {m} `outputs`; write as many of each, at least one"
        ));
    }
    let rows = inputs.iter().zip(outputs);
    if called {
        let tests = rows.map(|(input, output)| {
            // APPS wraps most values in a list of one item; its own tester accepts both.
            let alternative = output.as_array().and_then(|values| values.first()).cloned();
            let (arguments, expected) = (arguments(input)?, parsed(output));
            Ok(ExamTest::Call { arguments, expected, alternative })
        });
        return Ok(Tests::Calls(tests.collect::<Result<_, String>>()?));
    }
    let streams = rows.map(|(input, output)| {
        Ok(Stream { input: stream_text(input)?, output: stream_text(output)? })
    });
    Ok(Tests::Streams(streams.collect::<Result<_, String>>()?))
}

/// Reads a text, or joins a list of lines.
fn stream_text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Array(lines) if lines.iter().all(Value::is_string) => {
            Ok(lines.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n"))
        }
        other => Err(format!("{other} is neither text nor a list of lines")),
    }
}

/// Reads arguments as a list, or as one JSON value per line.
fn arguments(input: &Value) -> Result<Vec<Value>, String> {
    match input {
        Value::Array(arguments) => Ok(arguments.clone()),
        Value::String(lines) => lines
            .lines()
            .map(|line| {
                serde_json::from_str(line).map_err(|_| format!("{line:?} is no JSON value"))
            })
            .collect(),
        other => Err(format!("the arguments {other} are no list")),
    }
}

/// Reads a value, which may be JSON in a text.
fn parsed(output: &Value) -> Value {
    let text = output.as_str().and_then(|text| serde_json::from_str(text).ok());
    text.unwrap_or_else(|| output.clone())
}
