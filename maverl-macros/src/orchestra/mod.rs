//! `#[orchestra]`.

mod expand;
mod function;
mod parse;

use proc_macro2::TokenStream;
use syn::ItemStruct;

use crate::errors::Errors;
use crate::item::{self, ItemShape};

pub(crate) fn orchestra(args: &TokenStream, item: &TokenStream) -> TokenStream {
    match item::parse_shape("orchestra", &function::signature("name", "Name"), item) {
        Ok(ItemShape::Struct(item)) => on_struct(args, &item),
        Ok(ItemShape::Function(function)) => function::orchestra(args, &function),
        Err(tokens) => tokens,
    }
}

fn on_struct(args: &TokenStream, item: &ItemStruct) -> TokenStream {
    let mut errors = Errors::default();
    let args = parse::OrchestraArguments::read(args, &mut errors);
    let krate = args.krate.clone();
    let members = args.members.clone();
    match args.check((item, &item.ident), errors) {
        Ok(orchestra) => expand::orchestra(&orchestra, item),
        Err(error) => expand::broken(&krate, &members, item, &error),
    }
}
