use maverl::prelude::*;

#[derive(Input)]
struct Work {
    text: String,
}

#[agent(Work -> Answer, prompt_text = "{{ text }} {{ reply_format }}")]
struct Writer;

#[agent(Work -> Answer, prompt_text = "{{ text }} {{ reply_format }}")]
struct Critic;

#[orchestra(agents(Writer))]
async fn text(task: &Task, team: &Team<Text>) -> Result<String, AskError> {
    Ok(team.ask::<Writer>(&Work { text: task.question.clone() }).await?.0)
}

#[orchestra(agents(Writer))]
async fn question(task: &String, team: &Team<Question>) -> Result<Option<String>, AskError> {
    Ok(Some(team.ask::<Writer>(&Work { text: task.clone() }).await?.0))
}

#[orchestra(agents(Writer))]
async fn stranger(task: &Task, team: &Team<Stranger>) -> Result<Option<String>, AskError> {
    Ok(Some(team.ask::<Critic>(&Work { text: task.question.clone() }).await?.0))
}

fn main() {}
