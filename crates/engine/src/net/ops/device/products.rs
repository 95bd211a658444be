//! Products of a device: linear maps with their adapters, forward and backward.

use maverl_kernels::cuda::{
    AdapterTerms, Destination, LinearOutput, MapOutput, Slice, fit_one_launch,
};

use super::{Device, DeviceNumbers, Done, Runner, machine_error, sum, with_weight};
use crate::files::ModelError;
use crate::net::gradients::Gradients;
use crate::net::linear::{Linear, Lora};
use crate::net::ops::{Buffer, LinearOps};
use crate::net::pool::Pool;
use crate::net::values::Param;

impl<M: Runner> LinearOps for Device<M> {
    fn linear(&self, x: &Self::Act, map: &Linear<Self>, _: &mut Pool<Self>) -> Done<Self::Act> {
        let (o, i) = map.dims();
        let mut y = self.take(x.len() / i * o)?;
        self.map(map, x.read()?, Destination::Bf16(y.write()?))?;
        Ok(y)
    }

    fn linears<const N: usize>(
        &self,
        x: &Self::Act,
        maps: [&Linear<Self>; N],
        _: &mut Pool<Self>,
    ) -> Done<[Self::Act; N]> {
        self.maps(x, maps)
    }

    fn linear_onto(
        &self,
        onto: &Self::Stream,
        x: &Self::Act,
        map: &Linear<Self>,
        _: &mut Pool<Self>,
    ) -> Done<Self::Stream> {
        let mut y = self.take(onto.len())?;
        self.map(map, x.read()?, Destination::Onto(onto.read()?, y.write()?))?;
        Ok(y)
    }

    fn linear_back(
        &self,
        x: &Self::Act,
        maps: &[(&Linear<Self>, &Self::Act)],
        sums: &mut Gradients<'_, Self>,
        _: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        let mut dx = self.take(x.len())?;
        if let [(map, dy)] = maps {
            self.map_back(map, [x.read()?, dy.read()?], Destination::Bf16(dx.write()?), sums)?;
            return Ok(dx);
        }
        let mut wide = self.take(x.len())?;
        for (index, (map, dy)) in maps.iter().enumerate() {
            let to = wide.write()?;
            let to = if index == 0 { Destination::F32(to) } else { Destination::Add(to) };
            self.map_back(map, [x.read()?, dy.read()?], to, sums)?;
        }
        self.kernels.round_to_bf16(wide.read()?, dx.write()?).map_err(machine_error)?;
        Ok(dx)
    }

    fn linear_onto_back(
        &self,
        x: &Self::Act,
        map: &Linear<Self>,
        dy: &Self::Stream,
        sums: &mut Gradients<'_, Self>,
        pool: &mut Pool<Self>,
    ) -> Done<Self::Act> {
        let mut rounded = self.take(dy.len())?;
        self.kernels.round_to_bf16(dy.read()?, rounded.write()?).map_err(machine_error)?;
        self.linear_back(x, &[(map, &rounded)], sums, pool)
    }
}

impl<M: Runner> Device<M> {
    /// Computes `scale · x Aᵀ`, `[N, r]`, for the correction of an adapter.
    fn low(&self, x: Slice<'_, u16>, lora: &Lora<Self>) -> Done<DeviceNumbers<M, u16>> {
        if lora.dropout.is_some() {
            let what = "dropout of an adapter is not supported on this device: set `dropout = 0`";
            return Err(ModelError::wrong_argument(what));
        }
        let (r, i, _) = lora.dims();
        let n = x.len() / i;
        let mut low = self.take(n * r)?;
        let to = Destination::Bf16(low.write()?);
        let out = LinearOutput { scale: lora.scale, bias: None, to };
        with_weight(&lora.a, |a| {
            self.kernels.linear(x, a, [n, r, i], None, out).map_err(machine_error)
        })?;
        Ok(low)
    }

    /// Computes a map with its bias and its adapter.
    pub(super) fn map(
        &self,
        map: &Linear<Self>,
        x: Slice<'_, u16>,
        to: Destination<'_>,
    ) -> Done<()> {
        let Some(lora) = &map.lora else { return self.map_with(map, x, None, to) };
        let low = self.low(x, lora)?;
        let left = low.read()?;
        with_weight(&lora.b, |right| {
            let adapter = AdapterTerms { left, right, rank: lora.dims().0 };
            self.map_with(map, x, Some(adapter), to)
        })
    }

