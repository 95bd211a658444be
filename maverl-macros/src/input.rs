//! `#[derive(Input)]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Field, Fields, Ident, Path};

use crate::args::{crate_path, krate, read_args, shown_at};
use crate::errors::Errors;

pub(crate) fn input(item: TokenStream) -> TokenStream {
    let item: DeriveInput = match syn::parse2(item) {
        Ok(item) => item,
        Err(error) => return error.to_compile_error(),
    };
    match InputType::parse(&item) {
        Ok(input) => input.expand(&item),
        Err(error) => error.to_compile_error(),
    }
}

struct InputType<'i> {
    krate: Path,
    fields: Vec<InputField<'i>>,
}

struct InputField<'i> {
    ident: &'i Ident,
    name: String,
    observation: bool,
}

impl<'i> InputType<'i> {
    fn parse(item: &'i DeriveInput) -> syn::Result<Self> {
        let mut errors = Errors::default();
        let mut path = None;
        for attr in item.attrs.iter().filter(|attr| attr.path().is_ident("input")) {
            if let Some(list) = errors.keep(attr.meta.require_list()) {
                read_args(list.tokens.clone(), &["crate"], &mut errors, |_, input, _| {
                    path = Some(crate_path(input)?);
                    Ok(())
                });
            }
        }
        let mut fields = Vec::new();
        match &item.data {
            Data::Struct(data) if matches!(data.fields, Fields::Named(_)) => {
                fields.extend(data.fields.iter().filter_map(|f| InputField::parse(f, &mut errors)));
            }
            _ => errors.at(
                &item.ident,
                format!(
                    "an input is a struct whose fields have names, which a prompt mentions as `{{{{ name }}}}`: \
                     write `struct {} {{ question: String }}`",
                    item.ident
                ),
            ),
        }
        errors.finish(Some(Self { krate: krate(path), fields }))
    }

    fn expand(&self, item: &DeriveInput) -> TokenStream {
        let Self { krate, fields } = self;
        let ident = &item.ident;
        let mut generics = item.generics.clone();
        for param in generics.type_params_mut() {
            param.bounds.push(syn::parse_quote!(#krate::Show));
            param.bounds.push(syn::parse_quote!(::core::marker::Send));
            param.bounds.push(syn::parse_quote!(::core::marker::Sync));
        }
        let (generics, arguments, bounds) = generics.split_for_impl();
        let names = fields.iter().map(|field| &field.name);
        let observations = fields.iter().filter(|field| field.observation).map(|field| &field.name);
        let arms = fields.iter().enumerate().map(|(i, field)| {
            let ident = field.ident;
            let krate = shown_at(ident.span(), krate);
            quote_spanned!(ident.span()=> #i => #krate::Show::show(&self.#ident),)
        });
        quote! {
            #[automatically_derived]
            impl #generics #krate::Input for #ident #arguments #bounds {
                const FIELDS: &'static [&'static str] = &[#(#names),*];
                const OBSERVATIONS: &'static [&'static str] = &[#(#observations),*];

                fn show(&self, field: usize) -> ::std::string::String {
                    match field {
                        #(#arms)*
                        other => #krate::__private::no_field::<Self>(other),
                    }
                }
            }
        }
    }
}

impl<'i> InputField<'i> {
    fn parse(field: &'i Field, errors: &mut Errors) -> Option<Self> {
        let ident = field.ident.as_ref()?;
        let name = ident.unraw().to_string();
        if name == "reply_format" {
            errors.at(
                ident,
                "`{{ reply_format }}` is the sentence about the reply; give the field another name",
            );
        }
        let mut observation = false;
        for attr in field.attrs.iter().filter(|attr| attr.path().is_ident("input")) {
            match attr.meta.require_list() {
                Ok(list) => {
                    let tokens = list.tokens.clone();
                    read_args(tokens, &["observation"], errors, |_, _, _| {
                        observation = true;
                        Ok(())
                    });
                }
                Err(_) => errors.at_span(attr.span(), "write `#[input(observation)]`"),
            }
        }
        Some(Self { ident, name, observation })
    }
}
