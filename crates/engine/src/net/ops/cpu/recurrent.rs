//! Operations of recurrent mixers and of output gates, on the CPU.

use maverl_kernels::recurrent::{
    ConvWeights, DeltaGradients, DeltaHeads, DeltaRows, GateGradients, GateWeights, causal_conv,
    causal_conv_bwd, causal_conv_onto, delta_gates, delta_gates_bwd, delta_rule, delta_rule_bwd,
    delta_rule_onto, normalize_keys, normalize_keys_bwd,
};
use maverl_kernels::{elementwise, mlp};

use super::{Cpu, Done, Placed};
use crate::files::parts::Conv;
use crate::net::gradients::Gradients;
use crate::net::kv::KvStore;
use crate::net::ops::recurrent::{DeltaInputs, DeltaWeights, RecurrentOps};
use crate::net::pool::Pool;
use crate::net::values::Param;

impl RecurrentOps for Cpu {
    fn apply_gate(&self, x: &Vec<f32>, gate: &Vec<f32>, pool: &mut Pool) -> Done<Vec<f32>> {
        let mut out = pool.take(x.len());
        mlp::sigmoid_gate(x, gate, &mut out);
        Ok(out)
    }

    fn apply_gate_back(
        &self,
        [x, gate]: [&Vec<f32>; 2],
        dout: &Vec<f32>,
        pool: &mut Pool,
    ) -> Done<[Vec<f32>; 2]> {
        let [mut dx, mut dgate] = [x, gate].map(|like| pool.take(like.len()));
        mlp::sigmoid_gate_bwd(x, gate, dout, &mut dx, &mut dgate);
        Ok([dx, dgate])
    }

    fn multiply(&self, a: &Vec<f32>, b: &Vec<f32>, pool: &mut Pool) -> Done<Vec<f32>> {
        let mut out = pool.take(a.len());
        elementwise::multiply_numbers(a, b, &mut out);
        Ok(out)
    }

    fn silu(&self, x: &Vec<f32>, pool: &mut Pool) -> Done<Vec<f32>> {
        let mut out = pool.take(x.len());
        mlp::silu(x, &mut out);
        Ok(out)
    }

    fn silu_back(&self, x: &Vec<f32>, mut gradient: Vec<f32>) -> Done<Vec<f32>> {
        mlp::silu_bwd(x, &mut gradient);
        Ok(gradient)
    }

    fn convolve(
        &self,
        x: &Vec<f32>,
        conv: &Conv<Param>,
        at: &Placed<'_>,
        pool: &mut Pool,
    ) -> Done<Vec<f32>> {
        let mut out = pool.take(x.len());
        with_weights(conv, |weights| causal_conv(x, weights, &at.packing.spans(), &mut out));
        Ok(out)
    }

    fn convolve_back(
        &self,
        x: &Vec<f32>,
        conv: &Conv<Param>,
        dy: &Vec<f32>,
        at: &Placed<'_>,
        sums: &mut Gradients<'_>,
        pool: &mut Pool,
    ) -> Done<Vec<f32>> {
        let mut dx = pool.take(x.len());
        let mut dbias = vec![0.0; conv.weight.dims()[0]];
        with_weights(conv, |weights| {
            let own = [sums.of(conv.weight.slot()), Some(dbias.as_mut_slice())];
            causal_conv_bwd(x, weights, &at.packing.spans(), dy, &mut dx, own);
        });
        if let Some(bias) = &conv.bias {
            add_sums(sums, bias, &dbias);
        }
        Ok(dx)
    }

    fn convolve_cached(
        &self,
        x: &Vec<f32>,
        conv: &Conv<Param>,
        (kv, layer): (&KvStore, usize),
        at: &Placed<'_>,
        pool: &mut Pool,
    ) -> Done<Vec<f32>> {
        let mut out = pool.take(x.len());
        let width = conv.weight.dims()[0];
        with_weights(conv, |weights| {
            let (mut x, mut out) = (x.as_slice(), out.as_mut_slice());
            for segment in at.segments.iter() {
                let (new, rest) = x.split_at(segment.new_tokens * width);
                let (to, after) = out.split_at_mut(new.len());
                kv.with_state(segment.state, layer, |past, _| {
                    causal_conv_onto(new, weights, past, to);
                });
                (x, out) = (rest, after);
            }
        });
        Ok(out)
    }

    fn delta_inputs(
        &self,
        raw: &Vec<f32>,
        [a, b]: [&Vec<f32>; 2],
        net: &DeltaWeights<Self>,
        pool: &mut Pool,
    ) -> Done<DeltaInputs<Self>> {
        let mut mixed = pool.copy(raw);
        normalize_keys(&mut mixed, net.heads);
        let [mut decay, mut beta] = [a, b].map(|like| pool.take(like.len()));
        let (a_log, dt_bias) = (net.a_log.values(), net.dt_bias.values());
        let of = GateWeights { a_log: &a_log, dt_bias: &dt_bias };
        delta_gates([a, b], of, [&mut decay, &mut beta]);
        Ok(DeltaInputs { mixed, decay, beta })
    }

