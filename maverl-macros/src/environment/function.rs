//! `#[environment]` on a function, which scores an answer by keys of the task's row.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    FnArg, GenericArgument, ItemFn, ItemStruct, Pat, PathArguments, ReturnType, Signature, Type,
};

use super::declaration::EnvironmentDeclaration;
use crate::args::shown_at;
use crate::errors::Errors;
use crate::item;

const KEYS: [&str; 2] = ["name", "crate"];

/// A parameter that is a key of the row.
struct RowKey<'f> {
    ident: &'f Ident,
    ty: &'f Type,
}

pub(crate) fn environment(args: &TokenStream, function: &ItemFn) -> TokenStream {
    let mut errors = Errors::default();
    let mut environment =
        EnvironmentDeclaration::read(args, &function.sig.ident, &KEYS, &mut errors);
    let keys = check_signature(&function.sig, &mut errors);
    match errors.finish(Some(())) {
        Ok(()) => {
            environment.task = Some(syn::parse_quote_spanned!(function.sig.ident.span()=> __Row));
            let declared = declare(&environment, function, &keys);
            quote!(#function #declared)
        }
        Err(error) => error.to_compile_error(),
    }
}

/// Emits the type of the row and that of the environment, in a scope of their own.
fn declare(
    environment: &EnvironmentDeclaration,
    function: &ItemFn,
    keys: &[RowKey<'_>],
) -> TokenStream {
    let krate = &environment.krate;
    let name = &function.sig.ident;
    let serde = quote!(#krate::__private::serde);
    let path = serde.to_string().replace(' ', "");
    let idents: Vec<&Ident> = keys.iter().map(|key| key.ident).collect();
    let types = keys.iter().map(|key| key.ty);
    let item: ItemStruct = syn::parse_quote!(
        struct __Environment;
    );
    let summary = item::summary(&function.attrs);
    let declaration = environment.declaration(&item, &summary, name);
    let output = function.sig.output.span();
    let home = shown_at(output, krate);
    // Names of variables that no function of the user can have.
    let [row, answer] = ["row", "answer"].map(|name| Ident::new(name, Span::mixed_site()));
    let first = function.sig.inputs.first().map_or_else(Span::mixed_site, Spanned::span);
    let given = Ident::new("answer", Span::mixed_site().located_at(first));
    let call = quote_spanned!(output=> #name(#given, #(#row.#idents),*));
    quote! {
        const _: () = {
            #[derive(#serde::Deserialize)]
            #[serde(crate = #path)]
            struct __Row {
                #(#idents: #types,)*
            }

            #item

            impl #krate::env::Environment for __Environment {
                async fn score(
                    &self,
                    session: &#krate::env::Session,
                    #answer: ::core::option::Option<&str>,
                ) -> ::core::result::Result<#krate::task::Score, #krate::env::EnvError> {
                    let #row: __Row = session.task.parse()?;
                    let score: #home::task::Score = #call;
                    ::core::result::Result::Ok(score)
                }
            }

            #declaration
        };
    }
}

/// Returns the parameters after the answer. Adds errors about the signature.
fn check_signature<'f>(sig: &'f Signature, errors: &mut Errors) -> Vec<RowKey<'f>> {
    let wanted = signature(&sig.ident.to_string());
    if let Some(token) = &sig.asyncness {
        let message = format!(
            "a function scores at once: write `{wanted}`; an environment that waits is a struct with `impl Environment`"
        );
        errors.at(token, message);
    }
    if let Some(token) = &sig.unsafety {
        errors.at(token, format!("an environment is a safe function: write `{wanted}`"));
    }
    if !sig.generics.params.is_empty() {
        errors.at(&sig.generics, format!("an environment has no generics: write `{wanted}`"));
    }
    match sig.inputs.first() {
        None => errors.at(&sig.ident, format!("an environment scores an answer: write `{wanted}`")),
        Some(answer) if !is_answer(answer) => {
            let message = "the first argument is the answer of the team, if it gave one: write `answer: Option<&str>`";
            errors.at(answer, message);
        }
        Some(_) => {}
    }
    if matches!(sig.output, ReturnType::Default) {
        errors.at(&sig.ident, format!("an environment returns `Score`: write `{wanted}`"));
    }
    sig.inputs.iter().skip(1).filter_map(|input| RowKey::read(input, errors)).collect()
}

impl<'f> RowKey<'f> {
    fn read(input: &'f FnArg, errors: &mut Errors) -> Option<Self> {
        let FnArg::Typed(input) = input else { return None };
        let Pat::Ident(pat) = &*input.pat else {
            errors.at(
                &input.pat,
                "an argument after the answer has the name of a key of the row: write `key: Type`",
            );
            return None;
        };
        if input.ty.to_token_stream().to_string().contains('&') {
            let message = format!(
                "the value of a key is read from the row: write a type without references, as `{}: String`",
                pat.ident
            );
            errors.at(&input.ty, message);
        }
        Some(Self { ident: &pat.ident, ty: &input.ty })
    }
}

/// Returns true for `answer: Option<&str>`.
fn is_answer(input: &FnArg) -> bool {
    let FnArg::Typed(input) = input else { return false };
    let Type::Path(option) = &*input.ty else { return false };
    let Some(last) = option.path.segments.last().filter(|last| last.ident == "Option") else {
        return false;
    };
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return false };
    matches!(arguments.args.first(), Some(GenericArgument::Type(Type::Reference(_))))
}

/// Returns the signature of an environment.
pub(crate) fn signature(name: &str) -> String {
    format!("fn {name}(answer: Option<&str>, key: Type) -> Score")
}
