//! `#[agent]`.

mod expand;
mod parse;
mod prompt;
mod source;
mod types;

use proc_macro2::TokenStream;

use crate::errors::Errors;
use crate::item;

pub(crate) fn agent(args: &TokenStream, item: &TokenStream) -> TokenStream {
    let item = match item::parse_struct("agent", item) {
        Ok(item) => item,
        Err(tokens) => return tokens,
    };
    let mut errors = Errors::default();
    let args = parse::AgentArguments::read(args, &mut errors);
    match args.check(&item, errors) {
        Ok(agent) => expand::agent(&agent, &item),
        Err(error) => expand::broken(&args, &item, &error),
    }
}
