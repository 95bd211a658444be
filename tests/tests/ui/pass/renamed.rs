//! The framework under another name.

extern crate maverl as framework;

use framework::prelude::*;

#[derive(Input)]
#[input(crate = framework)]
struct Question {
    text: String,
}

#[derive(Reply, Debug, PartialEq)]
#[reply(tag = "verdict", crate = framework)]
enum Verdict {
    Good,
}

#[agent(
    crate = framework,
    name = "renamed/judge",
    input = Question,
    output = Verdict,
    prompt_text = "{{ text }} {{ agent.tone }} {{ reply_format }}",
)]
#[derive(Default)]
struct Judge {
    tone: String,
}

#[orchestra(name = "renamed/flow", agents(Judge), crate = framework)]
#[derive(Default)]
struct Flow {
    max_turns: u32,
}

impl Orchestra for Flow {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        for _ in 0..self.max_turns {
            team.ask::<Judge>(&Question { text: task.question.clone() }).await?;
        }
        Ok(None)
    }
}

#[environment(crate = framework, name = "renamed")]
struct World;

impl Environment for World {
    async fn act(&self, _: &mut Session, _: Action) -> Result<Observation, EnvError> {
        Ok(Observation::new(""))
    }

    async fn score(&self, _: &Session, _: Option<&str>) -> Result<Score, EnvError> {
        Ok(Score::binary(true))
    }
}

#[reward(crate = framework)]
fn renamed(_: &Episode) -> Rewards {
    Rewards::none()
}

#[test]
fn everything_works_under_another_name() {
    let judge = Judge { tone: "calm".to_owned() };
    assert!(judge.prompt(&Question { text: "?".into() }).user.starts_with("? calm Reply"));
    assert_eq!(judge.parse("<verdict>GOOD</verdict>").unwrap(), Verdict::Good);
    assert_eq!(Flow::default().members().len(), 1);
}
