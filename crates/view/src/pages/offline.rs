//! Runs as pages without a server: `maverl view --static OUT.html` writes one file, `--static OUT` a directory.
//!
//! A page holds the answers of the interface, packed in one block for each step, and the scripts of the pages. Its
//! policy allows its own script and style by their hashes, and no request.

mod blocks;
mod bundle;
mod error;
mod folder;
mod run_blocks;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use self::blocks::{PageBlocks, pack_answers};
use self::error::LARGEST_PAGE;
pub use self::error::PageError;
pub use self::run_blocks::PageChoice;
use self::run_blocks::{add_answer, add_run};
use super::api::compare_watched;
use super::assets;
use super::viewer::Viewer;
use crate::compact::sort_by;

/// Interval between two looks at a run whose rows are being made.
const WAIT: Duration = Duration::from_millis(20);
/// Maximum number of runs of which every selection can be compared.
const COMPARED: usize = 4;

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

impl Viewer {
    /// Writes all runs into one page, or into a directory if the path does not end with `.html`.
    ///
    /// # Errors
    ///
    /// See [`PageError`].
    pub fn write_page(&self, choice: &PageChoice, out: &Path) -> Result<PageSummary, PageError> {
        self.write_page_within(LARGEST_PAGE, choice, out)
    }

    /// Writes all runs into one page of at most `most` bytes, or into a directory.
    pub(crate) fn write_page_within(
        &self,
        most: usize,
        choice: &PageChoice,
        out: &Path,
    ) -> Result<PageSummary, PageError> {
        let runs = self.watched_runs();
        if runs.is_empty() {
            return Err(PageError::NoRun);
        }
        let mut blocks = PageBlocks::default();
        add_answer(&mut blocks, ("all", ""), "runs", Ok(self.run_lines()))?;
        for subset in run_subsets(runs.len()) {
            let mut given: Vec<_> = subset.iter().map(|i| Arc::clone(&runs[*i])).collect();
            sort_by(&mut given, |a, b| a.run.id.cmp(&b.run.id));
            let ids: Vec<&str> = given.iter().map(|run| &*run.run.id).collect();
            let path = format!("compare?runs={}", ids.join(","));
            add_answer(&mut blocks, ("all", ""), &path, Ok(compare_watched(&given)))?;
        }
        for run in &runs {
            // Rows of an old run are made in the background.
            while run.run.lock_content().scanning.is_some() {
                std::thread::sleep(WAIT);
            }
            add_run(&mut blocks, run, choice)?;
        }
        let contents = object!({ "episodes": blocks.episodes, "of": blocks.of });
        blocks.blocks.entry("all".to_owned()).or_default().insert("contents".to_owned(), contents);
        let failed = |source| PageError::Output { path: out.display().to_string(), source };
        let bytes = if out.extension().is_some_and(|end| end == "html") {
            let page = page_html(&blocks.blocks);
            if page.len() > most {
                let share = most as f64 / page.len() as f64 * 0.9;
                let fits = (blocks.episodes as f64 * share / runs.len() as f64) as usize;
                return Err(PageError::TooLarge { bytes: page.len(), fits });
            }
            std::fs::write(out, &page).map_err(failed)?;
            page.len()
        } else {
            folder::write_folder(&blocks.blocks, out).map_err(failed)?
        };
        let runs = runs.len();
        Ok(PageSummary { runs, episodes: blocks.episodes, of: blocks.of, bytes })
    }
}

/// Returns the selections of runs that can be compared: all of few runs, else all runs.
fn run_subsets(runs: usize) -> Vec<Vec<usize>> {
    if runs > COMPARED {
        return vec![(0..runs).collect()];
    }
    let subsets = (0..1 << runs)
        .map(|bits: usize| (0..runs).filter(|r| bits >> r & 1 == 1).collect::<Vec<usize>>());
    subsets.filter(|subset| subset.len() > 1).collect()
}

/// Returns the page.
fn page_html(blocks: &BTreeMap<String, Map<String, Value>>) -> Vec<u8> {
    let (script, style) = (bundle::bundle_script(), assets::sent_text("style.css"));
    let [script_hash, style_hash] =
        [&script, &style].map(|text| STANDARD.encode(Sha256::digest(text)));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{script_hash}'; style-src 'sha256-{style_hash}'; img-src data:; base-uri 'none'; \
         form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    );
    let mut scripts = String::new();
    for (name, answers) in blocks {
        // Writing to memory cannot fail.
        let _ = writeln!(
            scripts,
            "    <script type=\"application/octet-stream\" id=\"block-{name}\">{}</script>",
            pack_answers(answers)
        );
    }
    let meta = format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">");
    let page = assets::sent_text("");
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
        assert_eq!(run_subsets(1), Vec::<Vec<usize>>::new());
        assert_eq!(run_subsets(3), [vec![0, 1], vec![0, 2], vec![1, 2], vec![0, 1, 2]]);
        assert_eq!(run_subsets(5), [[0, 1, 2, 3, 4]]);
    }
}
