//! The arguments of `#[agent]`.

use std::path::PathBuf;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::{ItemStruct, LitStr, Path, Type};

use super::prompt::{Mistake, Piece, Template};
use crate::args::{crate_path, krate, read_args, value};
use crate::errors::{Errors, did_you_mean};
use crate::{item, name};

const KEYS: [&str; 6] = ["name", "input", "output", "prompt", "prompt_text", "crate"];
const FORM: &str =
    "#[agent(name = \"team/role\", input = Type, output = Type, prompt = \"file.md\")]";

/// The arguments as written.
pub(crate) struct Args {
    tokens: TokenStream,
    pub(crate) krate: Path,
    pub(crate) name: Option<LitStr>,
    pub(crate) input: Option<Type>,
    pub(crate) output: Option<Type>,
    pub(crate) prompt: Option<LitStr>,
    pub(crate) prompt_text: Option<LitStr>,
}

/// A validated agent.
pub(crate) struct Agent {
    pub(crate) krate: Path,
    pub(crate) name: LitStr,
    /// `None` if `impl Agent` is written by hand.
    pub(crate) asking: Option<Asking>,
}

/// Parts of `impl Agent`.
pub(crate) struct Asking {
    pub(crate) input: Type,
    pub(crate) output: Type,
    pub(crate) prompt: Prompt,
}

/// A prompt with its origin.
pub(crate) struct Prompt {
    pub(crate) literal: LitStr,
    /// Prompt file, if there is one.
    pub(crate) file: Option<PathBuf>,
    pub(crate) template: Template,
}

impl Args {
    pub(crate) fn read(tokens: &TokenStream, errors: &mut Errors) -> Self {
        let (mut path, mut name, mut input_type, mut output) = (None, None, None, None);
        let (mut prompt, mut prompt_text) = (None, None);
        read_args(tokens.clone(), &KEYS, errors, |key, input, _| {
            match key {
                "name" => name = Some(value(input, "name = \"team/role\"")?),
                "input" => input_type = Some(value(input, "input = Type")?),
                "output" => output = Some(value(input, "output = Type")?),
                "prompt" => prompt = Some(value(input, "prompt = \"file.md\"")?),
                "prompt_text" => prompt_text = Some(value(input, "prompt_text = \"..\"")?),
                _ => path = Some(crate_path(input)?),
            }
            Ok(())
        });
        Self {
            tokens: tokens.clone(),
            krate: krate(path),
            name,
            input: input_type,
            output,
            prompt,
            prompt_text,
        }
    }

    pub(crate) fn check(&self, item: &ItemStruct, mut errors: Errors) -> syn::Result<Agent> {
        item::check_struct(item, "an agent", &mut errors);
        match &self.name {
            Some(name) => name::check(name, name::Form::Team, &mut errors),
            None => {
                errors.missing(&self.tokens, format!("an agent needs a name: `{FORM}`"));
            }
        }
        let asking = self.asking(item, &mut errors);
        errors.finish(self.name.clone().map(|name| Agent {
            krate: self.krate.clone(),
            name,
            asking,
        }))
    }

    fn asking(&self, item: &ItemStruct, errors: &mut Errors) -> Option<Asking> {
        let prompt = match (&self.prompt, &self.prompt_text) {
            (Some(_), Some(text)) => {
                errors.at(text, "`prompt` and `prompt_text` are both given; keep one");
                return None;
            }
            (Some(file), None) => read_file(file, errors),
            (None, Some(text)) => Some(parse_template(text, None, &text.value(), errors)),
            (None, None) => {
                if let Some(given) = self.input.as_ref().or(self.output.as_ref()) {
                    errors.missing(
                        &given.to_token_stream(),
                        "there is no prompt: add `prompt = \"file.md\"` or `prompt_text = \"..\"`, or remove `input` and \
                         `output` and write `impl Agent` by hand",
                    );
                }
                return None;
            }
        };
        let missing = match (&self.input, &self.output) {
            (Some(_), Some(_)) => None,
            (Some(_), None) => Some("`output`"),
            (None, Some(_)) => Some("`input`"),
            (None, None) => Some("`input` and `output`"),
        };
        if let Some(missing) = missing {
            let message = format!("an agent with a prompt needs {missing}: `{FORM}`");
            errors.missing(&self.tokens, message);
        }
        let prompt = prompt?;
        check_options(&prompt, item, errors);
        Some(Asking { input: self.input.clone()?, output: self.output.clone()?, prompt })
    }
}

impl Prompt {
    /// Returns the name of a line of the prompt in messages.
    pub(crate) fn line(&self, line: usize) -> String {
        place(&self.literal, self.file.is_some(), line)
    }
}

fn place(literal: &LitStr, is_file: bool, line: usize) -> String {
    if is_file {
        format!("{}:{line}", literal.value())
    } else {
        format!("line {line} of `prompt_text`")
    }
}

fn read_file(literal: &LitStr, errors: &mut Errors) -> Option<Prompt> {
    let file = directory(literal.span()).join(literal.value());
    match std::fs::read_to_string(&file) {
        Ok(text) => Some(parse_template(literal, Some(file), &text, errors)),
        Err(error) => {
            let message = format!(
                "cannot read the prompt {}: {error}; the path is relative to this source file",
                file.display()
            );
            errors.at(literal, message);
            None
        }
    }
}

/// Returns the directory of the source file with the attribute, else the package's `src`.
fn directory(span: Span) -> PathBuf {
    let source = span.unwrap().local_file().or_else(|| Span::call_site().unwrap().local_file());
    let directory = match source.as_deref().and_then(std::path::Path::parent) {
        Some(parent) => parent.to_owned(),
        None => {
            PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("src")
        }
    };
    std::path::absolute(&directory).unwrap_or(directory)
}

fn parse_template(
    literal: &LitStr,
    file: Option<PathBuf>,
    text: &str,
    errors: &mut Errors,
) -> Prompt {
    let (template, mistakes) = Template::parse(text);
    for Mistake { line, message } in mistakes {
        let place = place(literal, file.is_some(), line);
        errors.at(literal, format!("{place}: {message}"));
    }
    Prompt { literal: literal.clone(), file, template }
}

fn check_options(prompt: &Prompt, item: &ItemStruct, errors: &mut Errors) {
    let options = item::field_names(item);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    for (piece, line) in prompt.template.pieces() {
        if let Piece::Option(name) = piece
            && !options.contains(&name.as_str())
        {
            let hint = did_you_mean(name, &options);
            let place = prompt.line(*line);
            let message = format!("{place}: `{}` has no option `{name}`{hint}", item.ident);
            errors.at(&prompt.literal, message);
        }
    }
}
