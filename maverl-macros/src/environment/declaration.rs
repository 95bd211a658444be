//! Declaration of an environment: its arguments, and what the macro adds to its type.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{ItemStruct, LitStr, Path, Type};

use crate::args::{crate_path, krate, parse_words, read_args, value};
use crate::errors::Errors;
use crate::{item, name};

/// A declared environment.
pub(crate) struct EnvironmentDeclaration {
    pub(crate) krate: Path,
    name: LitStr,
    offers: Vec<LitStr>,
    /// Type of the rows of its tasks.
    pub(crate) task: Option<Type>,
}

impl EnvironmentDeclaration {
    /// Reads the arguments of an attribute with these keys on an item.
    pub(crate) fn read(
        args: &TokenStream,
        ident: &Ident,
        keys: &[&str],
        errors: &mut Errors,
    ) -> Self {
        let (mut name, mut offers, mut task, mut path) = (None, Vec::new(), None, None);
        read_args(args.clone(), keys, errors, |key, input, errors| {
            match key {
                "name" => name = Some(value::<LitStr>(input, "name = \"word\"")?),
                "offers" => offers = parse_words(input, "offers(\"word\", ..)", errors)?,
                "task" => task = Some(value(input, "task = Type")?),
                _ => path = Some(crate_path(input)?),
            }
            Ok(())
        });
        let name = name::name_or_default(name.as_ref(), name::NameForm::Any, ident, errors);
        Self { krate: krate(path), name, offers, task }
    }

    /// Emits the struct, its implementations and its registration.
    pub(crate) fn expand(&self, item: &ItemStruct) -> TokenStream {
        let krate = &self.krate;
        let summary = item::summary(&item.attrs);
        let item = &item::with_derives(item, krate);
        let declaration = self.declaration(item, &summary, &item.ident);
        quote!(#item #declaration)
    }

    /// Emits the implementations of a struct, and its registration. `ident` is the item that the user wrote.
    pub(crate) fn declaration(
        &self,
        item: &ItemStruct,
        summary: &str,
        ident: &Ident,
    ) -> TokenStream {
        let Self { krate, name, offers, task } = self;
        let own = &item.ident;
        let read_task = item::read_task(krate, task.as_ref());
        let build = item::build(item, krate);
        let place = item::place(krate, ident);
        let entry = quote!(#krate::registry::Entry::environment::<#own>(#place));
        let submit = item::submit(krate, &entry);
        quote! {
            impl #krate::env::EnvironmentName for #own {
                const NAME: &'static str = #name;
                const SUMMARY: &'static str = #summary;
                const OFFERS: &'static [&'static str] = &[#(#offers),*];

                #read_task
            }

            #build
            #submit
        }
    }
}
