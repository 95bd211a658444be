//! Rows of a table by index.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};
use maverl_kernels::embedding;

use super::{floats, stored, tensor, with_values};

/// Looks up rows of `table [V, D]`: `[N, D]`.
pub fn embed(table: &Tensor, ids: &Arc<[u32]>) -> Result<Tensor> {
    table.apply_op1(Gather { ids: Arc::clone(ids) })
}

/// Picks rows of `x [N, D]` by index: `[M, D]`.
pub fn pick(x: &Tensor, rows: &Arc<[u32]>) -> Result<Tensor> {
    embed(x, rows)
}

struct Gather {
    ids: Arc<[u32]>,
}

impl CustomOp1 for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn cpu_fwd(&self, table: &CpuStorage, tl: &Layout) -> Result<(CpuStorage, Shape)> {
        let (rows, d) = tl.shape().dims2()?;
        if let Some(id) = self.ids.iter().find(|&&id| id as usize >= rows) {
            bail!("gather: row {id} of a table with {rows} rows");
        }
        let mut out = vec![0.0; self.ids.len() * d];
        embedding::gather(floats(table, tl, "gather")?, &self.ids, d, &mut out);
        Ok(stored(out, (self.ids.len(), d)))
    }

    fn bwd(&self, table: &Tensor, _: &Tensor, dout: &Tensor) -> Result<Option<Tensor>> {
        if !table.track_op() {
            return Ok(None);
        }
        let (_, d) = table.dims2()?;
        let mut dtable = vec![0.0; table.elem_count()];
        with_values(dout, |dout| embedding::scatter_add(dout, &self.ids, d, &mut dtable))?;
        Ok(Some(tensor(dtable, table.shape())?))
    }
}
