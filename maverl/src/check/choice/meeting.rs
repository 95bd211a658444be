//! The orchestra and the environments that it acts in: actions that do not fit.

use std::path::Path;

use super::environments::ChosenEnvironment;
use super::look::{look_at_tasks, read_tasks};
use super::orchestra::ChosenOrchestra;
use crate::check::files::LoadedTasks;
use crate::config::Config;
use crate::config::source::{Problems, list, path_within};
use crate::registry::{ANY, Registry};

/// Checks the orchestra against its environments: reports actions and options that do not fit. Returns the
/// environments' warnings.
pub(crate) fn check_actions(
    environments: &[ChosenEnvironment],
    orchestra: Option<&ChosenOrchestra>,
    (config, loaded): (&Config, &LoadedTasks),
    base: &Path,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let mut warnings = orchestra.map(|orchestra| orchestra.warnings.clone()).unwrap_or_default();
    if let Some(orchestra) = orchestra {
        read_tasks(&orchestra.chosen, (config, loaded), registry, problems);
    }
    for environment in environments {
        if let Some(orchestra) = orchestra {
            fit(environment, orchestra, registry, problems);
        }
        warnings.extend(look_at_tasks(environment, (config, loaded), base, registry, problems));
    }
    warnings
}

/// Reports actions of the orchestra that the environment does not understand.
fn fit(
    environment: &ChosenEnvironment,
    orchestra: &ChosenOrchestra,
    registry: &Registry,
    problems: &mut Problems<'_>,
) {
    let (component, flow) = (environment.chosen.name.as_str(), orchestra.chosen.name.as_str());
    let entry = &registry.environments[component];
    for need in registry.orchestras[flow].needs.iter().filter(|need| !entry.understands(need)) {
        let others = registry.environments.iter().filter(|(_, entry)| entry.understands(need));
        let help = format!("environments that do: {}", list(others.map(|(name, _)| *name)));
        let message = match *need {
            ANY => {
                format!(
                    "orchestra `{flow}` acts, and environment `{component}` understands no action"
                )
            }
            need => format!(
                "orchestra `{flow}` sends `{need}` actions, and environment `{component}` does not understand them"
            ),
        };
        problems.value(&path_within(&environment.table_path(), "name"), message, help);
    }
}
