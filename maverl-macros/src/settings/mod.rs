//! `#[derive(Settings)]`.

mod expand;
mod parse;
mod tagged;

use proc_macro2::TokenStream;

pub(crate) fn settings(item: TokenStream) -> TokenStream {
    let expanded = syn::parse2::<syn::DeriveInput>(item).and_then(|item| match item.data {
        syn::Data::Enum(_) => tagged::TaggedEnum::parse(&item).map(|tagged| tagged.expand()),
        _ => parse::SettingsType::parse(&item).map(|settings| settings.expand()),
    });
    expanded.unwrap_or_else(|error| error.to_compile_error())
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::settings;

    #[test]
    fn a_mistake_is_told_with_what_to_write_instead() {
        let wrong = settings(quote!(
            #[settings(level = "runs", partail = "C")]
            struct Clip {
                #[setting(default = 0.2, range = 5)]
                low: f64,
                /// Upper clip.
                #[setting(rang = 0.0..)]
                high: f64,
            }
        ))
        .to_string();
        for part in [
            "there is no level `runs`; write \\\"agent\\\", \\\"policy\\\", \\\"team\\\" or \\\"run\\\"",
            "unknown argument `partail`",
            "a range is `0.0..=1.0`",
            "the key `low` has no documentation",
            "unknown argument `rang`",
        ] {
            assert!(wrong.contains(part), "{part} is missing in {wrong}");
        }
        let tuple = settings(quote!(
            struct Clip(f64);
        ))
        .to_string();
        assert!(tuple.contains("write `struct Clip { key: f64 }`"), "{tuple}");
    }

    #[test]
    fn mistakes_of_kinds_are_told_with_what_to_write_instead() {
        let wrong = settings(quote!(
            enum Clip {
                Plain {
                    low: f64,
                },
                /// Words.
                #[setting(defualt)]
                Soft(Soft),
            }
        ))
        .to_string();
        for part in [
            "write `Plain(Name)`, or `Plain` for none",
            "the kind `plain` has no documentation",
            "unknown argument `defualt`; did you mean `default`?",
            "one kind is the default",
        ] {
            assert!(wrong.contains(part), "{part} is missing in {wrong}");
        }
    }

    #[test]
    fn a_default_of_zero_is_refused_where_the_type_has_no_zero() {
        let zero = quote!(
            struct Counts {
                /// Requests at once.
                #[setting(default = 0)]
                requests: NonZeroUsize,
            }
        );
        assert!(settings(zero).to_string().contains("the type has no such number"));
    }
}
