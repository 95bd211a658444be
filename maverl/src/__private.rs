//! Not public API: support code for the macros, which keeps the generated code short and without other dependencies
//! than `maverl`.

use std::fmt::Display;
use std::future::Future;
use std::str::FromStr;

use ::serde::Serialize;
use ::serde_json::{Map, Value};
use futures::future::BoxFuture;

use crate::agent::{Agent, AgentName, Input, Prompt, Reply, ReplyError, tag};
use crate::orchestra::{MOST_SEATS, SeatCount};
use crate::tools::{Arguments, ToolOutput};
use crate::trajectory::Seat;

pub use crate::registry::{default_options, from_options, in_range, no_options, refuse_options};
pub use inventory;
pub use maverl_macros::team_crates;
pub use schemars;
pub use serde;
pub use serde_json;

/// Panics: `show` was called with an invalid field index.
pub fn no_field<I: Input>(field: usize) -> ! {
    panic!("there is no field {field}; the fields are {:?}", I::FIELDS)
}

/// Returns the text of a field, by name.
pub fn show_field<A: Agent>(input: &A::Input, name: &str) -> String {
    let field = A::Input::FIELDS.iter().position(|field| *field == name);
    input.show(field.expect("`PromptCheck` refuses names that are no fields"))
}

/// Appends the text of a field, as an observation if the input declares it so.
pub fn push_field<A: Agent>(prompt: &mut Prompt, input: &A::Input, name: &str) {
    let text = show_field::<A>(input, name);
    if A::Input::OBSERVATIONS.contains(&name) {
        prompt.push_observation(&text);
    } else {
        prompt.push(&text);
    }
}

/// Returns the format sentence of an agent's reply.
pub fn reply_format<A: Agent>() -> String {
    A::Output::format()
}

/// Compile-time checks of a prompt: evaluated in a `const`, a failed check fails the build.
pub struct PromptCheck {
    /// Name of the prompt in messages.
    pub prompt: &'static str,
    /// Input type as written.
    pub input: &'static str,
    /// Output type as written.
    pub output: &'static str,
    /// Input fields that it mentions, each with its place.
    pub fields: &'static [(&'static str, &'static str)],
    /// True if it has `{{ reply_format }}`.
    pub tells_format: bool,
}

impl PromptCheck {
    /// Runs the checks.
    ///
    /// # Panics
    ///
    /// If a field does not exist, or if replies have a format that the prompt does not state.
    #[track_caller]
    pub const fn run<A: Agent>(&self) {
        let fields = A::Input::FIELDS;
        let mut message = ConstText::new();
        let mut i = 0;
        while i < self.fields.len() {
            let (name, place) = self.fields[i];
            if !contains(fields, name) {
                message.push(if message.length == 0 { "" } else { "; " });
                message.push_all(&[place, ": `", self.input, "` has no field `", name, "`"]);
            }
            i += 1;
        }
        if message.length > 0 {
            message.push("; its fields are: ");
            message.push_list(fields);
        }
        if A::Output::STRUCTURED && !self.tells_format {
            message.push(if message.length == 0 { "" } else { "; " });
            message.push_all(&[self.prompt, ": the model must be told how to reply with a `"]);
            message.push_all(&[self.output, "`: write `{{ reply_format }}` into the prompt"]);
        }
        assert!(message.length == 0, "{}", message.text());
    }
}

/// A text that is built in a `const`. Text above its capacity is dropped.
struct ConstText {
    bytes: [u8; 2048],
    length: usize,
}

impl ConstText {
    const fn new() -> Self {
        Self { bytes: [0; 2048], length: 0 }
    }

    const fn push(&mut self, text: &str) {
        let text = text.as_bytes();
        if self.length + text.len() <= self.bytes.len() {
            let (_, rest) = self.bytes.split_at_mut(self.length);
            let (space, _) = rest.split_at_mut(text.len());
            space.copy_from_slice(text);
            self.length += text.len();
        }
    }

    const fn push_all(&mut self, texts: &[&str]) {
        let mut i = 0;
        while i < texts.len() {
            self.push(texts[i]);
            i += 1;
        }
    }

    const fn push_list(&mut self, words: &[&str]) {
        let mut i = 0;
        while i < words.len() {
            self.push(if i == 0 { "`" } else { ", `" });
            self.push_all(&[words[i], "`"]);
            i += 1;
        }
    }

