use maverl::prelude::*;

#[derive(Input)]
struct Work {
    text: String,
}

#[agent(Work -> Answer, prompt_text = "{{ text }} {{ reply_format }}")]
struct Writer;

#[orchestra(agents(Writer))]
async fn drafts(task: &Task, team: &Team<Writer>) -> Result<Option<String>, AskError> {
    Ok(Some(team.ask::<Writer>(&Work { text: task.question.clone() }).await?.0))
}

fn main() {}
