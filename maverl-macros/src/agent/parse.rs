//! The arguments of `#[agent]`.

use proc_macro2::TokenStream;
use syn::{ItemStruct, LitStr, Path, Type};

use super::source::{self, PromptSource};
use super::types;
use crate::args::{crate_path, krate, read_args, value};
use crate::errors::Errors;
use crate::{item, name};

const KEYS: [&str; 6] = ["name", "input", "output", "prompt", "prompt_text", "crate"];
const FORM: &str = "#[agent(Input -> Output)]";

/// The arguments as written.
pub(crate) struct AgentArguments {
    tokens: TokenStream,
    pub(crate) krate: Path,
    name: Option<LitStr>,
    pub(crate) input: Option<Type>,
    pub(crate) output: Option<Type>,
    prompt: Option<LitStr>,
    prompt_text: Option<LitStr>,
}

/// A validated agent.
pub(crate) struct AgentDeclaration {
    pub(crate) krate: Path,
    pub(crate) name: LitStr,
    /// `None` if `impl Agent` is written by hand.
    pub(crate) asking: Option<Asking>,
}

/// Parts of `impl Agent`.
pub(crate) struct Asking {
    pub(crate) input: Type,
    pub(crate) output: Type,
    pub(crate) prompt: PromptSource,
}

impl AgentArguments {
    pub(crate) fn read(tokens: &TokenStream, errors: &mut Errors) -> Self {
        let (types, rest) = types::split(tokens.clone(), FORM, errors);
        let arrow = types.is_some();
        let (input, output) = types.unzip();
        let mut args = Self {
            tokens: tokens.clone(),
            krate: krate(None),
            name: None,
            input,
            output,
            prompt: None,
            prompt_text: None,
        };
        read_args(rest, &KEYS, errors, |key, input, _| {
            match key {
                "input" | "output" if arrow => {
                    let given: Type = value(input, &format!("{key} = Type"))?;
                    let message = format!("`{key}` is given twice; keep `{FORM}`");
                    return Err(syn::Error::new_spanned(given, message));
                }
                "name" => args.name = Some(value(input, "name = \"team/role\"")?),
                "input" => args.input = Some(value(input, "input = Type")?),
                "output" => args.output = Some(value(input, "output = Type")?),
                "prompt" => args.prompt = Some(value(input, "prompt = \"file.md\"")?),
                "prompt_text" => args.prompt_text = Some(value(input, "prompt_text = \"..\"")?),
                _ => args.krate = crate_path(input)?,
            }
            Ok(())
        });
        args
    }

    /// Returns true if the macro writes `impl Agent`.
    pub(crate) fn by_macro(&self) -> bool {
        let types = self.input.is_some() && self.output.is_some();
        types || self.prompt.is_some() || self.prompt_text.is_some()
    }

    pub(crate) fn check(
        &self,
        item: &ItemStruct,
        mut errors: Errors,
    ) -> syn::Result<AgentDeclaration> {
        item::check_struct(item, "an agent", &mut errors);
        let given = self.name.as_ref();
        let name = name::name_or_default(given, name::NameForm::Team, &item.ident, &mut errors);
        let asking = self.asking(item, &name, &mut errors);
        errors.finish(Some(AgentDeclaration { krate: self.krate.clone(), name, asking }))
    }

    fn asking(&self, item: &ItemStruct, name: &LitStr, errors: &mut Errors) -> Option<Asking> {
        let prompt = match (&self.prompt, &self.prompt_text) {
            (Some(_), Some(text)) => {
                errors.at(text, "`prompt` and `prompt_text` are both given; keep one");
                return None;
            }
            (Some(file), None) => source::read_file(file, errors),
            (None, Some(text)) => Some(source::read_text(text, errors)),
            (None, None) => self.default_prompt(name, errors),
        };
        if prompt.is_some() || self.input.is_some() || self.output.is_some() {
            self.check_types(errors);
        }
        let prompt = prompt?;
        source::check_options(&prompt, item, errors);
        Some(Asking { input: self.input.clone()?, output: self.output.clone()?, prompt })
    }

    /// Reads the prompt from the file that the name stands for, if the types of the agent are given.
    fn default_prompt(&self, name: &LitStr, errors: &mut Errors) -> Option<PromptSource> {
        let (Some(input), Some(_), false) = (&self.input, &self.output, errors.wrong_arguments)
        else {
            return None;
        };
        source::read_default(name, (input, &self.tokens), errors)
    }

    fn check_types(&self, errors: &mut Errors) {
        let missing = match (&self.input, &self.output) {
            (Some(_), Some(_)) => return,
            (Some(_), None) => "`output`",
            (None, Some(_)) => "`input`",
            (None, None) => "`input` and `output`",
        };
        let message = format!("an agent with a prompt needs {missing}: `{FORM}`");
        errors.report_missing(&self.tokens, message);
    }
}
