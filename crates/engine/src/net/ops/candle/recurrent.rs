//! Operations of recurrent mixers and of output gates.

use candle_core::Tensor;
use maverl_kernels::recurrent::DeltaHeads;

use super::rule::{
    self, Inputs, gather_back, log_decay, log_decay_back, normalize_keys, normalize_keys_back,
    sources,
};
use super::{
    Candle, CandleKv, CandlePlaced, CandleTensor, Done, add_gradient, gates, join_rows, weight,
};
use crate::files::parts::Conv;
use crate::net::gradients::Gradients;
use crate::net::ops::{DeltaInputs, DeltaWeights, RecurrentOps};
use crate::net::pool::Pool;
use crate::net::values::Param;

impl RecurrentOps for Candle {
    fn apply_gate(
        &self,
        x: &CandleTensor,
        gate: &CandleTensor,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        Ok(gates::sigmoid_gate(&x.rows(1)?, &gate.rows(1)?)?.into())
    }

    fn apply_gate_back(
        &self,
        [x, gate]: [&CandleTensor; 2],
        dout: &CandleTensor,
        _: &mut Pool<Self>,
    ) -> Done<[CandleTensor; 2]> {
        let back = gates::sigmoid_gate_back(&x.rows(1)?, &gate.rows(1)?, &dout.rows(1)?)?;
        Ok(back.map(CandleTensor::from))
    }

    fn multiply(
        &self,
        a: &CandleTensor,
        b: &CandleTensor,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        Ok((a.rows(1)? * b.rows(1)?)?.into())
    }

    fn silu(&self, x: &CandleTensor, _: &mut Pool<Self>) -> Done<CandleTensor> {
        Ok(gates::silu(x.get()?)?.into())
    }

    fn silu_back(&self, x: &CandleTensor, gradient: CandleTensor) -> Done<CandleTensor> {
        Ok(gates::silu_back(&x.rows(1)?, &gradient.rows(1)?)?.into())
    }

    fn convolve(
        &self,
        x: &CandleTensor,
        conv: &Conv<Param<Self>>,
        at: &CandlePlaced<'_>,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        let (inputs, _) = self.tap_inputs(x, conv, at)?;
        Ok(convolution(conv)?.forward(&inputs)?.into())
    }

    fn convolve_back(
        &self,
        x: &CandleTensor,
        conv: &Conv<Param<Self>>,
        dy: &CandleTensor,
        at: &CandlePlaced<'_>,
        sums: &mut Gradients<'_, Self>,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        let (channels, n) = (conv.weight.dims()[0], at.positions.len());
        let (inputs, taps) = self.tap_inputs(x, conv, at)?;
        let dy = dy.rows(channels)?;
        let (dinputs, dweight) = convolution(conv)?.backward(&inputs, &dy)?;
        add_gradient(sums, &conv.weight, || Ok(dweight))?;
        if let Some(bias) = &conv.bias {
            add_gradient(sums, bias, || dy.sum(0))?;
        }
        // The last row is that of tokens before the start.
        let mut dx = Tensor::zeros((n + 1, channels), dy.dtype(), &self.device)?;
        for (dinput, tap) in dinputs.iter().zip(&taps) {
            dx = dx.index_add(tap, dinput, 0)?;
        }
        Ok(dx.narrow(0, 0, n)?.into())
    }

    fn convolve_cached(
        &self,
        x: &CandleTensor,
        conv: &Conv<Param<Self>>,
        (kv, layer): (&CandleKv, usize),
        at: &CandlePlaced<'_>,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        let (channels, kernel) = (conv.weight.dims()[0], conv.kernel);
        let (x, of, mut start, mut parts) = (x.rows(channels)?, convolution(conv)?, 0, Vec::new());
        for segment in at.segments {
            let n = segment.new_tokens;
            kv.with_state(segment.state, layer, |[past, _]| {
                let all = Tensor::cat(&[&*past, &x.narrow(0, start, n)?], 0)?;
                let inputs = (0..kernel).map(|tap| all.narrow(0, tap, n));
                parts.push(of.forward(&inputs.collect::<candle_core::Result<Vec<_>>>()?)?);
                *past = all.narrow(0, n, kernel - 1)?.force_contiguous()?;
                Ok(())
            })?;
            start += n;
        }
        Ok(join_rows(&parts, channels, &self.device)?.into())
    }

    fn delta_inputs(
        &self,
        raw: &CandleTensor,
        [a, b]: [&CandleTensor; 2],
        net: &DeltaWeights<Self>,
        _: &mut Pool<Self>,
    ) -> Done<DeltaInputs<Self>> {
        let mixed = raw.rows(net.heads.mixed_width())?;
        let mixed = CandleTensor::from(normalize_keys(&mixed, net.heads)?);
        let (a, b) = (a.rows(net.heads.values)?, b.rows(net.heads.values)?);
        let of = [weight(&net.a_log)?, weight(&net.dt_bias)?];
        let decay = CandleTensor::from(log_decay(&a, of.each_ref())?.exp()?);
        Ok(DeltaInputs { mixed, decay, beta: gates::sigmoid(&b)?.into() })
    }

