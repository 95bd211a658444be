//! `#[tool]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{FnArg, ItemFn, LitStr, Path, ReturnType, Type};

use crate::args::shown_at;
use crate::errors::Errors;
use crate::{function, item, name};

pub(crate) fn tool(args: &TokenStream, item: &TokenStream) -> TokenStream {
    function::expand("tool", &signature("name"), item, |function| {
        Ok(ToolDeclaration::parse(args, function)?.expand(function))
    })
}

struct ToolDeclaration {
    krate: Path,
    name: LitStr,
    description: String,
}

impl ToolDeclaration {
    fn parse(args: &TokenStream, function: &ItemFn) -> syn::Result<Self> {
        let mut errors = Errors::default();
        let (krate, name) = function::arguments(args, function, &mut errors);
        name::check_tool(&name, &mut errors);
        let description = item::documentation(&function.attrs);
        if description.is_empty() {
            let message = "a tool is chosen by what it says it does: write a documentation comment for the model";
            errors.at(&function.sig.ident, message);
        }
        check_signature(function, &mut errors);
        errors.finish(Some(Self { krate, name, description }))
    }

    fn expand(&self, function: &ItemFn) -> TokenStream {
        let Self { krate, name, description } = self;
        let ident = &function.sig.ident;
        let item = ident.to_string();
        let argument = match function.sig.inputs.first() {
            Some(FnArg::Typed(argument)) => (*argument.ty).clone(),
            _ => syn::parse_quote!(#krate::tools::NoArguments),
        };
        // Errors about the argument and the return type are reported at their tokens.
        let shown = shown_at(argument.span(), krate);
        let schema =
            quote_spanned!(argument.span()=> <#argument as #shown::tools::Arguments>::schema);
        let call = self.call(function, &argument);
        let declared = quote! {
            #krate::tools::DeclaredTool {
                name: #name,
                description: #description,
                file: ::core::file!(),
                line: ::core::line!(),
                item: ::core::concat!(::core::module_path!(), "::", #item),
                schema: #schema,
                call: #call,
            }
        };
        let submit = item::submit(krate, &declared);
        quote!(#function #submit)
    }

    fn call(&self, function: &ItemFn, argument: &Type) -> TokenStream {
        let krate = &self.krate;
        let ident = &function.sig.ident;
        let given = if function.sig.inputs.is_empty() { quote!() } else { quote!(argument) };
        let is_async = function.sig.asyncness.is_some();
        let how = if is_async { quote!(call_async) } else { quote!(call_blocking) };
        quote! {
            |arguments| #krate::__private::#how(arguments, |argument: #argument| {
                let _ = &argument;
                #ident(#given)
            })
        }
    }
}

fn check_signature(function: &ItemFn, errors: &mut Errors) {
    let sig = &function.sig;
    let wanted = signature(&sig.ident.to_string());
    if let Some(token) = &sig.unsafety {
        errors.at(token, format!("a tool is a safe function: write `{wanted}`"));
    }
    if !sig.generics.params.is_empty() {
        errors.at(&sig.generics, format!("a tool has no generics: write `{wanted}`"));
    }
    let receiver = sig.inputs.iter().any(|input| matches!(input, FnArg::Receiver(_)));
    let borrowed = sig.inputs.iter().any(
        |input| matches!(input, FnArg::Typed(argument) if matches!(*argument.ty, Type::Reference(_))),
    );
    if sig.inputs.len() > 1 || receiver {
        let message =
            format!("a tool takes one struct, whose fields are its arguments: write `{wanted}`");
        errors.at(&sig.inputs, message);
    } else if borrowed {
        errors.at(&sig.inputs, format!("a tool owns what it takes: write `{wanted}`"));
    }
    if matches!(sig.output, ReturnType::Default) {
        let message = format!("a tool gives the model something to read: write `{wanted}`");
        errors.at(&sig.ident, message);
    }
}

fn signature(name: &str) -> String {
    format!("fn {name}(arguments: Arguments) -> String")
}
