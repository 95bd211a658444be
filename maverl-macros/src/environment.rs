//! `#[environment]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{ItemStruct, LitStr, Path};

use crate::args::{crate_path, krate, read_args, value, words};
use crate::errors::Errors;
use crate::{item, name};

pub(crate) fn environment(args: &TokenStream, item: &TokenStream) -> TokenStream {
    let item = match item::parse_struct("environment", item) {
        Ok(item) => item,
        Err(tokens) => return tokens,
    };
    match Environment::parse(args, &item) {
        Ok(environment) => environment.expand(&item),
        Err(error) => {
            let error = error.to_compile_error();
            let item = item::with_derives(&item, &krate(None));
            quote!(#item #error)
        }
    }
}

struct Environment {
    krate: Path,
    name: LitStr,
    offers: Vec<LitStr>,
}

impl Environment {
    fn parse(args: &TokenStream, item: &ItemStruct) -> syn::Result<Self> {
        let mut errors = Errors::default();
        let (mut name, mut offers, mut path) = (None, Vec::new(), None);
        read_args(args.clone(), &["name", "offers", "crate"], &mut errors, |key, input, errors| {
            match key {
                "name" => name = Some(value::<LitStr>(input, "name = \"word\"")?),
                "offers" => offers = words(input, "offers(\"word\", ..)", errors)?,
                _ => path = Some(crate_path(input)?),
            }
            Ok(())
        });
        match &name {
            Some(name) => name::check(name, name::Form::Any, &mut errors),
            None => errors
                .missing(args, "an environment needs a name: `#[environment(name = \"word\")]`"),
        }
        item::check_struct(item, "an environment", &mut errors);
        errors.finish(name.map(|name| Self { krate: krate(path), name, offers }))
    }

    fn expand(&self, item: &ItemStruct) -> TokenStream {
        let Self { krate, name, offers } = self;
        let ident = &item.ident;
        let summary = item::summary(&item.attrs);
        let item = &item::with_derives(item, krate);
        let build = item::build(item, krate);
        let place = item::place(krate, ident);
        let entry = quote!(#krate::registry::Entry::environment::<#ident>(#place));
        let submit = item::submit(krate, &entry);
        quote! {
            #item

            impl #krate::env::EnvironmentName for #ident {
                const NAME: &'static str = #name;
                const SUMMARY: &'static str = #summary;
                const OFFERS: &'static [&'static str] = &[#(#offers),*];
            }

            #build
            #submit
        }
    }
}
