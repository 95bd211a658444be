//! Places of a model's tensors in the files of a checkpoint. In memory each expert has tensors of its own, `[outputs, inputs]`;
//! files may have one tensor for all experts of a layer, by inputs or outputs.
//!
//! | layout | gate and up of all experts | down of all experts |
//! |---|---|---|
//! | [`Each`](ExpertLayout::Each) | a tensor `[F, D]` each | `[D, F]` each |
//! | [`Stacked`](ExpertLayout::Stacked) | `[E, 2 F, D]`: gates, then ups | `[E, D, F]` |
//! | [`ByInputs`](ExpertLayout::ByInputs) | `[E, D, 2 F]`: gates and ups alternate; biases `[E, 2 F]` | `[E, F, D]`; biases `[E, D]` |
//! | [`Blocks`](ExpertLayout::Blocks) | MXFP4 `[E, 2 F, D / 32, 16]`: gates and ups alternate; the biases above | `[E, D, F / 32, 16]` |

use crate::files::HfConfig;
use crate::files::parts::ExpertLayout;
use crate::files::save::{HostTensor, SavedTensor};

/// Numbers of a block of MXFP4.
pub(crate) const BLOCK: usize = 32;

/// Tensor of a checkpoint, of which a tensor of the model is a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredPart {
    /// Name; in blocks without the ends `_blocks` and `_scales`.
    pub(crate) name: String,
    /// Dimensions; in blocks those of the numbers.
    pub(crate) shape: Vec<usize>,
    /// True if it is stored in blocks.
    pub(crate) blocks: bool,
    /// Index of the part's first number.
    start: usize,
    /// Distances of the part's numbers: of rows, and within a row.
    steps: [usize; 2],
}

impl StoredPart {
    /// Returns the place of a tensor that is stored as it is.
    fn whole(name: &str, dims: &[usize]) -> Self {
        let steps = [dims.last().copied().unwrap_or(1), 1];
        Self { name: name.to_owned(), shape: dims.to_vec(), blocks: false, start: 0, steps }
    }

    /// Returns true if the model has the tensor as it is stored.
    pub(crate) fn is_whole(&self, dims: &[usize]) -> bool {
        self.shape == dims && !self.blocks
    }

    /// Calls `take` with the index of each number of the model's tensor, and that of it in the stored one.
    pub(crate) fn each_number(&self, dims: &[usize], mut take: impl FnMut(usize, usize)) {
        let columns = dims.last().copied().unwrap_or(1);
        let rows = dims.iter().product::<usize>() / columns.max(1);
        for row in 0..rows {
            let start = self.start + row * self.steps[0];
            (0..columns).for_each(|i| take(row * columns + i, start + i * self.steps[1]));
        }
    }
}

/// Map of an expert, by a tensor's name.
struct ExpertMap<'a> {
    /// Name of the experts.
    before: &'a str,
    /// Number of the expert.
    expert: usize,
    /// Name of the map: `gate_proj`, `up_proj` or `down_proj`.
    map: &'a str,
    bias: bool,
}

impl<'a> ExpertMap<'a> {
    /// Reads a name; `None` if it is not that of an expert's tensor.
    fn read(name: &'a str) -> Option<Self> {
        let (before, rest) = name.split_once(".experts.")?;
        let (expert, rest) = rest.split_once('.')?;
        let (map, kind) = rest.split_once('.')?;
        Some(Self { before, expert: expert.parse().ok()?, map, bias: kind == "bias" })
    }
}

impl HfConfig {
    /// Returns the place of a tensor of the model in files of a layout.
    pub(crate) fn stored_part(
        &self,
        layout: ExpertLayout,
        name: &str,
        dims: &[usize],
    ) -> StoredPart {
        let experts = self.layers.iter().find_map(|layer| layer.mlp.experts());
        match (ExpertMap::read(name), experts) {
            (Some(of), Some(experts)) if layout != ExpertLayout::Each => {
                expert_part(layout, &of, dims, experts.router.experts)
            }
            _ => StoredPart::whole(name, dims),
        }
    }

