use maverl::prelude::*;

#[environment]
async fn waits(answer: Option<&str>) -> Score {
    Score::binary(answer.is_some())
}

#[environment]
fn generic<T>(answer: Option<&str>, key: T) -> Score {
    Score::binary(answer.is_some())
}

#[environment]
fn without_answer() -> Score {
    Score::binary(true)
}

#[environment]
fn without_doubt(answer: &str, key: String) -> Score {
    Score::binary(answer == key)
}

#[environment]
fn silent(answer: Option<&str>) {}

#[environment]
fn nameless(answer: Option<&str>, (first, second): (u8, u8)) -> Score {
    Score::binary(first == second)
}

#[environment]
fn borrowed(answer: Option<&str>, key: &str, others: Vec<&str>) -> Score {
    Score::binary(answer == Some(key))
}

#[environment(offers("look"), task = Row)]
fn acts(answer: Option<&str>) -> Score {
    Score::binary(answer.is_some())
}

#[environment(name = "world")]
enum World {
    Flat,
}

fn main() {}
