//! Expansion of `#[agent]`.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{Ident, ItemStruct, Path};

use super::parse::{AgentArguments, AgentDeclaration, Asking};
use super::prompt::{PlacedPiece, PromptPiece};
use crate::args::shown_at;
use crate::item;

pub(crate) fn agent(agent: &AgentDeclaration, item: &ItemStruct) -> TokenStream {
    let AgentDeclaration { krate, name, asking } = agent;
    let ident = &item.ident;
    let summary = item::summary(&item.attrs);
    let item = &item::with_derives(item, krate);
    let asking = asking.as_ref().map(|asking| {
        let check = check(krate, asking, ident);
        let imp = impl_agent(krate, asking, item);
        quote!(#check #imp)
    });
    let build = item::build(item, krate);
    let place = item::place(krate, ident);
    let submit = item::submit(krate, &quote!(#krate::registry::Entry::agent::<#ident>(#place)));
    quote! {
        #item

        #asking

        impl #krate::AgentName for #ident {
            const NAME: &'static str = #name;
            const SUMMARY: &'static str = #summary;
        }

        #build
        #submit
    }
}

/// Emits the struct, its errors, and stubs that prevent follow-up errors in the rest of the crate.
pub(crate) fn broken(args: &AgentArguments, item: &ItemStruct, error: &syn::Error) -> TokenStream {
    let AgentArguments { krate, input, output, .. } = args;
    let error = error.to_compile_error();
    if !item.generics.params.is_empty() {
        return quote!(#item #error);
    }
    let ident = &item.ident;
    let item = &item::with_derives(item, krate);
    let name = quote! {
        impl #krate::AgentName for #ident {
            const NAME: &'static str = "";
            const SUMMARY: &'static str = "";
        }
    };
    let dummies = match (input, output) {
        (Some(input), Some(output)) => quote! {
            impl #krate::Agent for #ident {
                type Input = #input;
                type Output = #output;

                fn prompt(&self, _: &Self::Input) -> #krate::Prompt {
                    ::core::unreachable!()
                }
            }

            #name
        },
        (None, None) if !args.by_macro() => name,
        _ => TokenStream::new(),
    };
    quote!(#item #dummies #error)
}

/// Emits the checks that only the compiler can make: that fields exist, and that the prompt states the reply format.
fn check(krate: &Path, asking: &Asking, ident: &Ident) -> TokenStream {
    let Asking { input, output, prompt } = asking;
    let span = prompt.literal.span();
    let file = prompt.file.as_ref().map(|file| {
        let file = file.to_string_lossy();
        quote!(
            const _: &str = ::core::include_str!(#file);
        )
    });
    let fields = prompt.template.pieces().filter_map(|(piece, line)| match piece {
        PromptPiece::Field(name) => {
            let place = prompt.line(*line);
            Some(quote!((#name, #place)))
        }
        _ => None,
    });
    let tells_format =
        prompt.template.pieces().any(|(piece, _)| *piece == PromptPiece::ReplyFormat);
    let named = prompt.file.as_ref().map(|_| prompt.literal.value());
    let whole = named.unwrap_or_else(|| "`prompt_text`".to_owned());
    let [input_name, output_name] =
        [input, output].map(|ty| ty.to_token_stream().to_string().replace(' ', ""));
    let krate = shown_at(span, krate);
    let check = quote_spanned! {span=>
        const _: () = #krate::__private::PromptCheck {
            prompt: #whole,
            input: #input_name,
            output: #output_name,
            fields: &[#(#fields),*],
            tells_format: #tells_format,
        }
        .run::<#ident>();
    };
    quote!(#file #check)
}

fn impl_agent(krate: &Path, asking: &Asking, item: &ItemStruct) -> TokenStream {
    let Asking { input, output, prompt } = asking;
    let ident = &item.ident;
    let system = prompt.template.system.as_ref().map(|pieces| {
        let parts = pieces.iter().map(|(piece, _)| text_of(krate, asking, piece));
        quote!(prompt.system = ::core::option::Option::Some([#(#parts),*].concat());)
    });
    let user = prompt.template.user.iter().map(|placed| push(krate, asking, placed));
    quote! {
        impl #krate::Agent for #ident {
            type Input = #input;
            type Output = #output;

            fn prompt(&self, input: &Self::Input) -> #krate::Prompt {
                let mut prompt = #krate::Prompt::default();
                #system
                #(#user)*
                prompt
            }
        }
    }
}

fn push(krate: &Path, asking: &Asking, (piece, _): &PlacedPiece) -> TokenStream {
    match piece {
        PromptPiece::Text(text) => quote!(prompt.push(#text);),
        PromptPiece::Field(name) => {
            quote!(#krate::__private::push_field::<Self>(&mut prompt, input, #name);)
        }
        piece => {
            let text = text_of(krate, asking, piece);
            quote!(prompt.push(&#text);)
        }
    }
}

/// Emits the text of a piece, a `String`.
fn text_of(krate: &Path, asking: &Asking, piece: &PromptPiece) -> TokenStream {
    match piece {
        PromptPiece::Text(text) => quote!(::std::string::String::from(#text)),
        PromptPiece::Field(name) => quote!(#krate::__private::show_field::<Self>(input, #name)),
        PromptPiece::Option(name) => {
            let option =
                syn::parse_str::<Ident>(name).unwrap_or_else(|_| format_ident!("r#{name}"));
            let span = asking.prompt.literal.span();
            let krate = shown_at(span, krate);
            quote_spanned!(span=> #krate::Show::show(&self.#option))
        }
        PromptPiece::ReplyFormat => quote!(#krate::__private::reply_format::<Self>()),
    }
}
