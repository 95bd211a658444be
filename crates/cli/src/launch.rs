//! `maverl launch`: files with which clusters start a run, and start it again where it was stopped.

mod configs;
mod template;

use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use maverl::config::source::config_stem;
use maverl::output;
use maverl::train::quote_word;
use toml::Table as Toml;

use self::configs::{gpu_key, is_file, read_configs};
use self::template::fill_template;
use super::shipped::wanted_sources;
use super::{ConfigArgs, Failure, number, paths, print};

/// Longest name of a job: Kubernetes adds to it, and allows 63 characters.
const LONGEST_NAME: usize = 40;

/// A system that starts processes on several machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum System {
    /// A batch script of Slurm.
    Slurm,
    /// A task of SkyPilot.
    Skypilot,
    /// A JobSet of Kubernetes.
    Jobset,
    /// A job of the MPI operator on Kubernetes.
    Mpijob,
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slurm => "slurm",
            Self::Skypilot => "skypilot",
            Self::Jobset => "jobset",
            Self::Mpijob => "mpijob",
        })
    }
}

impl System {
    fn template(self) -> &'static str {
        match self {
            Self::Slurm => include_str!("launch/slurm.sbatch"),
            Self::Skypilot => include_str!("launch/skypilot.yaml"),
            Self::Jobset => include_str!("launch/jobset.yaml"),
            Self::Mpijob => include_str!("launch/mpijob.yaml"),
        }
    }

    /// Returns true if pods of Kubernetes run the ranks.
    fn has_pods(self) -> bool {
        matches!(self, Self::Jobset | Self::Mpijob)
    }
}

#[derive(Args)]
pub(super) struct LaunchArgs {
    /// System that starts the run.
    system: System,
    #[command(flatten)]
    config: ConfigArgs,
    /// Run directory; one that exists is resumed. [default: `runs/<name of CONFIG>`]
    #[arg(long, value_name = "DIR", value_parser = paths::to_write())]
    out: Option<PathBuf>,
    /// Number of machines.
    #[arg(long, value_name = "N", value_parser = number::from_1, default_value = "1")]
    nodes: NonZeroUsize,
    /// GPUs of each machine.
    #[arg(long, value_name = "N", value_parser = number::from_0, default_value = "0")]
    gpus: usize,
    /// Ranks on each machine. [default: one for each GPU, or one]
    #[arg(long, value_name = "N", value_parser = number::from_1)]
    ranks_per_node: Option<NonZeroUsize>,
    /// Ranks of all machines together, instead of those on each.
    #[arg(long, value_name = "N", value_parser = number::from_1, conflicts_with = "ranks_per_node")]
    ranks: Option<NonZeroUsize>,
    /// Name of the job. [default: the name of CONFIG]
    #[arg(long)]
    name: Option<String>,
    /// Slurm: longest time of the job, as `4:00:00`.
    #[arg(long, value_parser = word)]
    time: Option<String>,
    /// Slurm: partition of the machines.
    #[arg(long, value_parser = word)]
    partition: Option<String>,
    /// SkyPilot: kind of the GPUs, such as `H100`.
    #[arg(long, value_name = "KIND", value_parser = word)]
    gpu: Option<String>,
    /// SkyPilot, Kubernetes: image of the container with the program `maverl`. [default: on Kubernetes `maverl`; SkyPilot installs
    /// the program]
    #[arg(long, value_parser = word)]
    image: Option<String>,
    /// SkyPilot, Kubernetes: volume (claim) that all machines mount, with configuration, data, models and runs.
    #[arg(long, value_parser = word)]
    volume: Option<String>,
    /// SkyPilot, Kubernetes: folder at which the volume is mounted, and in which the run is started. [default: `/data`]
    #[arg(long, value_name = "DIR", value_parser = word)]
    mount: Option<String>,
}

/// Prints the file, or all reasons why its job could not train.
pub(super) fn launch(args: &LaunchArgs) -> Result<ExitCode, Failure> {
    let job = Job::new(args)?;
    let problems = job.problems();
    if problems.is_empty() {
        print(&fill_template(args.system.template(), &job.values()))?;
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure(problems.join("\n")))
}

/// Parses a word that means itself in shells and in YAML.
fn word(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@".contains(c);
    let first = text.chars().next().filter(|c| c.is_ascii_alphanumeric() || *c == '/');
    if first.is_some() && text.chars().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("expected letters, digits and `/._-:@`".to_owned())
    }
}

