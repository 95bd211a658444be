//! What a task asks of a program, read from the forms in which data sets say it.

use maverl_sandbox::Test;
use serde_json::{Map, Value};

use super::entry::{entry, imports, last_defined};
use crate::task::Task;

/// A task, understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// What the program must define; `None` if it is run as it is.
    pub entry: Option<String>,
    /// The beginning of every program: the prompt of HumanEval, which ends in the head of a function.
    pub prefix: String,
    /// Code that tests may use.
    pub setup: String,
    /// What decides.
    pub hidden: Tests,
    /// What attempts are told of.
    pub public: Tests,
}

/// How a program is judged.
#[derive(Debug, Clone, PartialEq)]
pub enum Tests {
    /// Its function is called.
    Calls(Vec<Test>),
    /// It reads an input and writes an output.
    Streams(Vec<Stream>),
    /// It writes an answer, or the reply marks one; one of these is right.
    Answers(Vec<String>),
    /// The same, and the answer is what this program gives.
    Program(String),
}

/// An input, and what must be written for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    /// Standard input.
    pub input: String,
    /// Standard output; blanks at the ends of lines, and lines of nothing at the end, do not count.
    pub output: String,
}

impl Tests {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Calls(tests) => tests.len(),
            Self::Streams(tests) => tests.len(),
            Self::Answers(_) | Self::Program(_) => 1,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Problem {
    /// Reads a task. The forms: HumanEval (`test` with a function `check`, and `entry_point`); statements (`tests`, or
    /// `test_list` as MBPP has it, beside `test_imports`); `inputs` and `outputs`, with `fn_name` for calls (also as JSON text in `input_output`
    /// as APPS has it, or in the answer as verl has it); the `code` of a function `simple_math_problem` as TinyGSM has it;
    /// and at last `answers`.
    ///
    /// # Errors
    ///
    /// What is missing, or is not what it should be.
    pub fn read(task: &Task) -> Result<Self, String> {
        let data = &task.data;
        let text = |key: &str| data.get(key).and_then(Value::as_str);
        if let (Some(test), Some(entry)) = (text("test"), text("entry_point")) {
            return Ok(humaneval(task, test, entry));
        }
        let mut setup = setup(data)?;
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
            return Ok(problem(entry, hidden, public));
        }
        let none = Tests::Streams(Vec::new());
        if let Some(code) = text("code").filter(|code| code.contains("def simple_math_problem(")) {
            let code = format!("{code}\nprint(simple_math_problem())\n");
            return Ok(problem(None, Tests::Program(code), none));
        }
        let answers = crate::env::search::texts(task, "answers");
        if answers.is_empty() {
            let keys: Vec<&String> = data.keys().collect();
            return Err(format!(
                "nothing to judge a program by among the keys {keys:?}; give its row `tests` and `entry_point`, or `inputs` and `outputs`"
            ));
        }
        Ok(problem(None, Tests::Answers(answers), none))
    }

    /// The whole program for what a reply has. After a prompt that ends in the head of a function comes its body, or the
    /// function once more.
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
    // A question in words is no code.
    let prompt = if task.question.contains(&head) { task.question.clone() } else { String::new() };
    let given = task.data.get("public_tests").and_then(|rows| calls(rows, "public_tests").ok());
    Problem {
        entry: Some(entry.to_owned()),
        public: Tests::Calls(given.unwrap_or_else(|| examples(&prompt))),
        hidden: Tests::Calls(vec![Test::Check { check: test.to_owned() }]),
        setup: prompt.clone(),
        prefix: prompt,
    }
}

/// The examples of a docstring (`>>> f(1)` and its value on the next line) whose value is written as a literal.
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

/// Code that tests may use: the imports of MBPP (`test_imports`), and what else the row defines.
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

/// The function that is tested where the row does not name it: what its tests call, or else what its solution defines
/// last.
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

/// Statements as texts, or objects as [`Test`] has them.
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

/// The object with `inputs` and `outputs`, wherever the row has it.
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
            // APPS has most values in a list of one item; its own tester takes either.
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

/// Arguments as a list, or as JSON values a line.
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

/// A value, which may be JSON in a text.
fn parsed(output: &Value) -> Value {
    let text = output.as_str().and_then(|text| serde_json::from_str(text).ok());
    text.unwrap_or_else(|| output.clone())
}
