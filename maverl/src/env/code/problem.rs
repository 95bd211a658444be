//! Programming problems, parsed from the forms of data sets.

use maverl_sandbox::Test;
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
    Calls(Vec<Test>),
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
        let text = |key: &str| data.get(key).and_then(Value::as_str);
        if let (Some(test), Some(entry)) = (text("test"), text("entry_point")) {
            return Ok(humaneval(task, test, entry));
        }
        let (mut setup, tolerance) = (setup(data)?, tolerance(task)?);
        let tests = data.get("tests").or_else(|| data.get("test_list"));
        let solution = text("code").or(text("solution"));
        if let (Some(Value::Array(tests)), Some(solution)) = (tests, solution) {
            let tests: Vec<&str> = tests.iter().filter_map(Value::as_str).collect();
            setup.extend(imports(&tests, solution));
        }
        let setup = setup.join("\n");
        let problem = |entry, hidden, public| Self {
            entry,
            prefix: String::new(),
            setup: setup.clone(),
            preamble: "",
            tolerance,
            hidden,
            public,
        };
        if let Some(rows) = tests {
            let hidden = calls(rows, "tests")?;
            let entry = match text("entry_point").or(text("fn_name")) {
                Some(entry) => entry.to_owned(),
                None => tested(&hidden, &setup, solution)?,
            };
            let public = data.get("public_tests").map(|rows| calls(rows, "public_tests"));
            let public = public.transpose()?.unwrap_or_default();
            return Ok(problem(Some(entry), Tests::Calls(hidden), Tests::Calls(public)));
        }
        if let Some(pairs) = pairs(data)? {
            let entry = pairs.get("fn_name").and_then(Value::as_str).map(str::to_owned);
            let hidden = inputs_and_outputs(&pairs, entry.is_some())?;
            let public = match data.get("public_tests") {
                Some(Value::Object(public)) => inputs_and_outputs(public, entry.is_some())?,
                Some(_) => return Err("`public_tests` has no `inputs` and `outputs`".to_owned()),
                None if entry.is_some() => Tests::Calls(Vec::new()),
                None => Tests::Streams(Vec::new()),
            };
            return Ok(Self { preamble: PREAMBLE, ..problem(entry, hidden, public) });
        }
        let none = Tests::Streams(Vec::new());
        if let Some(code) = text("code").filter(|code| code.contains("def simple_math_problem(")) {
            let code = format!("{code}\nprint(simple_math_problem())\n");
            return Ok(problem(None, Tests::Program(code), none));
        }
        let answers = task.texts("answers");
        if answers.is_empty() {
            let keys: Vec<&String> = data.keys().collect();
            return Err(format!(
                "nothing to judge a program by among the keys {keys:?}; give its row `tests` and `entry_point`, or `inputs` and `outputs`"
            ));
        }
        Ok(problem(None, Tests::Answers(answers), none))
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
        hidden: Tests::Calls(vec![Test::Check { check: test.to_owned() }]),
        setup: prompt.clone(),
        preamble: "",
        tolerance: None,
        prefix: prompt,
    }
}

/// Returns the examples of a docstring (`>>> f(1)` and its value on the next line) whose value is a literal.
fn examples(prompt: &str) -> Vec<Test> {
    let lines: Vec<&str> = prompt.lines().map(str::trim).collect();
    let pairs = lines.windows(2).filter_map(|pair| Some((pair[0].strip_prefix(">>> ")?, pair[1])));
    let literal = |value: &str| {
        let begins = value.starts_with(|c: char| c.is_ascii_digit() || "'\"([{-".contains(c));
        begins || ["True", "False", "None"].contains(&value)
    };
    let tests = pairs.filter(|(_, value)| literal(value));
    tests.map(|(call, value)| Test::Code { code: format!("assert {call} == {value}") }).collect()
}

/// Returns code that tests may use: the imports of MBPP (`test_imports`), and other definitions of the row.
fn setup(data: &Map<String, Value>) -> Result<Vec<String>, String> {
    let wrong = |key: &str, value: &Value| {
        Err(format!("`{key}` is {value}; write Python, as a text or a list of lines"))
    };
    let mut setup = Vec::new();
    for key in ["test_imports", "setup", "test_setup_code"] {
        match data.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::String(code)) => setup.push(code.clone()),
            Some(value @ Value::Array(lines)) => {
                for line in lines {
                    match line {
                        Value::String(line) => setup.push(line.clone()),
                        _ => return wrong(key, value),
                    }
                }
            }
            Some(value) => return wrong(key, value),
        }
    }
    setup.retain(|code| !code.trim().is_empty());
    Ok(setup)
}

/// Returns the tested function if the row does not name it: the function that its tests call, else the last one that
/// its solution defines.
fn tested(tests: &[Test], setup: &str, solution: Option<&str>) -> Result<String, String> {
    let statements = tests.iter().filter_map(|test| match test {
        Test::Code { code } | Test::Check { check: code } => Some(code.as_str()),
        Test::Call { .. } => None,
    });
    let statements: Vec<&str> = statements.collect();
    let called = entry(&statements, setup, solution)?;
    called.or_else(|| last_defined(solution?)).ok_or_else(|| {
        "it does not say which function is called; give its row an `entry_point`".to_owned()
    })
}

/// Reads statements as texts, or objects in the form of [`Test`].
fn calls(rows: &Value, key: &str) -> Result<Vec<Test>, String> {
    let rows = rows.as_array().ok_or_else(|| format!("`{key}` is no list"))?;
    let test = |row: &Value| match row {
        Value::String(code) => Ok(Test::Code { code: code.clone() }),
        row => serde_json::from_value(row.clone()).map_err(|_| {
            format!("`{key}` has {row}; write a statement, or `arguments` and `expected`")
        }),
    };
    let tests: Vec<Test> = rows.iter().map(test).collect::<Result<_, _>>()?;
    if tests.is_empty() { Err(format!("`{key}` is empty")) } else { Ok(tests) }
}

/// Returns the object with `inputs` and `outputs`, wherever the row has it.
fn pairs(data: &Map<String, Value>) -> Result<Option<Map<String, Value>>, String> {
    if data.contains_key("inputs") && data.contains_key("outputs") {
        return Ok(Some(data.clone()));
    }
    let answer = data.get("answers").and_then(|answers| answers.get(0)).and_then(Value::as_str);
    let answer = answer.filter(|text| text.trim_start().starts_with('{'));
    let Some(text) = data.get("input_output").and_then(Value::as_str).or(answer) else {
        return Ok(None);
    };
    let pairs: Map<String, Value> = serde_json::from_str(text)
        .map_err(|error| format!("its `inputs` and `outputs` are no JSON: {error}"))?;
    Ok(Some(pairs))
}

fn inputs_and_outputs(pairs: &Map<String, Value>, called: bool) -> Result<Tests, String> {
    let list = |key: &str| {
        pairs.get(key).and_then(Value::as_array).ok_or_else(|| format!("`{key}` is no list"))
    };
    let (inputs, outputs) = (list("inputs")?, list("outputs")?);
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
            Ok(Test::Call { arguments, expected, alternative })
        });
        return Ok(Tests::Calls(tests.collect::<Result<_, String>>()?));
    }
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Array(lines) if lines.iter().all(Value::is_string) => {
            Ok(lines.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n"))
        }
        other => Err(format!("{other} is neither text nor a list of lines")),
    };
    let streams =
        rows.map(|(input, output)| Ok(Stream { input: text(input)?, output: text(output)? }));
    Ok(Tests::Streams(streams.collect::<Result<_, String>>()?))
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
