//! Checks claims of papers on multi-agent training, with the built-in models and environments and with word games: each claim is
//! a pair of arms that differ in what the claim is about, trained with equal budgets from several seeds.
//!
//! `cargo run --release -p maverl-lab --bin claims` checks all claims; `-- drmas-shared cory` checks only those two. Finished runs
//! are kept in `runs/claims` and not repeated, so it may be stopped and started again. `--write docs/src/claims.md` writes the
//! tables into the page, and the drawings beside it.

mod catalog;
mod claims;
mod comparison;
mod credit;
mod draw;
mod games;
mod quantity;
mod run;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use maverl_lab::games::write_games;
use maverl_lab::measure::catch_panic;

use catalog::all_claims;
use claims::Claim;
use run::{TrainingRun, read_outcomes};

/// Trains the arms of claims, and compares them by seed.
#[derive(Parser)]
struct ClaimArguments {
    /// Claims, by their names; all if omitted.
    claims: Vec<String>,
    /// Runs of each arm; the number of each claim if omitted.
    #[arg(long)]
    seeds: Option<u64>,
    /// Runs at a time. With 0, nothing is trained, and the tables are those of the finished runs.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Held-out tasks.
    #[arg(long, default_value_t = 150)]
    tasks: usize,
    /// Directory of the runs.
    #[arg(long, default_value = "runs/claims")]
    out: PathBuf,
    /// Page whose tables are replaced; the drawings are written to `img/claims` beside it.
    #[arg(long)]
    write: Option<PathBuf>,
    /// Additional setting of every run, such as `task.group_size=4`.
    #[arg(long)]
    set: Vec<String>,
}

fn main() -> Result<()> {
    let arguments = ClaimArguments::parse();
    let claims = chosen_claims(&arguments.claims)?;
    write_games(&arguments.out)?;
    let failures = run_all(&TrainingRun::all_runs(&claims, arguments.seeds), &arguments);
    println!("{}", format_report(&claims, &arguments)?);
    if let Some(page) = &arguments.write {
        write_page(page, &claims, &arguments)?;
    }
    match failures {
        0 => Ok(()),
        failures => bail!("{failures} runs failed; the tables are without them"),
    }
}

/// Returns the claims with these names, or all.
fn chosen_claims(names: &[String]) -> Result<Vec<&'static Claim>> {
    match names {
        [] => Ok(all_claims().collect()),
        names => names.iter().map(|name| find_claim(name)).collect(),
    }
}

/// Returns the claim with a name.
fn find_claim(name: &str) -> Result<&'static Claim> {
    all_claims().find(|claim| claim.name == name).with_context(|| {
        let known: Vec<&str> = all_claims().map(|claim| claim.name).collect();
        format!("no claim is called `{name}`; there are {}", known.join(", "))
    })
}

/// Carries out the runs that are not finished, some at a time, and returns the number of those that failed.
fn run_all(jobs: &[TrainingRun], arguments: &ClaimArguments) -> usize {
    let jobs: Vec<&TrainingRun> = jobs.iter().filter(|job| !job.is_finished(arguments)).collect();
    let (next, failures) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    failures.fetch_add(usize::from(!run_job(job, arguments)), Ordering::Relaxed);
                    let begun = next.load(Ordering::Relaxed).min(jobs.len());
                    eprintln!("{}", format_progress(begun, jobs.len(), start.elapsed()));
                }
            });
        }
    });
    failures.into_inner()
}

/// Formats how many runs have begun, and the time that all of them would take at this pace.
fn format_progress(begun: usize, all: usize, elapsed: Duration) -> String {
    let minutes = elapsed.as_secs_f64() / 60.0;
    let whole = minutes * all as f64 / begun.max(1) as f64;
    format!("{begun} of {all} runs in {minutes:.1} min; all take about {whole:.0} min")
}

