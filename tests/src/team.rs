//! A team that requires no skill: a random model gets different rewards, malformed replies, and a training signal.

use std::time::{Duration, SystemTime};

use maverl::prelude::*;
use serde_json::Map;

/// A question and the replies to it.
#[derive(Input)]
pub struct Talk {
    /// Question of the task.
    pub question: String,
    /// Observation of the environment after the opening.
    pub seen: Option<String>,
}

/// Says anything.
#[agent(name = "duo/opener", input = Talk, output = String, prompt_text = "Open: {{ question }}")]
pub struct Opener;

/// Says anything of an even number of characters.
#[agent(
    name = "duo/closer",
    input = Talk,
    output = Even,
    prompt_text = "Close: {{ question }} {{ seen }} {{ reply_format }}"
)]
pub struct Closer;

/// A text with an even number of characters; a random model writes one about half of the time.
pub struct Even(pub String);

impl Reply for Even {
    const STRUCTURED: bool = true;

    fn format() -> String {
        "Evenly.".to_owned()
    }

    fn parse(reply: &str) -> Result<Self, ReplyError> {
        match reply.chars().count() % 2 {
            0 => Ok(Self(reply.to_owned())),
            _ => Err(ReplyError::Other("an odd number of characters".to_owned())),
        }
    }
}

/// One opens, the other closes.
#[orchestra(name = "duo/relay", agents(Opener, Closer), needs("look"))]
pub struct Relay {
    /// True if the closer is called.
    pub close: bool,
    /// Number of observations before that.
    pub looks: u32,
}

impl Default for Relay {
    fn default() -> Self {
        Self { close: true, looks: 1 }
    }
}

impl Orchestra for Relay {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let question = task.question.clone();
        let open = team.ask::<Opener>(&Talk { question: question.clone(), seen: None }).await?;
        let mut seen = team.act(Action::Text(open.clone())).await?;
        for _ in 1..self.looks {
            seen = team.act(Action::Text(open.clone())).await?;
        }
        if !self.close {
            return Ok(Some(open));
        }
        let Even(close) = team.ask::<Closer>(&Talk { question, seen: Some(seen.text) }).await?;
        Ok(Some(close))
    }
}

/// One opens, and that is the answer.
#[orchestra(name = "duo/alone", agents(Opener))]
pub struct Alone;

impl Orchestra for Alone {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let talk = Talk { question: task.question.clone(), seen: None };
        Ok(Some(team.ask::<Opener>(&talk).await?))
    }
}

/// Says anything about what it sees.
#[agent(name = "duo/walker", input = Talk, output = String, prompt_text = "{{ question }} {{ seen }} on")]
pub struct Walker;

/// One acts after each of its replies, in one conversation of three turns.
#[orchestra(name = "duo/walk", agents(Walker), needs("look"))]
pub struct Walk;

impl Orchestra for Walk {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut chat = team.chat::<Walker>();
        let mut talk = Talk { question: task.question.clone(), seen: None };
        let mut said = chat.respond(&talk).await?;
        for _ in 0..2 {
            talk.seen = Some(team.act(Action::Text(said)).await?.text);
            said = chat.respond(&talk).await?;
        }
        Ok(Some(said))
    }
}

/// Pays for long answers, and fails as it is told to.
#[environment(name = "letters", offers("look"))]
#[derive(Default)]
pub struct Letters {
    /// Observations fail in tasks whose question contains this text; empty for none.
    pub fault: String,
    /// True if every score is NaN.
    pub nan: bool,
    /// True if every score is 1.
    pub flat: bool,
    /// Duration of an observation in milliseconds.
    pub delay_ms: u64,
    /// Bound of a random time that is added to it, which depends on the clock.
    pub jitter_ms: u64,
}

impl Environment for Letters {
    async fn act(&self, session: &mut Session, action: Action) -> Result<Observation, EnvError> {
        let now =
            SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| u64::from(since.subsec_nanos()));
        let jitter = (now / 1000).checked_rem(self.jitter_ms).unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(self.delay_ms + jitter)).await;
        if !self.fault.is_empty() && session.task.question.contains(&self.fault) {
            return Err(EnvError::new("the environment is down, as asked"));
        }
        let Action::Text(text) = action else { return Ok(Observation::new("")) };
        Ok(Observation::new(text.chars().rev().collect::<String>()))
    }

    async fn score(&self, _: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        let length = answer.map_or(0, |answer| answer.chars().count().min(8));
        let reward = match (self.nan, self.flat) {
            (true, _) => f64::NAN,
            (_, true) => 1.0,
            _ => length as f64 / 8.0,
        };
        Ok(Score { reward, solved: length >= 4, metrics: Map::new() })
    }
}

/// Pays every turn for the length of its reply.
#[reward]
fn length(episode: &Episode) -> Rewards {
    let lengths = episode.turns.iter().map(|turn| turn.reply.chars().count() as f64);
    lengths.enumerate().fold(Rewards::none(), |all, (i, n)| all.turn(i, n / 100.0))
}
