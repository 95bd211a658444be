//! Episodes on disk: compressed JSON lines, one for each episode followed by one for each of its turns.

mod programs;
mod texts;
mod writer;

use std::path::Path;
use std::{fmt, fs, io};

use serde::{Deserialize, Serialize};

pub use self::texts::{Texts, scan_texts};
pub use self::writer::RolloutWriter;
pub(super) use self::writer::growing;
pub use self::writer::is_growing;

use super::disk::write_atomic;
use super::error::{At, RunDirError, damaged_error};
use super::lines::{EpisodePosition, PackedLines};
use super::packed::pack_bytes;
use super::rows::scan_rollouts;
use crate::task::Task;
use crate::trajectory::{Act, BranchPoint, Episode, Outcome, RewardPart, Turn};

/// Bytes of content past which a frame ends.
const FRAME: usize = 1 << 20;
/// Number of turns for which an episode preallocates memory.
const TURNS: usize = 1 << 10;

/// A line of the file. Externally tagged, so that numbers are read straight into their types and round-trip to the bit.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// Header of an episode, followed by `turns` lines of its turns.
    Episode {
        task: Task,
        index: u32,
        seed: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch: Option<BranchPoint>,
        answer: Option<String>,
        outcome: Outcome,
        rewards: Vec<RewardPart>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        acts: Vec<Act>,
        turns: usize,
    },
    /// A turn, with the task's id and the episode's index, so that a line found by `grep` is identified.
    Turn { task: String, episode: u32, turn: Turn },
}

/// Writes episodes to a file, atomically.
///
/// # Errors
///
/// If the file cannot be written.
pub fn write_rollouts(path: &Path, episodes: &[Episode]) -> Result<(), RunDirError> {
    write_atomic(path, &encode(path, episodes)?.0)
}

/// Encodes the content of a file of episodes, and returns the place of each episode in it.
pub(super) fn encode(
    path: &Path,
    episodes: &[Episode],
) -> Result<(Vec<u8>, Vec<EpisodePosition>), RunDirError> {
    let mut frames = Frames::default();
    let places = episodes.iter().map(|episode| frames.push(episode));
    let places = places.collect::<io::Result<Vec<_>>>().at("compress", path)?;
    Ok((frames.finish().at("compress", path)?, places))
}

/// Returns the places of the episodes of an existing file, which may be of a version without frames.
pub(crate) fn places(
    path: &Path,
    episodes: &[Episode],
) -> Result<Vec<EpisodePosition>, RunDirError> {
    let (bytes, places) = encode(path, episodes)?;
    if fs::read(path).at("read", path)? == bytes {
        return Ok(places);
    }
    let mut places = Vec::new();
    scan_rollouts(path, "", 0, |row| {
        places.push(row.at);
        true
    })?;
    Ok(places)
}

/// Compressed episodes in frames that can be decoded independently, each with its own checksum. A frame ends with the
/// first episode past [`FRAME`] bytes, so reading one episode decodes little else.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
    /// Content of the frame that is not compressed yet.
    text: Vec<u8>,
}

impl Frames {
    /// Adds an episode, and returns its place.
    fn push(&mut self, episode: &Episode) -> io::Result<EpisodePosition> {
        let place = [self.bytes.len() as u64, self.text.len() as u64];
        write(&mut self.text, episode)?;
        if self.text.len() >= FRAME {
            self.compress()?;
        }
        Ok(place)
    }

    /// Compresses the pending content as a frame.
    fn compress(&mut self) -> io::Result<()> {
        pack_bytes(&mut self.bytes, &self.text)?;
        self.text.clear();
        Ok(())
    }

    /// Returns the content of the file. A file of no episodes is one empty frame.
    fn finish(mut self) -> io::Result<Vec<u8>> {
        if self.bytes.is_empty() || !self.text.is_empty() {
            self.compress()?;
        }
        Ok(self.bytes)
    }
}

/// Writes the lines of an episode.
fn write(text: &mut Vec<u8>, episode: &Episode) -> io::Result<()> {
    for line in lines(episode) {
        serde_json::to_writer(&mut *text, &line)?;
        text.push(b'\n');
    }
    Ok(())
}

fn lines(episode: &Episode) -> impl Iterator<Item = Line> {
    let Episode { task, index, seed, branch, turns, acts, answer, outcome, rewards, log: _ } =
        episode;
    let header = Line::Episode {
        task: task.clone(),
        index: *index,
        seed: *seed,
        branch: branch.clone(),
        answer: answer.clone(),
        outcome: outcome.clone(),
        rewards: rewards.clone(),
        acts: acts.clone(),
        turns: turns.len(),
    };
    let turns = turns.iter().map(|turn| Line::Turn {
        task: task.id.clone(),
        episode: *index,
        turn: turn.clone(),
    });
    std::iter::once(header).chain(turns)
}

