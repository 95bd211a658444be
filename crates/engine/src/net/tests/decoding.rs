//! Recorded passes of decoding have the bits of passes that launch their kernels one by one.

use half::bf16;
use maverl_kernels::adamw::AdamW;
use maverl_kernels::cuda::Emulated;

use super::contract::{OnDevice, coarse, configs, emulated, some_rows};
use super::*;
use crate::net::linear::Lora;
use crate::net::ops::device::Device;
use crate::net::ops::{Backend as _, KvCache as _, Memory};

/// Blocks of each sequence.
const BLOCKS: usize = 3;

/// Sequences that are decoded on a device.
struct Sequences<'a> {
    ops: &'a Device<Emulated>,
    decoder: &'a Decoder<Device<Emulated>>,
    kv: <Device<Emulated> as Memory>::Kv,
    /// Blocks and tokens of each.
    rows: Vec<(Vec<u32>, Vec<u32>)>,
    pool: Pool<Device<Emulated>>,
}

impl<'a> Sequences<'a> {
    /// Computes the keys and values of each row but its last token.
    fn start(
        ops: &'a Device<Emulated>,
        decoder: &'a Decoder<Device<Emulated>>,
        model: &Model,
        rows: &[Vec<u32>],
    ) -> Self {
        let mut kv = ops.kv(&model.config, 400);
        let mut own = |_: usize| ops.add_block(&mut kv).unwrap();
        let rows: Vec<(Vec<u32>, Vec<u32>)> =
            rows.iter().map(|row| ((0..BLOCKS).map(&mut own).collect(), row.clone())).collect();
        let mut all = Self { ops, decoder, kv, rows, pool: Pool::default() };
        all.prefill();
        all
    }

    fn prefill(&mut self) {
        let (mut ids, mut positions, mut segments) = (Vec::new(), Vec::new(), Vec::new());
        for (blocks, row) in &self.rows {
            let len = row.len() - 1;
            ids.extend_from_slice(&row[..len]);
            positions.extend(0..len as u32);
            segments.push(Segment { new_tokens: len, len, blocks, state: 0 });
        }
        let context = Context::Cached(&mut self.kv, &segments);
        self.decoder.forward(&ids, &positions, context, &mut self.pool).unwrap();
    }

    /// Adds a token to the first `n` sequences, and returns the bits of the hidden states of their former last tokens.
    fn step(&mut self, n: usize) -> Vec<u32> {
        let rows = &self.rows[..n];
        let ids: Vec<u32> = rows.iter().map(|(_, row)| row[row.len() - 1]).collect();
        let positions: Vec<u32> = rows.iter().map(|(_, row)| row.len() as u32 - 1).collect();
        let segments: Vec<Segment<'_>> = rows
            .iter()
            .map(|(blocks, row)| Segment { new_tokens: 1, len: row.len(), blocks, state: 0 })
            .collect();
        let context = Context::Cached(&mut self.kv, &segments);
        let hidden = self.decoder.forward(&ids, &positions, context, &mut self.pool).unwrap();
        let bits = self.ops.read(&hidden).unwrap().iter().map(|x| x.to_bits()).collect();
        self.rows[..n].iter_mut().for_each(|(_, row)| row.push((row.len() * 13 % 60) as u32));
        bits
    }

    /// Begins again with other blocks: those of an update are gone.
    fn restart(&mut self, rows: &[Vec<u32>]) {
        self.kv.clear();
        for ((blocks, row), again) in self.rows.iter_mut().zip(rows) {
            *row = again.clone();
            for block in blocks {
                *block = self.ops.add_block(&mut self.kv).unwrap();
            }
        }
        self.prefill();
    }
}

/// Returns the emulated device with and without graphs.
fn both() -> Option<[Device<Emulated>; 2]> {
    let device = emulated()?;
    Some([device.clone(), device.with_graphs(false)])
}

#[test]
fn recorded_passes_have_the_bits_of_launches_one_by_one_in_every_size() {
    let Some([graphs, launches]) = both() else { return };
    for config in configs() {
        let model = coarse(&config);
        let recorded = OnDevice::new(&graphs, &model);
        let single = OnDevice::new(&launches, &model);
        let rows = some_rows();
        let mut a = Sequences::start(&graphs, &recorded.decoder, &model, &rows);
        let mut b = Sequences::start(&launches, &single.decoder, &model, &rows);
        for n in [4, 4, 3, 4, 2, 1, 1] {
            assert_eq!(a.step(n), b.step(n), "{n} sequences");
        }
        // Three sequences are filled up to four.
        assert_eq!((recorded.decoder.passes().len(), single.decoder.passes().len()), (3, 0));
    }
}

