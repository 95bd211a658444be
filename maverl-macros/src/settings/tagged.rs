//! Code that an enum of settings becomes: a table whose `kind` decides which keys it has.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Fields, Ident, Path, Type};

use super::parse::lists;
use crate::args::{crate_path, krate, read_args};
use crate::errors::Errors;
use crate::item::documentation;
use crate::name::snake;

const ON_VARIANT: [&str; 2] = ["default", "open"];

/// An enum whose variants are the kinds of a table.
pub(crate) struct TaggedEnum<'i> {
    krate: Path,
    ident: &'i Ident,
    kinds: Vec<TaggedKind<'i>>,
}

/// A variant, which is a kind.
struct TaggedKind<'i> {
    ident: &'i Ident,
    name: String,
    text: String,
    /// Its settings; none if it has none.
    settings: Option<&'i Type>,
    is_default: bool,
    /// It stands for the kinds that are declared elsewhere.
    open: bool,
}

impl<'i> TaggedEnum<'i> {
    pub(crate) fn parse(item: &'i DeriveInput) -> syn::Result<Self> {
        let (mut errors, mut path) = (Errors::default(), None);
        for list in lists(&item.attrs, "settings", &mut errors) {
            read_args(list, &["crate"], &mut errors, |_, input, _| {
                path = Some(crate_path(input)?);
                Ok(())
            });
        }
        let mut kinds = Vec::new();
        if let Data::Enum(data) = &item.data {
            for variant in &data.variants {
                let settings = settings_of(&variant.fields, &variant.ident, &mut errors);
                kinds.push(TaggedKind::parse(
                    &variant.ident,
                    &variant.attrs,
                    settings,
                    &mut errors,
                ));
            }
        }
        if kinds.iter().filter(|kind| kind.is_default).count() != 1 {
            errors.at(&item.ident, "one kind is the default: write `#[setting(default)]` above it");
        }
        errors.finish(Some(Self { krate: krate(path), ident: &item.ident, kinds }))
    }

    pub(crate) fn expand(&self) -> TokenStream {
        let parts = [self.default(), self.tagged_impl(), self.settings(), self.serialize()];
        quote!(#(#parts)*)
    }

    fn home(&self) -> TokenStream {
        let krate = &self.krate;
        quote!(#krate::settings)
    }

    /// Kinds that the enum itself declares.
    fn own_kinds(&self) -> impl Iterator<Item = &TaggedKind<'i>> {
        self.kinds.iter().filter(|kind| !kind.open)
    }

    fn default(&self) -> TokenStream {
        let ident = self.ident;
        let value = self.kinds.iter().find(|kind| kind.is_default).map(TaggedKind::default);
        quote! {
            #[automatically_derived]
            impl ::core::default::Default for #ident {
                fn default() -> Self {
                    #value
                }
            }
        }
    }

    fn tagged_impl(&self) -> TokenStream {
        let (home, ident) = (self.home(), self.ident);
        let kinds = self.own_kinds().map(|kind| {
            let (name, text) = (&kind.name, &kind.text);
            let none = quote!(#home::NoKeys);
            let settings = kind.settings.map_or(none, |settings| quote!(#settings));
            quote!(#home::TableKind::of::<#settings>(#name, #text))
        });
        let names = self.kinds.iter().map(|kind| {
            let (variant, name) = (kind.ident, &kind.name);
            match (kind.open, kind.settings) {
                (true, _) => quote!(Self::#variant(open) => #home::OpenKind::kind(open)),
                (false, Some(_)) => quote!(Self::#variant(_) => #name),
                (false, None) => quote!(Self::#variant => #name),
            }
        });
        quote! {
            #[automatically_derived]
            impl #home::Tagged for #ident {
                const KINDS: &'static [#home::TableKind] = &[#(#kinds),*];

                fn kind(&self) -> &str {
                    match self { #(#names),* }
                }
            }
        }
    }

    fn settings(&self) -> TokenStream {
        let (home, ident) = (self.home(), self.ident);
        let resolved = self.own_kinds().map(|kind| {
            let (variant, name) = (kind.ident, &kind.name);
            match kind.settings {
                None => quote!(#name => Self::#variant),
                Some(_) => quote! {
                    #name => Self::#variant(partial.read(match default {
                        Self::#variant(base) => base,
                        _ => ::core::default::Default::default(),
                    }))
                },
            }
        });
        let written = self.kinds.iter().map(|kind| {
            let (variant, name) = (kind.ident, &kind.name);
            let new = quote!(#home::TaggedConfig::new);
            match (kind.open, kind.settings) {
                (true, _) => quote!(Self::#variant(open) => #home::OpenKind::written(open)),
                (false, Some(_)) => quote!(Self::#variant(settings) => #new(#name, settings)),
                (false, None) => quote!(Self::#variant => #new(#name, &#home::NoKeys {})),
            }
        });
        quote! {
            #[automatically_derived]
            impl #home::Settings for #ident {
                type Partial = #home::TaggedConfig;

                fn over(
                    ours: &#home::TaggedConfig,
                    base: &#home::TaggedConfig,
                ) -> #home::TaggedConfig {
                    ours.over(base, #home::Tagged::kind(&<Self as ::core::default::Default>::default()))
                }

                fn resolve(partial: &#home::TaggedConfig, default: Self) -> Self {
                    let kind = partial.kind_or(#home::Tagged::kind(&default));
                    match kind.as_str() {
                        #(#resolved,)*
                        _ => default,
                    }
                }

                fn written(&self) -> #home::TaggedConfig {
                    match self { #(#written),* }
                }
            }
        }
    }

    fn serialize(&self) -> TokenStream {
        let (home, ident) = (self.home(), self.ident);
        let serde = quote!(#home::__private::serde);
        quote! {
            #[automatically_derived]
            impl #serde::Serialize for #ident {
                fn serialize<S: #serde::Serializer>(
                    &self,
                    serializer: S,
                ) -> ::core::result::Result<S::Ok, S::Error> {
                    #serde::Serialize::serialize(&#home::Settings::written(self), serializer)
                }
            }
        }
    }
}

impl<'i> TaggedKind<'i> {
    fn parse(
        ident: &'i Ident,
        attrs: &[Attribute],
        settings: Option<&'i Type>,
        errors: &mut Errors,
    ) -> Self {
        let (mut is_default, mut open) = (false, false);
        for list in lists(attrs, "setting", errors) {
            read_args(list, &ON_VARIANT, errors, |key, _, _| {
                *(if key == "open" { &mut open } else { &mut is_default }) = true;
                Ok(())
            });
        }
        let (name, text) = (snake(&ident.to_string()), documentation(attrs));
        if text.is_empty() {
            errors.at(ident, format!("the kind `{name}` has no documentation: write `/// ..`, which is its description"));
        }
        Self { ident, name, text, settings, is_default, open }
    }

    fn default(&self) -> TokenStream {
        let variant = self.ident;
        match self.settings {
            Some(_) => quote!(Self::#variant(::core::default::Default::default())),
            None => quote!(Self::#variant),
        }
    }
}

/// Type of the settings of a kind.
fn settings_of<'i>(fields: &'i Fields, ident: &Ident, errors: &mut Errors) -> Option<&'i Type> {
    match fields {
        Fields::Unit => None,
        Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
            fields.unnamed.first().map(|field| &field.ty)
        }
        _ => {
            errors.at(ident, format!("a kind has its settings in a struct: write `{ident}(Name)`, or `{ident}` for none"));
            None
        }
    }
}