/// Reads a complete file of episodes.
///
/// # Errors
///
/// If the file cannot be read, or a line of it is invalid. The message names the line.
pub fn read_rollouts(path: &Path) -> Result<Vec<Episode>, RunDirError> {
    read_first_rollouts(path, usize::MAX)
}

/// Reads the first episodes of a complete file, at most so many; what comes after them is not read.
///
/// # Errors
///
/// If the file cannot be read, or a line of these episodes is invalid.
pub fn read_first_rollouts(path: &Path, most: usize) -> Result<Vec<Episode>, RunDirError> {
    let (episodes, end) = read(path, most)?;
    end.map(|()| episodes)
}

/// Reads the episodes of a file that is still being written, or whose writer was killed: those that are complete.
///
/// # Errors
///
/// If the file cannot be opened.
pub fn read_ended_rollouts(path: &Path) -> Result<Vec<Episode>, RunDirError> {
    Ok(read(path, usize::MAX)?.0)
}

/// Reads the complete episodes of a file, at most so many, up to its end or its first error.
fn read(path: &Path, most: usize) -> Result<(Vec<Episode>, Result<(), RunDirError>), RunDirError> {
    let mut episodes: Vec<Episode> = Vec::new();
    let mut missing = 0;
    let mut lines = PackedLines::open(path)?;
    let end = loop {
        if missing == 0 && episodes.len() == most {
            break Ok(());
        }
        match lines.next() {
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
            Ok(Some(line)) => {
                if let Err(what) = add(&mut episodes, &mut missing, &line) {
                    break Err(lines.damaged_line(what));
                }
            }
        }
    };
    if missing > 0 {
        episodes.pop();
        let lacks = damaged_error(path, format!("its last episode lacks {missing} turns"));
        return Ok((episodes, end.and(Err(lacks))));
    }
    Ok((episodes, end))
}

/// Adds a line to the episodes before it. `missing` is the number of turns that the last episode lacks.
fn add(episodes: &mut Vec<Episode>, missing: &mut usize, line: &[u8]) -> Result<(), String> {
    match serde_json::from_slice(line).map_err(|e| e.to_string())? {
        Line::Episode { task, index, seed, branch, answer, outcome, rewards, acts, turns }
            if *missing == 0 =>
        {
            *missing = turns;
            // The stored number is not trusted for allocation.
            let turns = Vec::with_capacity(turns.min(TURNS));
            let log = String::new();
            episodes.push(Episode {
                task,
                index,
                seed,
                branch,
                turns,
                acts,
                answer,
                outcome,
                rewards,
                log,
            });
        }
        Line::Turn { turn, .. } if *missing > 0 => {
            *missing -= 1;
            episodes.last_mut().ok_or("a turn without episode")?.turns.push(turn);
        }
        Line::Episode { .. } => return Err("the episode before it lacks turns".to_owned()),
        Line::Turn { .. } => return Err("its episode has all its turns".to_owned()),
    }
    Ok(())
}

/// Reads one episode of a file of episodes, and verifies the checksum of its frame.
///
/// # Errors
///
/// If the file cannot be read, or no episode begins at the place.
pub fn read_episode(path: &Path, [frame, at]: EpisodePosition) -> Result<Episode, RunDirError> {
    let mut lines = PackedLines::open_frame(path, frame, true)?;
    if lines.skip(at)? < at || lines.at_end()? {
        // The place was found by reading the file from its start.
        lines = PackedLines::open_frame(path, frame, false)?;
        lines.skip(at)?;
    }
    let place = [frame, at];
    let Line::Episode { task, index, seed, branch, answer, outcome, rewards, acts, turns: n } =
        next_line(&mut lines, place)?
    else {
        return Err(place_error(path, place, "no episode begins there"));
    };
    let mut turns = Vec::with_capacity(n.min(TURNS));
    for _ in 0..n {
        match next_line(&mut lines, place)? {
            Line::Turn { turn, .. } => turns.push(turn),
            Line::Episode { .. } => {
                return Err(place_error(path, place, "the episode lacks turns"));
            }
        }
    }
    lines.drain()?;
    let log = String::new();
    Ok(Episode { task, index, seed, branch, turns, acts, answer, outcome, rewards, log })
}

/// Reads the next line of the episode at a place.
fn next_line(lines: &mut PackedLines<'_>, place: EpisodePosition) -> Result<Line, RunDirError> {
    let line = lines.next()?;
    let line = line.ok_or_else(|| place_error(lines.path, place, "no episode begins there"))?;
    serde_json::from_slice(&line).map_err(|error| place_error(lines.path, place, error))
}

