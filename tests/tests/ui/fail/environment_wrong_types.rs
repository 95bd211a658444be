use maverl::prelude::*;

struct Key;

struct Row;

#[environment]
fn unread(answer: Option<&str>, key: Key) -> Score {
    Score::binary(answer.is_some())
}

#[environment]
fn number(answer: Option<&str>) -> f64 {
    1.0
}

#[environment]
fn wrong_answer(answer: Option<&[u8]>) -> Score {
    Score::binary(answer.is_some())
}

#[environment(task = Row)]
struct Rows;

impl Environment for Rows {
    async fn score(&self, _: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        Ok(Score::binary(answer.is_some()))
    }
}

fn main() {}
