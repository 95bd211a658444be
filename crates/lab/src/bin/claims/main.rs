//! Checks claims of papers on multi-agent training, with the built-in models and environments: each claim is a pair of
//! arms that differ in what the claim is about, trained with equal budgets from several seeds.
//!
//! `cargo run --release -p maverl-lab --bin claims` takes about half an hour on two cores; `-- drmas-shared cory` checks only those
//! two. Finished runs are kept in `runs/claims` and not repeated. `--write docs/src/claims.md` writes the tables into the
//! page, and the drawings beside it.

mod claims;
mod comparison;
mod draw;
mod quantity;
mod run;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use maverl_lab::measure::catch_panic;

use claims::{CLAIMS, Claim};
use run::{TrainingRun, read_outcomes};

/// Trains the arms of claims, and compares them by seed.
#[derive(Parser)]
struct ClaimArguments {
    /// Claims, by their names; all if omitted.
    claims: Vec<String>,
    /// Runs of each arm.
    #[arg(long, default_value_t = 5)]
    seeds: u64,
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
        [] => Ok(CLAIMS.iter().collect()),
        names => names.iter().map(|name| find_claim(name)).collect(),
    }
}

/// Returns the claim with a name.
fn find_claim(name: &str) -> Result<&'static Claim> {
    CLAIMS.iter().find(|claim| claim.name == name).with_context(|| {
        let known: Vec<&str> = CLAIMS.iter().map(|claim| claim.name).collect();
        format!("no claim is called `{name}`; there are {}", known.join(", "))
    })
}

/// Carries out the runs that are not finished, some at a time, and returns the number of those that failed.
fn run_all(jobs: &[TrainingRun], arguments: &ClaimArguments) -> usize {
    let (next, failures) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    failures.fetch_add(usize::from(!run_job(job, arguments)), Ordering::Relaxed);
                }
            });
        }
    });
    failures.into_inner()
}

/// Carries out a run that is not finished, and prints how long it took or why it failed. Returns false if it failed.
fn run_job(job: &TrainingRun, arguments: &ClaimArguments) -> bool {
    let start = Instant::now();
    match catch_panic(|| job.run(arguments)) {
        Ok(false) => {}
        Ok(true) => eprintln!("{}: {:.0} s", job.name(), start.elapsed().as_secs_f64()),
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
    let all = CLAIMS.iter().map(|claim| read_outcomes(claim, arguments));
    let all = all.collect::<Result<Vec<_>>>()?;
    for (claim, outcomes) in CLAIMS.iter().zip(&all) {
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
    fn every_configuration_is_accepted() {
        let (arguments, registry) = (
            ClaimArguments::parse_from(["claims"]),
            maverl::registry::Registry::collect().unwrap(),
        );
        for job in TrainingRun::all_runs(&CLAIMS.iter().collect::<Vec<_>>(), 1) {
            let plans = job.team_plans(&arguments, &registry);
            plans.unwrap_or_else(|error| panic!("{}: {error}", job.name()));
        }
    }

    #[test]
    fn tests_name_arms_of_their_claim_and_the_page_has_a_section_of_each() {
        let text = fs::read_to_string(page()).unwrap();
        for claim in &CLAIMS {
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