/// Returns the error about the episode at a place.
fn place_error(path: &Path, [frame, at]: EpisodePosition, what: impl fmt::Display) -> RunDirError {
    damaged_error(path, format!("bytes {frame}, {at}: {what}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::run_dir::tests::episode;
    use crate::trajectory::{Fault, FaultKind, RewardOf};

    #[test]
    fn episodes_read_back_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-000001.jsonl.zst");
        let mut scored = episode("facts/1", 0, true, 3);
        scored.rewards.push(RewardPart { name: "brief".into(), value: 0.1, of: RewardOf::Turn(1) });
        let mut unscored = episode("facts/2", 1, false, 0);
        unscored.outcome = Outcome::Unscored(Fault::new(FaultKind::Timeout, "600 s"));
        write_rollouts(&path, &[scored.clone(), unscored.clone()]).unwrap();
        assert_eq!(read_rollouts(&path).unwrap(), [scored, unscored]);
    }

    #[test]
    fn every_episode_is_read_from_its_place_and_frames_end_past_a_mebibyte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-000001.jsonl.zst");
        let long = |index: u32| {
            let mut long = episode("facts/1", index, true, 2);
            long.turns[1].reply = format!("{index}").repeat(300_000);
            long
        };
        let episodes: Vec<Episode> = (0..9).map(long).collect();
        let (bytes, places) = encode(&path, &episodes).unwrap();
        fs::write(&path, &bytes).unwrap();
        let frames: Vec<u64> = places.iter().map(|[frame, _]| *frame).collect();
        // Four episodes of 300 kB are the first past 1 MiB.
        assert_eq!(frames.iter().filter(|frame| **frame == 0).count(), 4, "{places:?}");
        assert!(frames[4] > 0 && frames[8] > frames[7], "{places:?}");
        for (place, episode) in places.iter().zip(&episodes) {
            assert_eq!(&read_episode(&path, *place).unwrap(), episode);
        }
        assert_eq!(read_rollouts(&path).unwrap(), episodes);
        let mut at = 0;
        for episode in &episodes {
            assert_eq!(&read_episode(&path, [0, at]).unwrap(), episode, "counted from the start");
            let text = |line| serde_json::to_string(&line).unwrap().len() as u64 + 1;
            at += lines(episode).map(text).sum::<u64>();
        }
        let error = read_episode(&path, [0, 7]).unwrap_err().to_string();
        assert!(error.contains("bytes 0, 7"), "{error}");
        assert_eq!(encode(&path, &episodes).unwrap().0, bytes, "equal episodes, equal files");
        let mut damaged = bytes;
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        fs::write(&path, damaged).unwrap();
        assert!(read_episode(&path, places[8]).is_err(), "the checksum of the frame is verified");
        assert_eq!(
            read_first_rollouts(&path, 2).unwrap(),
            episodes[..2],
            "what follows is not read"
        );
        assert_eq!(read_first_rollouts(&path, 0).unwrap(), []);
    }

    #[test]
    fn log_probs_round_trip_to_the_bit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-000001.jsonl.zst");
        let mut one = episode("facts/1", 0, true, 1);
        let tokens = one.turns[0].tokens.as_mut().unwrap();
        tokens.seed = u64::MAX;
        tokens.logprobs =
            (1..10_000u32).map(|i| -f32::from_bits(i.wrapping_mul(214_013))).collect();
        tokens.logprobs.retain(|logprob| logprob.is_finite());
        write_rollouts(&path, std::slice::from_ref(&one)).unwrap();
        let read = read_rollouts(&path).unwrap().remove(0);
        let bits = |e: &Episode| -> Vec<u32> {
            e.turns[0].tokens.as_ref().unwrap().logprobs.iter().map(|l| l.to_bits()).collect()
        };
        assert_eq!(bits(&read), bits(&one));
        assert_eq!(read, one);
    }

    #[test]
    fn a_file_that_unpacks_to_too_much_is_refused_before_it_fills_the_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-000001.jsonl.zst");
        let mut out = zstd::Encoder::new(Vec::new(), 1).unwrap();
        for _ in 0..=crate::run_dir::lines::LONGEST >> 20 {
            std::io::Write::write_all(&mut out, &[b' '; 1 << 20]).unwrap();
        }
        fs::write(&path, out.finish().unwrap()).unwrap();
        assert!(fs::metadata(&path).unwrap().len() < 1 << 20);
        let error = read_rollouts(&path).unwrap_err().to_string();
        assert!(error.contains("line 1: it has more than 64 MiB"), "{error}");
        let episode =
            serde_json::to_string(&lines(&episode("facts/1", 0, true, 0)).next().unwrap());
        let many = episode.unwrap().replace("\"turns\":0", "\"turns\":1152921504606846975");
        let packed = zstd::encode_all(many.as_bytes(), 1).unwrap();
        fs::write(&path, packed).unwrap();
        let error = read_rollouts(&path).unwrap_err().to_string();
        assert!(error.contains("lacks 1152921504606846975 turns"), "{error}");
    }

    #[test]
    fn a_file_cut_short_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-000001.jsonl.zst");
        write_rollouts(&path, &[episode("facts/1", 0, true, 3)]).unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let error = read_rollouts(&path).unwrap_err().to_string();
        assert!(error.contains("step-000001.jsonl.zst"), "{error}");
    }
}
