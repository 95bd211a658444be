//! Claims of the literature, each with the runs that are compared: those in teams that ship.

use crate::quantity::Measure;

/// A claim, and the arms of its comparison.
pub(crate) struct Claim {
    /// Name on the command line, in the page and of the directory of the runs.
    pub(crate) name: &'static str,
    /// Claim in one line.
    pub(crate) title: &'static str,
    /// Configuration of all arms.
    pub(crate) base: &'static str,
    /// Training of each run.
    pub(crate) budget: RunBudget,
    /// Runs of each arm.
    pub(crate) seeds: u64,
    /// Arms of the comparison.
    pub(crate) arms: &'static [Arm],
    /// Expected differences.
    pub(crate) tests: &'static [ClaimTest],
}

/// Amount of training of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunBudget {
    /// Steps, and so episodes.
    Steps(u64),
    /// Sampled tokens. A run ends with the step that reaches them.
    Tokens(i64),
}

/// One side of a comparison.
pub(crate) struct Arm {
    /// Name in tables and drawings.
    pub(crate) name: &'static str,
    /// Name of the run. Arms with the same one share its training.
    pub(crate) run: &'static str,
    /// Settings of the run, beside those of the claim.
    pub(crate) set: SettingLists,
    /// Settings of the team that is evaluated, in place of `set`; empty if it is the trained one.
    pub(crate) played: SettingLists,
    /// Metric of a step that is the arm's reward, and its factor.
    pub(crate) reward: (&'static str, f64),
}

/// Lists of settings, one after another.
pub(crate) type SettingLists = &'static [&'static [&'static str]];

/// An expected difference between two arms.
pub(crate) struct ClaimTest {
    /// Compared quantity.
    pub(crate) measure: Measure,
    /// Name of the arm that is better according to the claim.
    pub(crate) better: &'static str,
    /// Name of the other arm.
    pub(crate) other: &'static str,
}

/// Runs of each arm. The number is fixed before the first one.
const SEEDS: u64 = 10;

/// Mean score of the team's answers in a step.
const SCORE: (&str, f64) = ("rollout/score_mean", 1.0);

/// Mean score of the pioneer's answers in a step: both agents of the pair are rewarded with it, and the metric is the
/// sum.
const PIONEER: (&str, f64) = ("rollout/reward/pioneer", 0.5);

/// The search team of `examples/search_orchestra.toml`.
const SEARCH: &str = r#"
[task]
data = "builtin:facts"
tasks_per_step = 4
group_size = 8

[orchestra]
name = "search/route"
max_turns = 3

[environment]
name = "search"
corpus = "builtin:facts"
top_k = 1

[sampling]
max_tokens = 24

[models.tiny]
path = "builtin:tiny"
optim = { lr = 5e-4, betas = [0.9, 0.95], weight_decay = 0.0 }
"#;

/// Natural language inference as in `examples/single.toml`.
const INFERENCE: &str = r#"
[task]
data = "builtin:nli"
tasks_per_step = 4
group_size = 8
max_level = 1

[environment]
name = "nli"

[sampling]
max_tokens = 24

[models.tiny]
path = "builtin:generalist"
optim = { lr = 2e-4 }
"#;

/// A reasoner and an actor on natural language inference, as in `examples/chain.toml`.
const RELAY: &str = r#"
[task]
data = "builtin:nli"
tasks_per_step = 4
group_size = 8
max_level = 1

[orchestra]
name = "chain/relay"
reasoners = 1

[environment]
name = "nli"

[sampling]
max_tokens = 24

[models.tiny]
path = "builtin:generalist"
optim = { lr = 2e-4 }
"#;

/// A policy for each agent of the search team.
const SEPARATE: &[&str] = &[
    r#"agents."search/verifier".worker_group="verifier""#,
    r#"agents."search/searcher".worker_group="searcher""#,
    r#"agents."search/answerer".worker_group="answerer""#,
];

/// A policy for the reasoner, and one for the actor.
const TWO_POLICIES: &[&str] = &[
    r#"agents."chain/reasoner".worker_group="reasoner""#,
    r#"agents."chain/actor".worker_group="actor""#,
];

/// Learning rate of critics, that of the policies: their heads begin at zero.
const CRITIC: &[&str] = &["algorithm.advantage.optim.lr=2e-4"];

/// Steps that train critics alone: before them, no reply changes a mixed value.
const WARM_UP: &[&str] = &["algorithm.advantage.warmup_steps=4"];

/// MAPoRL with one epoch, for teams of debaters that are rewarded for their own answers too.
const MAPORL: &[&str] = &[
    r#"algorithm.name="maporl""#,
    "algorithm.epochs=1",
    r#"orchestra.name="debate/rounds""#,
    "orchestra.own_reward=1.0",
];

const TWO_DEBATERS: &[&str] = &["orchestra.debaters=2", "orchestra.rounds=2"];
const ONE_AGENT: &[&str] = &["orchestra.debaters=1", "orchestra.rounds=1"];
const FOUR_VOTES: &[&str] = &["orchestra.debaters=4", "orchestra.rounds=1"];

/// A reference, so that the KL to the starting weights is measured, with a small coefficient.
const REFERENCE: &[&str] = &["algorithm.loss.kl_coef=0.01"];

const PAIR: &[&str] = &[
    r#"orchestra.name="cory/pair""#,
    r#"agents."cory/pioneer".worker_group="one""#,
    r#"agents."cory/observer".worker_group="other""#,
    r#"algorithm.name="cory""#,
];

const ALONE: &[&str] = &[r#"orchestra.name="solo/answer""#, r#"algorithm.name="drmas""#];

/// The first policy of the pair, without the observer.
const PIONEER_ALONE: &[&str] = &[
    r#"orchestra.name="solo/answer""#,
    r#"agents."solo/solver".worker_group="one""#,
    r#"algorithm.name="drmas""#,
];

/// Returns an arm whose own team is evaluated, by the score of its answers.
const fn arm(name: &'static str, run: &'static str, set: SettingLists) -> Arm {
    Arm { name, run, set, played: &[], reward: SCORE }
}

/// Returns a test.
const fn test(measure: Measure, better: &'static str, other: &'static str) -> ClaimTest {
    ClaimTest { measure, better, other }
}

/// Claims in teams that ship.
pub(crate) static CLAIMS: [Claim; 7] = [
    Claim {
        name: "drmas-shared",
        title: "Dr. MAS beats GRPO and removes gradient spikes, one policy for the team",
        base: SEARCH,
        budget: RunBudget::Steps(24),
        seeds: SEEDS,
        arms: &[
            arm("GRPO", "grpo", &[&[r#"algorithm.name="grpo""#]]),
            arm("Dr. MAS", "drmas", &[&[r#"algorithm.name="drmas""#]]),
        ],
        tests: &[
            test(Measure::Solved, "Dr. MAS", "GRPO"),
            test(Measure::Reward, "Dr. MAS", "GRPO"),
            test(Measure::Drops, "Dr. MAS", "GRPO"),
            test(Measure::Spikes, "Dr. MAS", "GRPO"),
            test(Measure::Peak, "Dr. MAS", "GRPO"),
        ],
    },
    Claim {
        name: "drmas-separate",
        title: "Dr. MAS beats GRPO and removes gradient spikes, a policy for each agent",
        base: SEARCH,
        budget: RunBudget::Steps(24),
        seeds: SEEDS,
        arms: &[
            arm("GRPO", "grpo", &[SEPARATE, &[r#"algorithm.name="grpo""#]]),
            arm(
                "GRPO over turns",
                "grpo-turns",
                &[SEPARATE, &[r#"algorithm.name="grpo""#, r#"algorithm.advantage.by="task_turn""#]],
            ),
            arm("Dr. MAS", "drmas", &[SEPARATE, &[r#"algorithm.name="drmas""#]]),
        ],
        tests: &[
            test(Measure::Solved, "Dr. MAS", "GRPO"),
            test(Measure::Reward, "Dr. MAS", "GRPO"),
            test(Measure::Drops, "Dr. MAS", "GRPO"),
            test(Measure::Spikes, "Dr. MAS", "GRPO"),
            test(Measure::Peak, "Dr. MAS", "GRPO"),
            test(Measure::Solved, "Dr. MAS", "GRPO over turns"),
            test(Measure::Spikes, "Dr. MAS", "GRPO over turns"),
            test(Measure::Peak, "Dr. MAS", "GRPO over turns"),
            test(Measure::Bias, "Dr. MAS", "GRPO over turns"),
        ],
    },
    Claim {
        name: "maporl",
        title: "A co-trained team beats agents that were trained alone, and one agent at equal tokens",
        base: INFERENCE,
        budget: RunBudget::Tokens(30_000),
        seeds: SEEDS,
        arms: &[
            arm("co-trained team", "team", &[MAPORL, CRITIC, TWO_DEBATERS]),
            Arm {
                name: "team of agents trained alone",
                run: "alone",
                set: &[MAPORL, CRITIC, ONE_AGENT],
                played: &[MAPORL, CRITIC, TWO_DEBATERS],
                reward: SCORE,
            },
            Arm {
                name: "one agent, vote of four",
                run: "alone",
                set: &[MAPORL, CRITIC, ONE_AGENT],
                played: &[MAPORL, CRITIC, FOUR_VOTES],
                reward: SCORE,
            },
        ],
        tests: &[
            test(Measure::Solved, "co-trained team", "team of agents trained alone"),
            test(Measure::Solved, "co-trained team", "one agent, vote of four"),
        ],
    },
    Claim {
        name: "marft",
        title: "Advantages along the chain of agents beat the team's reward for every reply",
        base: RELAY,
        budget: RunBudget::Steps(24),
        seeds: SEEDS,
        arms: &[
            arm(
                "shared",
                "shared",
                &[
                    TWO_POLICIES,
                    CRITIC,
                    &[r#"algorithm.name="marft""#, r#"algorithm.advantage.bootstrap="turn""#],
                ],
            ),
            arm("chained", "chained", &[TWO_POLICIES, CRITIC, &[r#"algorithm.name="marft""#]]),
        ],
        tests: &[
            test(Measure::Solved, "chained", "shared"),
            test(Measure::Reward, "chained", "shared"),
        ],
    },
    Claim {
        name: "cory",
        title: "A pair that exchanges policies has more reward than one policy at equal KL",
        base: INFERENCE,
        budget: RunBudget::Tokens(30_000),
        seeds: SEEDS,
        arms: &[
            arm("one policy", "alone", &[REFERENCE, ALONE]),
            Arm {
                name: "CORY, pioneer",
                run: "pair",
                set: &[REFERENCE, PAIR],
                played: &[REFERENCE, PIONEER_ALONE],
                reward: PIONEER,
            },
            arm("CORY, observer", "pair", &[REFERENCE, PAIR]),
        ],
        tests: &[
            test(Measure::RewardAtKl, "CORY, pioneer", "one policy"),
            test(Measure::RewardAtKl, "CORY, observer", "one policy"),
            test(Measure::Solved, "CORY, pioneer", "one policy"),
            test(Measure::Solved, "CORY, observer", "one policy"),
        ],
    },
    Claim {
        name: "mixers",
        title: "An agent's share of a mixed value beats the shared reward",
        base: RELAY,
        budget: RunBudget::Steps(24),
        seeds: SEEDS,
        arms: &[
            arm(
                "shared reward",
                "shared",
                &[TWO_POLICIES, CRITIC, WARM_UP, &[r#"algorithm.name="ippo""#]],
            ),
            arm(
                "VDN",
                "vdn",
                &[
                    TWO_POLICIES,
                    CRITIC,
                    WARM_UP,
                    &[r#"algorithm.name="vdn""#, r#"algorithm.advantage.credit="difference""#],
                ],
            ),
            arm(
                "QMIX",
                "qmix",
                &[
                    TWO_POLICIES,
                    CRITIC,
                    WARM_UP,
                    &[r#"algorithm.name="qmix""#, r#"algorithm.advantage.credit="difference""#],
                ],
            ),
        ],
        tests: &[
            test(Measure::Solved, "VDN", "shared reward"),
            test(Measure::Reward, "VDN", "shared reward"),
            test(Measure::Solved, "QMIX", "shared reward"),
            test(Measure::Reward, "QMIX", "shared reward"),
        ],
    },
    Claim {
        name: "heterogeneous",
        title: "Separate policies beat a shared one, and sequential updates beat simultaneous ones",
        base: RELAY,
        budget: RunBudget::Steps(24),
        seeds: SEEDS,
        arms: &[
            arm("shared policy", "shared", &[CRITIC, &[r#"algorithm.name="mappo""#]]),
            arm(
                "separate, simultaneous",
                "separate",
                &[TWO_POLICIES, CRITIC, &[r#"algorithm.name="mappo""#]],
            ),
            arm(
                "separate, sequential",
                "sequential",
                &[TWO_POLICIES, CRITIC, &[r#"algorithm.name="happo""#]],
            ),
        ],
        tests: &[
            test(Measure::Solved, "separate, simultaneous", "shared policy"),
            test(Measure::Reward, "separate, simultaneous", "shared policy"),
            test(Measure::Solved, "separate, sequential", "separate, simultaneous"),
            test(Measure::Reward, "separate, sequential", "separate, simultaneous"),
        ],
    },
];

impl Claim {
    /// Returns the first arm of each run.
    pub(crate) fn first_arms(&self) -> Vec<&'static Arm> {
        let arms = self.arms.iter().enumerate();
        let first = arms.filter(|(at, arm)| self.arms[..*at].iter().all(|a| a.run != arm.run));
        first.map(|(_, arm)| arm).collect()
    }
}
