//! `#[orchestra]`.

mod expand;
mod parse;

use proc_macro2::TokenStream;

use crate::errors::Errors;
use crate::item;

pub(crate) fn orchestra(args: &TokenStream, item: &TokenStream) -> TokenStream {
    let item = match item::parse_struct("orchestra", item) {
        Ok(item) => item,
        Err(tokens) => return tokens,
    };
    let mut errors = Errors::default();
    let args = parse::Args::read(args, &mut errors);
    let krate = args.krate.clone();
    let members = args.members.clone();
    match args.check(&item, errors) {
        Ok(orchestra) => expand::orchestra(&orchestra, &item),
        Err(error) => expand::broken(&krate, &members, &item, &error),
    }
}
