//! Chat templates of a model, by name.

use std::collections::BTreeMap;

use jiff::civil::{DateTime, date};
use maverl_jinja::{RenderLimits, Template};
use serde_json::Map;

use crate::text::TokenizerError;
use crate::text::tokenizer::ChatInput;

/// The chat templates of a model, by name.
pub(super) struct Templates {
    templates: BTreeMap<String, Template>,
    names: Vec<String>,
    now: DateTime,
}

impl Templates {
    /// Parses templates.
    ///
    /// # Errors
    ///
    /// If one does not parse; the error names it and the line.
    pub(super) fn parse(sources: BTreeMap<String, String>) -> Result<Self, TokenizerError> {
        let names = sources.keys().cloned().collect();
        let mut templates = BTreeMap::new();
        for (name, source) in sources {
            let template =
                Template::parse(&source).map_err(|error| failed_template(&name, &error))?;
            templates.insert(name, template);
        }
        // Default date of Llama 3.2's template.
        Ok(Self { templates, names, now: date(2024, 7, 26).at(0, 0, 0, 0) })
    }

    /// Sets the time that templates get.
    pub(super) fn tell(&mut self, now: DateTime) {
        self.now = now;
    }

    /// Returns the names of the templates, sorted.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the name of the template for a conversation.
    ///
    /// # Errors
    ///
    /// If the requested one does not exist, or there are several and no default.
    pub(super) fn choose(&self, chat: &ChatInput) -> Result<&str, TokenizerError> {
        let wanted = match (&chat.chat_template, self.names.as_slice()) {
            (Some(name), _) | (None, [name]) => name.as_str(),
            _ if chat.tools.is_some() && self.templates.contains_key("tool_use") => "tool_use",
            _ => "default",
        };
        let found = self.names.iter().find(|name| *name == wanted);
        found.map(String::as_str).ok_or_else(|| {
            let names = self.names.join("`, `");
            TokenizerError::Template(format!(
                "no chat template `{wanted}`; the model has `{names}`"
            ))
        })
    }

    /// Renders a template with variables.
    ///
    /// # Errors
    ///
    /// If the template fails or raises, or reaches a limit of [`RenderLimits`].
    pub(super) fn render(
        &self,
        name: &str,
        variables: &Map<String, serde_json::Value>,
    ) -> Result<String, TokenizerError> {
        let template = self
            .templates
            .get(name)
            .ok_or_else(|| TokenizerError::Template(format!("no chat template `{name}`")))?;
        let rendered = template.render(variables, self.now, RenderLimits::default());
        rendered.map_err(|error| failed_template(name, &error))
    }
}

/// Returns the error of a template, with its name.
fn failed_template(name: &str, error: &maverl_jinja::Error) -> TokenizerError {
    let which = if name == "default" { String::new() } else { format!(" `{name}`") };
    TokenizerError::Template(format!("chat template{which}, {error}"))
}

#[cfg(test)]
mod tests;
