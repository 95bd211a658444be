//! From rewards to updates: pure functions with the notation of their papers.
//!
//! | function | equation | paper | file |
//! |---|---|---|---|
//! | [`samples`] | which turns are trained on | | `sample.rs` |
//! | [`flat_tasks`] | tasks whose episodes all earned the same | DAPO, [2503.14476] §3.2 | `sample.rs` |
//! | `advantages` | its parts, as the algorithm names them | | `advantage.rs` |
//! | [`relative_advantages`](maverl_kernels::advantage::relative_advantages()), by task | `A = (r̄_episode − μ_task) / (σ_task + ε)` | GRPO, [2402.03300] §4.1.2 | kernels |
//! | by task and seat | `A = (r − μ_{task,seat}) / (σ_{task,seat} + ε)` | Dr. MAS, [2602.08847] eq. 5 | kernels |
//! | leave one out | `A = n / (n − 1) · (r − μ)` | RLOO, [2402.14740] §2 | kernels |
//! | by length | `A = u − Σ len·u / Σ len` | OPO, [2505.23585] eq. 7 | `advantage/rescale.rs` |
//! | by place | `A_t = r − Σ r W_t / Σ W_t` | OTB, [2602.07078] | `advantage/token_baseline.rs` |
//! | over the mean; flat groups | `(u − μ) / μ`; `(u − μ) B / (B − M)` | MaxRL, [2602.02710]; GPG, [2504.02546] eq. 6 | `advantage/rescale.rs` |
//! | second best | `A = r_max − r_2nd` for the best | pass@k, [2503.19595] | kernels |
//! | [`whiten_groups`](maverl_kernels::advantage::whiten_groups()) | `A = (x − mean) / sqrt(var + 1e-8)` | REINFORCE++, [2501.03262] | kernels |
//! | [`discounted_returns`](maverl_kernels::advantage::discounted_returns()) | `Rₜ = rₜ + γ Rₜ₊₁`, compared among equal prompts | GiGPO, [2505.10978] | kernels, `advantage/anchor.rs` |
//! | [`gae_advantages`](maverl_kernels::advantage::gae_advantages()) | `Aₜ = δₜ + γλ Aₜ₊₁` | GAE, [1506.02438] eq. 16 | kernels |
//! | over [chains](maverl_kernels::advantage::RaggedRows::from_chains) | the same, from agent to agent | MARFT, [2504.16129] | kernels |
//! | [`advantage::valued_advantages`] | both, from what a critic said | PPO, IPPO, MAPPO, MARFT | `advantage/valued.rs` |
//! | [`advantage::Compound`] | `F = Π π_new / π_old` of those before | HAPPO, [2109.11251] §4 | `advantage/compound.rs` |
//! | [`Mixing`] | `V = Σ Vᵢ`; `V = w₂ · elu(V W₁ + b₁) / E + b₂` | VDN, [1706.05296]; QMIX, [1803.11485] §4 | `mixer.rs` |
//! | [`advantage::similarity`] | similarity of prompts | Ratcliff and Obershelp | `advantage/anchor.rs` |
//! | `baselines` | `A = r − mean r_branch`; `A = V_after − V_before` | COMA, [1705.08926] eq. 4; VinePO, [2410.01679] eq. 6 | `advantage/branched.rs` |
//! | `baselines` | `φ = mean over orders of v(before, with it) − v(before)` | Shapley 1953 | `advantage/shapley.rs` |
//! | `branches` | which branches are played | | `branch.rs` |
//! | `baselines` | `A = r − r_greedy`; `A = r − b_seat` | ReMax, [2310.10505] | `advantage/baseline.rs`, `ema.rs` |
//! | [`shaped_rewards`] | `r + α (r − q)` | MARTI | `advantage/shaping.rs` |
//! | [`advantage::discounted_scores`], [`advantage::influence_bonus`] | scores and influence over turns | MAPoRL, [2502.18439] | `advantage/shaping.rs` |
//! | [`clipped_surrogate`](loss::clipped_surrogate) | `max(−Aρ, −A·clip(ρ, 1−ε_low, 1+ε_high))` | PPO, [1707.06347] eq. 7; DAPO eq. 8 | `loss/surrogate.rs` |
//! | its dual bound | `min(·, −A·c)` where `A < 0` | dual-clip PPO, [1912.09729] eq. 8 | `loss/surrogate.rs` |
//! | [`cispo`](loss::cispo) | `−sg(min(ρ, 1+ε))·A·logp` | MiniMax-M1, [2506.13585] | `loss/surrogate.rs` |
//! | [`sapo`](loss::sapo) | `−A·(4/τ)·sigmoid(τ(ρ−1))` | SAPO, [2511.20347] | `loss/surrogate.rs` |
//! | [`cpgd`](loss::cpgd), [`policy_drift`](loss::policy_drift) | `−A·clip(log ρ)` | CPGD, [2505.12504] | `loss/surrogate.rs` |
//! | [`gmpo`](loss::gmpo) | `−A·exp(mean clip(log ρ))` | GMPO, [2507.20673] eq. 4 | `loss/reply.rs` |
//! | [`vespo`](loss::vespo) | `−sg(φ(Π ρ))·A·logp` | VESPO, [2602.10693] | `loss/reply.rs` |
//! | [`dppo`](loss::dppo) | `−sg(min(ρ, 20))·A·logp`, 0 where probabilities differ | DPPO, [2602.04879] | `loss/weighted.rs` |
//! | [`dro`](loss::dro), [`reinforce`](loss::reinforce) | `−A·logp + β/2·log² ρ`; `−A·logp` | DRO, [2405.19107]; GPG eq. 5 | `loss/weighted.rs` |
//! | [`policy_gradient`] | the loss of a row; mask of off-policy rows | DeepSeek-V3.2, [2512.02556] eq. 9 | `loss/policy.rs` |
//! | [`PolicyReply`](loss::PolicyReply) | ratios of rows | GSPO, [2507.18071] | `loss/reply.rs` |
//! | [`kl`](loss::kl) | k1, k2, k3 | Schulman, [Approximating KL divergence] | `loss/divergence.rs` |
//! | [`kl_reward`](loss::kl_reward), [`AdaptiveKl`](loss::AdaptiveKl) | `r − β Σ kl`; `β (1 + clip(kl / target − 1) n / h)` | [1909.08593] | `loss/divergence.rs` |
//! | [`correction_weights`](loss::correction_weights) | `min(p_trainer / p_rollout, C)`; masks | truncated importance sampling; IcePop, [2510.18855] | `loss/correction.rs` |
//! | [`Selection`](loss::Selection) | tokens with the largest `(A − Ā)(logp − mean logp)`, or entropy | Clip-Cov, KL-Cov, [2505.22617]; [2506.01939] | `loss/selection.rs` |
//! | `advantage::paired` | `(argmax r, argmin r)` of an agent's replies to a task | online DPO, [2402.04792] §3 | `advantage/pairs.rs` |
//! | [`preference`](loss::preference) | losses of pairs | DPO, [2305.18290]; ORPO, [2403.07691]; SimPO, [2405.14734] | `loss/preference.rs` |
//! | [`kto`](loss::kto) | `λ (1 − σ(±β (h − z₀)))` | KTO, [2402.01306] eq. 8 | `loss/kto.rs`, `advantage/pairs.rs` |
//! | [`advantage::teacher_differences`] | `A ← c·A + k·(logp_T − logp_S)` | GKD, [2306.13649] | `advantage/distill.rs` |
//! | [`teacher_divergence`](loss::teacher_divergence) | `KL(π_S ‖ π_T)`, `KL(π_T ‖ π_S)`, JSD | GKD, [2306.13649] | `loss/teacher.rs` |
//! | [`observation`](loss::observation), `observed` | `L + c · mean NLL` of what the environment wrote | ECHO, [2605.24517] | `loss/policy.rs`, `observation.rs` |
//! | [`clipped_value`](loss::clipped_value) | `½ max((V−R)², (V'−R)²)` | [2006.05990] | `loss/value.rs` |
//! | [`Scale`] | running normalization of values; PopArt | MAPPO, [2103.01955]; PopArt, [1602.07714] | `value.rs` |
//! | [`token_weights`] | aggregation of token losses | [2503.20783] compares them | `loss/aggregate.rs` |
//! | `GroupBuffer` | groups with the largest mean absolute `A`, drawn in proportion to it | TRL | `replay.rs` |
//! | [`batches`] | rows in the order that fixes every sum | | `batch.rs` |
//! | [`OptimOptions::rate`](crate::runtime::OptimOptions::rate) | warm-up, then constant, linear or cosine | [1608.03983] eq. 5 | `runtime/optim.rs` |
//!
//! "kernels" is `maverl_kernels::advantage`, where the arithmetic of every estimator is.
//!
//! - **AL-1** Nothing here does I/O or reads a clock or a random number.
//!
//! Letters of dimensions, here and in `model`: `P` tasks, `G` episodes per task, `N` packed tokens (or samples, where
//! there are no tokens), `B` rows of a micro-batch, `T` tokens of a row, `V` vocabulary, `D` hidden, `H` heads.
//!
//! [2405.19107]: https://arxiv.org/abs/2405.19107
//! [2504.02546]: https://arxiv.org/abs/2504.02546
//! [2505.23585]: https://arxiv.org/abs/2505.23585
//! [2507.20673]: https://arxiv.org/abs/2507.20673
//! [2512.02556]: https://arxiv.org/abs/2512.02556
//! [2602.02710]: https://arxiv.org/abs/2602.02710
//! [2602.04879]: https://arxiv.org/abs/2602.04879
//! [2402.01306]: https://arxiv.org/abs/2402.01306
//! [2505.22617]: https://arxiv.org/abs/2505.22617
//! [2506.01939]: https://arxiv.org/abs/2506.01939
//! [2602.07078]: https://arxiv.org/abs/2602.07078
//! [2602.10693]: https://arxiv.org/abs/2602.10693
//! [2605.24517]: https://arxiv.org/abs/2605.24517
//! [2310.10505]: https://arxiv.org/abs/2310.10505
//! [1909.08593]: https://arxiv.org/abs/1909.08593
//! [2510.18855]: https://arxiv.org/abs/2510.18855
//! [2402.03300]: https://arxiv.org/abs/2402.03300
//! [2602.08847]: https://arxiv.org/abs/2602.08847
//! [2402.14740]: https://arxiv.org/abs/2402.14740
//! [2503.19595]: https://arxiv.org/abs/2503.19595
//! [2501.03262]: https://arxiv.org/abs/2501.03262
//! [2505.10978]: https://arxiv.org/abs/2505.10978
//! [1506.02438]: https://arxiv.org/abs/1506.02438
//! [2504.16129]: https://arxiv.org/abs/2504.16129
//! [2502.18439]: https://arxiv.org/abs/2502.18439
//! [2506.13585]: https://arxiv.org/abs/2506.13585
//! [2511.20347]: https://arxiv.org/abs/2511.20347
//! [2505.12504]: https://arxiv.org/abs/2505.12504
//! [2507.18071]: https://arxiv.org/abs/2507.18071
//! [2306.13649]: https://arxiv.org/abs/2306.13649
//! [2403.07691]: https://arxiv.org/abs/2403.07691
//! [2405.14734]: https://arxiv.org/abs/2405.14734
//! [2305.18290]: https://arxiv.org/abs/2305.18290
//! [2402.04792]: https://arxiv.org/abs/2402.04792
//! [2006.05990]: https://arxiv.org/abs/2006.05990
//! [1706.05296]: https://arxiv.org/abs/1706.05296
//! [1803.11485]: https://arxiv.org/abs/1803.11485
//! [2109.11251]: https://arxiv.org/abs/2109.11251
//! [2103.01955]: https://arxiv.org/abs/2103.01955
//! [1602.07714]: https://arxiv.org/abs/1602.07714
//! [1707.06347]: https://arxiv.org/abs/1707.06347
//! [2503.14476]: https://arxiv.org/abs/2503.14476
//! [1912.09729]: https://arxiv.org/abs/1912.09729
//! [Approximating KL divergence]: http://joschu.net/blog/kl-approx.html
//! [2503.20783]: https://arxiv.org/abs/2503.20783
//! [1705.08926]: https://arxiv.org/abs/1705.08926
//! [2410.01679]: https://arxiv.org/abs/2410.01679
//! [1608.03983]: https://arxiv.org/abs/1608.03983

