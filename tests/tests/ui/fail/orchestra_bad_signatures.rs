use maverl::prelude::*;

#[derive(Input)]
struct Work {
    text: String,
}

#[agent(Work -> Answer, prompt_text = "{{ text }} {{ reply_format }}")]
struct Writer;

type Played = Result<Option<String>, AskError>;

#[orchestra(agents(Writer))]
fn waits_for_nothing(task: &Task, team: &Team<WaitsForNothing>) -> Played {
    Ok(None)
}

#[orchestra(agents(Writer))]
async fn generic<T>(task: &Task, team: &Team<Generic>) -> Played {
    Ok(None)
}

#[orchestra(agents(Writer))]
async fn silent(task: &Task, team: &Team<Silent>) {
    team.ask::<Writer>(&Work { text: task.question.clone() }).await?;
}

#[orchestra(agents(Writer))]
async fn of_no_type(task: &Task, team: &Team) -> Played {
    Ok(None)
}

#[orchestra(agents(Writer))]
async fn alone() -> Played {
    Ok(None)
}

#[orchestra(agents(Writer))]
async fn by_value(task: Task, team: Team<ByValue>) -> Played {
    Ok(None)
}

#[orchestra(agents(Writer))]
async fn with_options(task: &Task, team: &Team<WithOptions>, rounds: u32) -> Played {
    Ok(None)
}

#[orchestra(agents(Writer[seats]), nmae = "team/flow")]
async fn with_seats(task: &Task, team: &Team<WithSeats>) -> Played {
    Ok(None)
}

#[orchestra]
async fn without_agents(task: &Task, team: &Team<WithoutAgents>) -> Played {
    Ok(None)
}

#[orchestra(agents(Writer))]
enum Flow {
    Once,
}

fn main() {}
