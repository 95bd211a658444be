//! Seats with teachers: tokenizers that must be equal, and settings that do not go together or have no effect.

use std::collections::BTreeSet;

use super::policy::Assignment;
use super::sampling::sampling_key;
use crate::check::choice::setting_path;
use crate::check::files::{Models, OpenedModel};
use crate::config::source::{Problems, list, path, path_within, suggestion};
use crate::config::{
    AgentConfig, Config, DistillKind, DistillPlan, HintPlace, OnRewardError, Ratio, TeacherChoice,
    TeacherConfig, TeacherPolicy,
};
use crate::plan::{AlgorithmPlan, SeatPlan, TeacherPlan, TeacherSource};
use crate::settings::Tagged;
use crate::task::{Task, TaskList};
use crate::text::{ChatInput, ChatMessage, TextTemplate, Tokenizer};

/// Reports what is wrong with the teachers of seats. Returns warnings.
pub(crate) fn check_teachers(
    config: &Config,
    algorithm: &AlgorithmPlan,
    (assignment, models): (&Assignment, &Models),
    tasks: &TaskList,
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let sources = known_sources(tasks);
    for (table, agent) in agent_tables(config) {
        check_choice(config, &sources, &path_within(&table, "teacher"), agent, problems);
    }
    check_hints(config, problems);
    let taught = || assignment.seats.iter().filter(|seat| seat.teachers.is_some());
    for seat in taught() {
        check_seat(algorithm, seat, problems);
        check_temperature(&assignment.teachers, seat, problems);
        check_distributions(algorithm, &assignment.teachers, seat, problems);
        check_models(assignment, models, seat, problems);
    }
    let mut warnings = idle_teachers(config, algorithm, &assignment.seats);
    if algorithm.distill.kind == DistillKind::Advantage {
        warnings.extend(taught().filter_map(mean_doubt));
    }
    warnings.extend(template_doubts(assignment, models));
    warnings
}

/// Returns the tables of agents and seats, with their places.
fn agent_tables(config: &Config) -> Vec<(Vec<String>, &AgentConfig)> {
    let mut tables = Vec::new();
    for (name, agent) in &config.agents {
        let table = path(["agents", name]);
        for (number, seat) in &agent.seats {
            let at = path_within(&path_within(&table, "seats"), &number.to_string());
            tables.push((at, seat));
        }
        tables.push((table, agent));
    }
    tables
}

/// Returns the sources of tasks, and their first parts.
fn known_sources(tasks: &TaskList) -> BTreeSet<&str> {
    let sources = tasks.sources().iter();
    let both = sources.flat_map(|source| [source.as_str(), Task::component_of(source)]);
    both.chain([TeacherChoice::DEFAULT]).collect()
}

/// Reports teachers that do not exist, and sources that no task has.
fn check_choice(
    config: &Config,
    sources: &BTreeSet<&str>,
    at: &[String],
    agent: &AgentConfig,
    problems: &mut Problems<'_>,
) {
    let Some(choice) = &agent.teacher else { return };
    for (source, name) in choice.by_source() {
        let several = matches!(choice, TeacherChoice::BySource(_));
        let at = if several { path_within(at, source) } else { at.to_vec() };
        if !config.teachers.contains_key(name) {
            let message = format!("no teacher is called `{name}`");
            let names = config.teachers.keys().map(String::as_str);
            let help = if config.teachers.is_empty() {
                format!("write a table `[teachers.{name}]` with `model`")
            } else {
                suggestion(name, names)
            };
            problems.value(&at, message, help);
        }
        // Without tasks, their sources are not known either.
        if several && sources.len() > 1 && !sources.contains(source) {
            let message = format!("no task has the source `{source}`");
            problems.key(&at, message, suggestion(source, sources.iter().copied()));
        }
    }
}

/// Reports templates of hints with a wrong syntax.
fn check_hints(config: &Config, problems: &mut Problems<'_>) {
    for (name, teacher) in &config.teachers {
        let hint = teacher.hint.as_deref().map(TextTemplate::parse);
        if let Some(Err(error)) = hint {
            let message = format!("the hint is no template: {error}");
            problems.value(&path(["teachers", name, "hint"]), message, None);
        }
    }
}

