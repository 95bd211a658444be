//! Identifiers and seeds that no client chooses.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use maverl_kernels::sample::derive_seed;

/// Returns a number that no other call in this process returns, unrelated to those of other processes.
fn fresh() -> u64 {
    static BASE: OnceLock<u64> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // The keys of `RandomState` are from the system's random numbers.
    let base = BASE.get_or_init(|| RandomState::new().hash_one(0_u64));
    derive_seed(*base, COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Draws a seed of 53 bits, which every reader of JSON reads exactly.
pub(crate) fn draw_seed() -> u64 {
    fresh() >> 11
}

/// Returns a new identifier with a prefix.
pub(crate) fn new_id(prefix: &str) -> String {
    let id = fresh();
    format!("{prefix}-{id:016x}{:08x}", derive_seed(id, 1) >> 32)
}

/// Returns the seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}
