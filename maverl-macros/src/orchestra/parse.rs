//! The arguments of `#[orchestra]`.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Ident, ItemStruct, LitInt, LitStr, Path, Token, Type, token};

use crate::args::{crate_path, krate, parse_words, read_args, value};
use crate::errors::{Errors, did_you_mean};
use crate::{item, name};

const KEYS: [&str; 5] = ["name", "agents", "needs", "task", "crate"];
const AGENTS: &str = "agents(Solver, Debater[3], ..)";

/// The arguments as written.
pub(crate) struct OrchestraArguments {
    pub(crate) krate: Path,
    pub(crate) members: Vec<MemberDeclaration>,
    tokens: TokenStream,
    name: Option<LitStr>,
    agents_given: bool,
    needs: Vec<LitStr>,
    task: Option<Type>,
}

/// A validated orchestra.
pub(crate) struct OrchestraDeclaration {
    pub(crate) krate: Path,
    pub(crate) name: LitStr,
    pub(crate) members: Vec<MemberDeclaration>,
    pub(crate) needs: Vec<LitStr>,
    /// Type of the rows of its tasks.
    pub(crate) task: Option<Type>,
}

/// One item of `agents(..)`.
#[derive(Clone)]
pub(crate) struct MemberDeclaration {
    pub(crate) agent: Path,
    pub(crate) seats: Option<Seats>,
}

/// Content of the brackets.
#[derive(Clone)]
pub(crate) enum Seats {
    Literal(LitInt),
    Field(Ident),
}

impl OrchestraArguments {
    pub(crate) fn read(tokens: &TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self {
            krate: krate(None),
            members: Vec::new(),
            tokens: tokens.clone(),
            name: None,
            agents_given: false,
            needs: Vec::new(),
            task: None,
        };
        read_args(tokens.clone(), &KEYS, errors, |key, input, errors| {
            match key {
                "name" => args.name = Some(value(input, "name = \"team/flow\"")?),
                "agents" => {
                    args.agents_given = true;
                    args.members = read_members(input)?;
                }
                "needs" => args.needs = parse_words(input, "needs(\"word\", ..)", errors)?,
                "task" => args.task = Some(value(input, "task = Type")?),
                _ => args.krate = crate_path(input)?,
            }
            Ok(())
        });
        args
    }

    /// Checks the arguments of an orchestra. `ident` is the identifier from which its name is made, if none is given.
    pub(crate) fn check(
        self,
        (item, ident): (&ItemStruct, &Ident),
        mut errors: Errors,
    ) -> syn::Result<OrchestraDeclaration> {
        let Self { krate, members, tokens, name, agents_given, needs, task } = self;
        item::check_struct(item, "an orchestra", &mut errors);
        let name = name::name_or_default(name.as_ref(), name::NameForm::Team, ident, &mut errors);
        if !agents_given {
            let message = format!("an orchestra lists the agents it asks: `{AGENTS}`");
            errors.report_missing(&tokens, message);
        }
        check_members(&members, item, &mut errors);
        errors.finish(Some(OrchestraDeclaration { krate, name, members, needs, task }))
    }
}

fn read_members(input: ParseStream<'_>) -> syn::Result<Vec<MemberDeclaration>> {
    if !input.peek(token::Paren) {
        return Err(input.error(format!("write `{AGENTS}`")));
    }
    let content;
    syn::parenthesized!(content in input);
    Ok(content.parse_terminated(MemberDeclaration::parse, Token![,])?.into_iter().collect())
}

impl Parse for MemberDeclaration {
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

fn check_members(members: &[MemberDeclaration], item: &ItemStruct, errors: &mut Errors) {
    let fields = item::field_names(item);
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    let mut seen = Vec::new();
    for MemberDeclaration { agent, seats } in members {
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
