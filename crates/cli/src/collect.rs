//! `maverl collect`: data sets from the episodes of a run, or from episodes that are played for them.

mod args;
mod episodes;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgGroup, Args};
use maverl_kernels::sample::derive_seed;
use serde_json::json;

use super::export::{writable, write_whole};
use super::{ConfigArgs, Failure, block_on, number, of_run, paths, plan_with_warnings, print};
use args::{ChoiceArgs, DataArg, DedupArg, FormatArg, KindArg, Steps};
use episodes::{Evaluated, data_files, has_part, has_seats, of, of_config, with_origin};
use maverl::check::Purpose;
use maverl::checkpoint::{Checkpoints, Which};
use maverl::collect::{
    CollectOptions, Collected, Dedup, Filters, RowFormat, RowSource, collect as rows, write,
};
use maverl::eval::EvalSpec;
use maverl::plan::Plan;
use maverl::registry::Registry;
use maverl::run_dir::disk::name;
use maverl::run_dir::{FileHash, read_rollouts};
use maverl::train::{self, Weights};

#[derive(Args)]
#[command(group = ArgGroup::new("recorded").args(["from"]).conflicts_with_all(["file", "named", "run"]))]
pub(super) struct CollectArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Take the recorded training episodes of the run in this directory; can be repeated. Nothing is played.
    #[arg(long, value_name = "RUN")]
    from: Vec<PathBuf>,
    /// With `--from`: steps, as `10..40` (without 40), `10..=40` or `1,5,9`. [default: all]
    #[arg(long, value_name = "STEPS", requires = "from")]
    steps: Option<Steps>,
    /// Play with a checkpoint of the run in this directory, with its configuration.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "named"])]
    run: Option<PathBuf>,
    /// Checkpoints, each of which plays: `last`, `best` (by validation), or the numbers of steps.
    #[arg(long, value_name = "WHICH,..", value_delimiter = ',', default_value = "last", requires = "run", value_parser = super::export::which)]
    checkpoint: Vec<Which>,
    /// Key of the data whose tasks are played; evaluations use those of `eval.data`. [default: `task.data`]
    #[arg(long, value_name = "KEY", conflicts_with = "from")]
    data: Option<DataArg>,
    /// Split of the tasks to play. [default: `task.split`; of `eval.data`, `eval.test_split`]
    #[arg(long, value_name = "SPLIT", conflicts_with = "from")]
    split: Option<String>,
    /// Maximum number of tasks to play. [default: `task.limit`; with `--quick`, at most `eval.tasks`; else all]
    #[arg(long, value_name = "N", value_parser = number::from_1, conflicts_with = "from")]
    tasks: Option<NonZeroUsize>,
    /// Episodes to play of each task, with each checkpoint at each temperature. [default: 8]
    #[arg(long, value_name = "N", value_parser = number::from_1, conflicts_with = "from")]
    samples: Option<NonZeroUsize>,
    /// Temperatures, each of which every seat has once. [default: those of the seats]
    #[arg(long, value_name = "T,..", value_delimiter = ',', value_parser = number::decimal, conflicts_with = "from")]
    temperature: Vec<f32>,
    /// Play as many more episodes with this line at the end of every prompt, such as to give a wrong answer; can be repeated.
    /// Rows have the prompt without it, are marked `asked`, and are never in the test split.
    #[arg(long, value_name = "TEXT", conflicts_with = "from")]
    ask: Vec<String>,
    /// Data sets to write.
    #[arg(long = "as", value_name = "KIND,..", value_delimiter = ',', required = true)]
    kinds: Vec<KindArg>,
    /// Directory to write, new or empty.
    #[arg(long, value_name = "DIR", value_parser = paths::to_write())]
    out: PathBuf,
    /// Format of the files; `parquet` needs the feature of that name.
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    format: FormatArg,
    #[command(flatten)]
    choice: ChoiceArgs,
}

/// Episodes with their origin.
type Gathered = (Vec<Collected>, Vec<RowSource>);

