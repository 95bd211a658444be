//! Experts on a machine. Scores are read, and the host chooses the experts of each token; each expert then computes its rows. A
//! row of a product does not depend on the other rows, so a token has the same bits whatever tokens share its experts.

use std::ops::Range;

use maverl_kernels::cuda::{ChoiceRows, Destination, Slice};
use maverl_kernels::experts::{ExpertRows, Router};

use super::{Device, DeviceNumbers, Done, Runner, machine_error};
use crate::files::parts::{Activation, Experts, GatedMlp, Maps, SharedExpert};
use crate::net::experts::{BalanceTerm, LayerRoutes, SavedExperts, SavedShared};
use crate::net::gradients::Gradients;
use crate::net::linear::Linear;
use crate::net::ops::Buffer;

/// Rows of an expert.
type Own = Range<usize>;
/// Two arrays of activations.
type Two<M> = [DeviceNumbers<M, u16>; 2];

impl<M: Runner> Device<M> {
    /// Computes `Σ_e w_e expert_e(h)` for `h [N, D]`, by the experts of its scores, or of routes.
    pub(super) fn mix_experts(
        &self,
        (h, routes): (&DeviceNumbers<M, u16>, Option<LayerRoutes<'_>>),
        of: &Experts<Linear<Self>>,
    ) -> Done<(DeviceNumbers<M, u16>, SavedExperts<Self>)> {
        let (router, d, f) = (of.router, of.scores.dims().1, of.width());
        // 1. Scores, choice and weights: (N, D) -> (N, E), (N, k)
        let mut scores = self.take(h.len() / d * router.experts)?;
        self.map(&of.scores, h.read()?, Destination::F32(scores.write()?))?;
        let scores = self.read_numbers(&scores)?;
        let mut chosen = router.choose_experts(&scores);
        let replaced = routes.map(|routes| routes.replace(&mut chosen, router.chosen));
        let weights = router.weigh_experts(&scores, &chosen);
        // 2. Tokens by expert: (N, D) -> (N k, D)
        let rows = ExpertRows::sort_choices(&chosen, router);
        let on = self.choice_rows(&rows, &weights, router.chosen)?;
        let mut x = self.take(rows.count() * d)?;
        self.kernels.gather_choices(h.read()?, &on, false, d, x.write()?).map_err(machine_error)?;
        // 3. Experts: (N k, D) -> (N k, F), (N k, F), (N k, D)
        let [mut gate, mut up] = [self.take(rows.count() * f)?, self.take(rows.count() * f)?];
        for (expert, own) in expert_ranges(of, &rows) {
            let (x, wide) = (x.read()?.sub_slice(columns(&own, d)), columns(&own, f));
            let [of_gate, of_up] = split_maps(expert);
            let to = gate.write()?.sub_slice(wide.clone());
            self.map(of_gate, x, Destination::Bf16(to))?;
            self.map(of_up, x, Destination::Bf16(up.write()?.sub_slice(wide)))?;
        }
        let act = self.activate(of.experts[0].activation, [&gate, &up])?;
        let mut out = self.take(rows.count() * d)?;
        for (expert, own) in expert_ranges(of, &rows) {
            let act = act.read()?.sub_slice(columns(&own, f));
            let to = out.write()?.sub_slice(columns(&own, d));
            self.map(&expert.down, act, Destination::Bf16(to))?;
        }
        // 4. Weighted sum: (N k, D) -> (N, D)
        let mut sum = self.take(h.len())?;
        self.kernels.sum_choices(out.read()?, &on, true, d, sum.write()?).map_err(machine_error)?;
        // 5. Shared expert: (N, D) -> (N, D)
        let shared = of.shared.as_ref().map(|shared| self.add_shared(h, shared, &mut sum));
        let shared = shared.transpose()?;
        let (mixed, replaced) = (self.rounded(&sum)?, replaced.unwrap_or_default());
        let saved =
            SavedExperts { router, scores, chosen, weights, rows, gate, up, out, shared, replaced };
        Ok((mixed, saved))
    }

    /// Computes the gradient `[N, D]` of [`Device::mix_experts`] by `h`, from that of its result, and adds those of the
    /// weights. An expert without tokens has a gradient of zero.
    pub(super) fn mix_experts_back(
        &self,
        h: &DeviceNumbers<M, u16>,
        of: &Experts<Linear<Self>>,
        saved: SavedExperts<Self>,
        (dmixed, balance): (&DeviceNumbers<M, u16>, Option<BalanceTerm<'_>>),
        sums: &mut Gradients<'_, Self>,
    ) -> Done<DeviceNumbers<M, u16>> {
        let SavedExperts { router, scores, chosen, weights, rows, gate, up, out, shared, .. } =
            saved;
        let (d, f, mixed) = (of.scores.dims().1, of.width(), dmixed.read()?);
        let on = self.choice_rows(&rows, &weights, router.chosen)?;
        // 4. (N, D) -> (N k, D), (N, k)
        let [mut x, mut dout] = [self.take(rows.count() * d)?, self.take(rows.count() * d)?];
        let kernels = &self.kernels;
        kernels.gather_choices(mixed, &on, true, d, dout.write()?).map_err(machine_error)?;
        let dweights =
            kernels.multiply_choices(mixed, out.read()?, &on, d).map_err(machine_error)?;
        // 3. (N k, D) -> (N k, D)
        kernels.gather_choices(h.read()?, &on, false, d, x.write()?).map_err(machine_error)?;
        let activation = of.experts[0].activation;
        let act = self.activate(activation, [&gate, &up])?;
        let mut dact = self.take(rows.count() * f)?;
        for (expert, own) in expert_ranges(of, &rows) {
            let (narrow, wide) = (columns(&own, d), columns(&own, f));
            let given = [act.read()?.sub_slice(wide.clone()), dout.read()?.sub_slice(narrow)];
            let to = Destination::Bf16(dact.write()?.sub_slice(wide));
            self.map_back(&expert.down, given, to, sums)?;
        }
        let [dgate, dup] = self.activate_back(activation, [&gate, &up], &dact)?;
        let mut wide_dx = self.take::<f32>(rows.count() * d)?;
        for (expert, own) in expert_ranges(of, &rows) {
            let (narrow, wide) = (columns(&own, d), columns(&own, f));
            let given = x.read()?.sub_slice(narrow.clone());
            for (index, (map, dy)) in split_maps(expert).into_iter().zip([&dgate, &dup]).enumerate()
            {
                let to = wide_dx.write()?.sub_slice(narrow.clone());
                let to = if index == 0 { Destination::F32(to) } else { Destination::Add(to) };
                self.map_back(map, [given, dy.read()?.sub_slice(wide.clone())], to, sums)?;
            }
        }
        mark_experts(of, &rows, sums);
        // 2. (N k, D) -> (N, D)
        let (dx, mut dh) = (self.rounded(&wide_dx)?, self.take(h.len())?);
        kernels.sum_choices(dx.read()?, &on, false, d, dh.write()?).map_err(machine_error)?;
        // 1. (N, k) -> (N, E) -> (N, D)
        let of_scores = [&scores[..], &weights, &dweights];
        let dscores = score_gradients(router, of_scores, &chosen, balance);
        let wide_scores = self.upload(&dscores)?;
        let dscores = self.rounded(&wide_scores)?;
        let given = [h.read()?, dscores.read()?];
        self.map_back(&of.scores, given, Destination::Add(dh.write()?), sums)?;
        // 5. (N, D) -> (N, D)
        if let (Some(of), Some(saved)) = (&of.shared, shared) {
            self.shared_back(h, of, saved, (dmixed, &mut dh), sums)?;
        }
        self.rounded(&dh)
    }

    /// Adds `sigmoid(gate(h)) mlp(h)` to `sum [N, D]`, for `h [N, D]`.
    fn add_shared(
        &self,
        h: &DeviceNumbers<M, u16>,
        of: &SharedExpert<Linear<Self>>,
        sum: &mut DeviceNumbers<M, f32>,
    ) -> Done<SavedShared<Self>> {
        let gates = self.mapped(&of.gate, h)?;
        let [of_gate, of_up] = split_maps(&of.mlp);
        let (gate, up) = (self.mapped(of_gate, h)?, self.mapped(of_up, h)?);
        let act = self.activate(of.mlp.activation, [&gate, &up])?;
        let out = self.mapped(&of.mlp.down, &act)?;
        self.kernels
            .add_gated_rows(out.read()?, gates.read()?, sum.write()?)
            .map_err(machine_error)?;
        Ok(SavedShared { gates, gate, up, out })
    }

    /// Adds the gradient of [`Device::add_shared`] by `h` to `dh [N, D]`, from that of its result, and those of the weights.
    fn shared_back(
        &self,
        h: &DeviceNumbers<M, u16>,
        of: &SharedExpert<Linear<Self>>,
        SavedShared { gates, gate, up, out }: SavedShared<Self>,
        (dmixed, dh): (&DeviceNumbers<M, u16>, &mut DeviceNumbers<M, f32>),
        sums: &mut Gradients<'_, Self>,
    ) -> Done<()> {
        let [mut dout, mut dgates] = [self.take(out.len())?, self.take(gates.len())?];
        let given = [out.read()?, gates.read()?, dmixed.read()?];
        self.kernels
            .gated_rows_back(given, [dout.write()?, dgates.write()?])
            .map_err(machine_error)?;
        let act = self.activate(of.mlp.activation, [&gate, &up])?;
        let mut dact = self.take(act.len())?;
        let to = Destination::Bf16(dact.write()?);
        self.map_back(&of.mlp.down, [act.read()?, dout.read()?], to, sums)?;
        let [dgate, dup] = self.activate_back(of.mlp.activation, [&gate, &up], &dact)?;
        let [of_gate, of_up] = split_maps(&of.mlp);
        for (map, dy) in [(of_gate, &dgate), (of_up, &dup), (&of.gate, &dgates)] {
            self.map_back(map, [h.read()?, dy.read()?], Destination::Add(dh.write()?), sums)?;
        }
        Ok(())
    }

    fn choice_rows(
        &self,
        rows: &ExpertRows,
        weights: &[f32],
        chosen: usize,
    ) -> Done<ChoiceRows<M>> {
        self.kernels.choice_rows(rows, weights, chosen).map_err(machine_error)
    }

    /// Computes a linear map `[N, O]` of `x [N, I]`.
    fn mapped(&self, map: &Linear<Self>, x: &DeviceNumbers<M, u16>) -> Done<DeviceNumbers<M, u16>> {
        let (o, i) = map.dims();
        let mut y = self.take(x.len() / i * o)?;
        self.map(map, x.read()?, Destination::Bf16(y.write()?))?;
        Ok(y)
    }

    /// Rounds numbers to bf16.
    fn rounded(&self, x: &DeviceNumbers<M, f32>) -> Done<DeviceNumbers<M, u16>> {
        let mut y = self.take(x.len())?;
        self.kernels.round_to_bf16(x.read()?, y.write()?).map_err(machine_error)?;
        Ok(y)
    }

    /// Computes the activated gate times `up`.
    fn activate(
        &self,
        activation: Activation,
        [gate, up]: [&DeviceNumbers<M, u16>; 2],
    ) -> Done<DeviceNumbers<M, u16>> {
        let mut act = self.take(gate.len())?;
        let (given, to): ([Slice<'_, u16>; 2], _) = ([gate.read()?, up.read()?], act.write()?);
        let done = match activation {
            Activation::Silu => self.kernels.swiglu(given[0], given[1], to),
            Activation::Gelu => self.kernels.geglu(given, to),
            Activation::Clamped(of) => self.kernels.clamped_gate(of, given, to),
        };
        done.map_err(machine_error)?;
        Ok(act)
    }

    /// Computes the gradients of [`Device::activate`] by `gate` and `up`.
    fn activate_back(
        &self,
        activation: Activation,
        [gate, up]: [&DeviceNumbers<M, u16>; 2],
        dact: &DeviceNumbers<M, u16>,
    ) -> Done<Two<M>> {
        let [mut dgate, mut dup] = [self.take(gate.len())?, self.take(gate.len())?];
        let given = [gate.read()?, up.read()?, dact.read()?];
        let to = [dgate.write()?, dup.write()?];
        let done = match activation {
            Activation::Silu => self.kernels.swiglu_back(given, to, None),
            Activation::Gelu => self.kernels.geglu_back(given, to),
            Activation::Clamped(of) => self.kernels.clamped_gate_back(of, given, to),
        };
        done.map_err(machine_error)?;
        Ok([dgate, dup])
    }
}

/// Computes the gradient `[N, E]` of scores, from the weights of choices and their gradients.
fn score_gradients(
    router: Router,
    [scores, weights, dweights]: [&[f32]; 3],
    chosen: &[u32],
    balance: Option<BalanceTerm<'_>>,
) -> Vec<f32> {
    let mut dscores = vec![0.0; scores.len()];
    router.weigh_experts_back(scores, chosen, [weights, dweights], &mut dscores);
    if let Some(BalanceTerm { slopes, counts }) = balance {
        router.add_mean_back(scores, slopes, counts, &mut dscores);
    }
    dscores
}

/// Marks the weights of experts without rows, whose gradient is zero.
fn mark_experts<M: Runner>(
    of: &Experts<Linear<Device<M>>>,
    rows: &ExpertRows,
    sums: &mut Gradients<'_, Device<M>>,
) {
    for (expert, own) in of.experts.iter().zip(rows.offsets.windows(2)) {
        if own[0] < own[1] {
            continue;
        }
        for map in expert.linears() {
            let adapter = map.lora.iter().flat_map(|lora| [&lora.a, &lora.b]);
            let all = [&map.weight].into_iter().chain(&map.bias).chain(adapter);
            all.for_each(|param| sums.mark_unused(param.slot()));
        }
    }
}

/// Iterates over the experts that have rows, with these.
fn expert_ranges<'a, M: Runner>(
    of: &'a Experts<Linear<Device<M>>>,
    rows: &'a ExpertRows,
) -> impl Iterator<Item = (&'a GatedMlp<Linear<Device<M>>>, Own)> {
    let ranges = rows.offsets.windows(2).map(|own| own[0]..own[1]);
    of.experts.iter().zip(ranges).filter(|(_, own)| !own.is_empty())
}

/// Returns the maps to gate and up of an expert; no family fuses those of experts in memory.
fn split_maps<M: Runner>(expert: &GatedMlp<Linear<Device<M>>>) -> [&Linear<Device<M>>; 2] {
    match &expert.gate_up {
        Maps::Split(maps) => maps.each_ref(),
        Maps::Fused(..) => unreachable!("the maps of experts are split when they are read"),
    }
}

/// Returns the elements of rows of a width.
fn columns(rows: &Own, width: usize) -> Range<usize> {
    rows.start * width..rows.end * width
}
