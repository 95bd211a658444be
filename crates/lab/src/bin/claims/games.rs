//! Claims in word games, where theory predicts a quantity, and the credit of each player is known.

use crate::claims::{Arm, Claim, ClaimTest, RunBudget, SettingLists};
use crate::quantity::Measure;

/// Runs of each arm. The number is fixed before the first one.
const SEEDS: u64 = 20;

/// Mean success of the team in a step. Rewards may be those of single players.
const SUCCESS: (&str, f64) = ("rollout/score/team", 1.0);

/// A word game with the files of `maverl_lab::games::write_games`. A reply is one word, and a reply that is none has no penalty.
const GAME: &str = r#"
[task]
data = "words.jsonl"
tasks_per_step = 4
group_size = 8

[orchestra]
name = "games/round"

[environment]
name = "games/words"

[sampling]
max_tokens = 1
stop = [
    "red", "blue", "green", "gray", "iron", "salt", "milk", "wood", "wool", "lamp", "fish", "cup",
    "tin", "q0", "q1", "q2", "q3", "user", "assistant", "go",
]

[models.words]
path = "words"
optim = { lr = 5e-3 }

[runtime]
threads = 1

[algorithm]
loss.invalid_reply_penalty = 0.0
"#;

/// A policy for each player, of up to fifteen.
const POLICIES: &[&str] = &[
    r#"agents."games/player".seats.0.worker_group="p0""#,
    r#"agents."games/player".seats.1.worker_group="p1""#,
    r#"agents."games/player".seats.2.worker_group="p2""#,
    r#"agents."games/player".seats.3.worker_group="p3""#,
    r#"agents."games/player".seats.4.worker_group="p4""#,
    r#"agents."games/player".seats.5.worker_group="p5""#,
    r#"agents."games/player".seats.6.worker_group="p6""#,
    r#"agents."games/player".seats.7.worker_group="p7""#,
    r#"agents."games/player".seats.8.worker_group="p8""#,
    r#"agents."games/player".seats.9.worker_group="p9""#,
    r#"agents."games/player".seats.10.worker_group="p10""#,
    r#"agents."games/player".seats.11.worker_group="p11""#,
    r#"agents."games/player".seats.12.worker_group="p12""#,
    r#"agents."games/player".seats.13.worker_group="p13""#,
    r#"agents."games/player".seats.14.worker_group="p14""#,
];
const TWO: &[&str] = POLICIES.split_at(2).0;
const SIX: &[&str] = POLICIES.split_at(6).0;
const SEVEN: &[&str] = POLICIES.split_at(7).0;

/// Critics that learn as fast as policies.
const CRITIC: &[&str] = &["algorithm.advantage.optim.lr=5e-3"];

const SIX_PLAYERS: &[&str] = &["orchestra.players=6", "algorithm.advantage.warmup_steps=10"];