/// Collects rows, and writes them.
pub(super) fn collect(args: &CollectArgs) -> Result<ExitCode, Failure> {
    writable(&args.out)?;
    let options = args.options();
    let (episodes, sources) =
        if args.from.is_empty() { args.play()? } else { args.read_recorded()? };
    if let Some(part) = &options.label {
        has_part(part, &episodes)?;
    }
    has_seats(&options.filters.seats, &episodes)?;
    let collection = rows(episodes, &options);
    let counts = collection.sets.iter().map(|(kind, set)| {
        format!("{} rows of `{}`", set.train.len() + set.test.len(), kind.name())
    });
    let counts = counts.collect::<Vec<_>>().join(", ");
    if collection.sets.values().all(|set| set.train.is_empty() && set.test.is_empty()) {
        return Err(Failure(format!(
            "no rows are left of {} episodes ({} without a score); loosen the filters, or take other episodes",
            collection.episodes, collection.unscored
        )));
    }
    write_whole(&args.out, |dir| {
        write(dir, &collection, &options, &sources)
            .map_err(|error| Failure(format!("cannot write {}: {error}", dir.display())))
    })?;
    print(&format!("wrote {}: {counts} from {} episodes", args.out.display(), collection.episodes))
}

impl CollectArgs {
    fn options(&self) -> CollectOptions {
        let ChoiceArgs { solved, min_reward, no_truncated, no_errors, .. } = self.choice;
        let choice = &self.choice;
        let mut kinds = self.kinds.clone();
        kinds.sort();
        kinds.dedup();
        CollectOptions {
            kinds: kinds.into_iter().map(KindArg::kind).collect(),
            filters: Filters {
                solved,
                min_reward,
                seats: choice.seats.clone(),
                no_truncated,
                no_errors,
                max_tokens: choice.max_tokens.map(NonZeroUsize::get),
                matches: choice.matches.clone(),
                no_matches: choice.no_matches.clone(),
            },
            dedup: match choice.dedup {
                DedupArg::None => Dedup::None,
                DedupArg::Exact => Dedup::Exact,
                DedupArg::Near => Dedup::Near,
            },
            balance: choice.balance.map(NonZeroUsize::get),
            label: choice.label.clone(),
            margin: choice.margin,
            pairs: choice.pairs.get(),
            test_share: f64::from(choice.test_share),
            format: match self.format {
                FormatArg::Jsonl => RowFormat::Jsonl,
                #[cfg(feature = "parquet")]
                FormatArg::Parquet => RowFormat::Parquet,
            },
        }
    }

    /// Reads the episodes of runs.
    fn read_recorded(&self) -> Result<Gathered, Failure> {
        let (mut all, mut sources) = Gathered::default();
        for dir in &self.from {
            let run = paths::run(dir)?;
            let mut steps = run.rollout_steps()?;
            let (first, last) = match (steps.first(), steps.last()) {
                (Some(first), Some(last)) => (*first, *last),
                _ => return Err(Failure(format!("`{}` has no rollouts", dir.display()))),
            };
            if let Some(Steps(wanted)) = &self.steps {
                steps.retain(|step| wanted.contains(step));
            }
            if steps.is_empty() {
                return Err(Failure(format!(
                    "`{}` has no rollouts in `--steps`; it has steps {first} to {last}",
                    dir.display()
                )));
            }
            let mut source = of(dir, "train")?;
            let origin = run.origin()?;
            Evaluated::of(&origin.config, &origin.base)
                .warn(&origin.config.task, &origin.config.task.split);
            let weights = source.provenance.as_ref().map(|it| it.weights.clone());
            let weights = Arc::new(weights.unwrap_or_default());
            for step in steps {
                let path = run.rollouts(step);
                let episodes = read_rollouts(&path)?;
                let file = format!("rollouts/{}", name(&path));
                source.files.insert(file, FileHash::read(&path)?);
                source.steps.insert(step, episodes.len() as u64);
                all.extend(with_origin(&source, step, &weights, episodes));
            }
            sources.push(source);
        }
        Ok((all, sources))
    }

    /// Refuses to play if nothing says what to play.
    fn has_source(&self) -> Result<(), Failure> {
        let mut names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let has_variable = names.any(|name| name.starts_with("MAVERL_ENVIRONMENT"));
        if self.run.is_some() || self.config.is_given() || has_variable {
            return Ok(());
        }
        Err(Failure("give `--from RUN`, `--run RUN` or a configuration".to_owned()))
    }

    /// Returns the split to play.
    fn chosen(&self, plan: &Plan) -> Result<String, Failure> {
        let default = match self.data {
            Some(DataArg::Eval) if plan.config.eval.data.is_none() => {
                let message = "`--data eval.data`: the configuration has no `eval.data`; leave `--data` out, and the tasks are \
                               those of `task.data`";
                return Err(Failure(message.to_owned()));
            }
            Some(DataArg::Eval) => &plan.config.eval.test_split,
            _ => &plan.config.task.split,
        };
        Ok(self.split.as_ref().unwrap_or(default).clone())
    }

