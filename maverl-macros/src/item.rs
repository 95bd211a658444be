//! Struct under an attribute: its documentation, and its fields as options.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, Expr, ExprLit, Field, Fields, Ident, Item, ItemFn, ItemStruct, Lit, LitStr, Meta,
    Path, Token, Type,
};

use crate::errors::Errors;

/// An item that declares something: a struct, or the function that its trait would have.
pub(crate) enum ItemShape {
    Struct(ItemStruct),
    Function(ItemFn),
}

/// Parses the struct; on failure returns the item with an error.
pub(crate) fn parse_struct(attribute: &str, item: &TokenStream) -> Result<ItemStruct, TokenStream> {
    match syn::parse2::<Item>(item.clone()) {
        Ok(Item::Struct(item)) => Ok(item),
        other => Err(refuse(attribute, "", item, other)),
    }
}

/// Parses the struct, or the function, whose signature messages show; on failure returns the item with an error.
pub(crate) fn parse_shape(
    attribute: &str,
    signature: &str,
    item: &TokenStream,
) -> Result<ItemShape, TokenStream> {
    match syn::parse2::<Item>(item.clone()) {
        Ok(Item::Struct(item)) => Ok(ItemShape::Struct(item)),
        Ok(Item::Fn(function)) => Ok(ItemShape::Function(function)),
        other => Err(refuse(attribute, &format!("; or on a function: `{signature}`"), item, other)),
    }
}

