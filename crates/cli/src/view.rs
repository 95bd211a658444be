//! `maverl view` and `maverl show`: pages about runs, and one episode as text.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::{Failure, number, paths};

/// Arguments of `maverl view`.
#[derive(Args)]
#[cfg_attr(not(feature = "view"), allow(dead_code))] // parsed, so that the message is about the feature
pub(super) struct ViewArgs {
    /// Run directories, and directories of runs. New runs in them appear by themselves. [default: `runs` in the working
    /// directory]
    #[arg(value_name = "DIR")]
    places: Vec<PathBuf>,
    /// Port of the loopback address. [default: a free one]
    #[arg(long, value_name = "N", value_parser = number::port)]
    port: Option<u16>,
    /// Open the address in a browser.
    #[arg(long)]
    open: bool,
    /// Write the pages into one file that needs no server, instead of serving them; into a directory, if the name does
    /// not end with `.html`.
    #[arg(long = "static", value_name = "OUT[.html]", value_parser = paths::to_write(), conflicts_with_all = ["port", "open"])]
    page: Option<PathBuf>,
    /// Number of episodes of each run in the file, tasks whose scores differ most first. [default: 200, or all of
    /// `--steps`]
    #[arg(long, value_name = "N", value_parser = number::from_0, requires = "page")]
    episodes: Option<usize>,
    /// Steps whose episodes are in the file. [default: the first and the last]
    #[arg(long, value_name = "A..B", value_parser = steps, requires = "page")]
    steps: Option<(u32, u32)>,
    /// Write no episode, and no text of a model: metrics, groups and configuration alone.
    #[arg(long, requires = "page", conflicts_with_all = ["episodes", "steps"])]
    no_episodes: bool,
}

/// Arguments of `maverl extract`.
#[derive(Args)]
#[cfg_attr(not(feature = "view"), allow(dead_code))] // parsed, so that the message is about the feature
pub(super) struct ExtractArgs {
    /// The run directory.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Part of the run.
    #[arg(value_name = "PART")]
    part: PartName,
    /// The file. Its end is the format: `.csv` (numbers and names, without texts of models), `.jsonl`, `.parquet`;
    /// `.json` of a trace and of `inspect`. `-` prints JSON lines.
    #[arg(long, value_name = "FILE", value_parser = paths::to_write())]
    out: PathBuf,
    /// Evaluation of `inspect`: `before`, `before-greedy`, `after`, `after-greedy`, or the number of a step that was
    /// validated.
    #[arg(long, value_name = "NAME", value_parser = evaluation, default_value = "after")]
    evaluation: String,
    /// Steps of `rollouts`, both included; or one step. [default: all]
    #[arg(long, value_name = "A..B", value_parser = steps)]
    steps: Option<(u32, u32)>,
}

/// Part of a run.
#[derive(Clone, Copy, ValueEnum)]
enum PartName {
    /// A row per step: metrics and times.
    Metrics,
    /// A row per episode.
    Episodes,
    /// A row per turn of training.
    Turns,
    /// An object per episode of training, as JSON lines: with its turns, their messages, token ids and log-probs. Of a step that
    /// is being played, the episodes that have ended.
    Rollouts,
    /// Times of steps and turns, for Perfetto and `chrome://tracing`.
    Trace,
    /// Episodes of an evaluation, as a log for `inspect view`.
    Inspect,
}

/// Arguments of `maverl show`.
#[derive(Args)]
#[cfg_attr(not(feature = "view"), allow(dead_code))] // parsed, so that the message is about the feature
pub(super) struct ShowArgs {
    /// The run directory.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// `STEP/[SOURCE/]TASK/INDEX`, for example `12/train-0001/3`; with `--worst` a step.
    #[arg(value_name = "EPISODE")]
    episode: String,
    /// Show the episodes of a step with the lowest scores, so many.
    #[arg(long, value_name = "N", value_parser = number::from_1)]
    worst: Option<NonZeroUsize>,
    /// Print every sampled token of each turn with its log-prob, and with what the step recorded of it: entropy, advantage,
    /// and what the update did to it.
    #[arg(long)]
    tokens: bool,
    /// Print a list of JSON objects, one per episode, with complete texts.
    #[arg(long)]
    json: bool,
}

/// Parses the name of an evaluation to that of its file.
fn evaluation(text: &str) -> Result<String, String> {
    match (text, text.parse::<u64>()) {
        ("before" | "before-greedy" | "after" | "after-greedy", _) => Ok(text.to_owned()),
        (_, Ok(step)) => Ok(format!("step-{step:06}")),
        _ => {
            Err("write `before`, `before-greedy`, `after`, `after-greedy`, or the number of a step"
                .to_owned())
        }
    }
}

/// Parses `A..B`, both included, or one step.
fn steps(text: &str) -> Result<(u32, u32), String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let ends = (first.parse(), last.parse());
    match ends {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        _ => Err("write `3` for a step, or `1..30` for the steps from 1 to 30".to_owned()),
    }
}

#[cfg(not(feature = "view"))]
const MISSING: &str = maverl::lacks_feature!("view", "maverl-cli");

/// Serves pages about runs until a signal.
#[cfg(not(feature = "view"))]
pub(super) fn view(_: &ViewArgs) -> Result<ExitCode, Failure> {
    Err(Failure(MISSING.to_owned()))
}

/// Writes a part of a run.
#[cfg(not(feature = "view"))]
pub(super) fn extract(_: &ExtractArgs) -> Result<ExitCode, Failure> {
    Err(Failure(MISSING.to_owned()))
}

/// Returns no notice on a run: pages have the rules.
#[cfg(not(feature = "view"))]
pub(super) fn notices_of(_: &std::path::Path) -> Vec<String> {
    Vec::new()
}