    /// Returns the name and the dimensions of each tensor in files that are written.
    pub fn stored_tensors(&self) -> Vec<(String, Vec<usize>)> {
        let mut stored: Vec<(String, Vec<usize>)> = Vec::new();
        for (name, dims) in self.tensors() {
            let part = self.stored_part(self.expert_layout, &name, &dims);
            // Parts of a tensor are those of one layer, whose tensors follow each other.
            if !stored.iter().rev().take(4).any(|(found, _)| *found == part.name) {
                stored.push((part.name, part.shape));
            }
        }
        stored
    }

    /// Returns the tensors to be written for those of a model.
    pub(crate) fn saved_tensors<'a, T: HostTensor>(
        &self,
        vars: &'a [(String, T)],
    ) -> Vec<SavedTensor<'a>> {
        let mut stored: Vec<(StoredPart, Vec<(&'a T, StoredPart)>)> = Vec::new();
        for (name, var) in vars {
            let part = self.stored_part(self.expert_layout, name, var.shape());
            match stored.iter_mut().rev().take(4).find(|(found, _)| found.name == part.name) {
                Some((_, parts)) => parts.push((var, part)),
                None => stored.push((part.clone(), vec![(var, part)])),
            }
        }
        stored.into_iter().map(|(whole, parts)| saved_tensor(whole, parts)).collect()
    }
}

/// Returns a tensor to be written, from its parts.
fn saved_tensor<T: HostTensor>(whole: StoredPart, parts: Vec<(&T, StoredPart)>) -> SavedTensor<'_> {
    if let [(var, part)] = &parts[..]
        && part.is_whole(var.shape())
    {
        return SavedTensor::tensor(whole.name, *var);
    }
    let StoredPart { name, shape, .. } = whole;
    let count = shape.iter().product();
    SavedTensor::computed(name, &shape, move || {
        let mut values = vec![0.0; count];
        for (var, part) in &parts {
            var.read(&mut |own| {
                part.each_number(var.shape(), |index, stored| values[stored] = own[index]);
            });
        }
        values
    })
}

/// Returns the place of a tensor of an expert in a tensor of all experts.
fn expert_part(
    layout: ExpertLayout,
    of: &ExpertMap<'_>,
    dims: &[usize],
    experts: usize,
) -> StoredPart {
    let &ExpertMap { before, expert: e, map, bias } = of;
    let (rows, columns) = (dims[0], dims.last().copied().unwrap_or(1));
    let second = usize::from(map == "up_proj");
    // A map of two, or the only one, with its rows in all.
    let (map, all) = if map == "down_proj" { (map, rows) } else { ("gate_up_proj", 2 * rows) };
    let two = all > rows;
    let blocks = layout == ExpertLayout::Blocks && !bias;
    let (shape, start, steps) = match layout {
        // Biases are never in blocks.
        _ if bias => (vec![experts, all], e * all + second, [all, all / rows]),
        ExpertLayout::Stacked | ExpertLayout::Each => {
            let start = (e * all + second * rows) * columns;
            (vec![experts, all, columns], start, [columns, 1])
        }
        ExpertLayout::ByInputs => {
            let steps = [if two { 2 } else { 1 }, all];
            (vec![experts, columns, all], e * columns * all + second, steps)
        }
        ExpertLayout::Blocks => {
            let columns = columns.next_multiple_of(BLOCK);
            let start = (e * all + second) * columns;
            (vec![experts, all, columns], start, [if two { 2 * columns } else { columns }, 1])
        }
    };
    let name = format!("{before}.experts.{map}{}", if bias { "_bias" } else { "" });
    StoredPart { name, shape, blocks, start, steps }
}

#[cfg(test)]
mod tests;
