//! Kinds of tensors in GGUF files (reference: `ggml.h`, `enum ggml_type`, and `ggml-common.h`, blocks).

/// A kind of numbers that is read and written. Numbers in blocks share scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NumberKind {
    /// 32 bits.
    F32,
    /// Half precision.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// 4 bits and a scale for 32 numbers.
    Q4_0,
    /// 4 bits, a scale and a minimum for 32 numbers.
    Q4_1,
    /// 5 bits and a scale for 32 numbers.
    Q5_0,
    /// 5 bits, a scale and a minimum for 32 numbers.
    Q5_1,
    /// 8 bits and a scale for 32 numbers.
    Q8_0,
    /// 2 bits, with scales and minima of 4 bits for 16 of 256 numbers.
    Q2K,
    /// 3 bits, with scales of 6 bits for 16 of 256 numbers.
    Q3K,
    /// 4 bits, with scales and minima of 6 bits for 32 of 256 numbers.
    Q4K,
    /// 5 bits, with scales and minima of 6 bits for 32 of 256 numbers.
    Q5K,
    /// 6 bits, with scales of 8 bits for 16 of 256 numbers.
    Q6K,
}

/// Number, name, numbers of a block and its bytes, of each kind that is read.
static READ: [(NumberKind, u32, &str, usize, usize); 13] = [
    (NumberKind::F32, 0, "F32", 1, 4),
    (NumberKind::F16, 1, "F16", 1, 2),
    (NumberKind::Bf16, 30, "BF16", 1, 2),
    (NumberKind::Q4_0, 2, "Q4_0", 32, 18),
    (NumberKind::Q4_1, 3, "Q4_1", 32, 20),
    (NumberKind::Q5_0, 6, "Q5_0", 32, 22),
    (NumberKind::Q5_1, 7, "Q5_1", 32, 24),
    (NumberKind::Q8_0, 8, "Q8_0", 32, 34),
    (NumberKind::Q2K, 10, "Q2_K", 256, 84),
    (NumberKind::Q3K, 11, "Q3_K", 256, 110),
    (NumberKind::Q4K, 12, "Q4_K", 256, 144),
    (NumberKind::Q5K, 13, "Q5_K", 256, 176),
    (NumberKind::Q6K, 14, "Q6_K", 256, 210),
];

/// Number and name of other kinds.
const OTHER: [(u32, &str); 21] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];

/// Names of the kinds that are read, for messages.
pub(crate) const NAMES: &str = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K..Q6_K";

impl NumberKind {
    /// Returns the kind of a number, or the name of one that is not read.
    pub(crate) fn of_id(id: u32) -> Result<Self, String> {
        if let Some((kind, ..)) = READ.iter().find(|row| row.1 == id) {
            return Ok(*kind);
        }
        let other = OTHER.iter().find(|row| row.0 == id);
        Err(other.map_or_else(|| format!("of the kind {id}"), |row| row.1.to_owned()))
    }

    fn row(self) -> &'static (Self, u32, &'static str, usize, usize) {
        READ.iter().find(|row| row.0 == self).expect("a row for each kind")
    }

    /// Returns the number of the kind in files.
    pub(crate) fn id(self) -> u32 {
        self.row().1
    }

    /// Returns the name, as llama.cpp has it.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Returns the numbers of a block.
    pub fn block(self) -> usize {
        self.row().3
    }

    /// Returns the bytes of so many numbers, whole blocks; `None` if they do not fit a `usize`.
    pub(crate) fn bytes_of(self, numbers: usize) -> Option<usize> {
        let (.., block, bytes) = *self.row();
        (numbers / block).checked_mul(bytes)
    }

    /// Returns this kind, or the one that rows of another width have: `Q8_0`, or F16 if they are no multiple of 32 either.
    pub(crate) fn for_rows(self, columns: usize) -> Self {
        let fits = |kind: &Self| columns.is_multiple_of(kind.block());
        [self, Self::Q8_0].into_iter().find(fits).unwrap_or(Self::F16)
    }
}
