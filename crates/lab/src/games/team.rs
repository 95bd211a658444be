//! The team of the word games: players who say one word each.

use std::num::NonZeroU32;

use maverl::prelude::*;
use maverl::trajectory::{Fault, FaultKind};
use serde::{Deserialize, Serialize};

use super::rules::{MISSING, WORDS, class_of, is_right};

/// Question and words that a player reads.
#[derive(Input)]
pub struct Position {
    /// Question of the task.
    pub question: String,
    /// Word that stands for the number of the player: players who share a policy are told apart by it.
    pub player: String,
    /// Words of the players before it, separated by spaces; empty if it does not read them.
    pub before: String,
}

/// Says one word.
#[agent(Position -> String, name = "games/player", prompt_text = "{{ question }} {{ player }} {{ before }} go")]
pub struct Player;

/// Recipients of rewards beside the score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payment {
    /// None: each turn earns the score.
    #[default]
    Score,
    /// Each player: 1 if its own word is right.
    Own,
    /// The last turn alone: the success of the team.
    Last,
}

/// Players say one word each, in the order of their numbers.
#[orchestra(name = "games/round", agents(Player[players]))]
#[derive(Settings)]
pub struct Round {
    /// Number of players.
    #[setting(default = 2)]
    pub players: NonZeroU32,
    /// Shows each player the words of those before it.
    pub reads: bool,
    /// Rewards beside the score: `score` for none, `own` for 1 to each player whose word is right, `last` for the success of
    /// the team to the last turn alone. Of use with `environment.unpaid`.
    pub pays: Payment,
    /// Reward of the first player in every episode, whatever it says.
    pub offset: f64,
}

impl Orchestra for Round {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut words: Vec<String> = Vec::new();
        for player in 0..self.players.get() as usize {
            let position = Position {
                question: task.question.clone(),
                player: WORDS[player % WORDS.len()].to_owned(),
                before: if self.reads { words.join(" ") } else { String::new() },
            };
            let reply = AskError::or_none(team.seat::<Player>(player).ask(&position).await)?;
            let word = reply.map(|reply| reply.trim().to_owned());
            let word = word.filter(|word| class_of(word).is_some());
            words.push(word.unwrap_or_else(|| MISSING.to_owned()));
        }
        self.pay(team, &words).await?;
        Ok(Some(words.join(" ")))
    }
}

impl Round {
    /// Adds the rewards beside the score.
    ///
    /// # Errors
    ///
    /// If the last turn is to earn the success of the team, and the environment does not tell it.
    async fn pay(&self, team: &Team<Self>, words: &[String]) -> Result<(), AskError> {
        team.seat::<Player>(0).add_reward("offset", self.offset);
        match self.pays {
            Payment::Score => {}
            Payment::Own => {
                for (player, word) in words.iter().enumerate() {
                    let own = f64::from(is_right(player, word));
                    team.seat::<Player>(player).add_reward("own", own);
                }
            }
            Payment::Last => {
                let score = team.judge(&words.join(" ")).await?;
                let success = score.metrics.get("team").and_then(serde_json::Value::as_f64);
                let success = success.ok_or_else(no_success)?;
                team.seat::<Player>(words.len() - 1).add_reward("last", success);
            }
        }
        Ok(())
    }
}

