//! A writer looks for words with certain letters; a critic says when they will do.

use maverl::prelude::*;

#[derive(Input)]
pub struct Work {
    wanted: String,
    draft: Option<String>,
}

/// Writes a draft.
#[agent(name = "my_team/writer", input = Work, output = Draft, prompt = "../prompts/writer.md")]
pub struct Writer;

#[derive(Reply)]
#[reply(tag = "answer", format = "Reply <answer>words</answer>.")]
pub struct Draft(String);

/// Says whether a draft will do.
#[agent(name = "my_team/critic", input = Work, output = Verdict, prompt = "../prompts/critic.md")]
pub struct Critic;

#[derive(Reply, PartialEq)]
#[reply(tag = "verify", format = "Reply <verify>yes</verify> or <verify>no</verify>.")]
pub enum Verdict {
    Yes,
    No,
}

/// Writes until the critic has no more to say, twice at most.
#[orchestra(name = "my_team/drafts", agents(Writer, Critic))]
pub struct Drafts;

impl Orchestra for Drafts {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut work = Work { wanted: task.question.clone(), draft: None };
        for _ in 0..2 {
            let Draft(draft) = team.ask::<Writer>(&work).await?;
            work.draft = Some(draft);
            if team.ask::<Critic>(&work).await? == Verdict::Yes {
                break;
            }
        }
        Ok(work.draft)
    }
}

/// Pays for the share of a task's `letters` that the answer has.
#[environment(name = "my_team/letters")]
pub struct Letters;

impl Environment for Letters {
    async fn act(&self, _: &mut Session, _: Action) -> Result<Observation, EnvError> {
        Ok(Observation::new("there is nothing to do but to answer"))
    }

    async fn score(&self, session: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        let wanted = session.task.data.get("letters").and_then(|it| it.as_str()).unwrap_or("");
        let answer = answer.unwrap_or("").to_lowercase();
        let found = wanted.chars().filter(|letter| answer.contains(*letter)).count();
        let share = found as f64 / wanted.chars().count().max(1) as f64;
        Ok(Score { reward: share, ..Score::binary(share == 1.0) })
    }
}
