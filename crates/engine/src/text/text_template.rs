//! Templates of texts that are no conversations, such as hints of teachers.

use jiff::civil::date;
use maverl_jinja::{RenderLimits, Template};
use serde_json::{Map, Value};

use crate::text::TokenizerError;

/// A template of a text, in the part of Jinja that chat templates use.
pub struct TextTemplate(Template);

impl TextTemplate {
    /// Parses a template.
    ///
    /// # Errors
    ///
    /// If its syntax is wrong; the error names the line.
    pub fn parse(source: &str) -> Result<Self, TokenizerError> {
        Template::parse(source).map(Self).map_err(|error| failed_template(&error))
    }

    /// Renders the template with variables. A variable that does not exist is empty. The date is that of chat templates.
    ///
    /// # Errors
    ///
    /// If an operation fails, the template raises, or it reaches a limit of work or memory.
    pub fn render(&self, variables: &Map<String, Value>) -> Result<String, TokenizerError> {
        let now = date(2024, 7, 26).at(0, 0, 0, 0);
        let rendered = self.0.render(variables, now, RenderLimits::default());
        rendered.map_err(|error| failed_template(&error))
    }
}

fn failed_template(error: &maverl_jinja::Error) -> TokenizerError {
    TokenizerError::Template(error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_rendered_and_errors_name_the_line() {
        let template =
            TextTemplate::parse("{% if answer %}It is {{ answer }}.{% endif %}").unwrap();
        let variables = |value: Value| value.as_object().cloned().unwrap();
        assert_eq!(template.render(&variables(json!({"answer": 7}))).unwrap(), "It is 7.");
        assert_eq!(template.render(&variables(json!({}))).unwrap(), "");
        let error = TextTemplate::parse("\n{% if %}").err().unwrap().to_string();
        assert!(error.starts_with("line 2: syntax error"), "{error}");
    }
}
