#![allow(clippy::unwrap_used)]

use super::*;
use crate::files::{ModelFiles, ModelSource};
use crate::net::ops::{Cpu, Memory as _};
use crate::net::tests::fixture;
use crate::runtime::PolicySpec;
use crate::runtime::peers::Peers;
use crate::runtime::pools::Pools;
use crate::runtime::tests::given_rows;
use crate::runtime::trainer::Back;

/// Sums of gradients and losses of all micro-batches.
struct Found {
    sums: Vec<f32>,
    totals: Totals,
}

/// Computes the gradients of a minibatch by one micro-batch after the other, with the embedding apart from the head, and layer by
/// layer.
fn both_ways(source: &ModelSource, checkpointing: bool, tokens: usize) -> [Found; 2] {
    let model = Model::load(&ModelFiles::new(source)).unwrap();
    let mut spec = PolicySpec::new("p");
    spec.gradient_checkpointing = checkpointing;
    let shared = (Pools::default(), Peers::default());
    let mut trainer = Trainer::new(&spec, &model, (0, None), tokens, shared).unwrap();
    let batch = Batch { rows: given_rows(280, -6.0), longest: 64, ..Batch::default() };
    let rows: Vec<&Row> = batch.rows.iter().collect();
    let (mut pool, ops) = (Pool::default(), Cpu::default());
    let [mut one, mut other] = [Totals::default(), Totals::default()];
    let factors = trainer.token_weights(&model, (&batch, 0), &rows, &mut one, &mut pool).unwrap();
    let pass = pass_of_rows(&rows, true);
    let parts = pass.micro_batches(0..rows.len(), tokens);
    let micros: Vec<Micro<'_>> = parts
        .into_iter()
        .map(|indices| Micro::new(pass.pack(indices), (&rows, &factors), indices, 0.1))
        .collect();
    assert!(micros.len() > 2, "{} micro-batches", micros.len());
    let mut gradients = trainer.optimizer.gradients(model.trainable()).unwrap();
    gradients.separate_embedding(&ops, model.decoder.tied_slot()).unwrap();
    let mut back = Back { gradients, joint: None };
    for micro in &micros {
        trainer.accumulate(&model, &batch, micro, &mut back, &mut one, &mut pool).unwrap();
    }
    let apart = back.gradients.take_embedding();
    let mut sums = back.gradients.into_all().unwrap();
    if let Some((place, apart)) = apart {
        ops.add_sums(&mut sums, place, &apart).unwrap();
    }
    let mut sharded = ShardedModel::new(&model, Peers::default()).unwrap();
    sharded.free_whole(&model).unwrap();
    assert!(model.trainable().update(|all| all.is_empty()), "the way goes through units alone");
    let step = (&batch, micros.as_slice());
    let by_layers = trainer.accumulate_by_layers(&model, &sharded, step, &mut other, &mut pool);
    let by_layers = by_layers.unwrap();
    sharded.gather_whole(&model).unwrap();
    let loaded = Model::load(&ModelFiles::new(source)).unwrap();
    assert_eq!(model.fingerprint(), loaded.fingerprint());
    [Found { sums, totals: one }, Found { sums: by_layers, totals: other }]
}

#[test]
fn layer_by_layer_sums_have_the_bits_of_one_micro_batch_after_the_other() {
    let family = |name: &str| ModelSource::Directory(fixture("families").join(name));
    let tiny = ModelSource::Builtin("tiny".to_owned());
    // Tied and untied tables, norms after layers, experts, and recurrent layers.
    for source in [tiny, family("gemma3_text"), family("qwen3_moe"), family("qwen3_5_text")] {
        for checkpointing in [false, true] {
            for tokens in [1, 30] {
                let [one, other] = both_ways(&source, checkpointing, tokens);
                let bits = |of: &Found| of.sums.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert!(bits(&one) == bits(&other), "{source:?}, {checkpointing}, {tokens}");
                assert!(one.sums.iter().any(|sum| *sum != 0.0));
                let losses = [&one, &other].map(|of| {
                    let sums = &of.totals.policy;
                    [sums.loss, sums.surrogate, sums.entropy, sums.ppo_kl].map(f64::to_bits)
                });
                assert_eq!(losses[0], losses[1], "{source:?}");
            }
        }
    }
}
