//! Code that a struct of settings becomes.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Ident, Type};

use super::parse::{RangeAttribute, Setting, SettingsKind, SettingsType};

impl SettingsType<'_> {
    pub(crate) fn expand(&self) -> TokenStream {
        let Some(partial) = &self.partial else {
            let parts = [self.default(), self.plain_table()];
            return quote!(#(#parts)*);
        };
        let parts = [
            self.partial(partial),
            self.default(),
            self.partial_default(partial),
            self.partial_methods(partial),
            self.conversions(partial),
            self.trait_impl(partial),
        ];
        quote!(#(#parts)*)
    }

    /// Path of the items that generated code uses.
    fn home(&self) -> TokenStream {
        let krate = &self.krate;
        quote!(#krate::settings)
    }

    /// Path of one of these items as attributes of serde name it.
    fn path_of(&self, name: &str) -> String {
        self.home().to_string().replace(' ', "") + "::" + name
    }

    /// Fields that are keys.
    fn keys(&self) -> impl Iterator<Item = &Setting<'_>> {
        self.fields.iter().filter(|field| field.kind != SettingsKind::Skip)
    }

    /// The struct in which every key is optional.
    fn partial(&self, partial: &Ident) -> TokenStream {
        let (Self { vis, docs, ident, .. }, home) = (self, self.home());
        let (serde, schemars) =
            (self.path_of("__private::serde"), self.path_of("__private::schemars"));
        let resolved =
            format!("Keys that are left out are inherited. The resolved form is [`{ident}`].");
        let fields = self.keys().map(|field| self.partial_field(field));
        quote! {
            #(#docs)*
            #[doc = ""]
            #[doc = #resolved]
            #[derive(
                ::core::fmt::Debug, ::core::clone::Clone, ::core::cmp::PartialEq,
                #home::__private::serde::Serialize, #home::__private::serde::Deserialize,
                #home::__private::schemars::JsonSchema,
            )]
            #[serde(crate = #serde, default, deny_unknown_fields)]
            #[schemars(crate = #schemars)]
            #vis struct #partial {
                #(#fields,)*
            }
        }
    }

    fn partial_field(&self, field: &Setting<'_>) -> TokenStream {
        let Setting { key, docs, .. } = field;
        let home = self.home();
        let (is_empty, short) = (self.path_of("is_empty"), self.path_of("shortest_decimal"));
        let default = field.default.as_ref().map(|default| {
            let text = quote!(#default).to_string();
            quote!(#[doc = ""] #[doc = ::core::concat!("Default: `", #text, "`.")])
        });
        let written = field.written_type();
        let (attribute, ty) = match field.kind {
            SettingsKind::Always | SettingsKind::Skip | SettingsKind::Inner => {
                (quote!(), quote!(#written))
            }
            SettingsKind::Same => {
                let none = "::core::option::Option::is_none";
                (quote!(#[serde(skip_serializing_if = #none)]), quote!(#written))
            }
            SettingsKind::Table => (
                quote!(#[serde(skip_serializing_if = #is_empty)]),
                quote!(<#written as #home::Settings>::Partial),
            ),
            SettingsKind::Optional => {
                let short = is_f32(written).then(|| quote!(, serialize_with = #short));
                let none = "::core::option::Option::is_none";
                (
                    quote!(#[serde(skip_serializing_if = #none #short)]),
                    quote!(::core::option::Option<#written>),
                )
            }
        };
        quote!(#(#docs)* #default #attribute pub #key: #ty)
    }

    /// `Default` of the struct.
    fn default(&self) -> TokenStream {
        let ident = self.ident;
        let values = self.fields.iter().map(|field| {
            let (name, value) = (field.ident, field.default());
            quote!(#name: #value)
        });
        quote! {
            #[automatically_derived]
            impl ::core::default::Default for #ident {
                fn default() -> Self {
                    Self { #(#values),* }
                }
            }
        }
    }

    /// `Default` of the form in which every key is optional.
    fn partial_default(&self, partial: &Ident) -> TokenStream {
        let values = self.keys().map(|field| {
            let (key, value) = (&field.key, field.default());
            match field.kind {
                SettingsKind::Always => quote!(#key: #value),
                _ => quote!(#key: ::core::default::Default::default()),
            }
        });
        quote! {
            #[automatically_derived]
            impl ::core::default::Default for #partial {
                fn default() -> Self {
                    Self { #(#values),* }
                }
            }
        }
    }

    fn partial_methods(&self, partial: &Ident) -> TokenStream {
        let (home, ident) = (self.home(), self.ident);
        quote! {
            #[automatically_derived]
            impl #partial {
                /// These values, and where one is left out, that of `base`.
                #[must_use]
                pub fn over(&self, base: &Self) -> Self {
                    <#ident as #home::Settings>::over(self, base)
                }

                /// Returns true if nothing is written.
                pub fn is_empty(&self) -> bool {
                    #home::is_empty(self)
                }
            }
        }
    }

    fn conversions(&self, partial: &Ident) -> TokenStream {
        let (home, ident) = (self.home(), self.ident);
        let resolved = (!self.by_hand).then(|| {
            quote! {
                #[automatically_derived]
                impl ::core::convert::From<&#partial> for #ident {
                    fn from(partial: &#partial) -> Self {
                        <Self as #home::Settings>::resolve(partial, ::core::default::Default::default())
                    }
                }
            }
        });
        quote! {
            #resolved

            #[automatically_derived]
            impl ::core::convert::From<&#ident> for #partial {
                /// The same as a user would write it.
                fn from(resolved: &#ident) -> Self {
                    <#ident as #home::Settings>::written(resolved)
                }
            }
        }
    }

    /// The table that a struct is which users write as it is.
    fn plain_table(&self) -> TokenStream {
        let (home, ident) = (self.home(), self.ident);
        let defaults = quote!(#home::json(&<Self as ::core::default::Default>::default()));
        self.table(ident, &defaults)
    }

    /// The table that users write.
    fn table(&self, written: &Ident, defaults: &TokenStream) -> TokenStream {
        let home = self.home();
        let keys = self.keys().map(|field| self.key(field));
        let checks = self.keys().filter_map(|field| self.check(field));
        quote! {
            #[automatically_derived]
            impl #home::Table for #written {
                const NAME: &'static str = ::core::stringify!(#written);

                const KEYS: &'static [#home::Key] = &[#(#keys),*];

                fn defaults() -> #home::Json {
                    #defaults
                }

                fn out_of_range(&self) -> ::std::vec::Vec<#home::OutOfRange> {
                    let mut found = ::std::vec::Vec::new();
                    #(#checks)*
                    let _ = &mut found;
                    found
                }
            }
        }
    }

    fn trait_impl(&self, partial: &Ident) -> TokenStream {
        let (home, ident) = (self.home(), self.ident);
        let over = self.keys().map(|field| self.over(field));
        let resolve = self.fields.iter().map(|field| self.resolve(field));
        let written = self.keys().map(|field| self.written(field));
        let default = quote!(<#ident as ::core::default::Default>::default());
        let defaults = quote!(#home::json(&<#ident as #home::Settings>::written(&#default)));
        let table = self.table(partial, &defaults);
        quote! {
            #table

            #[automatically_derived]
            impl #home::Settings for #ident {
                type Partial = #partial;

                fn over(ours: &#partial, base: &#partial) -> #partial {
                    #partial { #(#over),* }
                }

                fn resolve(partial: &#partial, default: Self) -> Self {
                    Self { #(#resolve),* }
                }

                fn written(&self) -> #partial {
                    #partial { #(#written),* }
                }
            }
        }
    }

    fn key(&self, field: &Setting<'_>) -> TokenStream {
        let home = self.home();
        let (name, text, level) = (name(field), &field.text, &field.level);
        let table =
            matches!(field.kind, SettingsKind::Table | SettingsKind::Same | SettingsKind::Inner);
        let range = option(field.range.as_ref().map(|range| self.range(range)));
        let example = option(field.example.as_ref().map(|example| quote!(#example)));
        let idle = field
            .idle
            .iter()
            .map(|(holds, condition)| quote!(#home::Idle { holds: #holds, condition: #condition }));
        quote! {
            #home::Key {
                name: #name, doc: #text, level: #level, range: #range, table: #table, example: #example,
                idle: &[#(#idle),*],
            }
        }
    }

    fn range(&self, range: &RangeAttribute) -> TokenStream {
        let home = self.home();
        let [from, to] = [&range.from, &range.to].map(|end| emit_bound(&home, end.as_ref()));
        let whole = range.whole;
        quote!(#home::Range { from: #from, to: #to, whole: #whole })
    }

    fn over(&self, field: &Setting<'_>) -> TokenStream {
        let (home, key, ty) = (self.home(), &field.key, field.ty);
        match field.kind {
            SettingsKind::Always | SettingsKind::Skip | SettingsKind::Inner => {
                quote!(#key: ::core::clone::Clone::clone(&ours.#key))
            }
            SettingsKind::Table => {
                quote!(#key: <#ty as #home::Settings>::over(&ours.#key, &base.#key))
            }
            SettingsKind::Optional | SettingsKind::Same => quote! {
                #key: ::core::option::Option::or_else(
                    ::core::clone::Clone::clone(&ours.#key),
                    || ::core::clone::Clone::clone(&base.#key),
                )
            },
        }
    }

    fn resolve(&self, field: &Setting<'_>) -> TokenStream {
        let (home, name, key, ty) = (self.home(), field.ident, &field.key, field.ty);
        let value = match (field.kind, &field.written) {
            (SettingsKind::Skip, _) => quote!(default.#name),
            (SettingsKind::Always | SettingsKind::Same | SettingsKind::Inner, _) => {
                quote!(::core::clone::Clone::clone(&partial.#key))
            }
            (SettingsKind::Table, _) => {
                quote!(<#ty as #home::Settings>::resolve(&partial.#key, default.#name))
            }
            (SettingsKind::Optional, None) => quote! {
                ::core::option::Option::unwrap_or(
                    ::core::clone::Clone::clone(&partial.#key),
                    default.#name,
                )
            },
            (SettingsKind::Optional, Some(written)) => quote! {
                ::core::option::Option::map_or(
                    partial.#key,
                    default.#name,
                    <#ty as ::core::convert::From<#written>>::from,
                )
            },
        };
        quote!(#name: #value)
    }

    fn written(&self, field: &Setting<'_>) -> TokenStream {
        let (home, name, key, ty) = (self.home(), field.ident, &field.key, field.ty);
        let value = match (field.kind, &field.written) {
            (
                SettingsKind::Always
                | SettingsKind::Same
                | SettingsKind::Skip
                | SettingsKind::Inner,
                _,
            ) => {
                quote!(::core::clone::Clone::clone(&self.#name))
            }
            (SettingsKind::Table, _) => {
                let written = quote!(<#ty as #home::Settings>::written(&self.#name));
                match &field.when {
                    Some(when) => {
                        quote!(if #when { #written } else { ::core::default::Default::default() })
                    }
                    None => written,
                }
            }
            (SettingsKind::Optional, None) => {
                quote!(::core::option::Option::Some(::core::clone::Clone::clone(&self.#name)))
            }
            (SettingsKind::Optional, Some(written)) => quote! {
                ::core::result::Result::ok(<#written as ::core::convert::TryFrom<#ty>>::try_from(
                    ::core::clone::Clone::clone(&self.#name),
                ))
            },
        };
        quote!(#key: #value)
    }

    /// Adds what is out of its range to `found`.
    fn check(&self, field: &Setting<'_>) -> Option<TokenStream> {
        let (home, name, key) = (self.home(), name(field), &field.key);
        if matches!(field.kind, SettingsKind::Table | SettingsKind::Inner) {
            // Other tables of a plain struct are checked by themselves: they may be maps of tables.
            if self.partial.is_none() && field.kind == SettingsKind::Table {
                return None;
            }
            return Some(quote! {
                let inner = #home::Table::out_of_range(&self.#key);
                found.extend(inner.into_iter().map(|inner| inner.within(#name)));
            });
        }
        let range = self.range(field.range.as_ref()?);
        Some(quote!(found.extend(#range.check(#name, &self.#key));))
    }
}

fn name(field: &Setting<'_>) -> String {
    field.key.unraw().to_string()
}

/// Emits an end of a range, an `Option<Bound>`.
fn emit_bound(home: &TokenStream, end: Option<&(syn::Expr, bool)>) -> TokenStream {
    option(end.map(
        |(value, included)| quote!(#home::Bound { value: (#value) as f64, included: #included }),
    ))
}

fn option(value: Option<TokenStream>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

/// Single precision, which is written as the shortest decimal that reads back as it.
fn is_f32(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident("f32"))
}
