//! Seats of the team, and their settings in the file.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::options::filled_options;
use crate::config::source::{Problems, did_you_mean, list, path, path_within};
use crate::config::{AgentConfig, Config};
use crate::registry::{AgentEntry, Registry};
use crate::trajectory::Seat;

/// A seat, and its agent's table overridden by its own.
pub(crate) struct ConfiguredSeat {
    pub(crate) seat: Seat,
    pub(crate) config: AgentConfig,
    /// Fields of the agent type, defaults filled in.
    pub(crate) options: Value,
}

impl ConfiguredSeat {
    /// Returns true if the turns of the seat are trained on, for a seat of this model.
    pub(crate) fn is_trained(&self, config: &Config, model: &str) -> bool {
        !config.models[model].frozen && self.config.frozen != Some(true)
    }
}

/// Returns the tables that may hold a key of a seat, in decreasing precedence.
pub(crate) fn seat_tables(seat: &Seat) -> Vec<Vec<String>> {
    let agent = path(["agents", &seat.agent]);
    let own = seat.index.map(|index| seat_table(&agent, index));
    own.into_iter().chain([agent]).collect()
}

fn seat_table(agent: &[String], index: u32) -> Vec<String> {
    path_within(&path_within(agent, "seats"), &index.to_string())
}

/// Returns every seat, sorted; `None` if an agent is not linked.
pub(crate) fn seat_members(
    config: &Config,
    orchestra: &str,
    seats: &BTreeSet<Seat>,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> Option<Vec<ConfiguredSeat>> {
    let mut members: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for seat in seats {
        members.entry(&seat.agent).or_default().extend(seat.index);
    }
    strangers(config, orchestra, &members, registry, problems);
    let mut fine = true;
    for (name, numbers) in &members {
        if !registry.agents.contains_key(name) {
            let message =
                format!("`{name}`, a member of orchestra `{orchestra}`, is not registered");
            let help = "declare it with `#[agent]`, or link the crate that does";
            problems.value(&path(["orchestra", "name"]), message, help.to_owned());
            fine = false;
        }
        check_seat_numbers(config, name, numbers, problems);
    }
    if !fine {
        return None;
    }
    Some(seats.iter().map(|seat| member(config, seat, registry, problems)).collect())
}

/// Reports tables of agents that are not in the team.
fn strangers(
    config: &Config,
    orchestra: &str,
    members: &BTreeMap<&str, Vec<u32>>,
    registry: &Registry,
    problems: &mut Problems<'_>,
) {
    for name in config.agents.keys().filter(|name| !members.contains_key(name.as_str())) {
        let team = format!("the members of `{orchestra}` are {}", list(members.keys().copied()));
        let (message, help) = if registry.agents.contains_key(name.as_str()) {
            (format!("agent `{name}` is not a member of orchestra `{orchestra}`"), team)
        } else {
            let help = match did_you_mean(name, members.keys().copied()) {
                Some(close) => format!("did you mean `{close}`?"),
                None => team,
            };
            (format!("no agent is called `{name}`"), help)
        };
        problems.key(&path(["agents", name]), message, help);
    }
}

/// Reports tables of seats that do not exist.
fn check_seat_numbers(config: &Config, name: &str, numbers: &[u32], problems: &mut Problems<'_>) {
    let Some(agent) = config.agents.get(name) else { return };
    let table = path(["agents", name]);
    for (number, seat) in &agent.seats {
        let at = seat_table(&table, *number);
        if !numbers.contains(number) {
            let help = match (numbers.iter().min(), numbers.iter().max()) {
                (Some(first), Some(last)) => format!("its seats are {first} to {last}"),
                _ => "it sits once: write the keys in its own table".to_owned(),
            };
            problems.key(&at, format!("agent `{name}` has no seat {number}"), help);
        }
        if !seat.seats.is_empty() {
            let message = format!("seat {number} of agent `{name}` has no seats of its own");
            problems.key(&path_within(&at, "seats"), message, None);
        }
    }
}

fn member(
    config: &Config,
    seat: &Seat,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> ConfiguredSeat {
    let AgentEntry { declaration, build, .. } = &registry.agents[seat.agent.as_str()];
    let table = path(["agents", &seat.agent]);
    let agent = config.agents.get(&seat.agent).cloned().unwrap_or_default();
    let over = seat.index.and_then(|index| Some((index, agent.seats.get(&index)?)));
    let merged = match over {
        Some((_, over)) => over.over(&agent),
        None => AgentConfig { seats: BTreeMap::new(), ..agent.clone() },
    };
    let at = path_within(&table, "options");
    let mut built = filled_options(&at, &agent.options, declaration, build, problems);
    if let Some((index, over)) = over {
        let own = path_within(&seat_table(&table, index), "options");
        filled_options(&own, &over.options, declaration, build, problems);
        built = filled_options(&at, &merged.options, declaration, build, problems);
    }
    ConfiguredSeat { seat: seat.clone(), config: merged, options: built }
}

/// Returns the path of the key that determines a setting of a seat; the fallback, or the agent's own key if none is
/// set.
pub(crate) fn setting_path(
    problems: &Problems<'_>,
    seat: &Seat,
    name: &str,
    fallback: Option<Vec<String>>,
) -> Vec<String> {
    let own: Vec<Vec<String>> = seat_tables(seat)
        .iter()
        .map(|table| name.split('.').fold(table.clone(), |table, part| path_within(&table, part)))
        .collect();
    let agent = own.last().cloned().unwrap_or_default();
    let given = own.into_iter().find(|path| problems.layers().has(path));
    given.or(fallback).unwrap_or(agent)
}
