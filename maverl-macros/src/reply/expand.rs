//! Expansion of `#[derive(Reply)]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DeriveInput, LitStr, Path};

use super::parse::{Block, ReplyShape, ReplyType, Word};
use crate::args::shown_at;

pub(crate) fn reply(reply: &ReplyType, item: &DeriveInput) -> TokenStream {
    let krate = &reply.krate;
    let ident = &item.ident;
    let mut generics = item.generics.clone();
    for param in generics.type_params_mut() {
        param.bounds.push(syn::parse_quote!(#krate::__private::BlockValue));
        param.bounds.push(syn::parse_quote!(::core::marker::Send));
        param.bounds.push(syn::parse_quote!('static));
    }
    let (generics, arguments, bounds) = generics.split_for_impl();
    let format = reply.format.as_ref().map_or_else(|| sentence(&reply.shape), LitStr::value);
    let parse = match &reply.shape {
        ReplyShape::Word { tag, words } => parse_word(krate, tag, words),
        ReplyShape::Blocks(blocks) => parse_blocks(krate, blocks),
    };
    quote! {
        #[automatically_derived]
        impl #generics #krate::Reply for #ident #arguments #bounds {
            const STRUCTURED: bool = true;

            fn format() -> ::std::string::String {
                ::std::string::String::from(#format)
            }

            fn parse(reply: &str) -> ::core::result::Result<Self, #krate::ReplyError> {
                #parse
            }
        }
    }
}

fn parse_word(krate: &Path, tag: &str, words: &[Word]) -> TokenStream {
    let words = words.iter().map(|Word { variant, text }| quote!((#text, Self::#variant)));
    quote!(#krate::__private::read_word(reply, #tag, [#(#words),*]))
}

fn parse_blocks(krate: &Path, blocks: &[Block]) -> TokenStream {
    let fields = blocks.iter().map(|Block { member, tag, value, optional, .. }| {
        let span = value.span();
        let krate = shown_at(span, krate);
        let read = if *optional { quote!(read_optional) } else { quote!(read_value) };
        quote_spanned!(span=> #member: #krate::__private::#read::<#value>(reply, #tag)?)
    });
    quote!(::core::result::Result::Ok(Self { #(#fields),* }))
}

/// Returns the sentence that describes the format to the model. It is short, because small models read it.
fn sentence(shape: &ReplyShape) -> String {
    match shape {
        ReplyShape::Word { tag, words } => {
            let words: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
            let words = words.join(", ");
            format!("Reply with exactly one <{tag}>...</{tag}> block that holds one of: {words}.")
        }
        ReplyShape::Blocks(blocks) => {
            let (optional, required): (Vec<_>, Vec<_>) =
                blocks.iter().partition(|block| block.optional);
            let required = match required.as_slice() {
                [] => None,
                [one] => Some(format!("Reply with exactly one {} block.", shown(one))),
                all => {
                    Some(format!("Reply with exactly one of each of these blocks: {}.", list(all)))
                }
            };
            let optional = match optional.as_slice() {
                [] => None,
                [one] => Some(format!("You may add one {} block.", shown(one))),
                all => Some(format!("You may add one of each of these blocks: {}.", list(all))),
            };
            let sentences = [required, optional, example(blocks)];
            sentences.into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
    }
}

fn shown(Block { tag, about, .. }: &Block) -> String {
    let about = if about.is_empty() { "..." } else { about };
    format!("<{tag}>{about}</{tag}>")
}

fn list(blocks: &[&Block]) -> String {
    blocks.iter().map(|block| shown(block)).collect::<Vec<_>>().join(", ")
}

fn example(blocks: &[Block]) -> Option<String> {
    let examples: Vec<String> = blocks
        .iter()
        .filter_map(|Block { tag, example, .. }| {
            example.as_ref().map(|example| format!("<{tag}>{}</{tag}>", example.value()))
        })
        .collect();
    (!examples.is_empty()).then(|| format!("For example: {}", examples.join(" ")))
}