/// The second player reads the first, whose word alone counts.
const FIRST_OF_TWO: &[&str] =
    &[r#"environment.game="first""#, "orchestra.reads=true", "algorithm.advantage.warmup_steps=25"];

/// Each player earns its own success, and the first one 5 in addition.
const UNEQUAL: &[&str] = &[
    "environment.unpaid=true",
    r#"orchestra.pays="own""#,
    "orchestra.offset=5.0",
    "task.tasks_per_step=2",
];

/// The last turn of a chain is paid for the word of its first player.
const LAST_PAID: &[&str] = &[
    r#"environment.game="first""#,
    "environment.unpaid=true",
    "orchestra.reads=true",
    r#"orchestra.pays="last""#,
    r#"algorithm.name="marft""#,
    "algorithm.advantage.gamma=1.0",
];

const OF_SEVEN: &[&str] = &["orchestra.players=7"];
const OF_FIFTEEN: &[&str] = &["orchestra.players=15"];
const EACH_TURN: &[&str] = &[r#"algorithm.advantage.bootstrap="turn""#];

/// Two players must choose the same class, unseen, with large updates.
const COORDINATED: &[&str] = &[
    r#"environment.game="match""#,
    "task.tasks_per_step=2",
    "algorithm.epochs=4",
    "models.words.optim.lr=1e-2",
];

const IPPO: &[&str] = &[r#"algorithm.name="ippo""#];
const VDN: &[&str] = &[r#"algorithm.name="vdn""#];
const QMIX: &[&str] = &[r#"algorithm.name="qmix""#];
const GRPO: &[&str] = &[r#"algorithm.name="grpo""#];
const DRMAS: &[&str] = &[r#"algorithm.name="drmas""#];
const MAPPO: &[&str] = &[r#"algorithm.name="mappo""#];
const HAPPO: &[&str] = &[r#"algorithm.name="happo""#, r#"algorithm.update_order.factor="exact""#];
const DIFFERENCE: &[&str] = &[r#"algorithm.advantage.credit="difference""#];
const OVER_TURNS: &[&str] = &[r#"algorithm.advantage.by="task_turn""#];

/// Returns an arm whose reward is the success of the team.
const fn arm(name: &'static str, run: &'static str, set: SettingLists) -> Arm {
    Arm { name, run, set, played: &[], reward: SUCCESS }
}

/// Returns a test.
const fn test(measure: Measure, better: &'static str, other: &'static str) -> ClaimTest {
    ClaimTest { measure, better, other }
}

/// Tests of unequal rewards.
const UNEQUAL_TESTS: &[ClaimTest] = &[
    test(Measure::Bias, "Dr. MAS", "GRPO over turns"),
    test(Measure::Credit, "Dr. MAS", "GRPO"),
    test(Measure::Reward, "Dr. MAS", "GRPO over turns"),
    test(Measure::Reward, "Dr. MAS", "GRPO"),
];

/// Tests of a chain whose last turn is paid.
const CHAIN_TESTS: &[ClaimTest] = &[
    test(Measure::Credit, "chained", "own rewards"),
    test(Measure::Reward, "chained", "own rewards"),
];

/// Claims in word games.
pub(crate) static GAMES: [Claim; 7] = [
    Claim {
        name: "mixers-separate",
        title: "Word game: credit among six separate successes",
        base: GAME,
        budget: RunBudget::Steps(30),
        seeds: SEEDS,
        arms: &[
            arm("shared reward", "shared", &[SIX, SIX_PLAYERS, CRITIC, IPPO]),
            arm("VDN", "vdn", &[SIX, SIX_PLAYERS, CRITIC, VDN, DIFFERENCE]),
            arm("QMIX", "qmix", &[SIX, SIX_PLAYERS, CRITIC, QMIX, DIFFERENCE]),
        ],
        tests: &[
            test(Measure::Credit, "VDN", "shared reward"),
            test(Measure::Reward, "VDN", "shared reward"),
            test(Measure::Credit, "QMIX", "shared reward"),
            test(Measure::Reward, "QMIX", "shared reward"),
        ],
    },
    Claim {
        name: "mixers-sequential",
        title: "Word game: credit of a player whose word a later one reads",
        base: GAME,
        budget: RunBudget::Steps(60),
        seeds: SEEDS,
        arms: &[
            arm("shared reward", "shared", &[TWO, FIRST_OF_TWO, CRITIC, IPPO]),
            arm("VDN", "vdn", &[TWO, FIRST_OF_TWO, CRITIC, VDN]),
            arm("VDN, difference", "difference", &[TWO, FIRST_OF_TWO, CRITIC, VDN, DIFFERENCE]),
        ],
        tests: &[
            test(Measure::Credit, "VDN", "shared reward"),
            test(Measure::Reward, "VDN", "shared reward"),
            test(Measure::Credit, "VDN, difference", "shared reward"),
            test(Measure::Reward, "VDN, difference", "shared reward"),
        ],
    },
    Claim {
        name: "drmas-unequal-separate",
        title: "Word game: baselines of players with unequal rewards, a policy for each",
        base: GAME,
        budget: RunBudget::Steps(20),
        seeds: SEEDS,
        arms: &[
            arm("GRPO", "grpo", &[TWO, UNEQUAL, GRPO]),
            arm("GRPO over turns", "grpo-turns", &[TWO, UNEQUAL, GRPO, OVER_TURNS]),
            arm("Dr. MAS", "drmas", &[TWO, UNEQUAL, DRMAS]),
        ],
        tests: UNEQUAL_TESTS,
    },
    Claim {
        name: "drmas-unequal-shared",
        title: "Word game: baselines of players with unequal rewards, one policy",
        base: GAME,
        budget: RunBudget::Steps(20),
        seeds: SEEDS,
        arms: &[
            arm("GRPO", "grpo", &[UNEQUAL, GRPO]),
            arm("GRPO over turns", "grpo-turns", &[UNEQUAL, GRPO, OVER_TURNS]),
            arm("Dr. MAS", "drmas", &[UNEQUAL, DRMAS]),
        ],
        tests: UNEQUAL_TESTS,
    },
    Claim {
        name: "marft-chain-7",
        title: "Word game: a chain of seven whose last turn is paid",
        base: GAME,
        budget: RunBudget::Steps(30),
        seeds: SEEDS,
        arms: &[
            arm("own rewards", "turn", &[SEVEN, OF_SEVEN, LAST_PAID, CRITIC, EACH_TURN]),
            arm("chained", "chained", &[SEVEN, OF_SEVEN, LAST_PAID, CRITIC]),
        ],
        tests: CHAIN_TESTS,
    },
    Claim {
        name: "marft-chain-15",
        title: "Word game: a chain of fifteen whose last turn is paid",
        base: GAME,
        budget: RunBudget::Steps(30),
        seeds: SEEDS,
        arms: &[
            arm("own rewards", "turn", &[POLICIES, OF_FIFTEEN, LAST_PAID, CRITIC, EACH_TURN]),
            arm("chained", "chained", &[POLICIES, OF_FIFTEEN, LAST_PAID, CRITIC]),
        ],
        tests: CHAIN_TESTS,
    },
    Claim {
        name: "happo-match",
        title: "Word game: two players who must choose alike, four epochs of large updates",
        base: GAME,
        budget: RunBudget::Steps(25),
        seeds: SEEDS,
        arms: &[
            arm("simultaneous", "mappo", &[TWO, COORDINATED, CRITIC, MAPPO]),
            arm("sequential", "happo", &[TWO, COORDINATED, CRITIC, HAPPO]),
        ],
        tests: &[
            test(Measure::Drops, "sequential", "simultaneous"),
            test(Measure::Reward, "sequential", "simultaneous"),
            test(Measure::Solved, "sequential", "simultaneous"),
        ],
    },
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_word_ends_a_reply() {
        let (_, list) = GAME.split_once("stop = [").unwrap();
        let (list, _) = list.split_once(']').unwrap();
        let stops: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        assert_eq!(stops, maverl_lab::games::WORDS);
    }
}
