//! Descriptions of layers, for `maverl inspect`.

use std::sync::Arc;

use crate::files::HfConfig;
use crate::files::hf_config::{Rope, Scaling};
use crate::files::parts::{
    Activation, Attention, DeltaNet, Experts, Gain, GatedMlp, LayerShape, LinearShape, Maps, Mixer,
    Mlp, NormShape, ShortConv, TensorShape,
};

impl HfConfig {
    /// Describes each kind of layer, with the indices of its layers.
    pub fn layer_kinds(&self) -> Vec<(Vec<usize>, String)> {
        let mut kinds: Vec<(&Arc<LayerShape>, Vec<usize>)> = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            match kinds.iter_mut().find(|(kind, _)| *kind == layer) {
                Some((_, layers)) => layers.push(index),
                None => kinds.push((layer, vec![index])),
            }
        }
        let kinds = kinds.into_iter();
        kinds.map(|(layer, layers)| (layers, self.describe_layer(layer))).collect()
    }

    fn describe_layer(&self, layer: &LayerShape) -> String {
        let mixer = match &layer.mixer {
            Mixer::Attention(attention) => self.describe_attention(attention),
            Mixer::DeltaNet(net) => describe_delta_net(net),
            Mixer::ShortConv(net) => describe_short_conv(net),
        };
        let mlp = match &layer.mlp {
            Mlp::Gated(mlp) => describe_mlp(mlp),
            Mlp::Experts(experts) => describe_experts(experts),
        };
        [mixer, describe_norms(layer), mlp].join(", ")
    }

    fn describe_attention(&self, attention: &Attention<LinearShape, NormShape>) -> String {
        let Attention { heads, qkv, q_norm, rope, query_scale, sinks, gate, .. } = attention;
        let scores = heads.scores;
        let window = scores.window.map_or("full attention".to_owned(), |w| format!("window {w}"));
        let rope = rope.map_or("no rope".to_owned(), |rope| describe_rope(&self.ropes[rope]));
        let heads_of = format!("heads {}/{} of {}", heads.q, heads.kv, heads.dim);
        let optional = [
            scores.scale.map(|scale| format!("scores times {scale}")),
            scores.softcap.map(|cap| format!("scores within {cap}")),
            q_norm.map(|norm| {
                let of = if norm.width == heads.dim { "each head" } else { "all heads" };
                format!("q/k norm of {of}")
            }),
            query_scale.map(|scale| format!("queries scaled from {}", scale.original)),
            matches!(qkv, Maps::Fused(..)).then(|| "fused maps".to_owned()),
            sinks.then(|| "sinks".to_owned()),
            gate.then(|| "output gate".to_owned()),
        ];
        let parts = [window, rope, heads_of].into_iter().chain(optional.into_iter().flatten());
        parts.collect::<Vec<_>>().join(", ")
    }
}

fn describe_delta_net(net: &DeltaNet<LinearShape, NormShape, TensorShape>) -> String {
    let heads = net.heads;
    format!(
        "Gated DeltaNet, heads {}/{} of {}/{}, convolution of {}",
        heads.values, heads.keys, heads.value_dim, heads.key_dim, net.conv.kernel
    )
}

fn describe_short_conv(net: &ShortConv<LinearShape, TensorShape>) -> String {
    format!("convolution of {}", net.conv.kernel)
}

fn describe_mlp(mlp: &GatedMlp<LinearShape>) -> String {
    let width = mlp.width;
    match mlp.activation {
        Activation::Silu => format!("SwiGLU {width}"),
        Activation::Gelu => format!("GeGLU {width}"),
        Activation::Clamped(of) => format!("SwiGLU {width} within {}", of.limit),
    }
}

fn describe_experts(of: &Experts<LinearShape>) -> String {
    let Experts { router, experts, shared, .. } = of;
    let expert = describe_mlp(&experts[0]);
    let shared = shared.as_ref().map(|shared| format!(", a shared one of {}", shared.mlp.width));
    let shared = shared.unwrap_or_default();
    format!("{} of {} experts of {expert}{shared}", router.chosen, router.experts)
}

fn describe_norms(layer: &LayerShape) -> String {
    let place = match (&layer.before_mixer, &layer.after_mixer) {
        (Some(_), Some(_)) => "norms before and after",
        (Some(_), None) => "norms before",
        (None, Some(_)) => "norms after",
        (None, None) => "no norms",
    };
    let plus = |norm: &NormShape| norm.gain == Gain::OnePlus;
    if layer.stream_norms().any(plus) { format!("{place} (1 + w)") } else { place.to_owned() }
}

fn describe_rope(rope: &Rope) -> String {
    let kind = match &rope.scaling {
        Scaling::None => String::new(),
        Scaling::Linear(factor) => format!(" linear {factor}"),
        Scaling::Llama3(llama3) => format!(" llama3 {}", llama3.factor),
        Scaling::Yarn(yarn) => format!(" yarn {}", yarn.factor),
        Scaling::Long(long) if long.long => " longrope, long factors".to_owned(),
        Scaling::Long(_) => " longrope, short factors".to_owned(),
    };
    let part = (rope.partial < 1.0).then(|| format!(" of {} of a head", rope.partial));
    format!("rope {}{kind}{}", rope.theta, part.unwrap_or_default())
}
