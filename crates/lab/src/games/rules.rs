//! Rules of the word games: classes of words, the success of a team, and the contribution of each player.

use serde::{Deserialize, Serialize};

/// Words of the games, which are the vocabulary of their model. None contains another one.
pub const WORDS: [&str; 20] = [
    "red",
    "blue",
    "green",
    "gray",
    "iron",
    "salt",
    "milk",
    "wood",
    "wool",
    "lamp",
    "fish",
    "cup",
    "tin",
    "q0",
    "q1",
    "q2",
    "q3",
    "user",
    "assistant",
    "go",
];

/// Word in place of a reply that is none of [`WORDS`].
pub const MISSING: &str = "?";

/// Number of classes of words.
const CLASSES: usize = 4;

/// Returns the class of a word: its place in [`WORDS`] modulo 4. `None` for any other text.
pub fn class_of(word: &str) -> Option<usize> {
    WORDS.iter().position(|known| *known == word).map(|place| place % CLASSES)
}

/// Returns true if a player says a word of the class that is wanted of it: the number of the player modulo 4.
pub fn is_right(player: usize, word: &str) -> bool {
    class_of(word) == Some(player % CLASSES)
}

/// Success of a team as a function of the words of its players.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Game {
    /// Share of the players whose word is right: contributions are separate.
    #[default]
    Share,
    /// 1 if the word of the first player is right: no other player contributes.
    First,
    /// 1 if all words have one class: the players must coordinate.
    Match,
}

impl Game {
    /// Returns the success of a team by the words of its players, `[players]`.
    ///
    /// ```text
    /// share:  (1/n) Σ rightᵢ          first:  right₀          match:  1 if all words have the same class, else 0
    /// ```
    pub fn success(self, words: &[&str]) -> f64 {
        let right = |player: usize, word: &str| f64::from(is_right(player, word));
        match self {
            Self::Share => {
                let sum: f64 = words.iter().enumerate().map(|(i, word)| right(i, word)).sum();
                sum / words.len().max(1) as f64
            }
            Self::First => words.first().map_or(0.0, |word| right(0, word)),
            Self::Match => {
                let class = words.first().and_then(|word| class_of(word));
                let alike = class.is_some() && words.iter().all(|word| class_of(word) == class);
                f64::from(alike)
            }
        }
    }

    /// Returns the marginal contribution of each player, `[players]`: the success, minus that of the same words with
    /// [`MISSING`] in place of the player's.
    ///
    /// ```text
    /// cᵢ = success(w) - success(w₁ .. wᵢ₋₁, ?, wᵢ₊₁ .. wₙ)
    /// ```
    pub fn contributions(self, words: &[&str]) -> Vec<f64> {
        let success = self.success(words);
        let alone = (0..words.len()).map(|player| {
            let mut without = words.to_vec();
            without[player] = MISSING;
            success - self.success(&without)
        });
        alone.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_contains_another_one() {
        for word in WORDS {
            let within = WORDS.iter().filter(|other| other.contains(word)).count();
            assert_eq!(within, 1, "{word}");
        }
    }

    #[test]
    fn each_class_has_five_words_and_other_texts_have_none() {
        for class in 0..CLASSES {
            let of_class = WORDS.iter().filter(|word| class_of(word) == Some(class));
            assert_eq!(of_class.count(), 5);
        }
        assert_eq!(class_of("salt"), Some(1));
        assert_eq!([MISSING, "", "Red", "red blue"].map(class_of), [None; 4]);
    }

    #[test]
    fn players_are_wanted_to_say_the_class_of_their_number_modulo_four() {
        assert!(is_right(0, "iron") && is_right(1, "blue") && is_right(4, "red"));
        assert!(!is_right(1, "red") && !is_right(0, MISSING));
    }

    #[test]
    fn separate_successes_are_averaged_and_each_contributes_its_part() {
        // Right: the first (class 0) and the third (class 2). The second says class 0 instead of 1.
        let words = ["iron", "red", "milk", MISSING];
        assert_eq!(Game::Share.success(&words), 0.5);
        assert_eq!(Game::Share.contributions(&words), [0.25, 0.0, 0.25, 0.0]);
        assert_eq!(Game::Share.success(&[]), 0.0);
    }

    #[test]
    fn only_the_first_player_contributes_where_only_its_word_counts() {
        assert_eq!(Game::First.success(&["tin", "tin"]), 1.0);
        assert_eq!(Game::First.contributions(&["tin", "blue"]), [1.0, 0.0]);
        assert_eq!(Game::First.success(&["blue", "tin"]), 0.0);
        assert_eq!(Game::First.contributions(&["blue", "tin"]), [0.0, 0.0]);
        assert_eq!(Game::First.success(&[]), 0.0);
    }

    #[test]
    fn words_of_one_class_match_and_each_is_needed() {
        assert_eq!(Game::Match.success(&["blue", "salt", "lamp"]), 1.0);
        assert_eq!(Game::Match.contributions(&["blue", "salt", "lamp"]), [1.0; 3]);
        assert_eq!(Game::Match.success(&["blue", "salt", "red"]), 0.0);
        assert_eq!(Game::Match.success(&[MISSING, MISSING]), 0.0);
    }
}