/// A job, with what its configuration and stages name.
struct Job<'a> {
    args: &'a LaunchArgs,
    /// Each configuration that is trained, with its path.
    configs: Vec<(PathBuf, Toml)>,
    has_stages: bool,
    name: String,
    out: String,
    ranks_per_node: usize,
    mount: &'a str,
}

impl<'a> Job<'a> {
    fn new(args: &'a LaunchArgs) -> Result<Self, Failure> {
        let Some(path) = args.config.path() else {
            let say = "a job needs a configuration: `maverl launch slurm run.toml`";
            return Err(Failure(say.to_owned()));
        };
        let (configs, has_stages) = read_configs(&args.config, path)?;
        let stem = config_stem(path);
        let out = args.out.clone().unwrap_or_else(|| Path::new("runs").join(&stem));
        let name = args.name.clone().unwrap_or_else(|| job_name(&stem));
        let each = args
            .ranks
            .map(|ranks| ranks.get() / args.nodes)
            .or(args.ranks_per_node.map(Into::into));
        let ranks_per_node = each.unwrap_or(args.gpus).max(1);
        let (out, mount) = (out.display().to_string(), args.mount.as_deref().unwrap_or("/data"));
        Ok(Self { args, configs, has_stages, name, out, ranks_per_node, mount })
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        self.check_ranks(&mut problems);
        self.check_options(&mut problems);
        self.check_words(&mut problems);
        if self.args.volume.is_some() {
            self.check_paths(&mut problems);
        }
        problems
    }

    fn check_ranks(&self, problems: &mut Vec<String>) {
        let LaunchArgs { nodes, gpus, ranks, .. } = *self.args;
        if let Some(ranks) = ranks.filter(|ranks| ranks.get() % nodes != 0) {
            problems.push(format!(
                "`--ranks {ranks}` cannot be divided among {nodes} machines, each of which has as many ranks"
            ));
        }
        let each = self.ranks_per_node;
        for (path, key) in
            self.configs.iter().filter_map(|(path, config)| Some((path, gpu_key(config)?)))
        {
            let place = path.display();
            if gpus == 0 {
                problems.push(format!(
                    "{place}: `{key}` is a GPU, and the machines have none; give `--gpus N`"
                ));
            } else if each > gpus {
                problems.push(format!(
                    "{place}: `{key}` gives each rank a GPU of its own; a machine has {each} ranks and `--gpus {gpus}`"
                ));
            }
        }
    }

    /// Reports options that the system needs, and those that it does not have.
    fn check_options(&self, problems: &mut Vec<String>) {
        let LaunchArgs { system, time, partition, gpu, image, volume, mount, .. } = self.args;
        let (slurm, sky) = (*system == System::Slurm, *system == System::Skypilot);
        let options = [
            ("time", time.is_some(), slurm),
            ("partition", partition.is_some(), slurm),
            ("gpu", gpu.is_some(), sky),
            ("image", image.is_some(), !slurm),
            ("volume", volume.is_some(), !slurm),
            ("mount", mount.is_some(), !slurm),
        ];
        for (name, ..) in options.iter().filter(|(_, given, known)| *given && !known) {
            problems.push(format!("`--{name}` has no effect with {system}; leave it out"));
        }
        if !slurm && volume.is_none() {
            problems.push(format!(
                "{system} needs `--volume NAME`, a volume that all machines mount: the run directory is on it"
            ));
        }
        if sky && self.args.gpus > 0 && gpu.is_none() {
            problems
                .push("skypilot needs the kind of the GPUs too, such as `--gpu H100`".to_owned());
        }
        if !self.mount.starts_with('/') {
            problems.push(format!(
                "`--mount {}` is not a path from the root, such as `/data`",
                self.mount
            ));
        }
    }

    /// Reports a name that clusters refuse, and words that would break the lines of the file.
    fn check_words(&self, problems: &mut Vec<String>) {
        let name = &self.name;
        if *name != job_name(name) {
            problems.push(format!(
                "the job cannot be called `{name}`; give `--name` at most {LONGEST_NAME} small letters, digits and dashes, a letter first"
            ));
        }
        let words = self.train_words().into_iter().chain([self.out.clone()]);
        for word in words.filter(|word| output::visible(word) != *word || word.contains('\u{fffd}'))
        {
            problems.push(format!("{word:?} has a character that is not shown; give another path"));
        }
    }

