//! Packages for Python and addresses that trackers need.

use std::process::{Command, Stdio};

use crate::config::source::{Problems, path};
use crate::config::{TrackConfig, TrackTarget, Tracker};

/// Reports the packages and addresses that trackers need and that are not there.
pub(super) fn check_trackers(config: &TrackConfig, problems: &mut Problems<'_>) {
    for missing in config.to.iter().filter_map(|target| missing_part(config, target)) {
        problems.value(&path(["track", "to"]), missing, None);
    }
}

/// Returns the message about a package that a tracker needs and Python does not have.
pub(crate) fn missing_part(config: &TrackConfig, target: &TrackTarget) -> Option<String> {
    if target.tracker == Tracker::Mlflow {
        let named = target.mlflow_server(std::env::var("MLFLOW_TRACKING_URI").ok());
        return named.err().map(|missing| format!("`track.to`: {missing}"));
    }
    let (package, python) = (package_of(target)?, &config.python);
    let found = format!(
        "import importlib.util, sys; sys.exit(importlib.util.find_spec('{package}') is None)"
    );
    let mut command = Command::new(python);
    command.args(["-c", &found]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => None,
        Ok(_) => Some(format!(
            "`track.to`: {python} has no module `{package}`: `pip install {package}`, or `--track-python PATH`"
        )),
        Err(error) => Some(format!(
            "`track.to`: `{python}` cannot be started: {error}; `--track-python PATH` names a Python with `{package}`"
        )),
    }
}

/// Returns the package for Python that reports to a tracker, where it needs one. The address of a trackio server may be in the
/// environment.
fn package_of(target: &TrackTarget) -> Option<&'static str> {
    let server = target.server.is_some() || std::env::var_os("TRACKIO_SERVER_URL").is_some();
    match target.tracker {
        Tracker::Mlflow => None,
        Tracker::Trackio if server => None,
        other => Some(other.name()),
    }
}
