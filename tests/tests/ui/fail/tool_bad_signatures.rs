use maverl::prelude::*;
use maverl::tools::NoArguments;

#[tool]
fn undocumented(_: NoArguments) -> String {
    String::new()
}

/// Says its name.
#[tool(name = "Say It")]
fn say(a: String, b: String) -> String {
    a + &b
}

/// Gives nothing.
#[tool]
async fn nothing(_: NoArguments) {}

/// Is generic, and borrows.
#[tool(nmae = "generic")]
unsafe fn generic<T>(text: &T) -> String {
    let _ = text;
    String::new()
}

/// Is no function.
#[tool]
struct NoFunction;

fn main() {}
