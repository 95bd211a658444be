//! Answers of the interface in blocks, as pages without a server hold them.

use std::collections::BTreeMap;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value};

use crate::pages::answer::check_size;
use crate::report::problem::ReportProblem;

/// Answers of the interface by path, in blocks.
#[derive(Default)]
pub(super) struct PageBlocks {
    pub(super) blocks: BTreeMap<String, Map<String, Value>>,
    /// Number of episodes in the blocks.
    pub(super) episodes: usize,
    /// Number of all episodes of the runs.
    pub(super) of: usize,
}

impl PageBlocks {
    /// Adds the answer of a path to a block, and returns it.
    pub(super) fn add_answer(
        &mut self,
        block: &str,
        path: &str,
        answer: Result<Value, ReportProblem>,
    ) -> Result<Value, ReportProblem> {
        let value = answer?;
        check_size(value.to_string().len())?;
        let block = self.blocks.entry(block.to_owned()).or_default();
        block.insert(path.to_owned(), value.clone());
        Ok(value)
    }

    /// Removes the last lines of replies of a run, and the statement that quotes them; the numbers stay.
    pub(super) fn forget_replies(&mut self, r: &str) {
        let all = self.blocks.entry("all".to_owned()).or_default();
        if let Some(replies) = all.get_mut(&format!("runs/{r}/replies")) {
            replies["seats"] = object!({});
            replies["reward"] = Value::Null;
            replies["fall"] = Value::Null;
        }
    }
}

/// Returns answers as base64 of gzip of JSON.
pub(super) fn pack_answers(answers: &Map<String, Value>) -> String {
    // Writing to memory cannot fail.
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let _ = gzip.write_all(Value::from(answers.clone()).to_string().as_bytes());
    STANDARD.encode(gzip.finish().unwrap_or_default())
}
