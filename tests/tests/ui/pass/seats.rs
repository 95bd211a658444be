//! Several members, and members that sit several times.

use std::num::NonZeroUsize;

use maverl::__private::serde_json::json;
use maverl::prelude::*;
use maverl::registry::{Build, Registry};

#[derive(Input)]
struct Motion {
    text: String,
}

#[agent(name = "seats/chair", input = Motion, output = String, prompt_text = "Open: {{ text }}")]
struct Chair;

#[agent(name = "seats/debater", input = Motion, output = String, prompt_text = "Argue: {{ text }}")]
struct Debater;

#[agent(name = "seats/voter", input = Motion, output = String, prompt_text = "Vote: {{ text }}")]
struct Voter;

#[agent(name = "seats/guest", input = Motion, output = String, prompt_text = "Ask: {{ text }}")]
struct Guest;

/// Opens, debates, votes.
#[orchestra(
    name = "seats/debate",
    agents(Chair, Debater[2], Voter[n_voters], self::Guest[guests]),
    needs("look_up", "vote"),
)]
struct Debate {
    n_voters: NonZeroUsize,
    guests: u8,
}

impl Default for Debate {
    fn default() -> Self {
        Self { n_voters: NonZeroUsize::MIN, guests: 0 }
    }
}

impl Orchestra for Debate {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let motion = Motion { text: task.question.clone() };
        team.ask::<Chair>(&motion).await?;
        for i in 0..2 {
            team.seat::<Debater>(i).ask(&motion).await?;
        }
        for i in 0..self.n_voters.get() {
            team.seat::<Voter>(i).ask(&motion).await?;
        }
        for i in 0..usize::from(self.guests) {
            team.seat::<Guest>(i).chat().respond(&motion).await?;
        }
        Ok(None)
    }
}

fn seats(debate: &Debate) -> Vec<String> {
    debate.members().iter().map(Seat::to_string).collect()
}

#[test]
fn members_sit_in_the_order_written_and_as_often_as_the_options_say() {
    let common = ["seats/chair", "seats/debater#0", "seats/debater#1", "seats/voter#0"];
    assert_eq!(seats(&Debate::default()), common);
    let debate = Debate::build(&json!({"n_voters": 2, "guests": 1})).unwrap();
    assert_eq!(seats(&debate)[3..], ["seats/voter#0", "seats/voter#1", "seats/guest#0"]);
    assert_eq!(Debate::NEEDS, ["look_up", "vote"]);
}

/// Pays nothing.
#[reward(name = "seats/nothing")]
fn nothing(_: &Episode) -> Rewards {
    Rewards::none()
}

#[test]
fn declarations_are_in_the_registry_with_their_places() {
    let registry = Registry::collect().unwrap();
    let agent = &registry.agents["seats/voter"];
    assert_eq!(agent.inputs, ["text"]);
    assert_eq!((agent.reply_format)(), "");
    assert!(agent.declaration.place.item.ends_with("::seats::Voter"));

    let debate = &registry.orchestras["seats/debate"];
    assert_eq!(debate.declaration.summary, "Opens, debates, votes.");
    assert_eq!(debate.declaration.place.line, 27);
    assert!(debate.declaration.place.file.ends_with("seats.rs"));
    assert_eq!(debate.needs, ["look_up", "vote"]);
    assert_eq!((debate.declaration.defaults)(), json!({"n_voters": 1, "guests": 0}));
    let built = (debate.build)(&json!({"guests": 2})).unwrap();
    assert_eq!(built.members().len(), 6);

    assert_eq!(registry.environments["void"].offers, ["look", "wait_a_bit"]);
    assert!((registry.environments["options/environment"].check)(&json!({"file": 1})).is_err());
    assert_eq!(registry.rewards["seats/nothing"].declaration.summary, "Pays nothing.");
    assert!(registry.rewards.contains_key("renamed"));
}
