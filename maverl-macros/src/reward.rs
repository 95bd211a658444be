//! `#[reward]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{FnArg, ItemFn, LitStr, Path, ReturnType};

use crate::args::{crate_path, krate, read_args, value};
use crate::errors::Errors;
use crate::{item, name};

pub(crate) fn reward(args: &TokenStream, item: &TokenStream) -> TokenStream {
    let Ok(function) = syn::parse2::<ItemFn>(item.clone()) else {
        let message = format!("`#[reward]` stands on a function: `{}`", signature("name"));
        let error = syn::Error::new_spanned(item, message).to_compile_error();
        return quote!(#item #error);
    };
    match Reward::parse(args, &function) {
        Ok(reward) => reward.expand(&function),
        Err(error) => {
            let error = error.to_compile_error();
            quote!(#function #error)
        }
    }
}

struct Reward {
    krate: Path,
    name: LitStr,
}

impl Reward {
    fn parse(args: &TokenStream, function: &ItemFn) -> syn::Result<Self> {
        let mut errors = Errors::default();
        let (mut name, mut path) = (None, None);
        read_args(args.clone(), &["name", "crate"], &mut errors, |key, input, _| {
            match key {
                "name" => name = Some(value::<LitStr>(input, "name = \"word\"")?),
                _ => path = Some(crate_path(input)?),
            }
            Ok(())
        });
        let ident = &function.sig.ident;
        let name = name.unwrap_or_else(|| LitStr::new(&ident.unraw().to_string(), ident.span()));
        name::check(&name, name::Form::Any, &mut errors);
        check_signature(function, &mut errors);
        errors.finish(Some(Self { krate: krate(path), name }))
    }

    fn expand(&self, function: &ItemFn) -> TokenStream {
        let Self { krate, name } = self;
        let ident = &function.sig.ident;
        let summary = item::summary(&function.attrs);
        let place = item::place(krate, ident);
        let entry = quote!(#krate::registry::Entry::reward(#name, #summary, #place, #ident));
        let submit = item::submit(krate, &entry);
        quote!(#function #submit)
    }
}

fn check_signature(function: &ItemFn, errors: &mut Errors) {
    let sig = &function.sig;
    let wanted = signature(&sig.ident.to_string());
    if let Some(token) = &sig.asyncness {
        errors.at(token, format!("a reward is computed at once: write `{wanted}`"));
    }
    if let Some(token) = &sig.unsafety {
        errors.at(token, format!("a reward is a safe function: write `{wanted}`"));
    }
    if !sig.generics.params.is_empty() {
        errors.at(&sig.generics, format!("a reward has no generics: write `{wanted}`"));
    }
    let one_argument = sig.inputs.len() == 1 && matches!(sig.inputs.first(), Some(FnArg::Typed(_)));
    if !one_argument {
        let message = format!("a reward takes the episode and nothing else: write `{wanted}`");
        match sig.inputs.is_empty() {
            true => errors.at(&sig.ident, message),
            false => errors.at(&sig.inputs, message),
        }
    }
    if matches!(sig.output, ReturnType::Default) {
        errors.at(&sig.ident, format!("a reward returns `Rewards`: write `{wanted}`"));
    }
}

fn signature(name: &str) -> String {
    format!("fn {name}(episode: &Episode) -> Rewards")
}
