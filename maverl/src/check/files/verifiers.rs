//! Verifiers that judge replies: their files, and the questions that they were trained on.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::config::source::missing::{self, WantedEntry};
use crate::config::source::{Problems, path, suggestion};
use crate::config::{Config, STAGE};
use crate::data;
use crate::net::RewardHead;

/// Keys of the questions that the verifier of each reward was trained on, by the reward's name.
pub(crate) type SeenQuestions<'l> = BTreeMap<String, Cow<'l, BTreeSet<String>>>;

/// Opens the verifier of each reward that has one. Those that cannot be opened are reported.
pub(crate) fn seen_questions<'l>(
    config: &Config,
    base: &Path,
    problems: &mut Problems<'l>,
) -> SeenQuestions<'l> {
    let mut all = SeenQuestions::new();
    for (name, reward) in config.rewards.iter().filter(|(_, reward)| reward.server.is_none()) {
        let Some(verifier) = &reward.verifier else { continue };
        let place = path(["rewards", name, "verifier", "path"]);
        let seen = match verifier.path.strip_prefix(STAGE) {
            Some(stage) => of_stage(stage, &place, problems),
            None => of_directory(Path::new(&verifier.path), base, &place, problems),
        };
        all.extend(seen.map(|seen| (name.clone(), seen)));
    }
    all
}

/// Returns the questions that the verifier of an earlier stage is trained on. Reports a stage that trains none.
fn of_stage<'l>(
    stage: &str,
    place: &[String],
    problems: &mut Problems<'l>,
) -> Option<Cow<'l, BTreeSet<String>>> {
    let verifiers = problems.layers().verifiers();
    let found = verifiers.get(stage).map(Cow::Borrowed);
    if found.is_none() {
        let message = format!("no earlier stage `{stage}` trains a verifier");
        let known = verifiers.keys().map(String::as_str);
        let help = if verifiers.is_empty() {
            "`stage:NAME` is the verifier that the earlier stage `NAME.toml` of a file of stages trains; anywhere \
                     else, write the directory that `maverl export --verifier` wrote"
                .to_owned()
        } else {
            suggestion(stage, known)
        };
        problems.value(place, message, help);
    }
    found
}

/// Returns the questions that the verifier in a directory was trained on. Reports a directory that has no verifier.
fn of_directory(
    given: &Path,
    base: &Path,
    place: &[String],
    problems: &mut Problems<'_>,
) -> Option<Cow<'static, BTreeSet<String>>> {
    let written = "`maverl export --run RUN --verifier --out DIR` writes such a directory";
    if !base.join(given).exists() {
        let message = missing::message(given, base, WantedEntry::Directory);
        let help = missing::help(given, base, WantedEntry::Directory);
        problems.value(place, message, help.unwrap_or_else(|| written.to_owned()));
        return None;
    }
    if let Err(error) = RewardHead::read(&base.join(given)) {
        problems.value(place, error.to_string(), written.to_owned());
    }
    match data::seen(&base.join(given)) {
        Ok(seen) => Some(Cow::Owned(seen)),
        Err(error) => {
            problems.value(place, error, None);
            None
        }
    }
}
