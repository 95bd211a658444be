//! Source of a prompt: a file, or the text of the attribute.

use std::path::{Path, PathBuf};

use proc_macro2::{Span, TokenStream};
use syn::spanned::Spanned;
use syn::{ItemStruct, LitStr, Type};

use super::prompt::{Mistake, PromptPiece, PromptTemplate};
use crate::errors::{Errors, did_you_mean};
use crate::{item, name};

/// A prompt with its origin.
pub(crate) struct PromptSource {
    /// Path of the file, or the text, with the span of messages about it.
    pub(crate) literal: LitStr,
    /// Prompt file, if there is one.
    pub(crate) file: Option<PathBuf>,
    pub(crate) template: PromptTemplate,
}

impl PromptSource {
    /// Returns the name of a line of the prompt in messages.
    pub(crate) fn line(&self, line: usize) -> String {
        line_name(&self.literal, self.file.is_some(), line)
    }
}

fn line_name(literal: &LitStr, is_file: bool, line: usize) -> String {
    if is_file {
        format!("{}:{line}", literal.value())
    } else {
        format!("line {line} of `prompt_text`")
    }
}

/// Reads the text of the attribute.
pub(crate) fn read_text(text: &LitStr, errors: &mut Errors) -> PromptSource {
    parse_template(text, None, &text.value(), errors)
}

/// Reads a file, which is named relative to the source file.
pub(crate) fn read_file(literal: &LitStr, errors: &mut Errors) -> Option<PromptSource> {
    let file = source_directory(literal.span()).join(literal.value());
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

fn join_paths(files: &[PathBuf], word: &str) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(word)
}

/// Reads the file that the name of the agent stands for: `prompts/ROLE.md`, in the package or next to the source file. `ROLE` is
/// the name without that of the package. Messages about the prompt are at the input type, and one about its absence at all
/// arguments.
pub(crate) fn read_default(
    name: &LitStr,
    (input, args): (&Type, &TokenStream),
    errors: &mut Errors,
) -> Option<PromptSource> {
    let team = format!("{}/", name::package_name());
    let name = name.value();
    let path = format!("prompts/{}.md", name.strip_prefix(&team).unwrap_or(&name));
    let mut files =
        vec![package_directory().join(&path), source_directory(input.span()).join(&path)];
    files.dedup_by_key(|file| std::fs::canonicalize(&*file).unwrap_or_else(|_| file.clone()));
    let [all, there] = [files.clone(), files.into_iter().filter(|file| file.is_file()).collect()];
    match there.as_slice() {
        [file] => {
            let literal = LitStr::new(&path, input.span());
            let text = std::fs::read_to_string(file).map_err(|error| {
                errors.at(args, format!("cannot read the prompt {}: {error}", file.display()))
            });
            Some(parse_template(&literal, Some(file.clone()), &text.ok()?, errors))
        }
        [] => {
            let message = format!(
                "there is no prompt of `{name}`: write it to {}, or name a file: `prompt = \"file.md\"`",
                join_paths(&all, " or ")
            );
            errors.at(args, message);
            None
        }
        both => {
            let message = format!(
                "there are two prompts of `{name}`, {}; remove one, or name it: `prompt = \"file.md\"`",
                join_paths(both, " and ")
            );
            errors.at(args, message);
            None
        }
    }
}

/// Returns the directory of the source file with the attribute, else the package's `src`.
fn source_directory(span: Span) -> PathBuf {
    let source = span.unwrap().local_file().or_else(|| Span::call_site().unwrap().local_file());
    let parent = source.as_deref().and_then(Path::parent);
    let directory = parent.map_or_else(|| package_directory().join("src"), Path::to_owned);
    std::path::absolute(&directory).unwrap_or(directory)
}

fn package_directory() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default())
}

fn parse_template(
    literal: &LitStr,
    file: Option<PathBuf>,
    text: &str,
    errors: &mut Errors,
) -> PromptSource {
    let (template, mistakes) = PromptTemplate::parse(text);
    for Mistake { line, message } in mistakes {
        let line = line_name(literal, file.is_some(), line);
        errors.at(literal, format!("{line}: {message}"));
    }
    PromptSource { literal: literal.clone(), file, template }
}

/// Adds an error for each placeholder of an option that the agent does not have.
pub(crate) fn check_options(prompt: &PromptSource, item: &ItemStruct, errors: &mut Errors) {
    let options = item::field_names(item);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    for (piece, line) in prompt.template.pieces() {
        if let PromptPiece::Option(name) = piece
            && !options.contains(&name.as_str())
        {
            let hint = did_you_mean(name, &options);
            let line = prompt.line(*line);
            let message = format!("{line}: `{}` has no option `{name}`{hint}", item.ident);
            errors.at(&prompt.literal, message);
        }
    }
}
