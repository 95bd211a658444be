//! Experts of a model's MLPs.

use maverl_kernels::experts::{Router, RouterSoftmax};
use maverl_kernels::mlp::ClampedGate;
use serde_json::Value;

use super::family::{ExpertFamily, ModelFamily};
use super::reader::{ConfigReader, show_value};
use crate::files::parts::{Activation, Experts, GatedMlp, LinearShape, Maps, SharedExpert};

/// Most experts of a layer, so that the number of one is a byte.
const MOST_EXPERTS: usize = 256;
/// Largest width of an expert, and of the distance of layers with experts.
const WIDEST: usize = 1 << 20;
/// Keys of the number of experts.
pub(super) const COUNTS: [&str; 3] = ["num_experts", "num_local_experts", "n_routed_experts"];

/// Experts of the layers that have them.
#[derive(Clone, Copy)]
pub(super) struct ExpertSizes {
    router: Router,
    /// Width of an expert.
    width: usize,
    activation: Activation,
    /// Name of the map to the scores.
    scores: &'static str,
    /// True if the map to the scores and the maps of the experts have biases.
    bias: bool,
    /// Width of the shared expert, if there is one.
    shared: Option<usize>,
}

/// Reads the experts of a family that has them, and which layers have experts, of so many layers and the width of an MLP.
pub(super) fn read_experts(
    keys: &mut ConfigReader<'_>,
    family: &ModelFamily,
    [layers, intermediate]: [usize; 2],
) -> Option<(ExpertSizes, Vec<bool>)> {
    note_router_logits(keys, family);
    match family.experts {
        ExpertFamily::None => None,
        ExpertFamily::Qwen => Some((qwen_experts(keys), sparse_layers(keys, layers))),
        ExpertFamily::Qwen35 => Some((qwen_3_5_experts(keys), vec![true; layers])),
        ExpertFamily::GptOss => Some((gpt_oss_experts(keys, intermediate), vec![true; layers])),
    }
}

fn qwen_experts(keys: &mut ConfigReader<'_>) -> ExpertSizes {
    let all = keys.flag("norm_topk_prob", false);
    let softmax = if all { RouterSoftmax::Chosen } else { RouterSoftmax::All };
    ExpertSizes {
        router: read_router(keys, [128, 8], softmax),
        width: keys.size("moe_intermediate_size", 768, WIDEST),
        activation: Activation::Silu,
        scores: "mlp.gate",
        bias: false,
        shared: None,
    }
}

fn qwen_3_5_experts(keys: &mut ConfigReader<'_>) -> ExpertSizes {
    note_unread_experts(keys);
    ExpertSizes {
        router: read_router(keys, [256, 8], RouterSoftmax::Chosen),
        width: keys.size("moe_intermediate_size", 512, WIDEST),
        activation: Activation::Silu,
        scores: "mlp.gate",
        bias: false,
        shared: Some(keys.size("shared_expert_intermediate_size", 512, WIDEST)),
    }
}

fn gpt_oss_experts(keys: &mut ConfigReader<'_>, width: usize) -> ExpertSizes {
    let alpha = keys.number("swiglu_alpha").unwrap_or(1.702) as f32;
    let limit = keys.number("swiglu_limit").unwrap_or(7.0) as f32;
    ExpertSizes {
        router: read_router(keys, [128, 4], RouterSoftmax::Chosen),
        width,
        activation: Activation::Clamped(ClampedGate { alpha, limit }),
        scores: "mlp.router",
        bias: true,
        shared: None,
    }
}

/// Reads the number of experts and that of a token. `num_experts` and `num_local_experts` are the same.
fn read_router(
    keys: &mut ConfigReader<'_>,
    [experts, chosen]: [usize; 2],
    softmax: RouterSoftmax,
) -> Router {
    let [one, other, _] = COUNTS.map(|key| keys.optional_size(key, MOST_EXPERTS));
    if let (Some(one), Some(other)) = (one, other)
        && one != other
    {
        keys.problem(format!(
            "`num_experts` is {one} and `num_local_experts` is {other}; keep one"
        ));
    }
    let experts = one.or(other).unwrap_or(experts);
    let chosen = keys.size("num_experts_per_tok", chosen, MOST_EXPERTS);
    if chosen > experts {
        keys.problem(format!("`num_experts_per_tok` is {chosen}, and there are {experts} experts"));
    }
    Router { experts, chosen: chosen.min(experts), softmax }
}

