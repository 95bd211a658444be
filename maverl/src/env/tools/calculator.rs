//! The calculator.

use maverl_macros::tool;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::env::math::calculate;

#[derive(Deserialize, JsonSchema)]
struct Expression {
    expression: String,
}

/// The exact value of numbers with + - * / ^ ( ).
#[tool]
fn calculator(of: Expression) -> Result<String, &'static str> {
    calculate(&of.expression)
}
