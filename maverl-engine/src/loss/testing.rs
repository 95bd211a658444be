//! Golden vectors and derivatives for tests.

use serde_json::Value;

/// Returns a case of `tests/fixtures/rl_math.json`.
pub(crate) fn rl_math(name: &str) -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/rl_math.json");
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let all: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}"));
    let cases = all["cases"].as_array().unwrap_or_else(|| panic!("no cases"));
    let case = cases.iter().find(|case| case["name"] == name);
    case.unwrap_or_else(|| panic!("no case {name}")).clone()
}

/// Returns the numbers of a list; a missing one is NaN.
pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    let list = value.as_array().unwrap_or_else(|| panic!("{value} is not a list"));
    list.iter().map(|value| value.as_f64().unwrap_or(f64::NAN)).collect()
}

/// Returns the rows of a matrix.
pub(crate) fn matrix(value: &Value) -> Vec<Vec<f64>> {
    let rows = value.as_array().unwrap_or_else(|| panic!("{value} is not a matrix"));
    rows.iter().map(numbers).collect()
}

#[track_caller]
pub(crate) fn assert_close(name: &str, got: &[f64], want: &[f64], tolerance: f64) {
    let close = |(got, want): (&f64, &f64)| (got - want).abs() <= tolerance * want.abs().max(1.0);
    let all = got.len() == want.len() && got.iter().zip(want).all(close);
    assert!(all, "{name}\n got {got:?}\nwant {want:?}");
}

/// Computes the derivative of `f` at `x` by central differences.
pub(crate) fn central(f: impl Fn(f64) -> f64, x: f64) -> f64 {
    const H: f64 = 1e-6;
    (f(x + H) - f(x - H)) / (2.0 * H)
}
