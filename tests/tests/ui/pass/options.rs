//! Fields as options: defaults, errors, state that is no option.

use std::path::Path;

use maverl::__private::serde::{Deserialize, Serialize};
use maverl::__private::serde_json::json;
use maverl::prelude::*;
use maverl::registry::Build;

#[derive(Input)]
struct Question {
    text: String,
}

/// Speaks in a tone.
#[agent(
    name = "options/speaker",
    input = Question,
    output = String,
    prompt_text = "# system\nBe {{ agent.tone }}, {{ agent.type }}.\n# user\n{{ text }} ({{ agent.words }} words)",
)]
#[derive(Debug, PartialEq)]
struct Speaker {
    /// Style.
    tone: String,
    words: u32,
    r#type: Kind,
}

#[derive(Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(crate = "maverl::__private::serde", rename_all = "snake_case")]
enum Kind {
    #[default]
    Short,
    Long,
}

impl Show for Kind {
    fn show(&self) -> String {
        format!("{self:?}")
    }
}

impl Default for Speaker {
    fn default() -> Self {
        Self { tone: "kind".to_owned(), words: 9, r#type: Kind::default() }
    }
}

/// Derives what it needs itself.
#[environment(name = "options/environment")]
#[derive(Default, Serialize, Deserialize)]
#[serde(crate = "maverl::__private::serde", default)]
struct FileEnvironment {
    file: String,
    #[serde(skip)]
    lines: Option<Heavy>,
}

#[derive(Default)]
struct Heavy(Vec<String>);

impl Environment for FileEnvironment {
    fn start(&mut self, base: &Path) -> Result<(), EnvError> {
        self.lines = Some(Heavy(vec![base.join(&self.file).display().to_string()]));
        Ok(())
    }

    async fn act(&self, _: &mut Session, _: Action) -> Result<Observation, EnvError> {
        let lines = self.lines.as_ref().ok_or_else(|| EnvError::new("not started"))?;
        Ok(Observation::new(lines.0.join("\n")))
    }

    fn score(&self, _: &Session, answer: Option<&str>) -> Score {
        Score::binary(answer.is_some())
    }
}

/// Has no options.
#[environment(name = "void", offers("look", "wait_a_bit"))]
struct Void;

impl Environment for Void {
    async fn act(&self, _: &mut Session, _: Action) -> Result<Observation, EnvError> {
        Ok(Observation::new("nothing"))
    }

    fn score(&self, _: &Session, _: Option<&str>) -> Score {
        Score::binary(false)
    }
}

#[test]
fn defaults_are_those_of_the_type() {
    assert_eq!(Speaker::defaults(), json!({"tone": "kind", "words": 9, "type": "short"}));
    assert_eq!(Speaker::build(&json!({})).unwrap(), Speaker::default());
    assert_eq!(FileEnvironment::defaults(), json!({"file": ""}));
    assert_eq!(Void::defaults(), json!({}));
}

#[test]
fn options_replace_defaults() {
    let speaker = Speaker::build(&json!({"words": 3, "type": "long"})).unwrap();
    let prompt = speaker.prompt(&Question { text: "Hi".into() });
    assert_eq!(prompt.system.as_deref(), Some("Be kind, Long."));
    assert_eq!(prompt.user, "Hi (3 words)");
}

#[test]
fn every_bad_option_is_named() {
    let error = Speaker::build(&json!({"wrods": 3, "tone": 1, "words": 2})).unwrap_err();
    assert_eq!(
        error,
        "unknown field `wrods`, expected one of `tone`, `words`, `type`; \
         `tone`: invalid type: integer `1`, expected a string"
    );
    assert!(Speaker::build(&json!(3)).unwrap_err().contains("a table"));
    let error = Void::build(&json!({"color": 1})).err().unwrap();
    assert_eq!(error, "unknown option `color`: it has no options");
}

#[test]
fn skipped_fields_are_no_options() {
    assert!(FileEnvironment::build(&json!({"lines": []})).err().unwrap().contains("unknown field"));
    let mut environment = FileEnvironment::build(&json!({"file": "a.txt"})).unwrap();
    environment.start(Path::new("base")).unwrap();
    assert_eq!(
        environment.lines.unwrap().0,
        [Path::new("base").join("a.txt").display().to_string()]
    );
}
