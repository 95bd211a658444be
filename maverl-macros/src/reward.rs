//! `#[reward]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{FnArg, ItemFn, LitStr, Path, ReturnType};

use crate::errors::Errors;
use crate::{function, item, name};

pub(crate) fn reward(args: &TokenStream, item: &TokenStream) -> TokenStream {
    function::expand("reward", &signature("name"), item, |function| {
        Ok(Reward::parse(args, function)?.expand(function))
    })
}

struct Reward {
    krate: Path,
    name: LitStr,
}

impl Reward {
    fn parse(args: &TokenStream, function: &ItemFn) -> syn::Result<Self> {
        let mut errors = Errors::default();
        let (krate, name) = function::arguments(args, function, &mut errors);
        name::check(&name, name::NameForm::Any, &mut errors);
        check_signature(function, &mut errors);
        errors.finish(Some(Self { krate, name }))
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
        if sig.inputs.is_empty() {
            errors.at(&sig.ident, message);
        } else {
            errors.at(&sig.inputs, message);
        }
    }
    if matches!(sig.output, ReturnType::Default) {
        errors.at(&sig.ident, format!("a reward returns `Rewards`: write `{wanted}`"));
    }
}

fn signature(name: &str) -> String {
    format!("fn {name}(episode: &Episode) -> Rewards")
}
