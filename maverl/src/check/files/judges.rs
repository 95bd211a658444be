//! Judges of rewards: their endpoints, rubrics and scales.

use std::path::Path;

use crate::config::source::missing::{self, WantedEntry};
use crate::config::source::{Problems, path, path_within, suggestion};
use crate::config::{Config, JudgeMode, RewardJudgeConfig, RewardUnit, VerdictForm, rubric_names};

/// Reports judges that cannot judge.
pub(crate) fn check_judges(config: &Config, base: &Path, problems: &mut Problems<'_>) {
    for (name, reward) in &config.rewards {
        let Some(judge) = &reward.judge else { continue };
        let table = path(["rewards", name, "judge"]);
        if !config.endpoints.contains_key(&judge.endpoint) {
            let message = format!("no endpoint is called `{}`", judge.endpoint);
            let known = config.endpoints.keys().map(String::as_str);
            let help = if config.endpoints.is_empty() {
                format!("write `[endpoints.{}]` with `url` and `model`", judge.endpoint)
            } else {
                suggestion(&judge.endpoint, known)
            };
            problems.value(&path_within(&table, "endpoint"), message, help);
        }
        rubric(judge, base, &table, problems);
        settings(config, judge, &table, problems);
    }
}

/// Reports a rubric that cannot be read, that shows no reply, or that has unknown names.
fn rubric(judge: &RewardJudgeConfig, base: &Path, table: &[String], problems: &mut Problems<'_>) {
    let (given, place) = (Path::new(&judge.rubric), path_within(table, "rubric"));
    let Ok(text) = std::fs::read_to_string(base.join(given)) else {
        let message = missing::message(given, base, WantedEntry::File);
        problems.value(&place, message, missing::help(given, base, WantedEntry::File));
        return;
    };
    let names = rubric_names(&text);
    let replies: &[&str] = match judge.mode {
        JudgeMode::Score => &["reply"],
        JudgeMode::Pairs => &["a", "b"],
    };
    let missing = replies.iter().filter(|reply| !names.iter().any(|name| name == *reply));
    let missing: Vec<String> = missing.map(|reply| shown_name(reply)).collect();
    let sent = judge.send.iter().map(|key| format!("task.{key}"));
    let known: Vec<String> =
        ["question", "prompt"].iter().chain(replies).map(ToString::to_string).chain(sent).collect();
    let unknown: Vec<String> =
        names.iter().filter(|name| !known.contains(name)).map(|name| shown_name(name)).collect();
    let mut wrong = Vec::new();
    if !missing.is_empty() {
        wrong.push(format!("does not show {}", missing.join(" and ")));
    }
    if !unknown.is_empty() {
        wrong.push(format!("has {}, without a value", unknown.join(", ")));
    }
    if !wrong.is_empty() {
        let message = format!("the rubric `{}` {}", judge.rubric, wrong.join(", and "));
        let known: Vec<String> = known.iter().map(|name| shown_name(name)).collect();
        let known = known.join(", ");
        let help = format!("its names are {known}; `send = [\"KEY\"]` adds `{{{{ task.KEY }}}}`");
        problems.value(&place, message, help);
    }
}

/// Returns a name as it is in a rubric.
fn shown_name(name: &str) -> String {
    format!("`{{{{ {name} }}}}`")
}

/// Reports settings that exclude each other.
fn settings(
    config: &Config,
    judge: &RewardJudgeConfig,
    table: &[String],
    problems: &mut Problems<'_>,
) {
    let [low, high] = judge.scale;
    if !(low.is_finite() && high.is_finite() && low < high) {
        let message = format!("`scale` is [{low:?}, {high:?}]");
        problems.value(
            &path_within(table, "scale"),
            message,
            "write the lower score first".to_owned(),
        );
    }
    if judge.mode == JudgeMode::Score {
        return;
    }
    if judge.of == RewardUnit::Turn {
        let help = "write `of = \"answer\"`".to_owned();
        problems.value(&path_within(table, "mode"), "pairs are answers to a task".to_owned(), help);
    }
    if config.task.group_size.get() == 1 {
        let message = "a group of one answer has no pairs, which a judge compares".to_owned();
        let place = path(["task", "group_size"]);
        problems.value(&place, message, "write 2 or more, or `mode = \"score\"`".to_owned());
    }
    if judge.parse == VerdictForm::LastNumber {
        let message = "a pair has no number".to_owned();
        problems.value(
            &path_within(table, "parse"),
            message,
            "write \"json\" or \"tag\"".to_owned(),
        );
    }
}