/// Returns an item of the wrong kind with an error. `or` are other kinds than a struct that the attribute stands on.
fn refuse(attribute: &str, or: &str, tokens: &TokenStream, item: syn::Result<Item>) -> TokenStream {
    let error = match item {
        Ok(item) => {
            let message = format!(
                "`#[{attribute}]` stands on a struct: `struct Name;`, or `struct Name {{ .. }}` with options{or}"
            );
            match name_of(&item) {
                Some(ident) => syn::Error::new(ident.span(), message),
                None => syn::Error::new_spanned(&item, message),
            }
        }
        Err(error) => error,
    };
    let error = error.to_compile_error();
    quote!(#tokens #error)
}

fn name_of(item: &Item) -> Option<&Ident> {
    match item {
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Mod(item) => Some(&item.ident),
        _ => None,
    }
}

/// Adds errors for shapes that cannot have a name or options.
pub(crate) fn check_struct(item: &ItemStruct, kind: &str, errors: &mut Errors) {
    if !item.generics.params.is_empty() {
        let message = format!(
            "{kind} cannot be generic: its name stands for one concrete type; inputs and outputs may be generic"
        );
        errors.at(&item.generics, message);
    }
    if let Fields::Unnamed(fields) = &item.fields {
        let message =
            "options have names: write `struct Name { option: Type }`, or `struct Name;` for none";
        errors.at(fields, message);
    }
}

/// Returns the names of the fields.
pub(crate) fn field_names(item: &ItemStruct) -> Vec<String> {
    item.fields
        .iter()
        .filter_map(|field| field.ident.as_ref())
        .map(|ident| ident.unraw().to_string())
        .collect()
}

/// Adds the missing serde derives that the struct's options need.
pub(crate) fn with_derives(item: &ItemStruct, krate: &Path) -> ItemStruct {
    let mut item = item.clone();
    if item.fields.is_empty() || matches!(item.fields, Fields::Unnamed(_)) {
        return item;
    }
    let given = listed_paths(&item.attrs, "derive");
    let traits = ["Serialize", "Deserialize"].map(|name| Ident::new(name, item.ident.span()));
    let missing = traits.iter().filter(|name| !given.contains(&name.to_string()));
    let derive = syn::parse_quote!(#[derive(#(#krate::__private::serde::#missing),*)]);

    let path = quote!(#krate::__private).to_string().replace(' ', "");
    let [serde, defaults] = ["serde", "defaults"]
        .map(|name| LitStr::new(&format!("{path}::{name}"), item.ident.span()));
    let settings = [
        ("crate", quote!(crate = #serde)),
        ("default", quote!(default = #defaults)),
        ("deny_unknown_fields", quote!(deny_unknown_fields)),
    ];
    let given = listed_paths(&item.attrs, "serde");
    let own = inner(&item).is_none();
    let settings = settings
        .iter()
        .filter(|(key, _)| !given.iter().any(|given| given == key) && (own || *key == "crate"));
    let settings = settings.map(|(_, tokens)| tokens);
    let serde = syn::parse_quote!(#[serde(#(#settings),*)]);

    // A helper attribute must follow its derive.
    item.attrs.insert(0, derive);
    item.attrs.push(serde);
    item
}

/// Returns the field whose options are those of a `#[serde(transparent)]` struct: the one that is not skipped.
fn inner(item: &ItemStruct) -> Option<&Field> {
    let transparent = listed_paths(&item.attrs, "serde").iter().any(|name| name == "transparent");
    let mut fields = item.fields.iter();
    let read = fields.find(|field| listed_paths(&field.attrs, "serde").iter().all(|n| n != "skip"));
    read.filter(|_| transparent)
}

/// Returns the last segments of the paths listed in `#[name(a, b::c, d = ..)]`.
pub(crate) fn listed_paths(attrs: &[Attribute], name: &str) -> Vec<String> {
    let lists = attrs.iter().filter(|attr| attr.path().is_ident(name)).filter_map(|attr| {
        attr.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()
    });
    lists
        .flatten()
        .filter_map(|meta| Some(meta.path().segments.last()?.ident.to_string()))
        .collect()
}

/// Emits `impl Build`.
pub(crate) fn build(item: &ItemStruct, krate: &Path) -> TokenStream {
    let ident = &item.ident;
    let (defaults, build) = if item.fields.is_empty() {
        let value = match item.fields {
            Fields::Unit => quote!(Self),
            _ => quote!(Self {}),
        };
        let refuse = quote!(#krate::__private::refuse_options(options));
        (quote!(#krate::__private::no_options()), quote!(#refuse.map(|()| #value)))
    } else {
        let defaults = quote!(#krate::__private::default_options::<Self>());
        let build = quote!(#krate::__private::from_options(options));
        let checked = match inner(item).and_then(|field| field.ident.as_ref()) {
            Some(field) => quote!(#build.and_then(|built: Self| {
                #krate::__private::in_range(&built.#field).map(|()| built)
            })),
            None if is_declared(item) => quote!(#build.and_then(|built: Self| {
                #krate::__private::in_range(&built).map(|()| built)
            })),
            None => build,
        };
        (defaults, checked)
    };
    let keys = keys(item, krate);
    quote! {
        impl #krate::registry::Build for #ident {
            const KEYS: &'static [#krate::settings::Key] = #keys;

            fn defaults() -> #krate::__private::serde_json::Value {
                #defaults
            }

            fn build(
                options: &#krate::__private::serde_json::Value,
            ) -> ::core::result::Result<Self, ::std::string::String> {
                #build
            }
        }
    }
}

/// Returns true if the options are declared with `#[derive(Settings)]`.
fn is_declared(item: &ItemStruct) -> bool {
    listed_paths(&item.attrs, "derive").iter().any(|name| name == "Settings")
}

/// Emits the options: those of `#[derive(Settings)]`, or each field with its documentation.
fn keys(item: &ItemStruct, krate: &Path) -> TokenStream {
    if is_declared(item) {
        return quote!(<Self as #krate::settings::Table>::KEYS);
    }
    if let Some(Field { ty, .. }) = inner(item) {
        return quote!(<#ty as #krate::settings::Table>::KEYS);
    }
    let keys = item.fields.iter().filter_map(|field| {
        let name = field.ident.as_ref()?.unraw().to_string();
        let text = documentation(&field.attrs);
        Some(quote!(#krate::settings::Key::documented(#name, #text)))
    });
    quote!(&[#(#keys),*])
}

/// Emits the method that reads a task as the type that was declared, and that there is one.
pub(crate) fn read_task(krate: &Path, row: Option<&Type>) -> TokenStream {
    let Some(row) = row else { return TokenStream::new() };
    let krate = &crate::args::shown_at(row.span(), krate);
    quote_spanned! {row.span()=>
        const READS_TASKS: bool = true;

        fn read_task(
            task: &#krate::task::Task,
        ) -> ::core::result::Result<(), #krate::task::TaskError> {
            task.parse::<#row>().map(|_| ())
        }
    }
}

/// Returns the documentation attributes.
pub(crate) fn docs(attrs: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attrs.iter().filter(|attr| attr.path().is_ident("doc"))
}

/// Emits `inventory::submit!` of an entry.
pub(crate) fn submit(krate: &Path, entry: &TokenStream) -> TokenStream {
    quote!(#krate::__private::inventory::submit! { #entry })
}

/// Emits the source location of the item.
pub(crate) fn place(krate: &Path, ident: &Ident) -> TokenStream {
    let name = ident.to_string();
    quote! {
        #krate::registry::SourceLocation {
            file: ::core::file!(),
            line: ::core::line!(),
            item: ::core::concat!(::core::module_path!(), "::", #name),
        }
    }
}

/// Returns the first line of the documentation.
pub(crate) fn summary(attrs: &[Attribute]) -> String {
    documentation(attrs).lines().next().unwrap_or_default().to_owned()
}

/// Returns the documentation, trimmed as a whole and per line.
pub(crate) fn documentation(attrs: &[Attribute]) -> String {
    let lines = attrs.iter().filter(|attr| attr.path().is_ident("doc")).filter_map(|attr| {
        let Meta::NameValue(meta) = &attr.meta else { return None };
        match &meta.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        }
    });
    let text = lines.collect::<Vec<String>>().join("\n");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.join("\n").trim().to_owned()
}