    /// Computes a map with its bias and terms of its adapter.
    fn map_with(
        &self,
        map: &Linear<Self>,
        x: Slice<'_, u16>,
        adapter: Option<AdapterTerms<'_>>,
        to: Destination<'_>,
    ) -> Done<()> {
        let (o, i) = map.dims();
        let held = map.bias.as_ref().map(Param::read);
        let bias = match &held {
            Some((of, at)) => Some(of.high.read()?.sub_slice(at.clone())),
            None => None,
        };
        let out = LinearOutput { scale: 1.0, bias, to };
        with_weight(&map.weight, |w| {
            self.kernels.linear(x, w, [x.len() / i, o, i], adapter, out).map_err(machine_error)
        })
    }

    /// Computes maps of one input, in one launch where its rows are few and no map has an adapter.
    fn maps<const N: usize>(
        &self,
        x: &DeviceNumbers<M, u16>,
        maps: [&Linear<Self>; N],
    ) -> Done<[DeviceNumbers<M, u16>; N]> {
        let mut ys = [(); N].map(|()| DeviceNumbers::default());
        let (x, k) = (x.read()?, maps[0].dims().1);
        let m = x.len() / k;
        if !fit_one_launch(N, m) || maps.iter().any(|map| map.lora.is_some()) {
            for (y, map) in ys.iter_mut().zip(maps) {
                *y = self.take(m * map.dims().0)?;
                self.map(map, x, Destination::Bf16(y.write()?))?;
            }
            return Ok(ys);
        }
        let held = maps.map(|map| (map.weight.read(), map.bias.as_ref().map(Param::read)));
        let mut outputs = Vec::with_capacity(N);
        for ((y, map), ((weights, at), bias)) in ys.iter_mut().zip(maps).zip(&held) {
            *y = self.take(m * map.dims().0)?;
            let bias = match bias {
                Some((of, at)) => Some(of.high.read()?.sub_slice(at.clone())),
                None => None,
            };
            let w = weights.high.read()?.sub_slice(at.clone());
            outputs.push(MapOutput { w, bias, to: y.write()? });
        }
        self.kernels.linear_maps(x, [m, k], &outputs).map_err(machine_error)?;
        drop(outputs);
        Ok(ys)
    }

    /// Adds the gradients of a map's weights, and writes that of its input.
    fn map_back(
        &self,
        map: &Linear<Self>,
        [x, dy]: [Slice<'_, u16>; 2],
        to: Destination<'_>,
        sums: &mut Gradients<'_, Self>,
    ) -> Done<()> {
        let ((o, i), kernels) = (map.dims(), &self.kernels);
        let n = x.len() / i;
        self.add_weight_gradient(&map.weight, [dy, x], [o, i, n], sums)?;
        if let Some(bias) = &map.bias
            && let Some(db) = sum(sums, bias)?
        {
            kernels.sum_rows(dy, db).map_err(machine_error)?;
        }
        let out = LinearOutput { scale: 1.0, bias: None, to };
        let Some(lora) = &map.lora else {
            return with_weight(&map.weight, |w| {
                kernels.linear_back(dy, w, [n, i, o], None, out).map_err(machine_error)
            });
        };
        let r = lora.dims().0;
        let low = self.low(x, lora)?;
        self.add_weight_gradient(&lora.b, [dy, low.read()?], [o, r, n], sums)?;
        let mut dlow = self.take(n * r)?;
        let to = Destination::Bf16(dlow.write()?);
        let scaled = LinearOutput { scale: lora.scale, bias: None, to };
        with_weight(&lora.b, |b| {
            kernels.linear_back(dy, b, [n, r, o], None, scaled).map_err(machine_error)
        })?;
        let left = dlow.read()?;
        self.add_weight_gradient(&lora.a, [left, x], [r, i, n], sums)?;
        with_weight(&lora.a, |right| {
            let adapter = Some(AdapterTerms { left, right, rank: r });
            with_weight(&map.weight, |w| {
                kernels.linear_back(dy, w, [n, i, o], adapter, out).map_err(machine_error)
            })
        })
    }

    /// Adds the gradient of a weight, if it is trained.
    fn add_weight_gradient(
        &self,
        param: &Param<Self>,
        [left, right]: [Slice<'_, u16>; 2],
        shape: [usize; 3],
        sums: &mut Gradients<'_, Self>,
    ) -> Done<()> {
        let Some(dw) = sum(sums, param)? else { return Ok(()) };
        let out = LinearOutput { scale: 1.0, bias: None, to: Destination::Add(dw) };
        self.kernels.linear_back_weight(left, right, shape, out).map_err(machine_error)
    }
}
