#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use maverl::agent::ReplyError;
use maverl::check::{Purpose, check};
use maverl::config::source::Sources;
use maverl::env::search::SearchEnvironment;
use maverl::orchestra::{EpisodeState, Member, OrchestraName};
use maverl::registry::Registry;
use maverl::rollout::Script;
use maverl::trajectory::FaultKind;

use super::*;

#[test]
fn the_team_is_registered_with_what_it_needs() {
    let registry = Registry::collect().unwrap();
    let entry = registry.orchestras["search/route"];
    assert_eq!(entry.needs, ["search"]);
    assert!(entry.needs.iter().all(|word| registry.environments["search"].offers.contains(word)));
    let members: Vec<String> = Route::default().members().iter().map(ToString::to_string).collect();
    assert_eq!(members, ["search/verifier", "search/searcher", "search/answerer"]);
    assert!(members.iter().all(|name| registry.agents.contains_key(name.as_str())));
}

/// Plays an episode in which every agent repeats a fixed reply. Returns its end, and the seats of its turns.
async fn play(
    max_turns: u32,
    environment: SearchEnvironment,
    [verifier, searcher, answerer]: [&'static str; 3],
) -> (Result<Option<String>, AskError>, Vec<String>) {
    let repeat = |reply: &'static str| Script::new(move |_, _| reply.to_owned());
    let member = |agent, reply| Member { agent, backend: Arc::new(repeat(reply)) };
    let members = BTreeMap::from([
        (Seat::only("search/verifier"), member(Arc::new(Verifier), verifier)),
        (Seat::only("search/searcher"), member(Arc::new(Searcher), searcher)),
        (Seat::only("search/answerer"), member(Arc::new(Answerer), answerer)),
    ]);
    let task = maverl::builtin::facts::tasks("test").unwrap().remove(0);
    let table = Arc::new(EpisodeState::new(task, 0, Arc::new(members), Arc::new(environment)));
    table.open().await.unwrap();
    let end = Route { max_turns: NonZeroU32::new(max_turns).unwrap() }
        .run(table.task(), &Team::new(Arc::clone(&table)))
        .await;
    (end, table.turns().iter().map(|turn| turn.seat.agent.clone()).collect())
}

fn started() -> SearchEnvironment {
    let mut environment = SearchEnvironment::default();
    environment.start(Path::new("")).unwrap();
    environment
}

const YES: &str = "<verify>yes</verify>";
const NO: &str = "<verify>no</verify>";
const QUERY: &str = "<search>city</search>";
const ANSWER: &str = "<answer>glass</answer>";

#[tokio::test]
async fn enough_goes_to_the_answerer() {
    let (end, turns) = play(3, started(), [YES, QUERY, ANSWER]).await;
    assert_eq!(end.unwrap().unwrap(), "glass");
    assert_eq!(turns, ["search/verifier", "search/answerer"]);
}

#[test]
fn an_episode_without_a_turn_is_refused() {
    let registry = Registry::collect().unwrap();
    let sources =
        Sources::default().with("orchestra.max_turns=0").with("orchestra.name=search/route");
    let problems = check(&sources, &registry, Purpose::Train).unwrap_err();
    let told = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert_eq!(told, "`orchestra.max_turns` is 0; expected a whole number from 1");
}

#[tokio::test]
async fn the_last_turn_answers_without_asking_the_verifier() {
    for (max_turns, calls) in [(1, 1), (2, 3), (3, 5)] {
        let (end, turns) = play(max_turns, started(), [NO, QUERY, ANSWER]).await;
        assert_eq!(end.unwrap().unwrap(), "glass");
        assert_eq!(turns.len(), calls);
    }
}

#[tokio::test]
async fn a_malformed_reply_ends_the_episode_with_that_error() {
    for (replies, tag) in [
        (["perhaps", QUERY, ANSWER], "verify"),
        ([NO, "city", ANSWER], "search"),
        ([YES, QUERY, "glass"], "answer"),
    ] {
        let (end, _) = play(3, started(), replies).await;
        assert_eq!(end.unwrap_err(), AskError::Reply(ReplyError::Missing { tag: tag.into() }));
    }
}

#[tokio::test]
async fn an_environment_that_fails_is_a_fault() {
    let (end, _) = play(3, SearchEnvironment::default(), [NO, QUERY, ANSWER]).await;
    let Err(AskError::Fault(fault)) = end else { panic!("{end:?}") };
    assert_eq!(fault.kind, FaultKind::Environment);
}
