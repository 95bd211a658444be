//! Speed of the kernels on a machine, beside that of a copy in its memory.

mod gradients;
mod sizes;

pub use sizes::{Amounts, MeasuredSizes};

use gradients::GradientArrays;

use super::array::args;
use super::{
    AdapterTerms, BLOCK, CublasLt, Destination, DeviceArray, Kernels, KvShape, LaunchShape,
    Machine, Master, to_bf16,
};
use crate::adamw::AdamW;
use crate::attention::{BLOCK_TOKENS, Heads, Packing, Segment};
use crate::sample::{TokenDraw, uniform_number};

/// Time of a kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct Speed {
    /// Name of the operation, with its shape.
    pub name: String,
    /// Milliseconds of a call.
    pub milliseconds: f64,
    /// Bytes that have to be read and written.
    pub bytes: f64,
    /// Multiplications and additions.
    pub flop: f64,
}

impl Speed {
    /// Returns the gigabytes of a second.
    pub fn bandwidth(&self) -> f64 {
        self.bytes / self.milliseconds / 1e6
    }

    /// Returns the TFLOP of a second.
    pub fn teraflops(&self) -> f64 {
        self.flop / self.milliseconds / 1e9
    }
}

/// Returns the amounts of a call that only reads and writes.
fn only_bytes(bytes: usize) -> [f64; 2] {
    [bytes as f64, 0.0]
}

/// Measures operations of a machine.
pub struct KernelBench<'k, M: Machine> {
    kernels: &'k Kernels<M>,
    amounts: Amounts,
    report: Box<dyn FnMut(Speed) + 'k>,
}

impl<'k, M: Machine + Clone> KernelBench<'k, M> {
    /// Creates a bench. `report` gets each measurement when it is done.
    pub fn new(kernels: &'k Kernels<M>, amounts: Amounts, report: impl FnMut(Speed) + 'k) -> Self {
        Self { kernels, amounts, report: Box::new(report) }
    }

    /// Measures a call: one that is not counted, then as many as fill the time.
    fn measure_call(
        &mut self,
        name: impl Into<String>,
        [bytes, flop]: [f64; 2],
        mut call: impl FnMut() -> Result<(), M::Error>,
    ) -> Result<Speed, M::Error> {
        let machine = self.kernels.machine();
        let (mut calls, mut milliseconds) = (1, 0.0);
        for round in 0..3 {
            if round == 2 {
                let most = self.amounts.milliseconds / f64::max(milliseconds, 1e-3);
                calls = (most as usize).clamp(1, 1000);
            }
            let start = machine.record_event()?;
            (0..calls).try_for_each(|_| call())?;
            let end = machine.record_event()?;
            milliseconds = f64::from(machine.elapsed_millis(&start, &end)?) / calls as f64;
        }
        let speed = Speed { name: name.into(), milliseconds, bytes, flop };
        (self.report)(speed.clone());
        Ok(speed)
    }

    fn random_array(&self, n: usize) -> Result<DeviceArray<M, u16>, M::Error> {
        self.kernels.array_of(&self.random_numbers(n))
    }

    fn random_numbers(&self, n: usize) -> Vec<u16> {
        // A period that no shape divides.
        let some: Vec<f32> = (0..8191).map(|i| uniform_number(1, i) as f32 - 0.5).collect();
        to_bf16(&some).into_iter().cycle().take(n).collect()
    }

