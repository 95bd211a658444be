//! A writer looks for words with certain letters; a critic says when they will do.

use maverl::prelude::*;

#[derive(Input)]
pub struct Work {
    wanted: String,
    draft: Option<String>,
}

/// Writes a draft.
#[agent(Work -> Answer)]
pub struct Writer;

/// Says whether a draft will do.
#[agent(Work -> Approval)]
pub struct Critic;

/// Writes until the critic has no more to say, twice at most.
#[orchestra(agents(Writer, Critic))]
async fn drafts(task: &Task, team: &Team<Drafts>) -> Result<Option<String>, AskError> {
    let mut work = Work { wanted: task.question.clone(), draft: None };
    for _ in 0..2 {
        let Answer(draft) = team.ask::<Writer>(&work).await?;
        work.draft = Some(draft);
        if team.ask::<Critic>(&work).await? == Approval::Yes {
            break;
        }
    }
    Ok(work.draft)
}

/// Pays for the share of a task's `letters` that the answer has.
#[environment]
fn letters(answer: Option<&str>, letters: String) -> Score {
    let answer = answer.unwrap_or_default().to_lowercase();
    let found = letters.chars().filter(|letter| answer.contains(*letter)).count();
    Score::share(found, letters.chars().count())
}