    fn delta_inputs_back(
        &self,
        (raw, [a, b]): (&CandleTensor, [&CandleTensor; 2]),
        net: &DeltaWeights<Self>,
        gradients: DeltaInputs<Self>,
        sums: &mut Gradients<'_, Self>,
        _: &mut Pool<Self>,
    ) -> Done<[CandleTensor; 3]> {
        let (width, values) = (net.heads.mixed_width(), net.heads.values);
        let DeltaInputs { mixed, decay, beta: dbeta } = gradients;
        let draw = normalize_keys_back(&raw.rows(width)?, net.heads, &mixed.rows(width)?)?;
        let of = [weight(&net.a_log)?, weight(&net.dt_bias)?];
        let [da, da_log, ddt_bias] =
            log_decay_back(&a.rows(values)?, of.each_ref(), &decay.rows(values)?)?;
        add_gradient(sums, &net.a_log, || Ok(da_log))?;
        add_gradient(sums, &net.dt_bias, || Ok(ddt_bias))?;
        let beta = gates::sigmoid(&b.rows(values)?)?;
        let db = ((dbeta.rows(values)? * &beta)? * (1.0 - &beta)?)?;
        Ok([draw.into(), da.into(), db.into()])
    }

    fn delta_rule(
        &self,
        inputs: &DeltaInputs<Self>,
        heads: DeltaHeads,
        at: &CandlePlaced<'_>,
        _: &mut Pool<Self>,
    ) -> Done<[CandleTensor; 2]> {
        let (rows, mut out) = (rows_of(inputs, heads)?, Vec::new());
        let mut states: Vec<Tensor> = Vec::new();
        for span in at.packing.spans() {
            let before =
                span.before.map_or_else(|| self.no_state(heads), |b| Ok(states[b].clone()));
            states.push(rows.run(span.tokens, before?, &mut out)?);
        }
        if out.is_empty() {
            return Ok([CandleTensor::default(), CandleTensor::default()]);
        }
        Ok([Tensor::stack(&out, 0)?.into(), Tensor::stack(&states, 0)?.into()])
    }

    fn delta_rule_back(
        &self,
        inputs: &DeltaInputs<Self>,
        heads: DeltaHeads,
        [states, dout]: [&CandleTensor; 2],
        at: &CandlePlaced<'_>,
        _: &mut Pool<Self>,
    ) -> Done<DeltaInputs<Self>> {
        let (spans, rows) = (at.packing.spans(), rows_of(inputs, heads)?);
        let states = states.get()?;
        let dout = dout.get()?.reshape(((), heads.values, heads.value_dim))?;
        let mut found = vec![None; at.positions.len()];
        let mut ends: Vec<Option<Tensor>> = vec![None; spans.len()];
        for (index, span) in spans.iter().enumerate().rev() {
            let before = match span.before {
                None => self.no_state(heads)?,
                Some(before) => states.narrow(0, before, 1)?.squeeze(0)?,
            };
            let gradient = ends[index].take().map_or_else(|| self.no_state(heads), Ok)?;
            let start =
                rows.run_back(span.tokens.clone(), (before, gradient), &dout, &mut found)?;
            if let Some(before) = span.before {
                let sum = ends[before].take().map_or(Ok(start.clone()), |sum| sum + start);
                ends[before] = Some(sum?);
            }
        }
        let [mixed, decay, beta] = gather_back(found, heads)?.map(CandleTensor::from);
        Ok(DeltaInputs { mixed, decay, beta })
    }

    fn delta_rule_cached(
        &self,
        inputs: &DeltaInputs<Self>,
        heads: DeltaHeads,
        (kv, layer): (&CandleKv, usize),
        at: &CandlePlaced<'_>,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        let (rows, mut out, mut start) = (rows_of(inputs, heads)?, Vec::new(), 0);
        for segment in at.segments {
            let tokens = start..start + segment.new_tokens;
            start = tokens.end;
            kv.with_state(segment.state, layer, |[_, state]| {
                *state = rows.run(tokens, state.clone(), &mut out)?;
                Ok(())
            })?;
        }
        if out.is_empty() {
            return Ok(CandleTensor::default());
        }
        Ok(Tensor::stack(&out, 0)?.into())
    }
}

/// Returns the inputs of the rule, of all tokens.
fn rows_of(inputs: &DeltaInputs<Candle>, heads: DeltaHeads) -> Done<Inputs> {
    let DeltaInputs { mixed, decay, beta } = inputs;
    let (mixed, values) = (mixed.rows(heads.mixed_width())?, heads.values);
    Ok(Inputs::new(&mixed, [&decay.rows(values)?, &beta.rows(values)?], heads)?)
}

/// Returns the weights of a convolution.
fn convolution(conv: &Conv<Param<Candle>>) -> Done<rule::ChannelConv> {
    let dims = (conv.weight.dims()[0], conv.kernel);
    let bias = conv.bias.as_ref().map(weight).transpose()?;
    Ok(rule::ChannelConv { weight: weight(&conv.weight)?.reshape(dims)?, bias })
}

impl Candle {
    /// Returns the inputs `[N, C]` of each tap of a convolution of packed rows, and their tokens.
    fn tap_inputs(
        &self,
        x: &CandleTensor,
        conv: &Conv<Param<Self>>,
        at: &CandlePlaced<'_>,
    ) -> Done<(Vec<Tensor>, Vec<Tensor>)> {
        let channels = conv.weight.dims()[0];
        let nothing = Tensor::zeros((1, channels), candle_core::DType::F32, &self.device)?;
        let x = Tensor::cat(&[x.rows(channels)?, nothing], 0)?;
        let taps = sources(&at.packing.spans(), conv.kernel).into_iter();
        let taps = taps.map(|tap| self.indices(tap)).collect::<candle_core::Result<Vec<_>>>()?;
        let inputs = taps.iter().map(|tap| x.index_select(tap, 0));
        Ok((inputs.collect::<candle_core::Result<_>>()?, taps))
    }

    /// Returns the state before the first token, `[V, k, v]`.
    fn no_state(&self, of: DeltaHeads) -> candle_core::Result<Tensor> {
        let dims = (of.values, of.key_dim, of.value_dim);
        Tensor::zeros(dims, candle_core::DType::F32, &self.device)
    }
}