pub mod advantage;
mod batch;
mod branch;
mod mixer;
mod observation;
mod replay;
mod sample;
mod value;

/// Losses as pure functions, each with its derivative.
pub use maverl_engine::loss;

#[cfg(test)]
pub(crate) mod testing;

pub use advantage::{Advantages, GroupSummary, Terms, shaped_rewards};
pub(crate) use advantage::{
    advantages, average_plays, baselines, declared_advantages, equal_rewards, is_greedy,
};
pub(crate) use batch::{add_observations, add_teachers, row, with_replayed};
pub use batch::{batches, pair_batches};
pub(crate) use branch::{PlannedBranch, branches, further_branches};
pub use maverl_engine::loss::{PolicyLoss, RowTokens, policy_gradient, token_weights};
pub use maverl_engine::runtime::{
    Batch, Objective, Row, Scale, ValueBatch, ValueRow, ValueTarget, ValueText,
};
pub use mixer::{MixedTurn, Mixing, Monotone, SeatValues, mixed_turns};
pub(crate) use observation::{Observed, observed};
pub(crate) use replay::{GroupBuffer, KeptGroup, ReplayedGroup, ReplayedGroups, StepGroups};
pub use sample::{Sample, TaskKey, flat_tasks, samples};
pub use value::{explained_variance, value_batches};
