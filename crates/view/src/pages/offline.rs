//! Runs as pages without a server: `maverl view --static OUT.html` writes one file, `--static OUT` a directory.
//!
//! A page holds the answers of the interface, packed in one block for each step, beside the scripts of the pages. Its
//! policy allows its own script and style by their hashes, and no request.

mod bundle;
mod folder;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::compact::collected;
use crate::compact::sort;
use crate::pages::query::{Body, Request};
use crate::pages::viewer::Viewer;
use crate::pages::{api, assets};
use crate::report::rows::index::Index;
use crate::report::rows::run::Run;
use crate::report::rows::selection::Selection;
use maverl::run_dir::TRAIN;

/// Maximum size of a page in bytes.
const MOST: usize = 32 << 20;
/// Interval between two looks at a run whose rows are being made.
const WAIT: Duration = Duration::from_millis(20);
/// Maximum number of runs of which every selection can be compared.
const COMPARED: usize = 4;

/// Error of writing a page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// There is no run.
    #[error("there is no run in the directories; give run directories")]
    NoRun,
    /// A part of a run cannot be read.
    #[error("`{run}`: {path}: {reason}")]
    Part {
        /// Name of the run.
        run: String,
        /// Path in the interface.
        path: String,
        /// Reason.
        reason: String,
    },
    /// The page would be too large.
    #[error(
        "the page would have {} MiB, more than {} MiB; about {fits} episodes of each run fit: `--episodes {fits}`. A \
         directory has no bound: give a name without `.html`",
        bytes >> 20, MOST >> 20
    )]
    TooLarge {
        /// Size of the page.
        bytes: usize,
        /// Number of episodes that fit.
        fits: usize,
    },
    /// The file cannot be written.
    #[error("cannot write `{path}`: {source}")]
    Output {
        /// The file.
        path: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

/// Choice of the training episodes in a page: whole tasks of the steps, those first whose scores differ most. A page
/// without episodes has no texts of models at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageChoice {
    /// Maximum number of episodes of each run.
    pub episodes: usize,
    /// First and last step; `None` for the first and the last step of the run alone.
    pub steps: Option<(u32, u32)>,
}

/// Content of a written page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageSummary {
    /// Number of runs.
    pub runs: usize,
    /// Number of episodes in the page.
    pub episodes: usize,
    /// Number of all episodes.
    pub of: usize,
    /// Size in bytes.
    pub bytes: usize,
}

/// Answers of the interface by path, in blocks.
#[derive(Default)]
struct Blocks {
    blocks: BTreeMap<String, Map<String, Value>>,
    /// Number of episodes in the blocks.
    episodes: usize,
    /// Number of all episodes of the runs.
    of: usize,
}

impl Blocks {
    /// Removes the last lines of replies of a run, and the statement that quotes them; the numbers stay.
    fn forget_replies(&mut self, r: &str) {
        let all = self.blocks.entry("all".to_owned()).or_default();
        if let Some(replies) = all.get_mut(&format!("runs/{r}/replies")) {
            replies["seats"] = object!({});
            replies["reward"] = Value::Null;
            replies["fall"] = Value::Null;
        }
    }
}

impl Viewer {
    /// Writes all runs into one page, or into a directory if the path does not end with `.html`.
    ///
    /// # Errors
    ///
    /// See [`PageError`].
    pub fn write_page(&self, choice: &PageChoice, out: &Path) -> Result<PageSummary, PageError> {
        self.write_page_within(MOST, choice, out)
    }

    /// Writes all runs into one page of at most `most` bytes, or into a directory.
    pub(crate) fn write_page_within(
        &self,
        most: usize,
        choice: &PageChoice,
        out: &Path,
    ) -> Result<PageSummary, PageError> {
        let runs = self.runs();
        if runs.is_empty() {
            return Err(PageError::NoRun);
        }
        let mut blocks = Blocks::default();
        self.add(&mut blocks, "all", "", "runs")?;
        for subset in subsets(runs.len()) {
            let mut given: Vec<&str> = subset.iter().map(|i| &*runs[*i].id).collect();
            given.sort_unstable();
            self.add(&mut blocks, "all", "", &format!("compare?runs={}", given.join(",")))?;
        }
        for run in &runs {
            // Rows of an old run are made in the background.
            while run.now().scanning.is_some() {
                std::thread::sleep(WAIT);
            }
            self.add_run(&mut blocks, run, choice)?;
        }
        let contents = object!({ "episodes": blocks.episodes, "of": blocks.of });
        blocks.blocks.entry("all".to_owned()).or_default().insert("contents".to_owned(), contents);
        let failed = |source| PageError::Output { path: out.display().to_string(), source };
        let bytes = if out.extension().is_some_and(|end| end == "html") {
            let page = html(&blocks.blocks);
            if page.len() > most {
                let share = most as f64 / page.len() as f64 * 0.9;
                let fits = (blocks.episodes as f64 * share / runs.len() as f64) as usize;
                return Err(PageError::TooLarge { bytes: page.len(), fits });
            }
            std::fs::write(out, &page).map_err(failed)?;
            page.len()
        } else {
            folder::write(&blocks.blocks, out).map_err(failed)?
        };
        let runs = runs.len();
        Ok(PageSummary { runs, episodes: blocks.episodes, of: blocks.of, bytes })
    }