    const fn text(&self) -> &str {
        match std::str::from_utf8(self.bytes.split_at(self.length).0) {
            Ok(text) => text,
            Err(_) => unreachable!(),
        }
    }
}

const fn contains(words: &[&str], word: &str) -> bool {
    let mut i = 0;
    while i < words.len() {
        if equal(words[i].as_bytes(), word.as_bytes()) {
            return true;
        }
        i += 1;
    }
    false
}

const fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Reads a block that contains one of some words.
pub fn read_word<T, const N: usize>(
    reply: &str,
    name: &str,
    words: [(&'static str, T); N],
) -> Result<T, ReplyError> {
    let found = tag(reply, name)?;
    let expected = words.each_ref().map(|(word, _)| *word);
    let word = words.into_iter().find(|(word, _)| word.eq_ignore_ascii_case(found));
    word.map(|(_, value)| value).ok_or_else(|| ReplyError::Unexpected {
        tag: name.to_owned(),
        found: found.to_owned(),
        expected: expected.map(str::to_owned).to_vec(),
    })
}

/// Type of a block's content.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read from a reply's block",
    label = "has no `FromStr`",
    note = "use `String` or a number, or write `impl FromStr for {Self}` with an `Err` that can be displayed"
)]
pub trait BlockValue: Sized {
    /// Parses the value, or returns the reason for its rejection.
    fn read(content: &str) -> Result<Self, String>;
}

#[diagnostic::do_not_recommend]
impl<T: FromStr<Err: Display>> BlockValue for T {
    fn read(content: &str) -> Result<Self, String> {
        if content.is_empty() {
            return Err("it is empty".to_owned());
        }
        content.parse().map_err(|error: T::Err| error.to_string())
    }
}

/// Reads a block as a value.
pub fn read_value<T: BlockValue>(reply: &str, name: &str) -> Result<T, ReplyError> {
    let found = tag(reply, name)?;
    T::read(found).map_err(|message| ReplyError::Value {
        tag: name.to_owned(),
        found: found.to_owned(),
        message,
    })
}

/// Same as [`read_value`] for an optional block.
pub fn read_optional<T: BlockValue>(reply: &str, name: &str) -> Result<Option<T>, ReplyError> {
    match read_value(reply, name) {
        Ok(value) => Ok(Some(value)),
        Err(ReplyError::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the seat of an agent with a single seat.
pub fn only_seat<A: AgentName>() -> Vec<Seat> {
    vec![Seat::only(A::NAME)]
}

/// Returns the seats of an agent with several. One seat above the maximum represents all further ones.
pub fn seats<A: AgentName>(count: &impl SeatCount) -> Vec<Seat> {
    (0..count.seats().min(MOST_SEATS + 1)).map(|index| Seat::at(A::NAME, index)).collect()
}

/// Calls a blocking tool on a thread of its own.
pub fn call_blocking<A: Arguments, O: ToolOutput>(
    arguments: Map<String, Value>,
    function: fn(A) -> O,
) -> BoxFuture<'static, Result<String, String>> {
    Box::pin(async move {
        let argument = A::read(arguments)?;
        let done = tokio::task::spawn_blocking(move || function(argument).output()).await;
        // The message of a panic is not shown to the model.
        done.unwrap_or_else(|_| Err("it broke".to_owned()))
    })
}

/// Calls an async tool.
pub fn call_async<A: Arguments, O: ToolOutput, F: Future<Output = O> + Send + 'static>(
    arguments: Map<String, Value>,
    function: fn(A) -> F,
) -> BoxFuture<'static, Result<String, String>> {
    Box::pin(async move { function(A::read(arguments)?).await.output() })
}

/// The settings of a value, an object.
pub fn settings<T: Serialize>(value: &T) -> Value {
    ::serde_json::to_value(value).expect("settings are made of what JSON can say")
}

/// Default value of a type: all options have their defaults.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has options, but no defaults for those that are left out",
    label = "has no `Default`",
    note = "add `#[derive(Default)]`, or write `impl Default for {Self}`"
)]
pub trait Defaults {
    /// Returns the default value.
    fn defaults() -> Self;
}

#[diagnostic::do_not_recommend]
impl<T: Default> Defaults for T {
    fn defaults() -> Self {
        Self::default()
    }
}

/// Default function for serde.
pub fn defaults<T: Defaults>() -> T {
    T::defaults()
}
