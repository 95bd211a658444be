//! From rewards to updates: pure functions that read like their papers.
//!
//! | function | equation | paper | file |
//! |---|---|---|---|
//! | [`samples`] | which turns are trained on | | `sample.rs` |
//! | [`advantages`], by task | `A = (r̄_episode − μ_task) / (σ_task + ε)` | GRPO, [2402.03300] §4.1.2 | `advantage.rs` |
//! | [`advantages`], by task and seat | `A = (r − μ_{task,seat}) / (σ_{task,seat} + ε)` | Dr. MAS, [2602.08847] eq. 5 | `advantage.rs` |
//! | [`clipped_surrogate`] | `max(−Aρ, −A·clip(ρ, 1−ε_low, 1+ε_high))` | PPO, [1707.06347] eq. 7; DAPO, [2503.14476] eq. 8 | `loss.rs` |
//! | its dual bound | `min(·, −A·c)` where `A < 0` | dual-clip PPO, [1912.09729] eq. 8 | `loss.rs` |
//! | [`kl()`] | k1, k2, k3 | Schulman, [Approximating KL divergence] | `loss.rs` |
//! | [`token_weights`] | how token losses become one number | [2503.20783] compares them | `loss.rs` |
//! | [`batches`] | rows in the order that fixes every sum | | `batch.rs` |
//! | [`lr`] | warm-up, then constant, linear or cosine | [1608.03983] eq. 5 | `schedule.rs` |
//!
//! - **AL-1** Nothing here does I/O or reads a clock or a random number.
//!
//! Letters of dimensions, here and in `model`: `P` tasks, `G` episodes per task, `N` packed tokens (or samples, where
//! there are no tokens), `B` rows of a micro-batch, `T` tokens of a row, `V` vocabulary, `D` hidden, `H` heads.
//!
//! [2402.03300]: https://arxiv.org/abs/2402.03300
//! [2602.08847]: https://arxiv.org/abs/2602.08847
//! [1707.06347]: https://arxiv.org/abs/1707.06347
//! [2503.14476]: https://arxiv.org/abs/2503.14476
//! [1912.09729]: https://arxiv.org/abs/1912.09729
//! [Approximating KL divergence]: http://joschu.net/blog/kl-approx.html
//! [2503.20783]: https://arxiv.org/abs/2503.20783
//! [1608.03983]: https://arxiv.org/abs/1608.03983

mod advantage;
mod batch;
pub mod loss;
mod sample;
mod schedule;

#[cfg(test)]
pub(crate) mod testing;

pub use advantage::{Advantages, GroupSummary, advantages};
pub use batch::{Batch, Objective, Row, batches};
pub use loss::{SurrogateStats, clipped_surrogate, kl, surrogate_stats, token_weights};
pub use sample::{Sample, TaskKey, samples};
pub use schedule::lr;
