//! An agent whose prompt needs logic, and whose parser is its own.

use maverl::prelude::*;

#[derive(Input)]
struct Chain {
    numbers: Vec<i64>,
}

/// Adds up.
#[agent(name = "sum/adder")]
struct Adder;

impl Agent for Adder {
    type Input = Chain;
    type Output = String;

    fn prompt(&self, chain: &Chain) -> Prompt {
        let terms: Vec<String> = chain.numbers.iter().map(i64::to_string).collect();
        Prompt::user(terms.join(" + ")).with_system("You add.")
    }

    fn parse(&self, reply: &str) -> Result<String, ReplyError> {
        reply.rsplit('=').next().map(|sum| sum.trim().to_owned()).ok_or(ReplyError::Empty)
    }
}

#[test]
fn an_agent_written_by_hand_is_used_as_it_is() {
    let prompt = Adder.prompt(&Chain { numbers: vec![1, 2] });
    assert_eq!((prompt.system.as_deref(), prompt.user.as_str()), (Some("You add."), "1 + 2"));
    assert_eq!(Adder.parse("1 + 2 = 3").unwrap(), "3");
    assert_eq!((Adder::NAME, Adder::SUMMARY), ("sum/adder", "Adds up."));
}
