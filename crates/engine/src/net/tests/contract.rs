//! Contract of [`Ops`]: the same tests for every device, of whole decoders.

use std::ops::Range;

use half::bf16;
#[cfg(feature = "cuda")]
use maverl_kernels::cuda::{Emulated, Kernels, MODEL};
#[cfg(feature = "cuda")]
use maverl_kernels::emulate;
use maverl_kernels::matmul::Precision;

use super::slow::Slow;
use super::*;
use crate::net::linear::Lora;
#[cfg(feature = "candle")]
use crate::net::ops::candle::Candle;
#[cfg(feature = "cuda")]
use crate::net::ops::device::Device;
use crate::net::ops::{Backend, Cpu, Ops};

/// A device under test.
trait Tested: Backend {
    const NAME: &'static str;
    /// Largest difference of a log-prob to that of plain operations in f64.
    const LOGPROB: f64;
    /// Largest difference of a gradient to that of plain operations, relative to its norm.
    const GRADIENT: f64;
    /// Largest difference of a hidden state of a row from that of the row in other company, and in chunks from a cache; 0 for
    /// equal bits.
    const ROW: f32;
    /// Largest difference of a gradient from that of layers that are kept, where they are computed again; 0 for equal bits.
    const AGAIN: f32;
}

impl Tested for Cpu {
    const NAME: &'static str = "CPU";
    const LOGPROB: f64 = 1e-5;
    const GRADIENT: f64 = 1e-5;
    const ROW: f32 = 0.0;
    const AGAIN: f32 = 0.0;
}

#[cfg(feature = "candle")]
impl Tested for Candle {
    const NAME: &'static str = "candle's CPU";
    const LOGPROB: f64 = 5e-5;
    const GRADIENT: f64 = 5e-5;
    // Products choose their kernels by shape.
    const ROW: f32 = 5e-5;
    const AGAIN: f32 = 0.0;
}

#[cfg(feature = "cuda")]
impl Tested for Device<Emulated> {
    const NAME: &'static str = "emulated";
    // Activations of bf16: 1.6e-2 to 2.3e-2 are measured.
    const LOGPROB: f64 = 4e-2;
    const GRADIENT: f64 = 3e-2;
    const ROW: f32 = 0.0;
    const AGAIN: f32 = 0.0;
}

