//! The environment of the word games.

use maverl::prelude::*;
use serde_json::{Map, json};

use super::rules::Game;

/// Scores the words of a team by the rule of a game.
///
/// The answer is the words of the players, separated by spaces. The metric `team` is the success, and `credit_0`, `credit_1` and
/// so on are the contributions of the players.
#[environment(name = "games/words")]
#[derive(Settings)]
pub struct WordGame {
    /// Success of the team: `share` of the players that are right, that of the `first` player alone, or a `match` of all words.
    pub game: Game,
    /// True if the score is 0 and the success is a metric alone: the orchestra pays the players.
    pub unpaid: bool,
}

impl Environment for WordGame {
    async fn score(&self, _: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        let words: Vec<&str> = answer.unwrap_or_default().split_whitespace().collect();
        let success = self.game.success(&words);
        let mut metrics = Map::from_iter([("team".to_owned(), json!(success))]);
        for (player, credit) in self.game.contributions(&words).into_iter().enumerate() {
            metrics.insert(format!("credit_{player}"), json!(credit));
        }
        let reward = if self.unpaid { 0.0 } else { success };
        Ok(Score { reward, solved: success == 1.0, metrics })
    }
}