    /// Measures a copy of 1 GiB (or as much as the parameters) by the kernel `copy`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn measure_copy(&mut self) -> Result<Speed, M::Error> {
        let (kernels, n) = (self.kernels, self.amounts.parameters.next_multiple_of(8));
        let (x, mut y) = (kernels.zeroed_array::<u16>(n)?, kernels.new_array::<u16>(n)?);
        self.measure_call(format!("copy of {n} bf16"), [4.0 * n as f64, 0.0], || {
            kernels.copy_to_front(x.as_slice(), y.slice_mut())
        })
    }

    /// Measures the optimizer's kernels.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn measure_optimizer(&mut self) -> Result<(), M::Error> {
        let (kernels, n) = (self.kernels, self.amounts.parameters);
        let (mut high, mut low) = (kernels.zeroed_array(n)?, kernels.zeroed_array(n)?);
        let mut grad = kernels.zeroed_array(n)?;
        let (mut m, mut v) = (kernels.zeroed_array(n)?, kernels.zeroed_array(n)?);
        let cfg = AdamW { lr: 1e-5, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.01 };
        self.measure_call(format!("adamw of {n} parameters"), [32.0 * n as f64, 0.0], || {
            let master = Master { high: high.slice_mut(), low: low.slice_mut() };
            kernels.adamw_step(
                &cfg,
                1,
                1.0,
                master,
                grad.slice_mut(),
                [m.slice_mut(), v.slice_mut()],
            )
        })?;
        self.measure_call(format!("squares of {n}"), [4.0 * n as f64, 0.0], || {
            kernels.sum_of_squares(grad.as_slice()).map(drop)
        })?;
        Ok(())
    }

    /// Measures the kernels of a layer that memory bounds.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn measure_elementwise(&mut self, sizes: &MeasuredSizes) -> Result<(), M::Error> {
        let (kernels, n) = (self.kernels, self.amounts.tokens);
        let MeasuredSizes { hidden: d, intermediate: f, vocab, .. } = *sizes;
        let mut x = kernels.zeroed_array::<f32>(n * d)?;
        let (mut y, w) = (kernels.new_array::<u16>(n * d)?, self.random_array(d)?);
        self.measure_call(format!("rms_norm {n} x {d}"), only_bytes(6 * n * d), || {
            kernels.rms_norm(x.as_slice(), w.as_slice(), 1e-6, y.slice_mut())
        })?;
        let dy = self.random_array(n * d)?;
        let (mut dx, mut dw) = (kernels.zeroed_array(n * d)?, kernels.zeroed_array(d)?);
        self.measure_call(format!("rms_norm_back {n} x {d}"), only_bytes(14 * n * d), || {
            let (x, w, dw) = (x.as_slice(), w.as_slice(), Some(dw.slice_mut()));
            kernels.rms_norm_back(x, w, 1e-6, dy.as_slice(), true, dx.slice_mut(), None, dw)
        })?;
        self.measure_call(format!("round_to_bf16 {n} x {d}"), only_bytes(6 * n * d), || {
            kernels.round_to_bf16(dx.as_slice(), y.slice_mut())
        })?;
        let rows: Vec<u32> = (0..n as u32).rev().collect();
        let sources = kernels.selected_rows(&rows)?;
        self.measure_call(format!("combine_rows {n} x {d}"), only_bytes(4 * n * d), || {
            kernels.combine_rows(dy.as_slice(), &sources, d, y.slice_mut())
        })?;
        let table = self.random_array(vocab * d)?;
        let ids: Vec<u32> = (0..n).map(|i| (i * 7919 % vocab) as u32).collect();
        let ids = kernels.embedding_layout(&ids)?;
        self.measure_call(format!("gather {n} x {d}"), only_bytes(6 * n * d), || {
            kernels.gather_rows(table.as_slice(), &ids, d, x.slice_mut())
        })?;
        let mut dtable = kernels.zeroed_array::<f32>(vocab * d)?;
        self.measure_call(format!("scatter_add {n} x {d}"), only_bytes(12 * n * d), || {
            kernels.scatter_add(dx.as_slice(), &ids, d, dtable.slice_mut())
        })?;
        drop((table, dtable));
        let [gate, up, dact] = [(); 3].map(|()| self.random_array(n * f));
        let (gate, up, dact) = (gate?, up?, dact?);
        let (mut dgate, mut dup) = (kernels.new_array(n * f)?, kernels.new_array(n * f)?);
        self.measure_call(format!("swiglu {n} x {f}"), only_bytes(6 * n * f), || {
            kernels.swiglu(gate.as_slice(), up.as_slice(), dgate.slice_mut())
        })?;
        self.measure_call(format!("swiglu_back {n} x {f}"), only_bytes(10 * n * f), || {
            let given = [gate.as_slice(), up.as_slice(), dact.as_slice()];
            kernels.swiglu_back(given, [dgate.slice_mut(), dup.slice_mut()], None)
        })?;
        Ok(())
    }

    /// Measures products of each weight of a layer and of the head, forward, at some numbers of rows; and the two
    /// products of the backward pass.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn measure_products(
        &mut self,
        sizes: &MeasuredSizes,
        rows: &[usize],
    ) -> Result<(), M::Error> {
        let MeasuredSizes { hidden: d, intermediate: f, heads: Heads { q, kv, dim, .. }, .. } =
            *sizes;
        let weights = [
            ("q", q * dim, d),
            ("k", kv * dim, d),
            ("o", d, q * dim),
            ("gate", f, d),
            ("down", d, f),
        ];
        for (name, n, k) in weights {
            for &m in rows {
                self.measure_product(&format!("{} {name}", sizes.name), [m, n, k])?;
            }
            self.product_back(&format!("{} {name}", sizes.name), [self.amounts.tokens, n, k])?;
        }
        self.measure_product(&format!("{} head", sizes.name), [self.amounts.logits, sizes.vocab, d])
    }

    /// Measures `x wᵀ`, with `x [m, k]` and `w [n, k]`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn measure_product(&mut self, name: &str, [m, n, k]: [usize; 3]) -> Result<(), M::Error> {
        let kernels = self.kernels;
        let x = self.random_array(m * k)?;
        let w = self.random_array(n * k)?;
        let mut y = kernels.new_array::<u16>(m * n)?;
        let bytes = 2.0 * (m * k + n * k + m * n) as f64;
        let flop = 2.0 * (m * n) as f64 * k as f64;
        self.measure_call(format!("{name} {m} x {n} x {k}"), [bytes, flop], || {
            let out = Destination::Bf16(y.slice_mut()).into();
            kernels.linear(x.as_slice(), w.as_slice(), [m, n, k], None::<AdapterTerms<'_>>, out)
        })?;
        Ok(())
    }

    /// Measures both gradients of `x wᵀ`: by own products, and by the machine's library if it has one that computes them.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn product_back(&mut self, name: &str, [m, n, k]: [usize; 3]) -> Result<(), M::Error> {
        let own = self.kernels.with_own_products();
        let mut arrays = GradientArrays {
            shape: [m, n, k],
            x: self.random_array(m * k)?,
            dy: self.random_array(m * n)?,
            w: self.random_array(n * k)?,
            dx: own.new_array(m * k)?,
            dw: own.zeroed_array(n * k)?,
        };
        let before = self.library_products();
        arrays.input_gradient(self.kernels)?;
        arrays.weight_gradient(self.kernels)?;
        let library = self.library_products() == before + 2;
        let (flop, terms) = (2.0 * (m * n) as f64 * k as f64, m * k + m * n);
        let all = [("", &own), (", cuBLASLt", self.kernels)];
        for (by, kernels) in all.into_iter().take(1 + usize::from(library)) {
            let amounts = [2.0 * (terms + n * k) as f64, flop];
            let input = format!("{name} input gradient {m} x {k} x {n}{by}");
            self.measure_call(input, amounts, || arrays.input_gradient(kernels))?;
            let amounts = [2.0 * terms as f64 + 8.0 * (n * k) as f64, flop];
            let weight = format!("{name} weight gradient {n} x {k} x {m}{by}");
            self.measure_call(weight, amounts, || arrays.weight_gradient(kernels))?;
        }
        Ok(())
    }

    /// Returns the number of products that the machine's library has computed.
    fn library_products(&self) -> u64 {
        self.kernels.machine().product_library().map_or(0, CublasLt::product_count)
    }

    /// Measures attention: forward and backward over packed rows, and decoding.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn measure_attention(&mut self, sizes: &MeasuredSizes) -> Result<(), M::Error> {
        let (kernels, heads) = (self.kernels, sizes.heads);
        let Heads { q, kv, dim, .. } = heads;
        let Amounts { tokens, row, .. } = self.amounts;
        let (rows, n) = (tokens.div_ceil(row), tokens.next_multiple_of(row));
        let offsets: Vec<usize> = (0..=rows).map(|i| i * row).collect();
        let packing = Packing::from_offsets(&offsets);
        let (forward, back) =
            (kernels.attention_layout(packing)?, kernels.backward_layout(packing)?);
        let (qs, dout) = (self.random_array(n * q * dim)?, self.random_array(n * q * dim)?);
        let (ks, vs) = (self.random_array(n * kv * dim)?, self.random_array(n * kv * dim)?);
        let mut out = kernels.new_array::<u16>(n * q * dim)?;
        let mut lse = kernels.new_array::<f32>(n * q)?;
        let name = format!("{} {rows} rows of {row}", sizes.name);
        // Two products over half of the square of a row.
        let flop = 2.0 * (n * row * q * dim) as f64;
        let bytes = 2.0 * (2 * n * (q + kv) * dim) as f64;
        self.measure_call(format!("attend {name}"), [bytes, flop], || {
            let qkv = [qs.as_slice(), ks.as_slice(), vs.as_slice()];
            kernels.attend_packed(qkv, &forward, heads, out.slice_mut(), lse.slice_mut())
        })?;
        let mut dq = kernels.new_array::<u16>(n * q * dim)?;
        let (mut dk, mut dv) = (kernels.new_array(n * kv * dim)?, kernels.new_array(n * kv * dim)?);
        self.measure_call(format!("attend_back {name}"), [2.5 * bytes, 2.5 * flop], || {
            let (qkv, outs) =
                ([qs.as_slice(), ks.as_slice(), vs.as_slice()], [out.as_slice(), dout.as_slice()]);
            let to = [dq.slice_mut(), dk.slice_mut(), dv.slice_mut()];
            kernels.attend_back(qkv, outs, lse.as_slice(), &back, heads, to)
        })?;
        self.measure_decoding(sizes)
    }

    fn measure_decoding(&mut self, sizes: &MeasuredSizes) -> Result<(), M::Error> {
        let (kernels, heads) = (self.kernels, sizes.heads);
        let Heads { q, kv, dim, .. } = heads;
        let Amounts { rows, row, .. } = self.amounts;
        let each = row.div_ceil(BLOCK_TOKENS);
        let shape = KvShape { layers: 1, heads: kv, dim };
        let mut blocks = self.random_array(rows * each * shape.block_len())?;
        let tables: Vec<Vec<u32>> = (0..rows)
            .map(|i| (0..each).map(|j| ((j * rows + i) % (rows * each)) as u32).collect())
            .collect();
        let segments: Vec<Segment<'_>> = tables
            .iter()
            .map(|blocks| Segment { new_tokens: 1, len: row, blocks, state: 0 })
            .collect();
        let tables = kernels.block_tables(&segments)?;
        let qs = self.random_array(rows * q * dim)?;
        let ks = self.random_array(rows * kv * dim)?;
        let mut out = kernels.new_array::<u16>(rows * q * dim)?;
        let name = format!("{} {rows} rows of {row}", sizes.name);
        let new = (4 * rows * kv * dim) as f64;
        self.measure_call(format!("append {name}"), [2.0 * new, 0.0], || {
            let new = [ks.as_slice(), ks.as_slice()];
            kernels.append_tokens(new, &tables, shape, 0, blocks.slice_mut())
        })?;
        let bytes = (4 * rows * row * kv * dim) as f64;
        let flop = 4.0 * (rows * row * q * dim) as f64;
        self.measure_call(format!("decode {name}"), [bytes, flop], || {
            let to = out.slice_mut();
            kernels.attend_cached(qs.as_slice(), blocks.as_slice(), &tables, shape, 0, heads, to)
        })?;
        Ok(())
    }

    /// Measures the kernels of the head's softmax.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn measure_softmax(&mut self, sizes: &MeasuredSizes) -> Result<(), M::Error> {
        let (kernels, n, vocab) = (self.kernels, self.amounts.logits, sizes.vocab);
        let logits = kernels.zeroed_array::<f32>(n * vocab)?;
        let name = format!("{n} x {vocab}");
        let bytes = (n * vocab) as f64;
        let rows = kernels.softmax_rows(&vec![0; n], &vec![1.0; n])?;
        self.measure_call(format!("log_probabilities {name}"), [4.0 * bytes, 0.0], || {
            kernels.log_probabilities(logits.as_slice(), &rows).map(drop)
        })?;
        let found = kernels.log_probabilities(logits.as_slice(), &rows)?;
        let mut dlogits = kernels.new_array::<u16>(n * vocab)?;
        let ones = vec![1.0; n];
        self.measure_call(format!("logit_gradients {name}"), [6.0 * bytes, 0.0], || {
            let by = [&ones[..], &ones];
            kernels.logit_gradients(logits.as_slice(), &rows, &found, by, dlogits.slice_mut())
        })?;
        let draws = vec![TokenDraw { temperature: 1.0, seed: 1, counter: 1 }; n];
        self.measure_call(format!("choose {name}"), [4.0 * bytes, 0.0], || {
            kernels.choose_tokens(logits.as_slice(), &draws).map(drop)
        })?;
        Ok(())
    }

    /// Measures the launch of a kernel without work.
    ///
    /// # Errors
    ///
    /// If the device fails.
    #[allow(unsafe_code)]
    pub fn measure_launch(&mut self) -> Result<(), M::Error> {
        let kernels = self.kernels;
        let (x, y) = (kernels.zeroed_array::<f32>(8)?, kernels.new_array::<u16>(8)?);
        let shape = LaunchShape { grid: [1, 1, 1], threads: BLOCK, shared: 0 };
        self.measure_call("a launch", [0.0, 0.0], || {
            // SAFETY: the arguments are those of `round_to_bf16`, and both arrays have 8 elements.
            unsafe { kernels.machine().launch_kernel("round_to_bf16", shape, args![x, 8_usize, y]) }
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::cuda::{Emulated, MODEL};

    #[test]
    fn every_operation_is_measured() {
        if let Err(error) = crate::emulate::check_compiler() {
            return eprintln!("skipped: {error}");
        }
        let kernels = Kernels::new(Emulated::shared_machine(&MODEL).unwrap());
        let heads = Heads::new(2, 1, 32);
        let sizes = MeasuredSizes { name: "small", hidden: 64, intermediate: 72, heads, vocab: 70 };
        let amounts =
            Amounts { tokens: 18, row: 9, rows: 2, logits: 3, parameters: 1000, milliseconds: 0.0 };
        let mut found = Vec::new();
        let mut bench = KernelBench::new(&kernels, amounts, |speed| found.push(speed));
        bench.measure_launch().unwrap();
        bench.measure_copy().unwrap();
        bench.measure_optimizer().unwrap();
        bench.measure_elementwise(&sizes).unwrap();
        bench.measure_products(&sizes, &[1, 17]).unwrap();
        bench.measure_attention(&sizes).unwrap();
        bench.measure_softmax(&sizes).unwrap();
        drop(bench);
        assert!(found.iter().all(|speed| speed.milliseconds > 0.0), "{found:?}");
        assert_eq!(found[1].bytes, 4000.0);
        assert_eq!(found.len(), 1 + 1 + 2 + 8 + 5 * 4 + 1 + 4 + 3);
    }
}
