//! A layer of a decoder on its device.

use crate::files::parts::Layer;
use crate::net::linear::Linear;
use crate::net::norm::Norm;
use crate::net::ops::Ops;

/// Layer, with what its passes read besides.
pub(super) struct LayerPass<'a, O: Ops> {
    /// Device.
    pub(super) ops: &'a O,
    /// Angles of rotary positions.
    pub(super) rope: &'a O::Rope,
    /// Weights.
    pub(super) layer: &'a Layer<Linear<O>, Norm<O>>,
}
