//! Texts of the episodes of rows.

use std::collections::BTreeMap;

use maverl::run_dir::{TRAIN, Texts, scan_texts};

use super::index::counts::Played;
use crate::report::reading::files::RunFiles;

/// Reads the turns of episodes. `found` is called with the index of the episode and the texts of each turn.
pub(crate) fn read_turns(
    run: &RunFiles,
    episodes: &[(usize, &Played)],
    found: impl FnMut(usize, Texts),
) {
    read_texts(run, episodes, |line| line.starts_with(b"{\"turn\":"), found);
}

/// Reads the lines of episodes that a filter lets through. `found` is called with the index of the episode and the texts
/// of each line. Returns the number of episodes that cannot be read.
pub(crate) fn read_texts(
    run: &RunFiles,
    episodes: &[(usize, &Played)],
    filter: impl Fn(&[u8]) -> bool,
    mut found: impl FnMut(usize, Texts),
) -> usize {
    let mut frames: BTreeMap<(u32, u64), Vec<(u64, usize)>> = BTreeMap::new();
    for (i, Played { location, .. }) in episodes {
        let frame = frames.entry((location.step, location.frame)).or_default();
        frame.push((location.at.into(), *i));
    }
    let mut unreadable = 0;
    for ((step, frame), mut episodes) in frames {
        episodes.sort_unstable();
        episodes.dedup_by_key(|(at, _)| *at);
        let starts: Vec<u64> = episodes.iter().map(|(at, _)| *at).collect();
        let file = run.episodes_file(TRAIN, step.into()).unwrap_or_default();
        let scanned =
            scan_texts(&file, frame, &starts, &filter, |i, texts| found(episodes[i].1, texts));
        unreadable += if scanned.is_err() { episodes.len() } else { 0 };
    }
    unreadable
}