    /// Returns the maximum number of tasks to play.
    fn limit(&self, plan: &Plan) -> NonZeroUsize {
        let quick = self.config.is_quick().then_some(plan.config.eval.tasks);
        let configured = [plan.config.task.limit, quick].into_iter().flatten().min();
        self.tasks.or(configured).unwrap_or(NonZeroUsize::MAX)
    }

    /// Plays episodes with every checkpoint at every temperature.
    fn play(&self) -> Result<Gathered, Failure> {
        self.has_source()?;
        let registry = Registry::collect()?;
        let (layers, weights) = match &self.run {
            Some(dir) => {
                let checkpoints = self.checkpoint.iter();
                let weights = checkpoints.map(|which| Weights::Run(dir.clone(), *which)).collect();
                (self.config.over(of_run(dir)?.0), weights)
            }
            None => (self.config.sources(None), vec![Weights::Start]),
        };
        let mut plan = plan_with_warnings(&layers, &registry, Purpose::Eval)?;
        plan.algorithm.critic = None;
        let split = self.chosen(&plan)?;
        let evaluated = Evaluated::of(&plan.config, &plan.base);
        if self.data != Some(DataArg::Eval) {
            plan.config = plan.config.with(|config| config.eval.data = None);
        }
        evaluated.warn(&plan.config.eval.held_out(&plan.config.task), &split);
        let limit = self.limit(&plan);
        plan.config = plan.config.with(|config| config.eval.tasks = limit);
        let samples = self.samples.map_or(8, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
        let mut temperatures: Vec<Option<f32>> =
            self.temperature.iter().copied().map(Some).collect();
        if temperatures.is_empty() {
            temperatures.push(None);
        }
        let asks: Vec<Option<String>> =
            std::iter::once(None).chain(self.ask.iter().cloned().map(Some)).collect();
        let (mut all, mut sources) = Gathered::default();
        for weights in &weights {
            let each = temperatures.iter().flat_map(|t| asks.iter().map(move |ask| (*t, ask)));
            for (temperature, ask) in each {
                let (split, ask) = (split.clone(), ask.clone());
                let spec = EvalSpec { split, samples, temperature, ask };
                // Equal seeds would give similar replies at different temperatures.
                let seed = match sources.len() {
                    0 => plan.config.seed,
                    n => derive_seed(plan.config.seed, n as u64),
                };
                let plan = plan.with_seed(seed);
                let (source, episodes) = self.play_checkpoint(&plan, &registry, weights, &spec)?;
                all.extend(episodes);
                sources.push(source);
            }
        }
        Ok((all, sources))
    }

    /// Plays the episodes of one checkpoint at one temperature.
    fn play_checkpoint(
        &self,
        plan: &Plan,
        registry: &Registry,
        weights: &Weights,
        spec: &EvalSpec,
    ) -> Result<(RowSource, Vec<Collected>), Failure> {
        let stage = format!("eval/{}", spec.split);
        let mut source = match &self.run {
            Some(dir) => of(dir, &stage)?,
            None => of_config(&self.config, &stage),
        };
        let step = match weights {
            Weights::Run(dir, which) => Some(Checkpoints::of(dir).open(*which)?.state.step),
            _ => None,
        };
        let progress = train::stderr();
        let episodes = block_on(async {
            Ok::<_, Failure>(train::play_for_data(plan, registry, weights, spec, &progress).await?)
        })?;
        source.steps.insert(0, episodes.len() as u64);
        source.files = data_files(plan, &spec.split)?;
        source.played = Some(json!({
            "checkpoint": step,
            "samples": spec.samples,
            "temperature": spec.temperature,
            "ask": spec.ask,
            "seed": plan.config.seed.to_string(),
        }));
        let weights = source.provenance.as_ref().map(|it| it.weights.clone());
        let weights = Arc::new(weights.unwrap_or_default());
        let ask: Option<Arc<str>> = spec.ask.as_deref().map(Arc::from);
        let all = with_origin(&source, 0, &weights, episodes);
        let all = all.map(|collected| Collected { asked: ask.clone(), ..collected }).collect();
        Ok((source, all))
    }
}
