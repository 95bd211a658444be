//! Linear maps that an adapter corrects, and their two matrices in memory and in files.
//!
//! PEFT has a pair of matrices for each tensor of all experts of a layer, `[experts, inputs, outputs]` (peft `ParamWrapper`). Of `E`
//! experts, rank `r`:
//!
//! ```text
//! A [r E, I]: row e r + ρ is row ρ of expert e        B [O, r E]: column ρ E + e is column ρ of expert e
//! ```
//!
//! Gates and ups alternate in the outputs of `gate_up_proj`, and have one A. In memory each expert has an A and a B of its own,
//! and the two maps of `gate_up_proj` have an A together.

/// Prefix that PEFT writes before the names of a base's modules.
const PREFIX: &str = "base_model.model.";

/// A linear map of the base that an adapter corrects.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraTarget {
    /// Name of the module.
    pub name: String,
    /// Name of its weight in checkpoints of the base.
    pub weight: String,
    /// Its width on the way in.
    pub input: usize,
    /// Its width on the way out.
    pub output: usize,
    /// Rows of A and columns of B.
    pub rank: usize,
    /// By how much the correction is multiplied.
    pub scale: f32,
    /// Place in the correction of a tensor of all experts, if it is a part of one.
    pub part: Option<ParameterPart>,
}

impl LoraTarget {
    /// Returns true if A is that of the target before.
    pub(super) fn shares_a(&self) -> bool {
        self.part.as_ref().is_some_and(ParameterPart::shares_a)
    }
}

/// One of an adapter's two matrices for a linear map.
#[derive(Debug, Clone, Copy)]
pub(super) enum LoraFactor {
    A,
    B,
}

impl LoraFactor {
    /// Returns the name of the matrix, without the prefix of PEFT.
    pub(super) fn name(self, target: &LoraTarget) -> String {
        match self {
            Self::A => format!("{}.lora_A.weight", target.name),
            Self::B => format!("{}.lora_B.weight", target.name),
        }
    }

    /// Returns its shape.
    pub(super) fn shape(self, target: &LoraTarget) -> [usize; 2] {
        match self {
            Self::A => [target.rank, target.input],
            Self::B => [target.output, target.rank],
        }
    }
}

/// Place of the correction of an expert's map in that of the tensor of all experts.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterPart {
    /// Name of the module that has the correction in files.
    pub(super) holder: String,
    /// Number of the expert, and of all experts.
    pub(super) expert: usize,
    pub(super) experts: usize,
    /// First output, and distance of outputs.
    pub(super) first: usize,
    pub(super) step: usize,
}

impl ParameterPart {
    /// Returns true if A is that of the map before.
    pub(super) fn shares_a(&self) -> bool {
        self.first > 0
    }

    /// Returns the name of a factor in files, with the prefix of PEFT, and its shape.
    fn stored(&self, factor: LoraFactor, target: &LoraTarget) -> (String, [usize; 2]) {
        let all = target.rank * self.experts;
        let (end, shape) = match factor {
            LoraFactor::A => ("lora_A", [all, target.input]),
            LoraFactor::B => ("lora_B", [target.output * self.step, all]),
        };
        (format!("{PREFIX}{}.{end}.weight", self.holder), shape)
    }

    /// Calls `take` with the index of each number of a factor, and that of it in files.
    pub(super) fn each_number(
        &self,
        factor: LoraFactor,
        target: &LoraTarget,
        mut take: impl FnMut(usize, usize),
    ) {
        let Self { expert, experts, first, step, .. } = *self;
        let LoraTarget { rank, input, output, .. } = *target;
        match factor {
            LoraFactor::A => {
                (0..rank * input).for_each(|index| take(index, expert * rank * input + index));
            }
            LoraFactor::B => (0..output * rank).for_each(|index| {
                let (row, column) = (first + index / rank * step, index % rank);
                take(index, row * rank * experts + column * experts + expert);
            }),
        }
    }
}

/// Returns the name of a factor of a target in files, and its shape.
pub(super) fn stored_factor(factor: LoraFactor, target: &LoraTarget) -> (String, [usize; 2]) {
    match &target.part {
        Some(part) => part.stored(factor, target),
        None => (format!("{PREFIX}{}", factor.name(target)), factor.shape(target)),
    }
}
