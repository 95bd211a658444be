#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn parse(source: &str) -> Result<Templates, TokenizerError> {
    Templates::parse([("default".to_owned(), source.to_owned())].into())
}

fn rendered(source: &str, variables: &serde_json::Value) -> Result<String, TokenizerError> {
    parse(source)?.render("default", variables.as_object().unwrap())
}

fn error(source: &str) -> String {
    rendered(source, &json!({})).unwrap_err().to_string()
}

#[test]
fn a_template_is_told_a_date_that_does_not_change_unless_it_is_set() {
    let source = "{{ strftime_now('%d %b %Y %H:%M %%') }}";
    let mut templates = parse(source).unwrap();
    assert_eq!(templates.render("default", &Map::new()).unwrap(), "26 Jul 2024 00:00 %");
    templates.tell(date(2026, 2, 3).at(4, 5, 6, 0));
    assert_eq!(templates.render("default", &Map::new()).unwrap(), "03 Feb 2026 04:05 %");
}

#[test]
fn what_a_template_raises_is_said_in_its_words_with_the_line() {
    let source = "{{ 1 }}\n{{ raise_exception('roles must alternate') }}";
    assert_eq!(error(source), "chat template, line 2: the template raised: roles must alternate");
}

#[test]
fn a_template_that_does_not_parse_is_named_with_the_line() {
    let told = parse("a\nb\n{% for m in %}").err().unwrap().to_string();
    assert!(told.starts_with("chat template, line 3: syntax error: "), "{told}");
    let source = "{% if %}".to_owned();
    let told = Templates::parse([("tool_use".to_owned(), source)].into());
    assert!(
        told.err()
            .unwrap()
            .to_string()
            .starts_with("chat template `tool_use`, line 1: syntax error: ")
    );
}

#[test]
fn a_template_that_does_not_end_is_an_error() {
    let source = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
    assert!(error(source).contains("it makes more than"), "{}", error(source));
}

#[test]
fn a_name_or_else_the_tools_choose_between_templates() {
    let source = |name: &str| (name.to_owned(), format!("{name} {{{{ tools is none }}}}"));
    let several = Templates::parse([source("default"), source("tool_use"), source("rag")].into());
    let several = several.unwrap();
    let chosen = |chat: ChatInput| several.choose(&chat).map(str::to_owned);
    assert_eq!(chosen(ChatInput::default()).unwrap(), "default");
    assert_eq!(
        chosen(ChatInput { tools: Some(vec![]), ..ChatInput::default() }).unwrap(),
        "tool_use"
    );
    let named =
        |name: &str| ChatInput { chat_template: Some(name.to_owned()), ..ChatInput::default() };
    assert_eq!(chosen(named("rag")).unwrap(), "rag");
    let told = chosen(named("json")).unwrap_err().to_string();
    assert_eq!(told, "no chat template `json`; the model has `default`, `rag`, `tool_use`");

    let unclear = Templates::parse([source("a"), source("b")].into()).unwrap();
    let told = unclear.choose(&ChatInput::default()).unwrap_err().to_string();
    assert_eq!(told, "no chat template `default`; the model has `a`, `b`");
}