    fn delta_inputs_back(
        &self,
        (raw, [a, b]): (&Vec<f32>, [&Vec<f32>; 2]),
        net: &DeltaWeights<Self>,
        gradients: DeltaInputs<Self>,
        sums: &mut Gradients<'_>,
        pool: &mut Pool,
    ) -> Done<[Vec<f32>; 3]> {
        let DeltaInputs { mixed: mut draw, decay: log_decay, beta } = gradients;
        normalize_keys_bwd(raw, net.heads, &mut draw);
        let [mut da, mut db] = [a, b].map(|like| pool.take(like.len()));
        let [mut da_log, mut ddt_bias] = [(); 2].map(|()| vec![0.0; net.heads.values]);
        {
            let (a_log, dt_bias) = (net.a_log.values(), net.dt_bias.values());
            let of = GateWeights { a_log: &a_log, dt_bias: &dt_bias };
            let to = GateGradients {
                inputs: [&mut da, &mut db],
                a_log: Some(&mut da_log),
                dt_bias: Some(&mut ddt_bias),
            };
            delta_gates_bwd([a, b], of, [&log_decay, &beta], to);
        }
        add_sums(sums, &net.a_log, &da_log);
        add_sums(sums, &net.dt_bias, &ddt_bias);
        pool.give([log_decay, beta]);
        Ok([draw, da, db])
    }

    fn delta_rule(
        &self,
        inputs: &DeltaInputs<Self>,
        heads: DeltaHeads,
        at: &Placed<'_>,
        pool: &mut Pool,
    ) -> Done<[Vec<f32>; 2]> {
        let spans = at.packing.spans();
        let rows = rows_of(inputs, heads);
        let mut states = pool.take(spans.len() * heads.state_len());
        let mut out = pool.take(inputs.beta.len() * heads.value_dim);
        delta_rule(rows, &spans, &mut states, &mut out);
        Ok([out, states])
    }

    fn delta_rule_back(
        &self,
        inputs: &DeltaInputs<Self>,
        heads: DeltaHeads,
        [states, dout]: [&Vec<f32>; 2],
        at: &Placed<'_>,
        pool: &mut Pool,
    ) -> Done<DeltaInputs<Self>> {
        let DeltaInputs { mixed, decay, beta } = inputs;
        let [mut mixed, mut decay, mut beta] =
            [mixed, decay, beta].map(|like| pool.take(like.len()));
        let to = DeltaGradients { mixed: &mut mixed, log_decay: &mut decay, beta: &mut beta };
        delta_rule_bwd(rows_of(inputs, heads), &at.packing.spans(), states, dout, to);
        Ok(DeltaInputs { mixed, decay, beta })
    }

    fn delta_rule_cached(
        &self,
        inputs: &DeltaInputs<Self>,
        heads: DeltaHeads,
        (kv, layer): (&KvStore, usize),
        at: &Placed<'_>,
        pool: &mut Pool,
    ) -> Done<Vec<f32>> {
        let (width, gates) = (heads.mixed_width(), heads.values);
        let mut out = pool.take(inputs.beta.len() * heads.value_dim);
        let (mut rest, mut first) = (out.as_mut_slice(), 0);
        for segment in at.segments.iter() {
            let tokens = first..first + segment.new_tokens;
            let rows = DeltaRows {
                mixed: &inputs.mixed[tokens.start * width..tokens.end * width],
                decay: &inputs.decay[tokens.start * gates..tokens.end * gates],
                beta: &inputs.beta[tokens.start * gates..tokens.end * gates],
                heads,
            };
            let (to, after) = rest.split_at_mut(tokens.len() * heads.values_width());
            kv.with_state(segment.state, layer, |_, state| delta_rule_onto(rows, state, to));
            (rest, first) = (after, tokens.end);
        }
        Ok(out)
    }
}

fn rows_of(inputs: &DeltaInputs<Cpu>, heads: DeltaHeads) -> DeltaRows<'_> {
    let DeltaInputs { mixed, decay, beta } = inputs;
    DeltaRows { mixed, decay, beta, heads }
}

/// Calls `f` with the weights of a convolution.
fn with_weights<R>(conv: &Conv<Param>, f: impl FnOnce(ConvWeights<'_>) -> R) -> R {
    let (weight, bias) = (conv.weight.values(), conv.bias.as_ref().map(|bias| bias.values()));
    f(ConvWeights { weight: &weight, bias: bias.as_deref(), kernel: conv.kernel })
}

/// Adds parts to the gradient of a weight, if it is trained.
fn add_sums(sums: &mut Gradients<'_>, param: &Param, parts: &[f32]) {
    if let Some(sums) = sums.of(param.slot()) {
        elementwise::add_numbers(sums, parts);
    }
}