/// Reads which layers of Qwen have experts: every `decoder_sparse_step`-th, but those of `mlp_only_layers`.
fn sparse_layers(keys: &mut ConfigReader<'_>, layers: usize) -> Vec<bool> {
    const DENSE: &str = "mlp_only_layers";
    let step = keys.size("decoder_sparse_step", 1, WIDEST);
    let dense: Option<Vec<u64>> = match keys.value(DENSE) {
        None => Some(Vec::new()),
        Some(listed) => {
            let listed = listed.as_array().map(|listed| listed.iter().map(Value::as_u64).collect());
            listed.unwrap_or_default()
        }
    };
    let Some(dense) = dense else {
        keys.wrong(DENSE, "a list of numbers of layers is needed");
        return vec![true; layers];
    };
    if let Some(beyond) = dense.iter().find(|layer| **layer >= layers as u64) {
        keys.problem(format!("`{DENSE}` has {beyond}, and there are {layers} layers from 0"));
    }
    let sparse =
        |layer: usize| !dense.contains(&(layer as u64)) && (layer + 1).is_multiple_of(step);
    (0..layers).map(sparse).collect()
}

/// Notes the key with which transformers balances the load of experts.
fn note_router_logits(keys: &mut ConfigReader<'_>, family: &ModelFamily) {
    const KEY: &str = "output_router_logits";
    let has_experts = !matches!(family.experts, ExpertFamily::None);
    let value = keys.value(KEY).filter(|value| has_experts && *value != &Value::Bool(false));
    if let Some(value) = value {
        keys.note(format!(
            "`{KEY}` is {}, which has no effect: `algorithm.router_aux_coef` of a run balances the load of experts",
            show_value(value)
        ));
    }
}

/// Notes keys of Qwen3-MoE and Qwen3-Next that Qwen3.5 does not read: its weights sum to 1, and all its layers have experts.
fn note_unread_experts(keys: &mut ConfigReader<'_>) {
    let without_effect = [
        ("norm_topk_prob", Value::Bool(true)),
        ("decoder_sparse_step", Value::from(1)),
        ("mlp_only_layers", Value::Array(Vec::new())),
    ];
    for (key, plain) in without_effect {
        if let Some(value) = keys.value(key).filter(|value| **value != plain) {
            let value = show_value(value);
            keys.note(format!(
                "`{key}` is {value}, which has no effect: this family does not read it"
            ));
        }
    }
}

impl ExpertSizes {
    /// Returns the experts of a layer for a residual stream of a width.
    pub(super) fn shape(self, hidden: usize) -> Experts<LinearShape> {
        let Self { router, scores, bias, activation, shared, .. } = self;
        Experts {
            scores: LinearShape::new(scores, router.experts, hidden, bias),
            router,
            experts: (0..router.experts).map(|number| self.expert_mlp(number, hidden)).collect(),
            shared: shared.map(|width| shared_expert(activation, width, hidden)),
        }
    }

    /// Returns an expert by its number.
    fn expert_mlp(self, number: usize, hidden: usize) -> GatedMlp<LinearShape> {
        let Self { width, activation, .. } = self;
        let gate_up = Maps::Split([
            self.expert_map("mlp.experts.*.gate_proj", number, [width, hidden]),
            self.expert_map("mlp.experts.*.up_proj", number, [width, hidden]),
        ]);
        let down = self.expert_map("mlp.experts.*.down_proj", number, [hidden, width]);
        GatedMlp { activation, width, gate_up, down }
    }

    /// Returns a map of an expert, of outputs and inputs.
    fn expert_map(
        self,
        name: &'static str,
        number: usize,
        [output, input]: [usize; 2],
    ) -> LinearShape {
        let expert = Some(number as u16);
        LinearShape { expert, ..LinearShape::new(name, output, input, self.bias) }
    }
}

/// Returns the expert of every token, of a width.
fn shared_expert(activation: Activation, width: usize, hidden: usize) -> SharedExpert<LinearShape> {
    let map = |name, output, input| LinearShape::new(name, output, input, false);
    let gate_up = Maps::Split([
        map("mlp.shared_expert.gate_proj", width, hidden),
        map("mlp.shared_expert.up_proj", width, hidden),
    ]);
    let down = map("mlp.shared_expert.down_proj", hidden, width);
    SharedExpert {
        gate: map("mlp.shared_expert_gate", 1, hidden),
        mlp: GatedMlp { activation, width, gate_up, down },
    }
}
