//! Function under an attribute, and the arguments of the attribute.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{ItemFn, LitStr, Path};

use crate::args::{crate_path, krate, read_args, value};
use crate::errors::Errors;

/// Expands an attribute of a function. An error is added beside the item.
pub(crate) fn expand(
    attribute: &str,
    signature: &str,
    item: &TokenStream,
    expand: impl FnOnce(&ItemFn) -> syn::Result<TokenStream>,
) -> TokenStream {
    let Ok(function) = syn::parse2::<ItemFn>(item.clone()) else {
        let message = format!("`#[{attribute}]` stands on a function: `{signature}`");
        let error = syn::Error::new_spanned(item, message).to_compile_error();
        return quote!(#item #error);
    };
    expand(&function).unwrap_or_else(|error| {
        let error = error.to_compile_error();
        quote!(#function #error)
    })
}

/// Reads the path of the framework crate, and the name: that of the function unless `name` says another.
pub(crate) fn arguments(
    args: &TokenStream,
    function: &ItemFn,
    errors: &mut Errors,
) -> (Path, LitStr) {
    let (mut name, mut path) = (None, None);
    read_args(args.clone(), &["name", "crate"], errors, |key, input, _| {
        match key {
            "name" => name = Some(value::<LitStr>(input, "name = \"word\"")?),
            _ => path = Some(crate_path(input)?),
        }
        Ok(())
    });
    let ident = &function.sig.ident;
    let name = name.unwrap_or_else(|| LitStr::new(&ident.unraw().to_string(), ident.span()));
    (krate(path), name)
}