    /// Reports files that the machines do not have because they are not on the volume.
    fn check_paths(&self, problems: &mut Vec<String>) {
        for (path, config) in &self.configs {
            if !self.is_mounted(path) {
                problems.push(self.unmounted(&path.display().to_string()));
            }
            let base = path.parent().unwrap_or(Path::new(""));
            for (kind, file) in wanted_sources(config) {
                if is_file(kind, &file) && !self.is_mounted(&base.join(&file)) {
                    let file = self.unmounted(&file);
                    problems.push(format!("{}: {kind}: {file}", path.display()));
                }
            }
        }
        if !self.is_mounted(Path::new(&self.out)) {
            problems.push(self.unmounted(&self.out));
        }
    }

    fn unmounted(&self, path: &str) -> String {
        format!(
            "`{path}` is not below `{}`, the volume that the machines mount; write a path that is, or give `--mount`",
            self.mount
        )
    }

    /// Returns true if a path, seen from the mounted volume, leads to a place on it.
    fn is_mounted(&self, path: &Path) -> bool {
        let mut full = PathBuf::new();
        for part in Path::new(self.mount).join(path).components() {
            match part {
                Component::ParentDir => drop(full.pop()),
                Component::CurDir => {}
                other => full.push(other),
            }
        }
        full.starts_with(self.mount)
    }

    /// Returns the arguments of `maverl train` that begin the run.
    fn train_words(&self) -> Vec<String> {
        let mut words = self.args.config.words();
        words.extend(["--out".to_owned(), self.out.clone()]);
        if self.args.system == System::Mpijob {
            words.extend(["--set".to_owned(), "dist.transport=\"mpi\"".to_owned()]);
        }
        words
    }

    /// Quotes a word for the shell of the job. Kubernetes replaces `$(NAME)`, and `$$` by `$`.
    fn quoted(&self, word: &str) -> String {
        let word = quote_word(word);
        if self.args.system.has_pods() { word.replace('$', "$$") } else { word }
    }

    /// Returns the values of the template's fields. A line with a field that has none is left out.
    fn values(&self) -> Vec<(&'static str, Option<String>)> {
        let LaunchArgs { system, nodes, gpus, time, partition, gpu, image, volume, .. } = self.args;
        let each = self.ranks_per_node;
        let train: Vec<String> = self.train_words().iter().map(|word| self.quoted(word)).collect();
        let (train, out) = (train.join(" "), self.quoted(&self.out));
        // The command that began stages resumes them.
        let resume = if self.has_stages { train.clone() } else { format!("--resume {out}") };
        let gpus_given = Some(gpus).filter(|gpus| **gpus > 0);
        let pod_image = system.has_pods().then(|| "maverl".to_owned());
        let option = if each > 1 { format!(" --ranks-per-node {each}") } else { String::new() };
        let setup = image.is_none().then(|| "pip install maverl".to_owned());
        vec![
            ("program", Some(quote_word(&program_name()))),
            ("name", Some(self.name.clone())),
            ("nodes", Some(nodes.to_string())),
            ("ranks", Some((nodes.get() * each).to_string())),
            ("ranks_per_node", Some(each.to_string())),
            ("ranks_option", Some(option)),
            ("gpus", gpus_given.map(ToString::to_string)),
            ("accelerators", gpus_given.and_then(|gpus| Some(format!("{}:{gpus}", gpu.as_ref()?)))),
            ("time", time.clone()),
            ("partition", partition.clone()),
            ("docker_image", image.as_ref().map(|image| format!("docker:{image}"))),
            ("image", image.clone().or(pod_image)),
            ("setup", setup),
            ("mount", Some(self.mount.to_owned())),
            ("volume", volume.clone()),
            ("out", Some(out)),
            ("train", Some(train)),
            ("resume", Some(resume)),
        ]
    }
}

/// Returns the name of a job: small letters, digits and dashes.
fn job_name(stem: &str) -> String {
    let plain = stem.chars().map(|c| c.to_ascii_lowercase());
    let name: String = plain.map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let name = name.trim_start_matches(|c: char| !c.is_ascii_lowercase());
    let name: String = name.chars().take(LONGEST_NAME).collect();
    match name.trim_end_matches('-') {
        "" => "maverl".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns the name by which this program was called, without its folder.
fn program_name() -> String {
    let called = std::env::args_os().next().map(PathBuf::from);
    let name = called.as_deref().and_then(Path::file_stem);
    name.map_or_else(|| "maverl".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;