/// Returns the kernels as C++ on the CPU; none without a C++ compiler.
#[cfg(feature = "cuda")]
pub(super) fn emulated() -> Option<Device<Emulated>> {
    match emulate::check_compiler() {
        Ok(()) => Some(Device::new(Kernels::new(Emulated::shared_machine(&MODEL).unwrap()))),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// Declares the contract for each device.
macro_rules! contract {
    ($($name:ident,)*) => {
        mod cpu {
            $(#[test]
            fn $name() {
                super::$name(&super::Cpu::default());
            })*
        }

        #[cfg(feature = "candle")]
        mod candle {
            $(#[test]
            fn $name() {
                super::$name(&super::Candle::cpu());
            })*
        }

        #[cfg(feature = "cuda")]
        mod emulated {
            $(#[test]
            fn $name() {
                if let Some(device) = super::emulated() {
                    super::$name(&device);
                }
            })*
        }
    };
}

/// The CPU with products in f16.
const IN_F16: Cpu = Cpu { precision: Precision::F16 };

mod f16 {
    use super::*;

    #[test]
    fn log_probs_and_gradients_are_four_times_nearer_to_plain_operations_than_those_of_bf16() {
        // A quarter of the bounds of the emulated device. The loss has the scale of a run.
        agree_with_plain_operations(&IN_F16, "CPU in f16", [1e-2, 7.5e-3], 65_536.0);
    }

    #[test]
    fn a_row_has_the_same_bits_alone_packed_and_in_chunks() {
        a_row_is_the_same_alone_packed_and_in_chunks_from_a_cache(&IN_F16);
    }

    #[test]
    fn a_layer_computed_again_gives_the_bits_of_a_kept_one() {
        a_layer_computed_again_gives_what_a_kept_one_gives(&IN_F16);
    }
}

contract! {
    log_probs_and_gradients_agree_with_plain_operations,
    a_row_is_the_same_alone_packed_and_in_chunks_from_a_cache,
    a_layer_computed_again_gives_what_a_kept_one_gives,
    gradients_of_an_adapter_are_those_of_the_merged_weights,
}

/// Returns configurations of each kind with heads of 32, which every device has.
pub(super) fn configs() -> [Value; KINDS] {
    made_configs().map(|mut config| {
        let sizes = json!({
            "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1,
            "intermediate_size": 96, "vocab_size": 64, "head_dim": 32
        });
        config.as_object_mut().unwrap().extend(sizes.as_object().unwrap().clone());
        config
    })
}

/// Returns a model whose weights bf16 holds.
pub(super) fn coarse(config: &Value) -> Model {
    let model = made(config);
    let round = |x: &mut f32| *x = bf16::from_f32(*x).to_f32();
    model.weights.params().update(|values| values.iter_mut().for_each(round));
    model
}

pub(super) fn some_rows() -> Vec<Vec<u32>> {
    [9_u32, 2, 40, 23].map(|n| (0..n).map(|i| (i * i * 7 + 3 * n) % 60).collect()).into()
}

/// A model's weights and decoder on a device.
pub(super) struct OnDevice<O: Ops> {
    pub(super) params: Params<O>,
    pub(super) decoder: Decoder<O>,
}

impl<O: Ops> OnDevice<O> {
    pub(super) fn new(ops: &O, model: &Model) -> Self {
        let params = model.weights.params().on(ops, true).unwrap();
        let index = |name: &str| params.vars().iter().position(|(found, _)| found == name);
        let get = |name: &str| Ok(params.param(index(name).unwrap()));
        let decoder = Decoder::on(ops.clone(), &model.config, &get).unwrap();
        Self { decoder, params }
    }
}

/// Inputs of a loss, the negative mean log-prob of every next token.
struct Next {
    packed: PackedRows,
    targets: Vec<u32>,
    /// Factor of the loss in the backward pass, which the gradients do not have.
    scale: f32,
}

impl Next {
    fn of(rows: &[Vec<u32>]) -> Self {
        let inputs: Vec<Vec<u32>> = rows.iter().map(|row| row[..row.len() - 1].to_vec()).collect();
        let targets = rows.iter().flat_map(|row| row[1..].iter().copied()).collect();
        Self { packed: pack(&inputs), targets, scale: 1.0 }
    }

    fn rows(&self) -> Rows<'_> {
        let PackedRows { ids, positions, offsets } = &self.packed;
        Rows { ids, positions, packing: Packing::from_offsets(offsets) }
    }

    /// Computes the log-probs of the targets, and the gradients of the loss by trained parameters.
    fn backward<O: Tested>(
        &self,
        ops: &O,
        decoder: &Decoder<O>,
        params: &Params<O>,
        checkpointing: bool,
    ) -> (Vec<f32>, Vec<Vec<f32>>) {
        let (n, mut pool) = (self.targets.len(), Pool::default());
        let even = vec![1.0; n];
        let tape = Tape::record(decoder, self.rows(), checkpointing, &mut pool).unwrap();
        let logp = decoder.logprobs(tape.hidden(), &self.targets, &even).unwrap().0;
        let mut gradients = Gradients::on(ops, params).unwrap();
        let loss = |_, _: [&[f32]; 2], [dlogp, dentropy]: [&mut [f32]; 2]| {
            dlogp.fill(-self.scale / n as f32);
            dentropy.fill(0.0);
            Ok(())
        };
        let (hidden, offsets) = (tape.hidden(), [0, n]);
        let of = Targets { ids: &self.targets, inv_temperature: &even };
        let dhidden = decoder.loss(hidden, of, &offsets, &mut gradients, loss);
        tape.backward(&dhidden.unwrap(), &mut gradients, &mut pool).unwrap();
        let sums = ops.read_sums(gradients.all_sums().unwrap()).unwrap();
        let of = |range: Range<usize>| -> Vec<f32> {
            sums[range].iter().map(|sum| sum / self.scale).collect()
        };
        (logp, params.vars().iter().map(|(_, var)| of(var.range())).collect())
    }
}

/// Returns the norm of the difference, relative to the norm of the reference.
fn apart(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let differences = &mut found.iter().zip(expected).map(|(a, b)| f64::from(*a) - b);
    norm(differences) / norm(&mut expected.iter().copied())
}

fn log_probs_and_gradients_agree_with_plain_operations<O: Tested>(ops: &O) {
    agree_with_plain_operations(ops, O::NAME, [O::LOGPROB, O::GRADIENT], 1.0);
}

/// Asserts that log-probs, and gradients of a loss that is scaled meanwhile, are within bounds of those of plain operations.
fn agree_with_plain_operations<O: Tested>(
    ops: &O,
    device: &str,
    [of_logp, of_gradient]: [f64; 2],
    scale: f32,
) {
    let rows = some_rows();
    let next = Next { scale, ..Next::of(&rows) };
    for config in configs() {
        let (model, kind) = (coarse(&config), &config["model_type"]);
        let OnDevice { params, decoder } = OnDevice::new(ops, &model);
        let (logp, gradients) = next.backward(ops, &decoder, &params, false);
        let slow = Slow::new(&model);
        let expected: Vec<f64> =
            rows.iter().flat_map(|row| slow.next(row).values().to_vec()).collect();
        let off = logp.iter().zip(&expected).map(|(a, b)| (f64::from(*a) - b).abs());
        let off = off.fold(0.0, f64::max);
        let (names, mut worst) = (slow.names(), 0.0_f64);
        for (name, expected) in names.iter().zip(slow.gradients(&rows)) {
            let at = params.vars().iter().position(|(found, _)| found == name).unwrap();
            let apart = apart(&gradients[at], &expected);
            assert!(apart <= of_gradient, "{kind}, `{name}`: {apart:e}");
            worst = worst.max(apart);
        }
        println!("{device}, {kind}: log-probs differ by {off:.1e}, gradients by {worst:.1e}");
        assert!(off <= of_logp, "{kind}: {off:e}");
    }
}

fn a_row_is_the_same_alone_packed_and_in_chunks_from_a_cache<O: Tested>(ops: &O) {
    for config in configs() {
        let off = a_row_has_its_bits(ops, &coarse(&config));
        println!("{}, {}: rows differ by {off:.1e}", O::NAME, config["model_type"]);
    }
}

/// Asserts that a row of a model has the same bits alone, packed and in chunks, or numbers within the device's bound. Returns the
/// largest difference.
fn a_row_has_its_bits<O: Tested>(ops: &O, model: &Model) -> f32 {
    let rows = some_rows();
    let OnDevice { decoder, .. } = OnDevice::new(ops, model);
    let width = model.config.hidden_size;
    let mut pool = Pool::default();
    let mut packed = |rows: &[Vec<u32>]| {
        let PackedRows { ids, positions, offsets } = pack(rows);
        let context = Context::Packed(Packing::from_offsets(&offsets));
        let hidden = decoder.forward(&ids, &positions, context, &mut pool).unwrap();
        ops.read(&hidden).unwrap().into_owned()
    };
    let together = packed(&rows);
    let alone: Vec<f32> = rows.iter().flat_map(|row| packed(std::slice::from_ref(row))).collect();
    let mut off = same(&together, &alone, O::ROW);
    let found = in_chunks(ops, &decoder, model, &rows, [5, 1, 16, 9]);
    for (row, (found, start)) in rows.iter().zip(found.iter().zip(starts(&rows))) {
        let expected = &together[start * width..(start + row.len()) * width];
        off = off.max(same(found, expected, O::ROW));
    }
    off
}

/// Asserts that numbers have equal bits, or are within a bound that is not 0. Returns the largest difference.
fn same(found: &[f32], expected: &[f32], bound: f32) -> f32 {
    let bits = |x: &[f32]| -> Vec<u32> { x.iter().map(|x| x.to_bits()).collect() };
    if bound == 0.0 {
        assert_eq!(bits(found), bits(expected));
        return 0.0;
    }
    assert_eq!(found.len(), expected.len());
    let off = furthest(found, expected);
    assert!(off <= bound, "{off:e}");
    off
}

/// Returns the index of each row's first token.
fn starts(rows: &[Vec<u32>]) -> Vec<usize> {
    pack(rows).offsets
}

/// Computes the hidden states of rows on top of caches, each row in chunks of its own size.
fn in_chunks<O: Tested>(
    ops: &O,
    decoder: &Decoder<O>,
    model: &Model,
    rows: &[Vec<u32>],
    chunks: [usize; 4],
) -> Vec<Vec<f32>> {
    const BLOCKS: usize = 3;
    let width = model.config.hidden_size;
    let mut kv = ops.kv(&model.config, rows.len() * BLOCKS);
    for _ in 0..rows.len() * BLOCKS {
        ops.add_block(&mut kv).unwrap();
    }
    // Blocks of a row lie apart, and not in order.
    let blocks = |row: usize| (0..BLOCKS).map(move |at| ((BLOCKS - 1 - at) * 4 + row) as u32);
    let blocks: Vec<Vec<u32>> = (0..rows.len()).map(|row| blocks(row).collect()).collect();
    let (mut found, mut pool) = (vec![Vec::new(); rows.len()], Pool::default());
    while found.iter().zip(rows).any(|(found, row)| found.len() < row.len() * width) {
        let (mut ids, mut positions, mut segments) = (Vec::new(), Vec::new(), Vec::new());
        for (at, row) in rows.iter().enumerate() {
            let done = found[at].len() / width;
            let len = row.len().min(done + chunks[at]);
            ids.extend_from_slice(&row[done..len]);
            positions.extend(done as u32..len as u32);
            segments.push(Segment { new_tokens: len - done, len, blocks: &blocks[at], state: 0 });
        }
        let context = Context::Cached(&mut kv, &segments);
        let hidden = decoder.forward(&ids, &positions, context, &mut pool).unwrap();
        let hidden = ops.read(&hidden).unwrap();
        let mut rest = &hidden[..];
        for (found, segment) in found.iter_mut().zip(&segments) {
            let (own, after) = rest.split_at(segment.new_tokens * width);
            found.extend_from_slice(own);
            rest = after;
        }
    }
    found
}

fn a_layer_computed_again_gives_what_a_kept_one_gives<O: Tested>(ops: &O) {
    let next = Next::of(&some_rows());
    for config in configs() {
        let OnDevice { params, decoder } = OnDevice::new(ops, &coarse(&config));
        let (kept, gradients) = next.backward(ops, &decoder, &params, false);
        let (again, others) = next.backward(ops, &decoder, &params, true);
        same(&again, &kept, O::AGAIN);
        for (found, kept) in others.iter().zip(&gradients) {
            same(found, kept, O::AGAIN);
        }
    }
}

fn gradients_of_an_adapter_are_those_of_the_merged_weights<O: Tested>(ops: &O) {
    const RANK: usize = 8;
    const SCALE: f32 = 0.5;
    let rows = some_rows();
    let config = &configs()[0];
    let model = coarse(config);
    let OnDevice { mut decoder, .. } = OnDevice::new(ops, &model);
    decoder = decoder.frozen();
    // The adapter corrects a map of each form of input: of queries, of the gate, and of the residual stream.
    let corrected = ["self_attn.q_proj", "mlp.gate_proj", "mlp.down_proj"];
    let names = corrected.map(|name| format!("model.layers.1.{name}"));
    let dims = |name: &str| {
        let weight = format!("{name}.weight");
        let found = model.weights.vars().iter().find(|(found, _)| *found == weight);
        let dims = found.unwrap().1.dims();
        (dims[0], dims[1])
    };
    let shapes = names.iter().flat_map(|name| {
        let (o, i) = dims(name);
        [(format!("{name}.a"), vec![RANK, i]), (format!("{name}.b"), vec![o, RANK])]
    });
    let host = Params::new(shapes, |index, values| {
        let draw = |i| 0.4 * uniform_number(derive_seed(9, index as u64), i) as f32 - 0.2;
        let draw = |i| bf16::from_f32(draw(i)).to_f32();
        values.iter_mut().zip(0..).for_each(|(value, i)| *value = draw(i));
        Ok(())
    });
    let host = host.unwrap();
    let params = host.on(ops, true).unwrap();
    for (name, lora) in decoder.loras() {
        let Some(at) = names.iter().position(|found| *found == name) else { continue };
        let (a, b) = (params.param(2 * at), params.param(2 * at + 1));
        *lora = Some(Lora { a, b, scale: SCALE, dropout: None });
    }
    let (logp, gradients) = Next::of(&rows).backward(ops, &decoder, &params, false);

    let mut slow = Slow::new(&model);
    let wide = |index: usize| -> Vec<f64> {
        host.vars()[index].1.values().iter().map(|x| f64::from(*x)).collect()
    };
    for (at, name) in names.iter().enumerate() {
        slow.correct(&format!("{name}.weight"), f64::from(SCALE), &wide(2 * at), &wide(2 * at + 1));
    }
    let expected = rows.iter().flat_map(|row| slow.next(row).values().to_vec());
    let off = logp.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
    assert!(off <= O::LOGPROB, "{off:e}");
    let of_weights = slow.gradients(&rows);
    for (at, name) in names.iter().enumerate() {
        let index = slow.names().iter().position(|found| *found == format!("{name}.weight"));
        let (dw, (o, i)) = (&of_weights[index.unwrap()], dims(name));
        let (a, b) = (wide(2 * at), wide(2 * at + 1));
        // dA = s Bᵀ dW, dB = s dW Aᵀ.
        let scale = f64::from(SCALE);
        let mut da = vec![0.0; RANK * i];
        let mut db = vec![0.0; o * RANK];
        for (row, dw) in dw.chunks_exact(i).enumerate() {
            for r in 0..RANK {
                for (column, dw) in dw.iter().enumerate() {
                    da[r * i + column] += scale * b[row * RANK + r] * dw;
                    db[row * RANK + r] += scale * dw * a[r * i + column];
                }
            }
        }
        for (found, expected) in [(&gradients[2 * at], &da), (&gradients[2 * at + 1], &db)] {
            let apart = apart(found, expected);
            assert!(apart <= O::GRADIENT, "`{name}`: {apart:e}");
        }
    }
}
