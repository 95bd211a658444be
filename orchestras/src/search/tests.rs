#![allow(clippy::unwrap_used)]

use maverl::orchestra::OrchestraName;
use maverl::registry::Registry;

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