    /// Adds the parts of a run.
    fn add_run(
        &self,
        blocks: &mut Blocks,
        run: &Run,
        choice: &PageChoice,
    ) -> Result<(), PageError> {
        let r = &run.id;
        for part in ["", "/config", "/spans", "/team", "/replies", "/groups"] {
            self.add(blocks, "all", &run.name, &format!("runs/{r}{part}"))?;
        }
        self.add_series(blocks, run)?;
        let chosen = {
            let held = run.now();
            let chosen = chosen(&held.index, choice);
            let rows = held.index.read(held.rows_file(), &chosen);
            let failed = |error: std::io::Error| PageError::Part {
                run: run.name.clone(),
                path: "episodes".to_owned(),
                reason: error.to_string(),
            };
            (rows.map_err(failed)?, held.index.len())
        };
        let (rows, of) = chosen;
        if rows.is_empty() {
            blocks.forget_replies(r);
        }
        blocks.episodes += rows.len();
        blocks.of += of;
        let mut groups = BTreeSet::new();
        for row in &rows {
            self.add_episode(blocks, run, row, &mut groups)?;
        }
        let train = rows.iter().filter(|row| row["stage"] == TRAIN);
        for step in collected::<BTreeSet<u64>, u64>(train.filter_map(|row| row["step"].as_u64())) {
            let path = format!("runs/{r}/steps/{step}");
            self.add(blocks, &format!("{r}-{step}"), &run.name, &path)?;
        }
        for step in collected::<BTreeSet<u64>, u64>(groups.iter().map(|(step, _)| *step)) {
            let path = format!("runs/{r}/groups/{step}");
            self.add(blocks, &format!("{r}-{step}"), &run.name, &path)?;
            if run.path().join(format!("clock/step-{step:06}.jsonl.zst")).is_file() {
                let path = format!("runs/{r}/clock/{step}");
                self.add(blocks, &format!("{r}-{step}"), &run.name, &path)?;
            }
        }
        for (step, id) in groups {
            let path = format!("runs/{r}/groups/{step}/{id}");
            self.add(blocks, &format!("{r}-{step}"), &run.name, &path)?;
        }
        let list =
            object!({ "rows": rows, "total": rows.len(), "of": of, "scanning": Value::Null });
        blocks
            .blocks
            .entry("all".to_owned())
            .or_default()
            .insert(format!("runs/{r}/episodes"), list);
        Ok(())
    }

    /// Adds the metrics of a run, in as many answers as they need.
    fn add_series(&self, blocks: &mut Blocks, run: &Run) -> Result<(), PageError> {
        let path = format!("runs/{}/series", run.id);
        let mut part = self.add(blocks, "all", &run.name, &path)?;
        while let Some(next) = part["next"].as_u64() {
            part = self.add(blocks, "all", &run.name, &format!("{path}?from={next}"))?;
        }
        Ok(())
    }

    /// Adds an episode with its turns in tokens. Its groups are added to `groups`.
    fn add_episode(
        &self,
        blocks: &mut Blocks,
        run: &Run,
        row: &Value,
        groups: &mut BTreeSet<(u64, u64)>,
    ) -> Result<(), PageError> {
        let r = &run.id;
        let step = row["step"].as_u64().unwrap_or_default();
        let (stage, n) = (row["stage"].as_str().unwrap_or_default(), row["n"].clone());
        let (block, path) =
            (format!("{r}-{step}"), format!("runs/{r}/episodes/{stage}/{step}/{n}"));
        let episode = self.add(blocks, &block, &run.name, &path)?;
        for (i, turn) in episode["turns"].as_array().into_iter().flatten().enumerate() {
            groups.extend(turn["sample"]["record"]["group"].as_u64().map(|id| (step, id)));
            if !turn["tokens"].is_null() {
                self.add(blocks, &block, &run.name, &format!("{path}/turns/{i}/tokens"))?;
            }
        }
        Ok(())
    }