/// Reports a seat whose teacher has no effect.
fn check_seat(algorithm: &AlgorithmPlan, seat: &SeatPlan, problems: &mut Problems<'_>) {
    let at = setting_path(problems, &seat.seat, "teacher", None);
    if !seat.trained {
        let message = format!("`{}` has a teacher, and is frozen", seat.seat);
        return problems.value(&at, message, "remove one of the two".to_owned());
    }
    let preset = algorithm.preset;
    if preset.is_supervised() || preset.compares_pairs() {
        let message = format!(
            "`{}` has a teacher, and `algorithm.name` is {:?}, which has no advantages",
            seat.seat,
            preset.name()
        );
        let help = "a teacher's log-probabilities are a part of advantages: use a preset with an estimator, or remove it";
        problems.value(&at, message, help.to_owned());
    }
}

/// Reports a seat that samples at a temperature at which a teacher behind an endpoint gives no log-probs.
fn check_temperature(teachers: &[TeacherPlan], seat: &SeatPlan, problems: &mut Problems<'_>) {
    let temperature = seat.sampling.temperature;
    let Some(teacher) = served_teacher(teachers, seat).filter(|_| temperature != 1.0) else {
        return;
    };
    let message = format!(
        "`{}` samples at temperature {temperature}, and its teacher `{}` is a server, which gives log-probabilities of prompts \
         at temperature 1",
        seat.seat, teacher.name
    );
    let help = "set `sampling.temperature = 1`, or teach by a model in this process";
    problems.value(&sampling_key(problems, seat, "temperature"), message, help.to_owned());
}

/// Returns a teacher of a seat that is behind an endpoint.
fn served_teacher<'t>(teachers: &'t [TeacherPlan], seat: &SeatPlan) -> Option<&'t TeacherPlan> {
    let indices = seat.teachers.iter().flat_map(|its| its.by_source.values());
    let mut its = indices.map(|&index| &teachers[index]);
    its.find(|teacher| matches!(teacher.source, TeacherSource::Endpoint { .. }))
}

/// Reports a teacher behind an endpoint whose distributions a divergence would need.
fn check_distributions(
    algorithm: &AlgorithmPlan,
    teachers: &[TeacherPlan],
    seat: &SeatPlan,
    problems: &mut Problems<'_>,
) {
    if algorithm.distill.kind == DistillKind::Advantage {
        return;
    }
    let Some(teacher) = served_teacher(teachers, seat) else { return };
    let at = setting_path(problems, &seat.seat, "teacher", None);
    let message = format!(
        "teacher `{}` of `{}` is a server, and `algorithm.distill.kind` is \"divergence\", which reads the distributions of \
         models in this process",
        teacher.name, seat.seat
    );
    let help = "set `algorithm.distill.kind = \"advantage\"`, or teach by a `model`";
    problems.value(&at, message, help.to_owned());
}

/// Reports teachers of a seat whose models have other token ids, or a shorter context.
fn check_models(
    assignment: &Assignment,
    models: &Models,
    seat: &SeatPlan,
    problems: &mut Problems<'_>,
) {
    let at = setting_path(problems, &seat.seat, "teacher", None);
    let Some((name, own)) = model_of(assignment, models, seat.policy) else { return };
    for (teacher, other, theirs) in teacher_models(assignment, models, seat) {
        let both = own.tokenizer.as_ref().zip(theirs.tokenizer.as_ref());
        let different = both.map_or(Ok(None), |(own, theirs)| own.different_part(theirs));
        if let Ok(Some(part)) = different {
            let message = format!(
                "model `{other}` of teacher `{teacher}` has other tokens than `{name}`, the model of `{}` ({part})",
                seat.seat
            );
            let help = "a teacher scores the token ids that the policy sampled: use a model with the same `tokenizer.json`";
            problems.value(&at, message, help.to_owned());
        }
        let [ours, longest] = [own, theirs].map(|model| model.shape.max_position_embeddings);
        if longest < ours {
            let message = format!(
                "model `{other}` of teacher `{teacher}` has a context of {longest} tokens, and `{name}`, the model of `{}`, \
                 one of {ours}",
                seat.seat
            );
            let help = "it could not read every conversation: use a model with the same context or a longer one";
            problems.value(&at, message, help.to_owned());
        }
    }
}

/// Returns the name of a policy's model, and the model, if it could be opened.
fn model_of<'m>(
    assignment: &'m Assignment,
    models: &'m Models,
    policy: usize,
) -> Option<(&'m str, &'m OpenedModel)> {
    let name = &assignment.workers[assignment.policies[policy].worker].model;
    Some((name, models.get(name)?))
}

