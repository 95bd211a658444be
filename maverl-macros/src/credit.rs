//! `#[advantage]` and `#[surrogate]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Fields, ItemStruct, LitStr, Path};

use crate::args::{crate_path, krate, read_args, value};
use crate::errors::Errors;
use crate::{item, name};

/// Kind of the declaration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CreditKind {
    Advantage,
    Surrogate,
}

impl CreditKind {
    const fn attribute(self) -> &'static str {
        match self {
            Self::Advantage => "advantage",
            Self::Surrogate => "surrogate",
        }
    }

    const fn noun(self) -> &'static str {
        match self {
            Self::Advantage => "an estimator",
            Self::Surrogate => "a surrogate",
        }
    }

    const fn known_keys(self) -> &'static [&'static str] {
        match self {
            Self::Advantage => &["name", "cuda", "crate"],
            Self::Surrogate => &["name", "crate"],
        }
    }
}

pub(crate) fn declare(kind: CreditKind, args: &TokenStream, item: &TokenStream) -> TokenStream {
    let item = match item::parse_struct(kind.attribute(), item) {
        Ok(item) => item,
        Err(tokens) => return tokens,
    };
    match DeclaredCredit::parse(kind, args, &item) {
        Ok(declared) => declared.expand(&item),
        Err(error) => {
            let error = error.to_compile_error();
            let item = item::with_derives(&item, &krate(None));
            quote!(#item #error)
        }
    }
}

struct DeclaredCredit {
    kind: CreditKind,
    krate: Path,
    name: LitStr,
    cuda: Option<LitStr>,
}

impl DeclaredCredit {
    fn parse(kind: CreditKind, args: &TokenStream, item: &ItemStruct) -> syn::Result<Self> {
        let mut errors = Errors::default();
        let (mut name, mut cuda, mut path) = (None, None, None);
        read_args(args.clone(), kind.known_keys(), &mut errors, |key, input, _| {
            match key {
                "name" => name = Some(value::<LitStr>(input, "name = \"team/word\"")?),
                "cuda" => cuda = Some(value::<LitStr>(input, "cuda = \"file.cu\"")?),
                _ => path = Some(crate_path(input)?),
            }
            Ok(())
        });
        match &name {
            Some(name) => name::check(name, name::NameForm::Any, &mut errors),
            None => {
                let (noun, attribute) = (kind.noun(), kind.attribute());
                let wanted = format!("{noun} needs a name: `#[{attribute}(name = \"team/word\")]`");
                errors.report_missing(args, &wanted);
            }
        }
        item::check_struct(item, kind.noun(), &mut errors);
        errors.finish(name.map(|name| Self { kind, krate: krate(path), name, cuda }))
    }

    fn expand(&self, item: &ItemStruct) -> TokenStream {
        let Self { kind, krate, name, cuda } = self;
        let ident = &item.ident;
        let summary = item::summary(&item.attrs);
        let place = item::place(krate, ident);
        let entry = match (kind, cuda) {
            (CreditKind::Advantage, None) => quote!(advantage),
            (CreditKind::Advantage, Some(_)) => quote!(advantage_with_kernel),
            (CreditKind::Surrogate, _) => quote!(surrogate),
        };
        let entry = quote!(#krate::registry::Entry::#entry::<#ident>(#name, #summary, #place));
        let submit = item::submit(krate, &entry);
        let kernel = cuda.as_ref().map(|file| kernel(item, file, krate));
        let item = &item::with_derives(item, krate);
        let build = item::build(item, krate);
        quote!(#item #build #kernel #submit)
    }
}

/// `impl CudaKernel`; the file is relative to the one that names it.
fn kernel(item: &ItemStruct, file: &LitStr, krate: &Path) -> TokenStream {
    let ident = &item.ident;
    let settings = match &item.fields {
        Fields::Named(fields) if !fields.named.is_empty() => quote! {
            #krate::__private::settings(self)
        },
        _ => quote!(#krate::__private::no_options()),
    };
    quote! {
        impl #krate::credit::CudaKernel for #ident {
            const FILE: &'static str = #file;
            const SOURCE: &'static str = ::core::include_str!(#file);

            fn settings(&self) -> #krate::__private::serde_json::Value {
                #settings
            }
        }
    }
}
