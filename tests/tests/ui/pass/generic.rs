//! Generic inputs and outputs; the agent itself is one concrete type.

use std::fmt;

use maverl::prelude::*;

#[derive(Input)]
struct Pair<'a, A, B: Clone = u8, const N: usize = 1>
where
    A: PartialEq,
{
    first: A,
    #[input(observation)]
    rest: Vec<B>,
    label: &'a str,
}

#[derive(Reply, Debug, PartialEq)]
#[reply(tag = "value")]
struct Value<T>(T);

#[derive(Reply, Debug, PartialEq)]
struct Both<A, B>
where
    A: fmt::Debug,
{
    a: A,
    b: Option<B>,
}

#[agent(
    name = "generic/reader",
    input = Pair<'static, u32, String>,
    output = Both<u8, f64>,
    prompt_text = "{{ label }}: {{ first }} of\n{{ rest }}\n{{ reply_format }}"
)]
struct Reader;

#[test]
fn a_generic_input_is_shown() {
    let input = Pair { first: 2, rest: vec!["x".to_owned(), "y".to_owned()], label: "L" };
    let prompt = Reader.prompt(&input);
    assert!(prompt.user.starts_with("L: 2 of\nx\ny\n"));
    assert_eq!(&prompt.user[prompt.observations[0].clone()], "x\ny");
}

#[test]
fn a_generic_output_is_read() {
    assert_eq!(Value::<u8>::parse("<value>7</value>").unwrap(), Value(7));
    assert_eq!(Reader.parse("<a>7</a>").unwrap(), Both { a: 7, b: None });
    let half = Reader.parse("<b>0.5</b><a>7</a>").unwrap();
    assert_eq!(half, Both { a: 7, b: Some(0.5) });
}
