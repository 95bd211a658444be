//! Word games: teams whose players say one word each, with known credit.
//!
//! The success of a team is a function of its words ([`Game::success`]), so what each player contributed to it is known
//! ([`Game::contributions`]), and the advantage that an estimator gives to a player can be compared with it. A model with 22,000
//! parameters learns a game in seconds.
//!
//! The orchestra `games/round` asks the players, the environment `games/words` scores their words, and [`write_games`] writes the
//! model and the tasks.

mod environment;
mod model;
mod rules;
mod team;

pub use environment::WordGame;
pub use model::write_games;
pub use rules::{Game, MISSING, WORDS, class_of, is_right};
pub use team::{Payment, Player, Position, Round};
