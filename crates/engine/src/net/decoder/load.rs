//! Weights of a decoder's layers, from their names and shapes.

use super::layer::DecoderLayer;
use crate::files::ModelError;
use crate::files::parts::{LayerShape, LinearShape, Mapping, NormShape, TensorShape};
use crate::net::linear::Linear;
use crate::net::norm::Norm;
use crate::net::ops::Ops;
use crate::net::values::Param;

/// Loads the weights of a layer.
pub(super) fn load_layer<O: Ops>(
    shape: &LayerShape,
    get: &dyn Fn(&str) -> Result<Param<O>, ModelError>,
) -> Result<DecoderLayer<O>, ModelError> {
    shape.try_map(Mapping {
        linear: &|shape| load_linear(shape, get),
        norm: &|shape| load_norm(shape, get),
        other: &|shape: &TensorShape| get(shape.name),
    })
}

/// Loads the weights of a linear map.
fn load_linear<O: Ops>(
    shape: &LinearShape,
    get: &dyn Fn(&str) -> Result<Param<O>, ModelError>,
) -> Result<Linear<O>, ModelError> {
    let name = shape.full_name();
    let weight = get(&format!("{name}.weight"))?;
    let bias = shape.bias.then(|| get(&format!("{name}.bias"))).transpose()?;
    Ok(Linear::new(weight, bias))
}

/// Loads the weight of a norm.
pub(super) fn load_norm<O: Ops>(
    shape: &NormShape,
    get: &dyn Fn(&str) -> Result<Param<O>, ModelError>,
) -> Result<Norm<O>, ModelError> {
    let weight = get(&format!("{}.weight", shape.name))?;
    Ok(Norm { weight, eps: shape.eps, gain: shape.gain })
}
