//! The attributes and derives of maverl. Use them through `maverl`, which re-exports them next to the traits they
//! implement.
//!
//! They add code and never rewrite it: the item stays as written, followed by impls and one registration. An item with
//! errors gets one message per error, at the smallest token, with the remedy.
//!
//! Generated paths begin with `::maverl`. A crate that renames this dependency gives the new name as `crate = path`.
//!
//! The examples of the documentation need `maverl`, which runs them as tests (`maverl/src/lib.rs`). So they are left out here.

mod agent;
mod args;
mod binary;
mod credit;
mod environment;
mod errors;
mod function;
mod input;
mod item;
mod name;
mod orchestra;
mod reply;
mod reward;
mod settings;
mod tool;

use proc_macro::TokenStream;

#[cfg_attr(not(doctest), doc = include_str!("../docs/agent.md"))]
#[proc_macro_attribute]
pub fn agent(args: TokenStream, item: TokenStream) -> TokenStream {
    agent::agent(&args.into(), &item.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/orchestra.md"))]
#[proc_macro_attribute]
pub fn orchestra(args: TokenStream, item: TokenStream) -> TokenStream {
    orchestra::orchestra(&args.into(), &item.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/environment.md"))]
#[proc_macro_attribute]
pub fn environment(args: TokenStream, item: TokenStream) -> TokenStream {
    environment::environment(&args.into(), &item.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/reward.md"))]
#[proc_macro_attribute]
pub fn reward(args: TokenStream, item: TokenStream) -> TokenStream {
    reward::reward(&args.into(), &item.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/advantage.md"))]
#[proc_macro_attribute]
pub fn advantage(args: TokenStream, item: TokenStream) -> TokenStream {
    credit::declare(credit::CreditKind::Advantage, &args.into(), &item.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/surrogate.md"))]
#[proc_macro_attribute]
pub fn surrogate(args: TokenStream, item: TokenStream) -> TokenStream {
    credit::declare(credit::CreditKind::Surrogate, &args.into(), &item.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/tool.md"))]
#[proc_macro_attribute]
pub fn tool(args: TokenStream, item: TokenStream) -> TokenStream {
    tool::tool(&args.into(), &item.into()).into()
}

/// Compares the names in `maverl::main!` with the crates of the manifest; called by that macro.
#[doc(hidden)]
#[proc_macro]
pub fn team_crates(names: TokenStream) -> TokenStream {
    binary::crates(names.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/input.md"))]
#[proc_macro_derive(Input, attributes(input))]
pub fn derive_input(item: TokenStream) -> TokenStream {
    input::input(item.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/reply.md"))]
#[proc_macro_derive(Reply, attributes(reply))]
pub fn derive_reply(item: TokenStream) -> TokenStream {
    reply::reply(item.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("../docs/settings.md"))]
#[proc_macro_derive(Settings, attributes(settings, setting))]
pub fn derive_settings(item: TokenStream) -> TokenStream {
    settings::settings(item.into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    #[test]
    fn generated_code_finds_everything_through_the_crate_argument() {
        let prompt =
            "# system\n{{ x }}{{ agent.y }}\n# user\n{{ x }}{{ agent.y }}{{ reply_format }}";
        let asking = quote!(name = "a/b", input = I, output = R, prompt_text = #prompt);
        let unit = quote!(
            struct Name;
        );
        let options = quote!(
            struct Name {
                n: u32,
                y: u32,
            }
        );
        let agents = quote!(name = "a/b", agents(A, B[2], C[n]));
        let function = quote!(
            fn name(_: &Episode) -> Rewards {}
        );
        let called = quote!(
            /// Words.
            async fn name(_: Arguments) -> String {}
        );
        let expansions = [
            agent::agent(&quote!(#asking, crate = other), &options),
            agent::agent(&quote!(crate = other::name, name = "a/b"), &unit),
            orchestra::orchestra(&quote!(#agents, crate = other), &options),
            environment::environment(&quote!(name = "a", crate = other), &unit),
            reward::reward(&quote!(crate = other), &function),
            credit::declare(
                credit::CreditKind::Advantage,
                &quote!(name = "a/b", cuda = "a.cu", crate = other),
                &options,
            ),
            credit::declare(
                credit::CreditKind::Surrogate,
                &quote!(name = "a", crate = other),
                &unit,
            ),
            tool::tool(&quote!(crate = other), &called),
            input::input(quote!(
                #[input(crate = other)]
                struct I<T> {
                    x: T,
                }
            )),
            reply::reply(quote!(
                #[reply(tag = "x", crate = other)]
                enum R {
                    A,
                }
            )),
            reply::reply(quote!(
                #[reply(crate = other)]
                struct R<T> {
                    a: T,
                    b: Option<T>,
                }
            )),
            settings::settings(quote!(
                #[settings(partial = "S", level = "agent", crate = other)]
                struct Settled {
                    /// Words.
                    #[setting(default = 0.5, range = above(0.0)..=1.0)]
                    x: f64,
                    /// Words.
                    #[setting(table)]
                    t: T,
                }
            )),
            settings::settings(quote!(
                #[settings(crate = other)]
                enum Kinds {
                    /// Words.
                    #[setting(default)]
                    A,
                    /// Words.
                    B(Settled),
                    /// Words.
                    #[setting(open)]
                    C(Open),
                }
            )),
        ];
        for expansion in expansions {
            let text = expansion.to_string();
            assert!(!text.contains("maverl") && !text.contains("compile_error"), "{text}");
        }
    }

    #[test]
    fn the_item_stands_as_it_was_written() {
        let item = quote! {
            /// Words.
            #[derive(Clone)]
            pub(crate) struct A;
        };
        let text = agent::agent(&quote!(name = "a/b"), &item).to_string();
        assert!(text.starts_with(&item.to_string()), "{text}");
        let text = agent::agent(&quote!(nmae = "a/b"), &item).to_string();
        assert!(text.starts_with(&item.to_string()) && text.contains("compile_error"), "{text}");
    }
}