#[test]
fn a_recorded_pass_serves_after_keys_and_values_have_moved() {
    let Some([graphs, launches]) = both() else { return };
    let model = coarse(&configs()[0]);
    let recorded = OnDevice::new(&graphs, &model);
    let single = OnDevice::new(&launches, &model);
    let rows = some_rows();
    let mut a = Sequences::start(&graphs, &recorded.decoder, &model, &rows);
    let mut b = Sequences::start(&launches, &single.decoder, &model, &rows);
    assert_eq!(a.step(4), b.step(4));
    // The array of blocks grows, and is then another one.
    for all in [&mut a, &mut b] {
        for _ in 0..100 {
            all.ops.add_block(&mut all.kv).unwrap();
        }
    }
    assert_eq!(a.step(4), b.step(4));
    for all in [&mut a, &mut b] {
        all.restart(&rows);
    }
    assert_eq!(a.step(4), b.step(4));
    assert_eq!(recorded.decoder.passes().len(), 1);
}

/// Changes weights in place: by a step of the optimizer, and by other values.
fn change(ops: &Device<Emulated>, params: &Params<Device<Emulated>>, host: &Params, assign: bool) {
    if assign {
        return params.assign(ops, host).unwrap();
    }
    let n = params.elements();
    let gradients: Vec<f32> = (0..n as u64).map(|i| uniform_number(3, i) as f32 - 0.5).collect();
    let mut gradients = ops.sums_of(gradients).unwrap();
    let (mut m, mut v) = (ops.sums(n).unwrap(), ops.sums(n).unwrap());
    let cfg = AdamW { lr: 0.05, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.01 };
    let mut weights = params.write();
    let both = (&mut *weights, &mut gradients);
    ops.adamw(&cfg, (1, 1.0), 0..n, both, [&mut m, &mut v]).unwrap();
}

#[test]
fn a_pass_that_is_recorded_once_serves_after_weights_have_changed_in_place() {
    let Some([graphs, launches]) = both() else { return };
    let model = coarse(&configs()[0]);
    let other = coarse(&configs()[0]);
    other.weights.params().update(|values| values.iter_mut().for_each(|x| *x *= 1.5));
    let recorded = OnDevice::new(&graphs, &model);
    let single = OnDevice::new(&launches, &model);
    let rows = some_rows();
    let mut a = Sequences::start(&graphs, &recorded.decoder, &model, &rows);
    let mut b = Sequences::start(&launches, &single.decoder, &model, &rows);
    let mut before = a.step(4);
    assert_eq!(before, b.step(4));
    for assign in [false, true] {
        for (ops, params) in [(&graphs, &recorded.params), (&launches, &single.params)] {
            change(ops, params, other.weights.params(), assign);
        }
        for all in [&mut a, &mut b] {
            all.restart(&rows);
        }
        let after = a.step(4);
        assert_eq!(after, b.step(4));
        assert_ne!(after, before, "the weights have not changed");
        before = after;
    }
    assert_eq!(recorded.decoder.passes().len(), 1);
}

#[test]
fn a_decoder_with_an_adapter_has_recordings_of_its_own() {
    let Some([graphs, launches]) = both() else { return };
    let model = coarse(&configs()[0]);
    let [recorded, single] = [&graphs, &launches].map(|ops| OnDevice::new(ops, &model));
    let rows = some_rows();
    let base = Sequences::start(&graphs, &recorded.decoder, &model, &rows).step(4);
    let width = model.config.hidden_size;
    let shapes = [("a".to_owned(), vec![8, width]), ("b".to_owned(), vec![width, 8])];
    let host = Params::new(shapes, |index, values| {
        let draw = |i| bf16::from_f32(uniform_number(index as u64, i) as f32 - 0.5).to_f32();
        values.iter_mut().zip(0..).for_each(|(value, i)| *value = draw(i));
        Ok(())
    });
    let host = host.unwrap();
    let adapted = |ops: &Device<Emulated>, decoder: &Decoder<Device<Emulated>>| {
        let params = host.on(ops, true).unwrap();
        let mut decoder = decoder.clone().frozen();
        for (name, lora) in decoder.loras().filter(|(name, _)| name.ends_with("0.self_attn.q_proj"))
        {
            assert!(name.starts_with("model.layers"));
            let (a, b) = (params.param(0), params.param(1));
            *lora = Some(Lora { a, b, scale: 0.5, dropout: None });
        }
        Sequences::start(ops, &decoder, &model, &rows).step(4)
    };
    let found = adapted(&graphs, &recorded.decoder);
    assert_eq!(found, adapted(&launches, &single.decoder));
    assert_ne!(found, base);
}
