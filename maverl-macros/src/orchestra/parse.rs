//! The arguments of `#[orchestra]`.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Ident, ItemStruct, LitInt, LitStr, Path, Token, token};

use crate::args::{crate_path, krate, read_args, value, words};
use crate::errors::{Errors, did_you_mean};
use crate::{item, name};

const KEYS: [&str; 4] = ["name", "agents", "needs", "crate"];
const AGENTS: &str = "agents(Solver, Debater[3], ..)";

/// The arguments as written.
pub(crate) struct Args {
    pub(crate) krate: Path,
    pub(crate) members: Vec<Member>,
    tokens: TokenStream,
    name: Option<LitStr>,
    agents_given: bool,
    needs: Vec<LitStr>,
}

/// A validated orchestra.
pub(crate) struct Orchestra {
    pub(crate) krate: Path,
    pub(crate) name: LitStr,
    pub(crate) members: Vec<Member>,
    pub(crate) needs: Vec<LitStr>,
}

/// One item of `agents(..)`.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) agent: Path,
    pub(crate) seats: Option<Seats>,
}

/// Content of the brackets.
#[derive(Clone)]
pub(crate) enum Seats {
    Literal(LitInt),
    Field(Ident),
}

impl Args {
    pub(crate) fn read(tokens: &TokenStream, errors: &mut Errors) -> Self {
        let (mut path, mut name, mut needs) = (None, None, Vec::new());
        let (mut members, mut agents_given) = (Vec::new(), false);
        read_args(tokens.clone(), &KEYS, errors, |key, input, errors| {
            match key {
                "name" => name = Some(value(input, "name = \"team/flow\"")?),
                "agents" => {
                    agents_given = true;
                    members = read_members(input)?;
                }
                "needs" => needs = words(input, "needs(\"word\", ..)", errors)?,
                _ => path = Some(crate_path(input)?),
            }
            Ok(())
        });
        Self { krate: krate(path), members, tokens: tokens.clone(), name, agents_given, needs }
    }

    pub(crate) fn check(self, item: &ItemStruct, mut errors: Errors) -> syn::Result<Orchestra> {
        let Self { krate, members, tokens, name, agents_given, needs } = self;
        item::check_struct(item, "an orchestra", &mut errors);
        match &name {
            Some(name) => name::check(name, name::Form::Team, &mut errors),
            None => errors.missing(
                &tokens,
                "an orchestra needs a name: `#[orchestra(name = \"team/flow\", agents(..))]`",
            ),
        }
        if !agents_given {
            let message = format!("an orchestra lists the agents it asks: `{AGENTS}`");
            errors.missing(&tokens, message);
        }
        check_members(&members, item, &mut errors);
        errors.finish(name.map(|name| Orchestra { krate, name, members, needs }))
    }
}

fn read_members(input: ParseStream<'_>) -> syn::Result<Vec<Member>> {
    if !input.peek(token::Paren) {
        return Err(input.error(format!("write `{AGENTS}`")));
    }
    let content;
    syn::parenthesized!(content in input);
    Ok(content.parse_terminated(Member::parse, Token![,])?.into_iter().collect())
}

impl Parse for Member {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let agent = Path::parse_mod_style(input).map_err(|error| {
            syn::Error::new(error.span(), format!("agents are types: write `{AGENTS}`"))
        })?;
        if !input.peek(token::Bracket) {
            return Ok(Self { agent, seats: None });
        }
        let content;
        syn::bracketed!(content in input);
        let seats = if content.peek(LitInt) {
            Seats::Literal(content.parse()?)
        } else {
            Seats::Field(content.parse().map_err(|error| {
                let message = "seats are a number or a field of the orchestra: `Debater[3]`, `Voter[n_voters]`";
                syn::Error::new(error.span(), message)
            })?)
        };
        Ok(Self { agent, seats: Some(seats) })
    }
}

fn check_members(members: &[Member], item: &ItemStruct, errors: &mut Errors) {
    let fields = item::field_names(item);
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    let mut seen = Vec::new();
    for Member { agent, seats } in members {
        let path = agent.to_token_stream().to_string();
        if seen.contains(&path) {
            let message = format!(
                "`{path}` is listed twice; a role that sits twice is written once: `{path}[2]`"
            );
            errors.at(agent, message);
        }
        seen.push(path);
        match seats {
            Some(Seats::Literal(n)) if !n.base10_parse::<u32>().is_ok_and(|n| n > 0) => {
                errors.at(n, "a role sits at least once");
            }
            Some(Seats::Field(name)) => {
                let field = name.unraw().to_string();
                if !fields.contains(&field.as_str()) {
                    let hint = did_you_mean(&field, &fields);
                    let message = format!("`{}` has no field `{field}`{hint}", item.ident);
                    errors.at(name, message);
                }
            }
            _ => {}
        }
    }
}
