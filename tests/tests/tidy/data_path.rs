//! The path of a token: the files that one step of `cargo run --example search_orchestra` passes, from the command line to the
//! arithmetic.
//!
//! Files that only declare types and traits are left out. A GPU has other files in place of those in `ops/cpu/`. Tests,
//! `maverl eval` and supervised training replace some of the common ones; a script replaces the model of a team (from
//! `rollout/backend.rs` on); `maverl serve model` begins at the engine.

use std::fs;

use super::{has_word, root, uncommented};

/// A file, the function through which the path enters it, and what it is responsible for.
type Stop = (&'static str, &'static str, &'static str);

/// Files that all three paths begin with.
#[rustfmt::skip]
const COMMON: &[Stop] = &[
    ("examples/search_orchestra.rs", "main", "the program"),
    ("maverl/src/cli/training.rs", "train_example", "arguments; the plan of the configuration; directory of the run; signals"),
    ("maverl/src/train/training.rs", "train", "starts the worker groups and the environment, loads the data, builds the team"),
    ("maverl/src/train/run.rs", "run", "the loop over steps; checkpoints; the files that grow with each step"),
    ("maverl/src/train/training.rs", "step", "the plan of this step (CORY exchanges the policies of two seats); calls a step of RL or of supervised training"),
    ("maverl/src/train/step.rs", "step", "one step of RL, as in the figure of Overview"),
];

/// Files of a rollout, after the common ones.
#[rustfmt::skip]
const ROLLOUT: &[Stop] = &[
    ("maverl/src/train/step/players/collect.rs", "collect", "the tasks of the step; dynamic sampling; `play`: seeds of the episodes; `EpisodeSink`s; order of the results"),
    ("maverl/src/rollout/runner.rs", "play", "runs episodes concurrently; one episode: time limit, faults, score, reward parts and penalties"),
    ("maverl/src/orchestra/team.rs", "run", "calls the orchestra, whose type is erased (`dyn`)"),
    ("orchestras/src/search.rs", "run", "the orchestra: control flow of the team"),
    ("maverl/src/orchestra/team.rs", "ask", "typed input and reply; the turn's position in the tree of `ask` calls"),
    ("maverl/src/rollout/backend.rs", "respond", "the model as a `ChatBackend`: from messages to a request, from its completion to text"),
    ("maverl/src/rollout/prompt.rs", "next_prompt", "token ids of the prompt: the ids of the conversation so far, then those of the new messages; shortens observations if the prompt does not fit the context (`rollout.overflow`)"),
    ("crates/engine/src/text/tokenizer.rs", "encode_rendered", "encodes chat text to token ids. Before this, `render_chat` of the same file renders messages into chat text (the template runs in `crates/jinja`)"),
    ("crates/engine/src/runtime/policy.rs", "generate", "the handle of a policy: its worker group, or an inference server in its place"),
    ("crates/engine/src/runtime/queue.rs", "generate", "waits for admission (`runtime.max_requests`), and sends the request to the thread of the worker group"),
    ("crates/engine/src/runtime/engine/mod.rs", "step", "continuous batching: schedules the requests; one forward pass for each policy that has some"),
    ("crates/engine/src/net/decoder/cached.rs", "decode_cached", "embedding, layers and last norm for new tokens, with the KV cache of the earlier ones"),
    ("crates/engine/src/net/decoder/mlp.rs", "mlp", "a layer's MLP, after its attention in `attention.rs`"),
    ("crates/engine/src/net/ops/cpu/linear.rs", "linear", "a linear layer on the CPU: weight, bias, adapter"),
    ("maverl-kernels/src/matmul.rs", "nt_packed", "a matrix product with a packed weight"),
    ("maverl-kernels/src/matmul/engine.rs", "compute_product", "division of a product: among threads, into panels (columns) and tiles (rows), and of sums into pieces"),
    ("maverl-kernels/src/matmul/kernel.rs", "multiply_tile", "a tile times a panel, by the instructions of the processor (`multiply.rs`: the inner loop)"),
    ("crates/engine/src/net/decoder/cached.rs", "choose", "the output head of the decoder, in rollout"),
    ("crates/engine/src/net/ops/cpu/backend.rs", "choose", "logits of the positions that sample a token"),
    ("crates/engine/src/runtime/engine/slot.rs", "choose", "temperature, filters (top-k and so on) and random number of a request"),
    ("maverl-kernels/src/sample.rs", "sample_fresh", "softmax, filters, the sampled token and its log-prob"),
];

/// Files of samples, advantages and batches, after the common ones. A step enters `batches.rs` three times.
#[rustfmt::skip]
const ADVANTAGES: &[Stop] = &[
    ("maverl/src/train/learner.rs", "samples", "calls file 7, with the state of the algorithm as an argument"),
    ("maverl/src/train/learner/batches.rs", "samples", "shapes rewards, finds baselines (moving average, greedy), drops the tasks whose episodes all have the same score (only with dynamic sampling), adds future rewards and those for influence"),
    ("maverl/src/algo/sample.rs", "samples", "selects the turns that are trained on"),
    ("maverl/src/train/learner.rs", "advantages", "calls the mixer, if there is one, then file 7"),
    ("maverl/src/train/learner/batches.rs", "advantages", "calls the estimator, whitens, and records"),
    ("maverl/src/algo/advantage.rs", "advantages", "advantages of the samples; statistics of the groups"),
    ("maverl/src/algo/advantage/declared.rs", "rewarded", "rewards of the samples, each with the ids of its unit and group"),
    ("maverl/src/algo/advantage/compare.rs", "compare", "`kind = \"group\"`: mean, deviation and, for GiGPO, equal prompts"),
    ("maverl-kernels/src/advantage/relative.rs", "relative", "the arithmetic of group-relative advantages"),
    ("maverl/src/train/learner/batches.rs", "batches", "calls file 13 (`pair_batches` for online DPO, which has the pairs of `algo/advantage/pairs.rs` in place of files 9 to 12), and adds the targets of critics"),
    ("maverl/src/algo/batch.rs", "batches", "the training rows of each policy"),
];

/// Files of an update, after the common ones: forward pass of the layers, head and loss, backward pass of the layers, which
/// calls the operations of the forward pass's files again, and the optimizer.
#[rustfmt::skip]
const UPDATE: &[Stop] = &[
    ("maverl/src/train/learner.rs", "update", "learning rates; order of policies and critics"),
    ("crates/engine/src/runtime/policy.rs", "update", "the handle of a policy; checks the batch"),
    ("crates/engine/src/runtime/queue.rs", "at_barrier", "sends the batch to the thread of the worker group"),
    ("crates/engine/src/runtime/worker.rs", "update", "the policy, together with a critic that shares its trunk if there is one"),
    ("crates/engine/src/runtime/trainer.rs", "update", "epochs, minibatches, micro-batches"),
    ("crates/engine/src/loss/policy.rs", "token_weights", "weight of each token in the loss (`aggregation`)"),
    ("crates/engine/src/runtime/pass.rs", "micro_batches", "order of the rows of a minibatch, and its division into micro-batches"),
    ("crates/engine/src/net/tape.rs", "record", "forward pass that keeps the activations"),
    ("crates/engine/src/net/decoder.rs", "layer", "forward pass of a layer"),
    ("crates/engine/src/net/decoder/mlp.rs", "mlp", "a layer's MLP, after its attention in `attention.rs`"),
    ("crates/engine/src/net/ops/cpu/linear.rs", "linear", "a linear layer on the CPU: weight, bias, adapter (in the backward pass: `linear_back`)"),
    ("maverl-kernels/src/matmul.rs", "nt", "a matrix product (in the backward pass: `nn`, `tn`)"),
    ("maverl-kernels/src/matmul/engine.rs", "compute_product", "division of a product, as in the rollout"),
    ("maverl-kernels/src/matmul/kernel.rs", "multiply_tile", "a tile times a panel, by the instructions of the processor (`multiply.rs`: the inner loop)"),
    ("crates/engine/src/net/decoder/head.rs", "loss", "the output head of the decoder, in training"),
    ("crates/engine/src/net/ops/cpu.rs", "loss", "other operations of the CPU: here, chunks of rows and their logits"),
    ("maverl-kernels/src/logprob.rs", "loss_gradients", "logits, log-probs and entropies of a chunk of rows, and their backward pass"),
    ("crates/engine/src/loss/policy.rs", "policy_gradient", "loss of a row: ratio, surrogate, KL, drift, entropy"),
    ("crates/engine/src/loss/surrogate.rs", "loss", "choice of the built-in surrogate, and its arithmetic"),
    ("crates/engine/src/net/decoder.rs", "layer_backward", "backward pass of a layer"),
    ("crates/engine/src/net/gradients.rs", "norm", "norm of the gradient"),
    ("crates/engine/src/runtime/optimizer.rs", "apply", "applies the factor of gradient clipping (`runtime/optim.rs`: `OptimOptions::step`); a step of AdamW"),
    ("crates/engine/src/net/memory/cpu.rs", "adamw", "AdamW on parameters and moments in host memory"),
    ("maverl-kernels/src/adamw.rs", "adamw_step", "the arithmetic of AdamW"),
];

/// The paths, each with the most files that it may have. These numbers may only shrink.
const PATHS: [(&str, &[Stop], usize); 3] =
    [("rollout", ROLLOUT, 24), ("advantages", ADVANTAGES, 13), ("update", UPDATE, 27)];

#[test]
fn the_data_path_leads_through_the_files_and_functions_of_its_tables() {
    for (name, path, most) in PATHS {
        let stops: Vec<&Stop> = COMMON.iter().chain(path).collect();
        let texts = stops.iter().map(|(file, ..)| {
            fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
        });
        let texts: Vec<String> = texts.collect();
        let mut files: Vec<&str> = Vec::new();
        for (at, (file, function, _)) in stops.iter().enumerate() {
            let defined = texts[at].contains(&format!("fn {function}"));
            assert!(defined, "{name}: {file} has no `fn {function}`");
            let mut before = texts[..at].iter().flat_map(|text| text.lines());
            let named = at == 0 || before.any(|line| has_word(uncommented(line), function));
            assert!(named, "{name}: no file before {file} names `{function}`");
            if !files.contains(file) {
                files.push(file);
            }
        }
        assert!(files.len() <= most, "{name}: {} files", files.len());
    }
}
