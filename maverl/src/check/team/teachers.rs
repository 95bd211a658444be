//! Teachers: the models that are loaded for them, and the seats that have them.

use std::collections::{BTreeMap, BTreeSet};

use super::adapter::is_adapter;
use super::groups::PolicySeats;
use crate::check::choice::ConfiguredSeat;
use crate::config::source::{Problems, path, path_within, suggestion};
use crate::config::{Config, TeacherConfig, TeacherPolicy};
use crate::plan::{AlgorithmPlan, HintPlan, SeatTeachers, TeacherPlan, TeacherSource};

/// Teachers that trained seats have, and the policies that are theirs.
#[derive(Default)]
pub(crate) struct UsedTeachers {
    /// Names of teachers, sorted, each with the name of the policy of its model, if it has one.
    teachers: BTreeMap<String, Option<String>>,
}

impl UsedTeachers {
    /// Returns the teachers of members, and adds the policies of those that are models and have none yet. A policy that no seat
    /// trains and that is no adapter serves all teachers on its model.
    pub(crate) fn new(
        config: &Config,
        members: &[ConfiguredSeat],
        groups: &mut BTreeMap<String, PolicySeats<'_>>,
        problems: &mut Problems<'_>,
    ) -> Self {
        let choices = members.iter().filter_map(|member| member.config.teacher.as_ref());
        let names: BTreeSet<&str> =
            choices.flat_map(|choice| choice.by_source().into_values()).collect();
        let mut used = Self::default();
        for name in names {
            let Some(teacher) = config.teachers.get(name) else { continue };
            let model = teacher.model.as_ref().filter(|model| config.models.contains_key(*model));
            let policy = model.map(|model| teacher_policy(config, name, model, groups, problems));
            used.teachers.insert(name.to_owned(), policy);
        }
        used
    }

    /// Returns the teachers of a seat, and their weight.
    pub(crate) fn of_seat(
        &self,
        member: &ConfiguredSeat,
        own_coef: Option<f64>,
        algorithm: &AlgorithmPlan,
    ) -> Option<SeatTeachers> {
        let names = member.config.teacher.as_ref()?.by_source().into_iter();
        let indices = names.map(|(source, name)| (source.to_owned(), self.index_of(name)));
        let by_source = indices.filter_map(|(source, index)| Some((source, index?))).collect();
        Some(SeatTeachers { by_source, coef: own_coef.unwrap_or(algorithm.distill.coef) })
    }

    /// Returns the place of a teacher in the plan; `None` if there is none of this name.
    fn index_of(&self, name: &str) -> Option<usize> {
        self.teachers.keys().position(|known| known == name)
    }

    /// Returns true if a teacher of a seat is the reference of its policy.
    pub(crate) fn needs_reference(&self, config: &Config, seat: &SeatTeachers) -> bool {
        let names: Vec<&String> = self.teachers.keys().collect();
        let is_reference =
            |index: &usize| config.teachers[names[*index]].policy == Some(TeacherPolicy::Reference);
        seat.by_source.values().any(is_reference)
    }

    /// Returns the plans of teachers; `policies` are the names of those of the plan, in its order.
    pub(crate) fn plans(&self, config: &Config, policies: &[&str]) -> Vec<TeacherPlan> {
        let plans = self.teachers.iter().map(|(name, policy)| {
            let TeacherConfig {
                policy: weights,
                endpoint,
                hint,
                place,
                max_hint_tokens,
                on_error,
                ..
            } = &config.teachers[name];
            let model = policy.as_ref().and_then(|own| policies.iter().position(|it| it == own));
            let source = match (model, weights, endpoint) {
                (Some(index), ..) => TeacherSource::Policy(index),
                (None, Some(TeacherPolicy::Reference), _) => TeacherSource::Reference,
                (None, None, Some(name)) => TeacherSource::Endpoint {
                    name: name.clone(),
                    endpoint: config.endpoints.get(name).cloned().unwrap_or_default(),
                    on_error: *on_error,
                },
                (None, ..) => TeacherSource::Current,
            };
            let hint = hint.as_ref().map(|template| HintPlan {
                template: template.clone(),
                place: *place,
                max_tokens: max_hint_tokens.get(),
            });
            TeacherPlan { name: name.clone(), source, hint }
        });
        plans.collect()
    }
}

/// Returns true if the policy of a group is a model as it is, which no seat trains.
fn may_teach(config: &Config, group: &PolicySeats<'_>, model: &str) -> bool {
    let frozen = group.members.iter().all(|member| !member.is_trained(config, model));
    group.model == model && frozen && !is_adapter(config, group)
}