/// Carries out a run, and prints how long it took or why it failed. Returns false if it failed.
fn run_job(job: &TrainingRun, arguments: &ClaimArguments) -> bool {
    let start = Instant::now();
    match catch_panic(|| job.run(arguments)) {
        Ok(_) => eprintln!("{}: {:.0} s", job.name(), start.elapsed().as_secs_f64()),
        Err(error) => {
            eprintln!("{} failed: {error:#}", job.name());
            return false;
        }
    }
    true
}

/// Formats the tables of the claims.
fn format_report(claims: &[&'static Claim], arguments: &ClaimArguments) -> Result<String> {
    let mut text = String::new();
    for claim in claims {
        let tables = table::format_tables(claim, &read_outcomes(claim, arguments)?);
        text += &format!("## {}\n\n{tables}\n", claim.title);
    }
    Ok(text)
}

fn replace_block(page: &str, name: &str, block: &str) -> Result<String> {
    table::replace_marked(page, name, block.trim_end()).map_err(|problem| anyhow!(problem))
}

/// Writes the tables of the claims and the summary into a page, and the drawings beside it.
fn write_page(page: &Path, claims: &[&'static Claim], arguments: &ClaimArguments) -> Result<()> {
    let images = page.parent().unwrap_or(Path::new("")).join("img/claims");
    fs::create_dir_all(&images)?;
    let mut text = fs::read_to_string(page).with_context(|| page.display().to_string())?;
    let all = all_claims().map(|claim| read_outcomes(claim, arguments));
    let all = all.collect::<Result<Vec<_>>>()?;
    for (claim, outcomes) in all_claims().zip(&all) {
        if claims.iter().all(|other| other.name != claim.name) {
            continue;
        }
        let mut block = table::format_tables(claim, outcomes);
        if !outcomes.is_empty() {
            let image = format!("{}.svg", claim.name);
            fs::write(images.join(&image), draw::draw_claim(claim, outcomes))?;
            block = format!("![Curves of the arms](img/claims/{image})\n\n{block}");
        }
        text = replace_block(&text, claim.name, &block)?;
    }
    text = replace_block(&text, "summary", &table::format_summary(&all, &text))?;
    Ok(fs::write(page, text)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn page() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/claims.md")
    }

    #[test]
    fn two_arms_are_trained_compared_and_written_into_the_page() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path();
        let given = [
            "claims",
            "drmas-shared",
            "--seeds",
            "2",
            "--tasks",
            "2",
            "--set",
            "steps=1",
            "--set",
            "task.tasks_per_step=1",
            "--set",
            "task.group_size=2",
            "--out",
        ];
        let mut arguments =
            ClaimArguments::parse_from(given.into_iter().chain([out.to_str().unwrap()]));
        let claims = chosen_claims(&arguments.claims).unwrap();
        let jobs = TrainingRun::all_runs(&claims, arguments.seeds);
        assert_eq!((jobs.len(), run_all(&jobs, &arguments)), (4, 0));
        let tables = format_report(&claims, &arguments).unwrap();
        assert!(tables.contains("| solved after training | Dr. MAS | GRPO |"), "{tables}");
        assert!(tables.contains("| GRPO | `algorithm.name=\"grpo\"` |"));

        // A finished run is kept, one with other settings is not.
        assert!(!jobs[0].run(&arguments).unwrap());
        let copy = out.join("claims.md");
        fs::copy(page(), &copy).unwrap();
        write_page(&copy, &claims, &arguments).unwrap();
        let written = fs::read_to_string(&copy).unwrap();
        assert!(written.contains(tables.split_once("\n\n").unwrap().1.trim_end()));
        let drawing = fs::read_to_string(out.join("img/claims/drmas-shared.svg")).unwrap();
        assert_eq!(drawing.matches("<polyline").count(), 4, "two panels of two lines");
        arguments.set.push("sampling.max_tokens=8".to_owned());
        assert!(jobs[0].run(&arguments).unwrap());
    }

    #[test]
    fn the_quantities_of_a_word_game_are_those_that_the_records_give() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path();
        let settings = ["steps=3", "algorithm.advantage.warmup_steps=1"];
        let given = ["claims", "mixers-separate", "--seeds", "1", "--tasks", "4", "--out"];
        let mut arguments =
            ClaimArguments::parse_from(given.into_iter().chain([out.to_str().unwrap()]));
        arguments.set = settings.map(str::to_owned).to_vec();
        write_games(out).unwrap();
        let claims = chosen_claims(&arguments.claims).unwrap();
        let jobs = TrainingRun::all_runs(&claims, arguments.seeds);
        assert_eq!((jobs.len(), run_all(&jobs, &arguments)), (3, 0));
        let outcomes = read_outcomes(claims[0], &arguments).unwrap();
        let credit = outcomes["shared reward"][&0].credit;
        // The advantages of six players contain the luck of all of them: about 1 / √6 = 0.41.
        let correlation = credit.correlation.unwrap();
        assert!((0.1..0.7).contains(&correlation), "{credit:?}");
        assert!(credit.bias.unwrap() < 1.0, "{credit:?}");

        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let script = root.join("tests/python/recompute_claims.py");
        let mut command = std::process::Command::new("python3");
        let recomputed = command.arg(script).arg(out.join("mixers-separate")).output();
        let zstd = std::process::Command::new("zstd").arg("--version").output();
        let (Ok(recomputed), Ok(_)) = (recomputed, zstd) else {
            eprintln!("skipped: Python and zstd are needed to recompute the quantities");
            return;
        };
        let printed = String::from_utf8_lossy(&recomputed.stdout);
        let problem = String::from_utf8_lossy(&recomputed.stderr);
        assert!(recomputed.status.success(), "{printed}{problem}");
        assert!(printed.contains("3 runs agree"), "{printed}");
    }

    #[test]
    fn a_claim_has_its_own_number_of_seeds_unless_one_is_given() {
        let claims = chosen_claims(&["cory", "happo-match"].map(str::to_owned)).unwrap();
        let count = |seeds, name: &str| {
            let runs = TrainingRun::all_runs(&claims, seeds);
            runs.iter().filter(|run| run.claim.name == name && run.arm.run != "alone").count()
        };
        assert_eq!((count(None, "cory"), count(None, "happo-match")), (10, 40));
        assert_eq!((count(Some(3), "cory"), count(Some(3), "happo-match")), (3, 6));
    }

    #[test]
    fn progress_tells_how_long_all_runs_take() {
        assert_eq!(
            format_progress(5, 20, Duration::from_secs(90)),
            "5 of 20 runs in 1.5 min; all take about 6 min"
        );
    }

    #[test]
    fn every_configuration_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        write_games(dir.path()).unwrap();
        let out = dir.path().to_str().unwrap();
        let arguments = ClaimArguments::parse_from(["claims", "--out", out]);
        let registry = maverl::registry::Registry::collect().unwrap();
        for job in TrainingRun::all_runs(&all_claims().collect::<Vec<_>>(), Some(1)) {
            let plans = job.team_plans(&arguments, &registry);
            plans.unwrap_or_else(|error| panic!("{}: {error}", job.name()));
        }
    }

    #[test]
    fn tests_name_arms_of_their_claim_and_the_page_has_a_section_of_each() {
        let text = fs::read_to_string(page()).unwrap();
        for claim in all_claims() {
            for test in claim.tests {
                let known = |name: &str| claim.arms.iter().any(|arm| arm.name == name);
                assert!(known(test.better) && known(test.other), "{}", claim.name);
            }
            assert!(text.contains(&format!("\n## {}\n", claim.title)), "{}", claim.name);
            assert!(table::replace_marked(&text, claim.name, "").is_ok());
        }
    }

    #[test]
    fn an_unknown_claim_is_reported_with_those_there_are() {
        let error = chosen_claims(&["vdn".to_owned()]).err().unwrap().to_string();
        assert!(error.starts_with("no claim is called `vdn`; there are drmas-shared, "), "{error}");
    }
}
