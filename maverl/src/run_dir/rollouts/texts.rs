//! Texts of the episodes of a file, of which only the lines that a filter lets through are parsed.

use std::path::Path;

use serde::Deserialize;

use super::place_error;
use crate::run_dir::error::RunDirError;
use crate::run_dir::lines::{EpisodePosition, PackedLines};
use crate::trajectory::{RewardPart, Seat};

/// First bytes of the line of an episode. Those of its turns follow it.
const EPISODE: &[u8] = b"{\"episode\":";

/// Texts of a line, without tokens.
#[derive(Debug)]
pub enum Texts {
    /// The line of an episode.
    Episode {
        /// Question of the task.
        question: String,
        /// Observations of its actions.
        observations: Vec<String>,
        /// Answer of the orchestra.
        answer: Option<String>,
        /// Parts of its rewards.
        rewards: Vec<RewardPart>,
    },
    /// The line of a turn.
    Turn {
        /// Index of the turn in the episode.
        turn: usize,
        /// Seat that replied.
        seat: Seat,
        /// Messages of the prompt.
        prompt: Vec<String>,
        /// Reply.
        reply: String,
        /// Reason that the reply is malformed.
        error: Option<String>,
    },
}

/// A line of a file of episodes, as far as its texts go.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Episode {
        task: TaskText,
        answer: Option<String>,
        acts: Option<Vec<StoredText>>,
        #[serde(default)]
        rewards: Vec<RewardPart>,
    },
    Turn {
        turn: TurnText,
    },
}

#[derive(Deserialize)]
struct TaskText {
    question: String,
}

#[derive(Deserialize)]
struct TurnText {
    seat: Seat,
    prompt: Vec<StoredText>,
    reply: String,
    error: Option<String>,
}

/// A text among other fields: the content of a message, or the observation of an action.
#[derive(Deserialize)]
struct StoredText {
    #[serde(alias = "observation")]
    content: String,
}

impl Line {
    fn texts(self, turn: usize) -> Texts {
        match self {
            Self::Episode { task, answer, acts, rewards } => Texts::Episode {
                question: task.question,
                observations: contents_of(acts.unwrap_or_default()),
                answer,
                rewards,
            },
            Self::Turn { turn: TurnText { seat, prompt, reply, error } } => {
                Texts::Turn { turn, seat, prompt: contents_of(prompt), reply, error }
            }
        }
    }
}

fn contents_of(texts: Vec<StoredText>) -> Vec<String> {
    texts.into_iter().map(|text| text.content).collect()
}

/// Reads the frame at an offset once, and parses the lines of some of its episodes that a filter lets through. `starts`
/// are the offsets of their lines in the frame, ascending. `found` is called with the index of the start of each parsed
/// line. Texts of a frame whose checksum is wrong were reported when the error is returned.
///
/// Offsets beyond the frame are those of a file that was read from its start.
///
/// # Errors
///
/// If the file cannot be read, a parsed line is invalid, or no episode begins at one of the offsets.
pub fn scan_texts(
    path: &Path,
    frame: u64,
    starts: &[u64],
    filter: impl Fn(&[u8]) -> bool,
    mut found: impl FnMut(usize, Texts),
) -> Result<(), RunDirError> {
    let mut seen = 0;
    // All offsets are in the frame, or counted from the start of the file.
    for only in [true, false] {
        let mut lines = PackedLines::open_frame(path, frame, only)?;
        let ended = scan(&mut lines, starts, &mut seen, &filter, &mut found)?;
        if seen == starts.len() {
            return if ended { Ok(()) } else { lines.drain() };
        }
    }
    let at: EpisodePosition = [frame, starts[seen]];
    Err(place_error(path, at, "no episode begins there"))
}

/// Parses lines up to the end of the last episode; returns true if the text has no more lines. `seen` is the number of
/// episodes that were found.
fn scan(
    lines: &mut PackedLines<'_>,
    starts: &[u64],
    seen: &mut usize,
    filter: &impl Fn(&[u8]) -> bool,
    found: &mut impl FnMut(usize, Texts),
) -> Result<bool, RunDirError> {
    let (mut line, mut turn, mut wanted) = (Vec::new(), 0, false);
    loop {
        let at = lines.bytes;
        if !lines.read(&mut line)? {
            return Ok(true);
        }
        if line.starts_with(EPISODE) {
            wanted = starts.get(*seen) == Some(&at);
            if !wanted && *seen == starts.len() {
                return Ok(false);
            }
            *seen += usize::from(wanted);
            turn = 0;
        } else {
            turn += 1;
        }
        if wanted && filter(&line) {
            let parsed: Result<Line, _> = serde_json::from_slice(&line);
            let parsed = parsed.map_err(|error| lines.damaged_line(error))?;
            found(*seen - 1, parsed.texts(turn.max(1) - 1));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::run_dir::rollouts::encode;
    use crate::run_dir::tests::episode;
    use crate::run_dir::write_rollouts;

    #[test]
    fn texts_of_chosen_episodes_are_read_from_a_frame_and_from_a_whole_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-000001.jsonl.zst");
        let episodes: Vec<_> = (0..9)
            .map(|n| {
                let mut one = episode("a", n, true, 2);
                one.turns[1].reply = format!("reply {n} {}", "x".repeat(200_000));
                one
            })
            .collect();
        write_rollouts(&path, &episodes).unwrap();
        let (_, places) = encode(&path, &episodes).unwrap();
        let read = |frame: u64, starts: &[u64]| {
            let mut replies = Vec::new();
            let filter = |line: &[u8]| line.starts_with(b"{\"turn\":");
            let scanned = scan_texts(&path, frame, starts, filter, |i, texts| match texts {
                Texts::Turn { turn: 1, reply, .. } => replies.push((i, reply[..7].to_owned())),
                Texts::Turn { turn, .. } => assert_eq!(turn, 0),
                Texts::Episode { .. } => panic!("the filter lets no episode through"),
            });
            scanned.map(|()| replies)
        };
        let frame = places[7][0];
        assert!(frame > 0 && places[8][0] == frame, "{places:?}");
        let found = read(frame, &[places[7][1], places[8][1]]).unwrap();
        assert_eq!(found, [(0, "reply 7".to_owned()), (1, "reply 8".to_owned())]);
        assert_eq!(read(frame, &[places[8][1]]).unwrap(), [(0, "reply 8".to_owned())]);
        // As the rows of an old run have them.
        let mut from_start = Vec::new();
        crate::run_dir::scan_rollouts(&path, "train", 1, |row| {
            from_start.push(row.at[1]);
            true
        })
        .unwrap();
        let chosen = [from_start[1], from_start[8]];
        let found = read(0, &chosen).unwrap();
        assert_eq!(found, [(0, "reply 1".to_owned()), (1, "reply 8".to_owned())]);
        let missing = read(frame, &[7]).unwrap_err().to_string();
        assert!(missing.contains("no episode begins there"), "{missing}");
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 2;
        bytes[last] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(read(frame, &[places[7][1]]).is_err(), "the checksum of the frame is verified");
    }
}
