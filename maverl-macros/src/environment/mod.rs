//! `#[environment]`.

mod declaration;
mod function;

use proc_macro2::TokenStream;
use quote::quote;
use syn::ItemStruct;

use self::declaration::EnvironmentDeclaration;
use crate::args::krate;
use crate::errors::Errors;
use crate::item::{self, ItemShape};

const KEYS: [&str; 4] = ["name", "offers", "task", "crate"];

pub(crate) fn environment(args: &TokenStream, item: &TokenStream) -> TokenStream {
    match item::parse_shape("environment", &function::signature("name"), item) {
        Ok(ItemShape::Struct(item)) => on_struct(args, &item),
        Ok(ItemShape::Function(function)) => function::environment(args, &function),
        Err(tokens) => tokens,
    }
}

fn on_struct(args: &TokenStream, item: &ItemStruct) -> TokenStream {
    let mut errors = Errors::default();
    let environment = EnvironmentDeclaration::read(args, &item.ident, &KEYS, &mut errors);
    item::check_struct(item, "an environment", &mut errors);
    match errors.finish(Some(environment)) {
        Ok(environment) => environment.expand(item),
        Err(error) => {
            let error = error.to_compile_error();
            let item = item::with_derives(item, &krate(None));
            quote!(#item #error)
        }
    }
}
