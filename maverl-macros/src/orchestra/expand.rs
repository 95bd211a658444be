//! Expansion of `#[orchestra]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{ItemStruct, Path};

use super::parse::{MemberDeclaration, OrchestraDeclaration, Seats};
use crate::args::shown_at;
use crate::item;

pub(crate) fn orchestra(orchestra: &OrchestraDeclaration, item: &ItemStruct) -> TokenStream {
    let OrchestraDeclaration { krate, name, members, needs, task } = orchestra;
    let ident = &item.ident;
    let summary = item::summary(&item.attrs);
    let item = &item::with_derives(item, krate);
    let includes = includes(krate, members, item);
    let seats = members.iter().map(|member| seats(krate, member));
    let read_task = item::read_task(krate, task.as_ref());
    let build = item::build(item, krate);
    let place = item::place(krate, ident);
    let entry = quote!(#krate::registry::Entry::orchestra::<#ident>(#place));
    let submit = item::submit(krate, &entry);
    quote! {
        #item

        impl #krate::orchestra::OrchestraName for #ident {
            const NAME: &'static str = #name;
            const SUMMARY: &'static str = #summary;
            const NEEDS: &'static [&'static str] = &[#(#needs),*];

            fn members(&self) -> ::std::vec::Vec<#krate::trajectory::Seat> {
                [#(#seats),*].concat()
            }

            #read_task
        }

        #includes
        #build
        #submit
    }
}

/// Emits the struct, its errors, and stubs that prevent follow-up errors in the rest of the crate.
pub(crate) fn broken(
    krate: &Path,
    members: &[MemberDeclaration],
    item: &ItemStruct,
    error: &syn::Error,
) -> TokenStream {
    let error = error.to_compile_error();
    if !item.generics.params.is_empty() {
        return quote!(#item #error);
    }
    let item = &item::with_derives(item, krate);
    let mut agents: Vec<MemberDeclaration> = Vec::new();
    for member in members {
        if !agents.iter().any(|other| other.agent == member.agent) {
            agents.push(member.clone());
        }
    }
    let includes = includes(krate, &agents, item);
    quote!(#item #includes #error)
}

fn includes(krate: &Path, members: &[MemberDeclaration], item: &ItemStruct) -> TokenStream {
    let ident = &item.ident;
    let impls = members.iter().map(|MemberDeclaration { agent, .. }| {
        let krate = shown_at(agent.span(), krate);
        quote_spanned!(agent.span()=> impl #krate::orchestra::Includes<#agent> for #ident {})
    });
    quote!(#(#impls)*)
}

fn seats(krate: &Path, MemberDeclaration { agent, seats }: &MemberDeclaration) -> TokenStream {
    match seats {
        None => quote!(#krate::__private::only_seat::<#agent>()),
        Some(Seats::Literal(n)) => {
            let n: u32 = n.base10_parse().expect("the count was checked");
            quote!(#krate::__private::seats::<#agent>(&#n))
        }
        Some(Seats::Field(field)) => {
            let krate = shown_at(field.span(), krate);
            quote_spanned!(field.span()=> #krate::__private::seats::<#agent>(&self.#field))
        }
    }
}
