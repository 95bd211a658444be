//! Plans and episodes for the tests of `algo`.

#[path = "../../../tests/fixtures/rl_math.rs"]
mod rl_math;

use serde_json::{Map, Value};

use crate::config::{AlgorithmConfig, Config, Dtype, OptimizerKind, Resolved, Schedule};
use crate::plan::{
    AlgorithmPlan, Chosen, LossPlan, ModelSource, OptimOptions, Plan, PolicyPlan, Sampling,
    SeatPlan, WorkerPlan,
};
use crate::task::{Score, Task};
use crate::trajectory::{BranchPoint, Episode, Finish, Outcome, Seat, Tokens, Turn, TurnPath};

pub(crate) use rl_math::{assert_close, learning, matrix, numbers, rl_math};

pub(crate) const OPTIM: OptimOptions = OptimOptions {
    kind: OptimizerKind::Adamw,
    momentum: 0.95,
    lr: 0.5,
    betas: (0.9, 0.999),
    eps: 1e-8,
    weight_decay: 0.0,
    grad_clip: 1.0,
    schedule: Schedule::Constant,
    warmup_steps: 0,
};

/// Returns a Dr. MAS plan of seats. Each seat has a policy of its own, trained or not.
pub(crate) fn plan(seats: &[(&str, bool)]) -> Plan {
    let chosen = |name: &str| Chosen { name: name.to_owned(), options: Value::Object(Map::new()) };
    let seat = |(policy, &(name, trained)): (usize, &(&str, bool))| SeatPlan {
        seat: Seat::try_from(name.to_owned()).unwrap_or_else(|error| panic!("{error}")),
        policy,
        trained,
        sampling: Sampling {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            max_tokens: 8,
            stop: Vec::new(),
            stop_ids: Vec::new(),
        },
        loss: LossPlan::default(),
        teachers: None,
        options: Value::Object(Map::new()),
    };
    let policy = |(worker, &(name, trained)): (usize, &(&str, bool))| PolicyPlan {
        name: name.to_owned(),
        worker,
        trained,
        reference: false,
        gradient_checkpointing: false,
        activation_bytes: None,
        critic_parameters: 0,
        critic: None,
        adapter: None,
        optim: OPTIM,
    };
    let worker = |&(name, _): &(&str, bool)| WorkerPlan {
        name: name.to_owned(),
        model: "tiny".to_owned(),
        source: ModelSource::Builtin("tiny".to_owned()),
        dtype: Dtype::F32,
        loss_scale: None,
        device: None,
        micro_batch_tokens: None,
        parameters: 0,
        units: Default::default(),
        layer_pass_bytes: 0,
        packed_bytes: 0,
        block_bytes: None,
        token_bytes: crate::plan::TokenBytes { all: 1 << 10, ..Default::default() },
        context: 512,
        chat_template_kwargs: serde_json::Map::new(),
    };
    Plan {
        config: Resolved::new(Config { seed: 7, steps: 10, ..Config::default() }),
        base: ".".into(),
        environment: chosen("echo"),
        mixture: std::collections::BTreeMap::new(),
        environments: std::collections::BTreeMap::new(),
        orchestra: chosen("t/relay"),
        seats: seats.iter().enumerate().map(seat).collect(),
        endpoints: Vec::new(),
        policies: seats.iter().enumerate().map(policy).collect(),
        workers: seats.iter().map(worker).collect(),
        teachers: Vec::new(),
        algorithm: AlgorithmPlan::from(&AlgorithmConfig::default()),
        rewards: Vec::new(),
        device_memory: Vec::new(),
        checkpoints: None,
        tasks: crate::plan::PlannedTasks::default(),
        warnings: Vec::new(),
    }
}

/// Returns a scored episode; it is solved if its reward is above a half.
pub(crate) fn episode(task: &str, index: u32, reward: f64, turns: Vec<Turn>) -> Episode {
    Episode {
        task: Task {
            id: task.to_owned(),
            source: "test".to_owned(),
            question: "?".to_owned(),
            data: Map::new(),
        },
        index,
        seed: u64::from(index),
        branch: None,
        turns,
        acts: Vec::new(),
        answer: None,
        outcome: Outcome::Scored(Score { reward, solved: reward > 0.5, metrics: Map::new() }),
        rewards: Vec::new(),
        log: String::new(),
    }
}

/// Returns the place of a branch of a played episode: at a turn, with the numbers of an alternative and a continuation.
pub(crate) fn branch_point(of: u32, at: TurnPath, numbers: (u32, u32)) -> BranchPoint {
    let (alternative, continuation) = numbers;
    BranchPoint { of, at, alternative, continuation, after: None, drawn: Vec::new() }
}

/// Returns a turn of two sampled tokens.
pub(crate) fn turn(seat: &str, place: u32) -> Turn {
    Turn {
        path: TurnPath(vec![place]),
        seat: Seat::only(seat),
        policy: seat.to_owned(),
        prompt: Vec::new(),
        tools: Vec::new(),
        reply: String::new(),
        error: None,
        truncated: false,
        shortened: 0,
        forked: false,
        masked: false,
        tokens: Some(Tokens {
            prompt: vec![1, 2, 3],
            completion: vec![4, 5],
            logprobs: vec![-0.5, -0.25],
            version: 0,
            seed: 0,
            temperature: 1.0,
            finish: Finish::Stop,
            routes: None,
        }),
        teacher: None,
    }
}
