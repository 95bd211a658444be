//! All claims: those checked in the shipped teams, then those checked in word games.

use crate::claims::{CLAIMS, Claim};
use crate::games::GAMES;

/// Iterates over all claims, in the order of the page.
pub(crate) fn all_claims() -> impl Iterator<Item = &'static Claim> {
    CLAIMS.iter().chain(&GAMES)
}