/// Prints episodes.
#[cfg(not(feature = "view"))]
pub(super) fn show(_: &ShowArgs) -> Result<ExitCode, Failure> {
    Err(Failure(MISSING.to_owned()))
}

#[cfg(feature = "view")]
pub(super) use enabled::{extract, show, view};
#[cfg(feature = "view")]
pub(super) use maverl_view::notices_of;

#[cfg(feature = "view")]
mod enabled {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use tokio::net::TcpListener;

    use super::*;
    use crate::machine::directory_variable;
    use crate::{block_on, print, terminal};
    use maverl::output;
    use maverl::train::Interrupt;
    use maverl_view::{
        self as pages, Detail, ExtractFormat, ExtractPart, PageChoice, ShownEpisodes, Viewer,
    };

    /// Serves pages about runs until a signal.
    pub(crate) fn view(args: &ViewArgs) -> Result<ExitCode, Failure> {
        for place in args.places.iter().filter(|place| !place.is_dir()) {
            // The message says what there is instead.
            paths::run(place)?;
        }
        let places = if args.places.is_empty() {
            vec![paths::of_runs(None, "view")?]
        } else {
            args.places.clone()
        };
        let viewer = Arc::new(Viewer::new(places)?.keeping_rows(cache()));
        if let Some(out) = &args.page {
            let default = if args.steps.is_some() { usize::MAX } else { 200 };
            let wanted = if args.no_episodes { Some(0) } else { args.episodes };
            let episodes = wanted.unwrap_or(default);
            let choice = PageChoice { episodes, steps: args.steps };
            let page = viewer.write_page(&choice, out).map_err(|e| Failure(e.to_string()))?;
            let inside = match page.episodes {
                0 => "no prompt, reply or reference answer",
                _ => "with prompts, replies and reference answers",
            };
            return print(&format!(
                "{}: {} of {} episodes of {} run{}, {inside}; {} KiB",
                out.display(),
                page.episodes,
                page.of,
                page.runs,
                if page.runs == 1 { "" } else { "s" },
                page.bytes >> 10
            ));
        }
        block_on(async {
            let interrupt = Interrupt::on_signals()?;
            let port = args.port.unwrap_or(0);
            let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
            let listener = bound.map_err(|error| {
                Failure(format!(
                    "cannot listen at 127.0.0.1:{port}: {error}; give another `--port`"
                ))
            })?;
            let url = format!("http://{}{}", listener.local_addr()?, viewer.secret_path());
            print(&url)?;
            if args.open {
                open(&url);
            }
            let stop = async {
                interrupt.or(std::future::pending::<()>()).await;
            };
            pages::serve_pages(listener, viewer, stop).await;
            Ok(ExitCode::SUCCESS)
        })
    }

    /// Writes a part of a run in the format of another program.
    pub(crate) fn extract(args: &ExtractArgs) -> Result<ExitCode, Failure> {
        paths::run(&args.run)?;
        let part = match args.part {
            PartName::Metrics => ExtractPart::Metrics,
            PartName::Episodes => ExtractPart::Episodes,
            PartName::Turns => ExtractPart::Turns,
            PartName::Rollouts => ExtractPart::Rollouts { steps: args.steps },
            PartName::Trace => ExtractPart::Trace,
            PartName::Inspect => ExtractPart::Inspect,
        };
        if args.steps.is_some() && !matches!(part, ExtractPart::Rollouts { .. }) {
            let say = "`--steps` has an effect on `rollouts` alone; leave it out";
            return Err(Failure(say.to_owned()));
        }
        let format = ExtractFormat::from_path(part, &args.out).map_err(Failure)?;
        let rows = pages::extract_part(&args.run, (part, format), &args.evaluation, &args.out);
        let rows = rows.map_err(|error| Failure(error.to_string()))?;
        if args.out == std::path::Path::new("-") {
            return Ok(ExitCode::SUCCESS);
        }
        let unit = match part {
            ExtractPart::Trace => "events",
            ExtractPart::Inspect => "samples",
            ExtractPart::Rollouts { .. } => "episodes",
            _ => "rows",
        };
        print(&format!("{}: {rows} {unit}", args.out.display()))
    }

    /// Returns the directory in which rows of old runs are kept: `maverl` in the user's cache directory.
    fn cache() -> Option<PathBuf> {
        let home = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
        let caches = directory_variable("XDG_CACHE_HOME")
            .or_else(|| Some(directory_variable("HOME")?.join(home)));
        Some(caches?.join("maverl"))
    }

    /// Opens an address with the program of the desktop.
    fn open(url: &str) {
        let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
        let started = std::process::Command::new(program).arg(url).spawn();
        if let Err(error) = started {
            output::tell(format_args!(
                "warning: cannot open a browser with `{program}`: {error}; open the address above"
            ));
        }
    }

    /// Prints episodes.
    pub(crate) fn show(args: &ShowArgs) -> Result<ExitCode, Failure> {
        paths::run_of(&args.run, &args.episode, "show")?;
        let shown = match args.worst {
            None => ShownEpisodes::Named(args.episode.clone()),
            Some(n) => {
                let step = args.episode.parse().map_err(|_| {
                    Failure(format!(
                        "with `--worst`, `{}` must be the number of a step",
                        args.episode
                    ))
                })?;
                ShownEpisodes::Worst(step, n.get())
            }
        };
        let detail = if args.tokens { Detail::Tokens } else { Detail::Turns };
        if args.json {
            return print(&output::json(&pages::show_json(&args.run, &shown, detail)?)?);
        }
        print(&pages::show_episodes(&args.run, &shown, detail, terminal::width())?)
    }
}
