//! `#[derive(Settings)]`.

mod expand;
mod parse;

use proc_macro2::TokenStream;

pub(crate) fn settings(item: TokenStream) -> TokenStream {
    let expanded = syn::parse2(item)
        .and_then(|item| parse::Settings::parse(&item).map(|settings| settings.expand()));
    expanded.unwrap_or_else(|error| error.to_compile_error())
}
