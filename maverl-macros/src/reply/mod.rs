//! `#[derive(Reply)]`.

mod expand;
mod parse;

use proc_macro2::TokenStream;
use syn::DeriveInput;

pub(crate) fn reply(item: TokenStream) -> TokenStream {
    let item: DeriveInput = match syn::parse2(item) {
        Ok(item) => item,
        Err(error) => return error.to_compile_error(),
    };
    match parse::ReplyType::parse(&item) {
        Ok(reply) => expand::reply(&reply, &item),
        Err(error) => error.to_compile_error(),
    }
}