/// Returns the policy of a teacher's model: one that is not trained, or a new one with the name of the teacher.
fn teacher_policy(
    config: &Config,
    teacher: &str,
    model: &str,
    groups: &mut BTreeMap<String, PolicySeats<'_>>,
    problems: &mut Problems<'_>,
) -> String {
    if let Some((policy, _)) = groups.iter().find(|(_, group)| may_teach(config, group, model)) {
        return policy.clone();
    }
    let taken =
        |(policy, group): (&String, &PolicySeats<'_>)| policy == teacher || group.worker == teacher;
    if groups.iter().any(taken) {
        let message =
            format!("teacher `{teacher}` has the name of a policy or worker group of the team");
        let help = "the teacher's model is a copy of its own: give the teacher another name";
        problems.key(&path(["teachers", teacher]), message, help.to_owned());
    }
    let (worker, model) = (teacher.to_owned(), model.to_owned());
    let group = PolicySeats { worker, model, members: Vec::new() };
    groups.entry(teacher.to_owned()).or_insert(group);
    teacher.to_owned()
}

/// Reports tables of teachers that name no weights, or several.
pub(crate) fn check_teacher_tables(config: &Config, problems: &mut Problems<'_>) {
    for (name, teacher) in &config.teachers {
        let table = path(["teachers", name]);
        let written = [
            ("model", teacher.model.is_some()),
            ("policy", teacher.policy.is_some()),
            ("endpoint", teacher.endpoint.is_some()),
        ];
        let written = written.into_iter().filter_map(|(key, is)| is.then_some(key));
        match written.collect::<Vec<&str>>()[..] {
            [_] => {}
            [] => {
                let message = format!("teacher `{name}` has no `model`, `policy` or `endpoint`");
                let help = "write `model`, the name of a table in `[models]`, or `policy = \"self\"` with a `hint`";
                problems.key(&table, message, help.to_owned());
            }
            [ref rest @ .., last] => {
                let rest = rest.join("`, `");
                let message = format!("teacher `{name}` has `{rest}` and `{last}`");
                problems.key(
                    &table,
                    message,
                    "one of them gives log-probabilities: remove the others".to_owned(),
                );
            }
        }
        if let Some(model) = &teacher.model {
            check_teacher_model(config, model, &table, problems);
        }
        if let Some(endpoint) = &teacher.endpoint {
            check_teacher_endpoint(config, (teacher, endpoint), &table, problems);
        }
    }
}

/// Reports a model that does not exist, or whose adapter a teacher would not have.
fn check_teacher_model(
    config: &Config,
    model: &str,
    table: &[String],
    problems: &mut Problems<'_>,
) {
    let at = path_within(table, "model");
    let Some(found) = config.models.get(model) else {
        let message = format!("no model is called `{model}`");
        let help = suggestion(model, config.models.keys().map(String::as_str));
        return problems.value(&at, message, help);
    };
    if found.adapter.is_some() {
        let message =
            format!("model `{model}` has an adapter, and a teacher is a model without one");
        let help = "merge the adapter into a model: `maverl export --merge`; or teach by `policy = \"reference\"`";
        problems.value(&at, message, help.to_owned());
    }
}

/// Reports an endpoint that does not exist, or that cannot teach as the teacher says.
fn check_teacher_endpoint(
    config: &Config,
    (teacher, endpoint): (&TeacherConfig, &str),
    table: &[String],
    problems: &mut Problems<'_>,
) {
    let at = path_within(table, "endpoint");
    let Some(found) = config.endpoints.get(endpoint) else {
        let message = format!("no endpoint is called `{endpoint}`");
        let help = suggestion(endpoint, config.endpoints.keys().map(String::as_str));
        return problems.value(&at, message, help);
    };
    if found.script.is_some() {
        let message =
            format!("endpoint `{endpoint}` is a file of replies, and a teacher is a server");
        let help = "write the `url` of a server whose `/v1/completions` has `echo` and `logprobs`, such as vLLM";
        problems.value(&at, message, help.to_owned());
    }
    if teacher.hint.is_some() {
        let message = "a teacher behind an endpoint reads no hint: it scores a turn before the other episodes of the task end";
        let help = "remove it, or teach by a `model` in this process or by `policy`";
        problems.value(&path_within(table, "hint"), message.to_owned(), help.to_owned());
    }
}
