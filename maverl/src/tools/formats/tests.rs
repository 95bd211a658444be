#![allow(clippy::unwrap_used)]

mod cases;
mod draw;
mod fuzz;
mod replies;

use std::path::Path;

use serde_json::{Map, Value, json};

use super::*;
use crate::files::{ModelFiles, ModelSource};
use crate::text::{ChatInput, ChatMessage, Tokenizer};
use crate::tools::{Call, CallError};
use draw::{
    Draw, TEMPLATES, declare, draw_calls, is_beyond, render_calls, tokenizer, with_template,
};

/// Templates, from the directory of the crate.
const TEMPLATE_DIR: &str = "../tests/fixtures/formats";

/// Returns the number of cases of a test: `few` in the first tier, `many` in the second (`MAVERL_FULL`).
fn case_count(few: usize, many: usize) -> usize {
    if std::env::var_os("MAVERL_FULL").is_some() { many } else { few }
}

fn call(name: &str, arguments: Value) -> Call {
    let Value::Object(arguments) = arguments else { panic!("{arguments}") };
    Call { name: name.to_owned(), arguments }
}