/// Returns the teachers of a seat that are models: name, name of the model, and the model.
fn teacher_models<'m>(
    assignment: &'m Assignment,
    models: &'m Models,
    seat: &SeatPlan,
) -> Vec<(&'m str, &'m str, &'m OpenedModel)> {
    let indices = seat.teachers.iter().flat_map(|its| its.by_source.values());
    let indices: BTreeSet<usize> = indices.copied().collect();
    let mut found = Vec::new();
    for teacher in indices.into_iter().map(|index| &assignment.teachers[index]) {
        let TeacherSource::Policy(policy) = teacher.source else { continue };
        if let Some((model, opened)) = model_of(assignment, models, policy) {
            found.push((teacher.name.as_str(), model, opened));
        }
    }
    found
}

/// Returns warnings about tables and keys of teachers that have no effect.
fn idle_teachers(config: &Config, algorithm: &AlgorithmPlan, seats: &[SeatPlan]) -> Vec<String> {
    let used: BTreeSet<&str> = agent_tables(config)
        .into_iter()
        .filter_map(|(_, agent)| agent.teacher.as_ref())
        .flat_map(|choice| choice.by_source().into_values())
        .collect();
    let mut warnings = Vec::new();
    for (name, teacher) in &config.teachers {
        if !used.contains(name.as_str()) {
            warnings.push(format!("`teachers.{name}` has no effect: no agent has this `teacher`"));
        }
        warnings.extend(idle_keys_of(name, teacher));
    }
    let taught = seats.iter().any(|seat| seat.teachers.is_some());
    if !taught && algorithm.distill != DistillPlan::default() {
        warnings.push("`algorithm.distill` has no effect: no agent has a `teacher`".to_owned());
    }
    let mut alone = seats.iter().filter(|seat| seat.trained && seat.teachers.is_none());
    if let Some(seat) = alone.find(|seat| seat.loss.distill_coef.is_some()) {
        warnings.push(format!(
            "`loss.distill_coef` of `{}` has no effect: it has no `teacher`",
            seat.seat
        ));
    }
    warnings
}

/// Returns warnings about keys of a teacher's table that have no effect.
fn idle_keys_of(name: &str, teacher: &TeacherConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    match (&teacher.hint, teacher.policy) {
        (None, Some(TeacherPolicy::Current)) => warnings.push(format!(
            "`teachers.{name}` is the policy itself without a `hint`: its log-probabilities are those of the policy"
        )),
        (None, _) if teacher.place != HintPlace::default() => {
            warnings.push(format!("`teachers.{name}.place` has no effect: there is no `hint`"));
        }
        _ => {}
    }
    if teacher.endpoint.is_none() && teacher.on_error != OnRewardError::default() {
        warnings.push(format!("`teachers.{name}.on_error` has no effect: there is no `endpoint`"));
    }
    warnings
}

/// Returns a warning if the loss of a seat takes the mean of the differences that its teacher gives to tokens.
fn mean_doubt(seat: &SeatPlan) -> Option<String> {
    let loss = &seat.loss;
    let reply = matches!(loss.ratio, Ratio::Sequence | Ratio::Product);
    let averages = loss.surrogate.surrogate().averages_advantages();
    (reply || averages).then(|| {
        format!(
            "`{}` has a teacher, which has an advantage for each token, and the ratio of its loss is that of the reply \
             (ratio {}, surrogate {:?}): the mean over the reply is what is left of it",
            seat.seat,
            serde_json::json!(loss.ratio),
            loss.surrogate.kind()
        )
    })
}

/// Returns warnings about teachers whose chat template differs from that of the policy.
fn template_doubts(assignment: &Assignment, models: &Models) -> Vec<String> {
    let mut pairs = BTreeSet::new();
    for seat in assignment.seats.iter().filter(|seat| seat.teachers.is_some()) {
        let Some((name, own)) = model_of(assignment, models, seat.policy) else { continue };
        for (_, other, theirs) in teacher_models(assignment, models, seat) {
            let texts = [own, theirs].map(|model| model.tokenizer.as_ref().and_then(shown_chat));
            if texts[0] != texts[1] {
                pairs.insert((other, name));
            }
        }
    }
    pairs.into_iter().map(|(other, name)| foreign_template(other, name)).collect()
}

/// Returns the warning about two models with different chat templates.
fn foreign_template(teacher: &str, policy: &str) -> String {
    format!(
        "chat templates of {} differ: a teacher reads the token ids of the policy, so in the policy's template",
        list([teacher, policy])
    )
}

/// Returns a conversation as a chat template renders it.
fn shown_chat(tokenizer: &Tokenizer) -> Option<String> {
    let chat = [("user", "a"), ("assistant", "b"), ("user", "c")];
    let messages = chat.map(|(role, text)| ChatMessage::new(role, text));
    let rendered = tokenizer.render_chat(&ChatInput::open(messages));
    rendered.ok().map(|rendered| rendered.text().to_owned())
}