    /// Adds the answer of a path to a block, and returns it.
    fn add(
        &self,
        blocks: &mut Blocks,
        block: &str,
        run: &str,
        path: &str,
    ) -> Result<Value, PageError> {
        let failed =
            |reason: String| PageError::Part { run: run.to_owned(), path: path.to_owned(), reason };
        let target = format!("/{path}");
        let request = Request { method: "GET", target: &target, headers: &[] };
        let plain = path.split('?').next().unwrap_or_default();
        let response = api::answer(self, &request, plain).unwrap_or_else(|refusal| refusal);
        let Body::Whole(bytes) = response.body else {
            return Err(failed("it has no end".to_owned()));
        };
        let value: Value =
            serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))?;
        if response.status != 200 {
            return Err(failed(value["error"].as_str().unwrap_or_default().to_owned()));
        }
        let block = blocks.blocks.entry(block.to_owned()).or_default();
        block.insert(path.to_owned(), value.clone());
        Ok(value)
    }
}

/// Returns the selections of runs that can be compared: all of few runs, else all runs.
fn subsets(runs: usize) -> Vec<Vec<usize>> {
    if runs > COMPARED {
        return vec![(0..runs).collect()];
    }
    let of = |bits: usize| (0..runs).filter(|r| bits >> r & 1 == 1).collect::<Vec<usize>>();
    (0..1 << runs).map(of).filter(|subset| subset.len() > 1).collect()
}

/// Returns the rows of the chosen training episodes, by whole groups of a task, those with the largest difference of
/// scores first.
fn chosen(index: &Index, choice: &PageChoice) -> Vec<usize> {
    let steps = index.steps(TRAIN);
    let ends = [steps.first(), steps.last()];
    let wanted = |step: &u32| match choice.steps {
        Some((first, last)) => (first..=last).contains(step),
        None => ends.contains(&Some(step)),
    };
    let mut groups: Vec<(f64, Vec<usize>)> = Vec::new();
    for step in steps.iter().copied().filter(wanted) {
        let selection = Selection {
            stage: Some(TRAIN.to_owned()),
            steps: (Some(step), Some(step)),
            limit: usize::MAX,
            ..Selection::default()
        };
        let mut tasks: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for at in index.select(&selection).0 {
            tasks.entry(index.task_and_score(at).0).or_default().push(at);
        }
        groups.extend(tasks.into_values().map(|rows| {
            let scores = || rows.iter().map(|at| index.task_and_score(*at).1);
            let spread =
                scores().fold(f64::NEG_INFINITY, f64::max) - scores().fold(f64::INFINITY, f64::min);
            (if spread.is_finite() { spread } else { 0.0 }, rows)
        }));
    }
    // Equal differences keep the order of steps and tasks.
    sort(&mut groups, |(a, _), (b, _)| b.total_cmp(a));
    let mut rows = Vec::new();
    for (_, group) in groups {
        if group.len() <= choice.episodes - rows.len() {
            rows.extend(group);
        }
    }
    rows.sort_unstable();
    rows
}

/// Returns answers as base64 of gzip of JSON.
fn packed(answers: &Map<String, Value>) -> String {
    // Writing to memory cannot fail.
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let _ = gzip.write_all(Value::from(answers.clone()).to_string().as_bytes());
    STANDARD.encode(gzip.finish().unwrap_or_default())
}

/// Returns the page.
fn html(blocks: &BTreeMap<String, Map<String, Value>>) -> Vec<u8> {
    let (script, style) = (bundle::script(), assets::text("style.css"));
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; \
         form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        hash(&script),
        hash(&style),
    );
    let mut scripts = String::new();
    for (name, answers) in blocks {
        // Writing to memory cannot fail.
        let _ = writeln!(
            scripts,
            "    <script type=\"application/octet-stream\" id=\"block-{name}\">{}</script>",
            packed(answers)
        );
    }
    let meta = format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">");
    let page = assets::text("");
    let page =
        page.replace("<meta charset=\"utf-8\">", &format!("<meta charset=\"utf-8\">\n    {meta}"));
    let link = "<link rel=\"stylesheet\" href=\"style.css\">";
    let page = page.replace(link, &format!("<style>{style}</style>"));
    let page = page.replace("    <script type=\"module\" src=\"main.js\"></script>\n", "");
    let end = format!("{scripts}    <script type=\"module\">{script}</script>\n  </body>");
    page.replace("  </body>", &end).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_runs_can_be_compared_in_every_selection() {
        assert_eq!(subsets(1), Vec::<Vec<usize>>::new());
        assert_eq!(subsets(3), [vec![0, 1], vec![0, 2], vec![1, 2], vec![0, 1, 2]]);
        assert_eq!(subsets(5), [[0, 1, 2, 3, 4]]);
    }
}
