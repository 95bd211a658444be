//! Episodes as texts for people: question, turns, answer and reward.

use std::fmt::Write as _;

use crate::trajectory::{Episode, Outcome};

/// Characters of a part of a text.
const LONGEST: usize = 4000;

/// Returns an episode as Markdown.
pub fn episode_text(episode: &Episode) -> String {
    let mut text = format!("**{}/{}**\n\n", episode.task.source, episode.task.id);
    let _ = writeln!(text, "{}\n", cut(&episode.task.question));
    for turn in &episode.turns {
        let _ = writeln!(text, "**{}**\n\n{}\n", turn.seat, cut(&turn.reply));
    }
    if let Some(answer) = &episode.answer {
        let _ = writeln!(text, "answer: {}\n", cut(answer));
    }
    let outcome = match &episode.outcome {
        Outcome::Scored(score) => format!("score: {}, solved: {}", score.reward, score.solved),
        Outcome::Unscored(fault) => format!("unscored: {}", cut(&fault.message)),
    };
    text + &outcome + "\n"
}

/// Cuts a text, and says how much.
fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{} .. ({} more bytes)", &text[..at], text.len() - at),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_parts_are_cut_at_a_character() {
        assert_eq!(cut("short"), "short");
        let long = "ä".repeat(LONGEST + 3);
        assert!(cut(&long).ends_with("ä .. (6 more bytes)"));
    }
}