/// Returns the fault of an environment without the success of the team.
fn no_success() -> Fault {
    let message = "`orchestra.pays` is `last`, and the environment has no metric `team`; set \
                   `environment.name = \"games/words\"`";
    Fault::new(FaultKind::Orchestra, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use maverl::rollout::Scripted;

    use super::*;
    use crate::games::{Game, WordGame};

    /// Plays an episode in which player i says `words[i]`.
    fn play(round: Round, game: WordGame, words: &'static [&'static str]) -> Episode {
        let task = Task {
            id: "t0".to_owned(),
            source: "games".to_owned(),
            question: "q0".to_owned(),
            data: serde_json::Map::new(),
        };
        let script = Scripted::new(round, game, move |seat, _| {
            words[seat.index.unwrap() as usize].to_owned()
        });
        script.play_blocking(&task)
    }

    fn players(n: u32) -> Round {
        Round { players: NonZeroU32::new(n).unwrap(), ..Round::default() }
    }

    fn rewards(episode: &Episode) -> Vec<f64> {
        (0..episode.turns.len()).map(|turn| episode.turn_reward(turn).unwrap()).collect()
    }

    fn shown(episode: &Episode) -> Vec<&str> {
        episode.turns.iter().map(|turn| turn.prompt[0].content.as_str()).collect()
    }

    fn metric(episode: &Episode, name: &str) -> f64 {
        episode.score().unwrap().metrics[name].as_f64().unwrap()
    }

    #[test]
    fn every_turn_earns_the_share_of_right_words_and_contributions_are_recorded() {
        let episode = play(players(3), WordGame::default(), &["iron", "red", "milk"]);
        assert_eq!(episode.answer.as_deref(), Some("iron red milk"));
        assert_eq!(rewards(&episode), [2.0 / 3.0; 3]);
        assert!(!episode.score().unwrap().solved);
        let credits = ["credit_0", "credit_1", "credit_2"].map(|name| metric(&episode, name));
        assert!((credits[0] - 1.0 / 3.0).abs() < 1e-12 && (credits[2] - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(credits[1], 0.0);
    }

    #[test]
    fn a_reply_that_is_no_word_is_missing_in_the_answer() {
        let episode = play(players(2), WordGame::default(), &["red red", "blue"]);
        assert_eq!(episode.answer.as_deref(), Some("? blue"));
        assert_eq!(rewards(&episode), [0.5; 2]);
    }

    #[test]
    fn players_read_the_words_before_their_own_only_if_they_are_shown_them() {
        let words = &["red", "blue", "gray"];
        let alone = play(players(3), WordGame::default(), words);
        assert_eq!(shown(&alone), ["q0 red  go", "q0 blue  go", "q0 green  go"]);
        let reads = Round { reads: true, ..players(3) };
        let reading = play(reads, WordGame::default(), words);
        assert_eq!(shown(&reading), ["q0 red  go", "q0 blue red go", "q0 green red blue go"]);
    }

    #[test]
    fn players_earn_their_own_success_and_the_first_an_offset() {
        let round = Round { pays: Payment::Own, offset: 5.0, ..players(2) };
        let unpaid = || WordGame { unpaid: true, ..WordGame::default() };
        let episode = play(round, unpaid(), &["iron", "red"]);
        assert_eq!(rewards(&episode), [6.0, 0.0]);
        assert_eq!(metric(&episode, "team"), 0.5);
        let round = Round { pays: Payment::Own, offset: 5.0, ..players(2) };
        assert_eq!(rewards(&play(round, unpaid(), &["blue", "salt"])), [5.0, 1.0]);
    }

    #[test]
    fn the_last_turn_alone_is_paid_for_the_word_of_the_first_player() {
        let game = || WordGame { game: Game::First, unpaid: true };
        let round = || Round { pays: Payment::Last, ..players(3) };
        let episode = play(round(), game(), &["wool", "red", "red"]);
        assert_eq!(rewards(&episode), [0.0, 0.0, 1.0]);
        assert!(episode.score().unwrap().solved);
        assert_eq!(rewards(&play(round(), game(), &["lamp", "blue", "milk"])), [0.0; 3]);
    }

    #[test]
    fn an_environment_without_the_success_of_the_team_is_a_fault_that_names_the_right_one() {
        let round = Round { pays: Payment::Last, ..players(1) };
        let script =
            Scripted::new(round, maverl::env::nli::NliEnvironment, |_, _| "red".to_owned());
        let task = Task {
            id: "t0".to_owned(),
            source: "games".to_owned(),
            question: "q0".to_owned(),
            data: [("answers".to_owned(), serde_json::json!(["neutral"]))].into_iter().collect(),
        };
        let episode = script.play_blocking(&task);
        let fault = format!("{:?}", episode.outcome);
        assert!(fault.contains("games/words"), "{fault}");
    }
}
