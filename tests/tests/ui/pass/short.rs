//! The short forms: names, prompts and types that follow from the code.

use maverl::__private::serde_json::{Value, json};
use maverl::prelude::*;
use maverl::registry::Registry;
use maverl::rollout::Scripted;

#[derive(Input)]
struct Work {
    question: String,
}

/// Writes; its prompt is `prompts/writer.md` beside this file.
#[agent(Work -> Answer)]
struct Writer;

/// Reads; its name is given, and its prompt is `prompts/team/reader.md`.
#[agent(Work -> Approval, name = "team/reader")]
struct Reader;

/// Has no types: it is written by hand.
#[agent]
struct Echo;

impl Agent for Echo {
    type Input = Work;
    type Output = String;

    fn prompt(&self, work: &Work) -> Prompt {
        Prompt::user(work.question.clone())
    }
}

/// The writer answers, and the reader approves.
#[orchestra(agents(Writer, Reader[1]))]
async fn drafts(task: &Task, team: &Team<Drafts>) -> Result<Option<String>, AskError> {
    let work = Work { question: task.question.clone() };
    let Answer(draft) = team.ask::<Writer>(&work).await?;
    let approval = team.seat::<Reader>(0).ask(&work).await?;
    Ok((approval == Approval::Yes).then_some(draft))
}

/// Pays for the share of the letters, and nothing below the level.
#[environment]
fn letters(answer: Option<&str>, letters: String, r#type: Option<u8>) -> Score {
    let answer = answer.unwrap_or_default();
    let letters = letters.into_bytes();
    let found = letters.iter().filter(|letter| answer.as_bytes().contains(letter)).count();
    Score::share(found, letters.len() + usize::from(r#type.unwrap_or(0)))
}

/// Its name is that of the type. It takes no actions.
#[environment]
struct Anything;

impl Environment for Anything {
    async fn score(&self, _: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        Ok(Score::binary(answer.is_some()))
    }
}

fn task(data: Value) -> Task {
    let Value::Object(data) = data else { panic!("{data}") };
    Task { id: "1".to_owned(), source: "words".to_owned(), question: "Which?".to_owned(), data }
}

#[test]
fn names_are_those_of_the_package_and_the_item() {
    assert_eq!((Writer::NAME, Reader::NAME), ("maverl_tests/writer", "team/reader"));
    assert_eq!((Echo::NAME, Drafts::NAME), ("maverl_tests/echo", "maverl_tests/drafts"));
    let registry = Registry::collect().unwrap();
    let orchestra = &registry.orchestras["maverl_tests/drafts"].declaration;
    assert_eq!(orchestra.summary, "The writer answers, and the reader approves.");
    let environment = &registry.environments["maverl_tests/letters"].declaration;
    assert!(environment.place.item.ends_with("::short::letters"), "{}", environment.place.item);
    assert!(registry.environments.contains_key("maverl_tests/anything"));
}

#[test]
fn prompts_are_the_files_that_names_stand_for() {
    let work = Work { question: "Which?".to_owned() };
    assert_eq!(Writer.prompt(&work).user, "Write: Which? Reply <answer>words</answer>.");
    assert!(Reader.prompt(&work).user.starts_with("Read: Which? Reply <verify>"));
}

#[test]
fn a_function_is_an_orchestra_with_its_agents() {
    assert_eq!(Drafts.members(), [Seat::only("maverl_tests/writer"), Seat::at("team/reader", 0)]);
    let replies = |approval: &'static str| {
        Scripted::new(Drafts, Anything, move |seat, _| match seat.agent.as_str() {
            "team/reader" => format!("<verify>{approval}</verify>"),
            _ => "<answer>tea</answer>".to_owned(),
        })
    };
    let episode = replies("yes").play_blocking(&task(json!({})));
    assert_eq!((episode.answer.as_deref(), episode.turns.len()), (Some("tea"), 2));
    assert_eq!(replies("no").play_blocking(&task(json!({}))).answer, None);
}

#[test]
fn arguments_of_an_environment_are_keys_of_the_row() {
    let registry = Registry::collect().unwrap();
    let look = registry.environments["maverl_tests/letters"].look;
    let look =
        |data| look(&json!({}), std::path::Path::new(""), &[task(data)].into_iter().collect());
    assert_eq!(look(json!({"letters": "ae", "x": 1})), Ok(Vec::new()));
    assert_eq!(look(json!({"letters": "ae", "type": 1})), Ok(Vec::new()));
    let missing = look(json!({"leters": "ae"})).unwrap_err().to_string();
    assert_eq!(missing, "the task `1` of `words` has no `letters`; add this key to its row");
    let wrong = look(json!({"letters": "ae", "type": "x"})).unwrap_err().to_string();
    assert!(wrong.starts_with("`type` of the task `1` of `words`: invalid type"), "{wrong}");
    let environment = registry.environments["maverl_tests/letters"].start;
    let environment = environment(&json!({}), std::path::Path::new("")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let task = task(json!({"letters": "aex"}));
    let score = runtime.block_on(async {
        let session = environment.open(&task, 1).await.unwrap();
        environment.score(&session, Some("tea")).await.unwrap()
    });
    assert_eq!(score, Score::share(2, 3));
}
