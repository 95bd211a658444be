//! The calculator.

use maverl_answers::calculate_exactly;
use maverl_macros::tool;
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Expression {
    expression: String,
}

/// The exact value of numbers with + - * / ^ ( ).
#[tool]
fn calculator(Expression { expression }: Expression) -> Result<String, &'static str> {
    calculate_exactly(&expression)
}
