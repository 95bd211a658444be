//! Agents that are served by endpoints instead of models of the run.

use crate::check::choice::{ConfiguredSeat, seat_tables};
use crate::config::Config;
use crate::config::source::{Problems, path_within, suggestion};
use crate::plan::{EndpointPlan, Sampling};

/// Removes the seats of endpoints from the team: they have no policy.
pub(crate) fn take_endpoints(
    config: &Config,
    members: Vec<ConfiguredSeat>,
    problems: &mut Problems<'_>,
) -> (Vec<ConfiguredSeat>, Vec<EndpointPlan>) {
    let (outside, inside): (Vec<ConfiguredSeat>, Vec<ConfiguredSeat>) =
        members.into_iter().partition(|member| member.config.endpoint.is_some());
    let plans = outside.into_iter().filter_map(|member| plan(config, member, problems));
    let plans = plans.collect();
    (inside, plans)
}

fn plan(
    config: &Config,
    member: ConfiguredSeat,
    problems: &mut Problems<'_>,
) -> Option<EndpointPlan> {
    let name = member.config.endpoint.clone()?;
    let tables = seat_tables(&member.seat);
    // The table that names it is first.
    let table = &tables[tables.len() - 1];
    let Some(endpoint) = config.endpoints.get(&name) else {
        let message = format!("no endpoint is called `{name}`");
        let names = config.endpoints.keys().map(String::as_str);
        problems.value(&path_within(table, "endpoint"), message, suggestion(&name, names));
        return None;
    };
    let given = [
        ("model", member.config.model.is_some()),
        ("worker_group", member.config.worker_group.is_some()),
        ("adapter", member.config.adapter.is_some()),
        ("lora", member.config.lora.is_some()),
        ("optim", member.config.optim.is_some()),
        ("loss", member.config.loss.is_some()),
        ("teacher", member.config.teacher.is_some()),
        ("frozen", member.config.frozen == Some(false)),
    ];
    for (key, _) in given.into_iter().filter(|(_, given)| *given) {
        let message = format!(
            "`{}` is spoken for by the endpoint `{name}`, which has no `{key}` and is never trained",
            member.seat
        );
        problems.key(&path_within(table, key), message, "remove one of the two".to_owned());
    }
    let sampling = member.config.sampling.unwrap_or_default().over(&config.sampling);
    Some(EndpointPlan {
        seat: member.seat,
        name,
        endpoint: endpoint.clone(),
        sampling: Sampling::from(&sampling),
        options: member.options,
    })
}
