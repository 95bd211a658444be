//! `#[orchestra]` on a function: it declares the type that the function's team names, and implements `Orchestra` for it.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    FnArg, GenericArgument, Ident, ItemFn, ItemStruct, PathArguments, ReturnType, Signature, Type,
};

use super::{expand, parse};
use crate::args::shown_at;
use crate::errors::Errors;
use crate::item;
use crate::name::camel;

pub(crate) fn orchestra(args: &TokenStream, function: &ItemFn) -> TokenStream {
    let mut errors = Errors::default();
    let args = parse::OrchestraArguments::read(args, &mut errors);
    let team = check_signature(&function.sig, &mut errors);
    let ident = team.unwrap_or_else(|| type_name(&function.sig.ident));
    let (vis, docs) = (&function.vis, item::docs(&function.attrs));
    let item: ItemStruct = syn::parse_quote! {
        #(#docs)*
        #vis struct #ident;
    };
    let krate = args.krate.clone();
    let members = args.members.clone();
    match args.check((&item, &function.sig.ident), errors) {
        Ok(orchestra) => {
            let expanded = expand::orchestra(&orchestra, &item);
            let run = run(&krate, function, &ident);
            quote!(#function #expanded #run)
        }
        // The body is left out: it would cause follow-up errors.
        Err(error) => expand::broken(&krate, &members, &item, &error),
    }
}

fn run(krate: &syn::Path, function: &ItemFn, ident: &Ident) -> TokenStream {
    let sig = &function.sig;
    let (name, inputs) = (&sig.ident, &sig.inputs);
    // Names of variables that no function of the user can have, at the arguments that get them.
    let [task, team] = ["task", "team"].map(|name| Ident::new(name, Span::mixed_site()));
    let spans = inputs.iter().map(|input| Span::mixed_site().located_at(input.span()));
    let given = ["task", "team"].into_iter().zip(spans).map(|(name, span)| Ident::new(name, span));
    let output = sig.output.span();
    let home = shown_at(output, krate);
    let answer = quote_spanned! {output=>
        ::core::result::Result<
            ::core::option::Option<::std::string::String>,
            #home::agent::AskError,
        >
    };
    let call = quote_spanned!(output=> #name(#(#given),*).await);
    quote! {
        impl #krate::orchestra::Orchestra for #ident {
            async fn run(
                &self,
                #task: &#krate::task::Task,
                #team: &#krate::orchestra::Team<Self>,
            ) -> #answer {
                #call
            }
        }
    }
}

/// Returns the type of the orchestra, which the team names. Adds errors about the signature.
fn check_signature(sig: &Signature, errors: &mut Errors) -> Option<Ident> {
    let team = sig.inputs.iter().nth(1).and_then(team_type);
    let shown = team.clone().unwrap_or_else(|| type_name(&sig.ident));
    let wanted = signature(&sig.ident.to_string(), &shown.to_string());
    if sig.asyncness.is_none() {
        errors.at(sig.fn_token, format!("an orchestra waits for its agents: write `{wanted}`"));
    }
    if let Some(token) = &sig.unsafety {
        errors.at(token, format!("an orchestra is a safe function: write `{wanted}`"));
    }
    if !sig.generics.params.is_empty() {
        errors.at(&sig.generics, format!("an orchestra has no generics: write `{wanted}`"));
    }
    let count = sig.inputs.len();
    if count > 2 {
        let message = "an orchestra takes the task and the team; options are fields: write `struct Name { option: Type }` and \
                       `impl Orchestra for Name`";
        errors.at(&sig.inputs[2], message);
    } else if count < 2 {
        errors
            .at(&sig.ident, format!("an orchestra takes the task and the team: write `{wanted}`"));
    }
    for (i, input) in sig.inputs.iter().take(2).enumerate() {
        if count > 1 && i == 0 && !is_reference(input) {
            errors.at(input, "the first argument is the task: write `task: &Task`");
        }
        if i == 1 && team.is_none() {
            let message = format!(
                "the team names the type that the attribute declares, which knows the agents: write `team: &Team<{shown}>`"
            );
            errors.at(input, message);
        }
    }
    if matches!(sig.output, ReturnType::Default) {
        errors.at(&sig.ident, format!("an orchestra returns the answer: write `{wanted}`"));
    }
    team
}

fn is_reference(input: &FnArg) -> bool {
    let FnArg::Typed(input) = input else { return false };
    matches!(&*input.ty, Type::Reference(reference) if reference.mutability.is_none())
}

/// Returns `Name` of `team: &Team<Name>`.
fn team_type(input: &FnArg) -> Option<Ident> {
    let FnArg::Typed(input) = input else { return None };
    let Type::Reference(reference) = &*input.ty else { return None };
    let Type::Path(team) = &*reference.elem else { return None };
    let PathArguments::AngleBracketed(arguments) = &team.path.segments.last()?.arguments else {
        return None;
    };
    match arguments.args.first() {
        Some(GenericArgument::Type(Type::Path(name))) if arguments.args.len() == 1 => {
            name.path.get_ident().cloned()
        }
        _ => None,
    }
}

fn type_name(function: &Ident) -> Ident {
    Ident::new(&camel(&function.unraw().to_string()), function.span())
}

/// Returns the signature of an orchestra.
pub(crate) fn signature(name: &str, ident: &str) -> String {
    format!(
        "async fn {name}(task: &Task, team: &Team<{ident}>) -> Result<Option<String>, AskError>"
    )
}
