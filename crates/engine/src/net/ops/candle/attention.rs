//! Causal attention with grouped queries, of packed rows. Shapes: `H` heads of queries, `K` of keys and values, `g = H / K`, `d`
//! width of a head, `T` queries, `S` keys.
//!
//! Queries are taken [`TILE`] at a time, so that memory grows with the number of keys alone. Weights are computed again by the
//! backward pass.

use std::ops::Range;

use candle_core::{D, DType, Device, Result, Tensor};
use maverl_kernels::attention::{Heads, Packing};

use super::{add_rows, join_rows};

/// Most queries whose scores are held at once.
const TILE: usize = 512;

/// Queries of a sequence, with the keys that they see.
pub(super) struct QueryTile {
    /// Queries, among those that are computed.
    pub(super) queries: Range<usize>,
    /// Keys, by their positions in the sequence.
    pub(super) keys: Range<usize>,
    /// Position of the first of the queries that are computed.
    past: usize,
    window: Option<usize>,
}

impl QueryTile {
    /// Returns the tiles of `count` queries after `past` earlier tokens.
    pub(super) fn of(past: usize, count: usize, heads: Heads) -> impl Iterator<Item = Self> {
        let window = window(heads);
        (0..count).step_by(TILE).map(move |start| {
            let queries = start..count.min(start + TILE);
            let first = window.map_or(0, |window| (past + start + 1).saturating_sub(window));
            Self { keys: first..past + queries.end, queries, past, window }
        })
    }

    /// Returns 0 for the keys that each query sees, and `-inf` for others, `[T, S]`.
    pub(super) fn mask(&self, device: &Device) -> Result<Tensor> {
        let (t, s) = (self.queries.len(), self.keys.len());
        let mut mask = vec![f32::NEG_INFINITY; t * s];
        for (query, mask) in self.queries.clone().zip(mask.chunks_exact_mut(s.max(1))) {
            let position = self.past + query;
            let first = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
            let seen = first.max(self.keys.start)..position + 1;
            mask[seen.start - self.keys.start..seen.end - self.keys.start].fill(0.0);
        }
        Tensor::from_vec(mask, (t, s), device)
    }
}

/// Returns the number of keys that a query attends to, its own included, if it is bounded.
pub(super) fn window(heads: Heads) -> Option<usize> {
    heads.scores.window.map(|window| window.get() as usize)
}

/// Weights of keys for queries.
pub(super) struct Weighed {
    /// Weights, of the shape of the scores.
    pub(super) weights: Tensor,
    /// Derivatives of bounded scores, if they are bounded.
    slopes: Option<Tensor>,
    /// Weights of the sinks, if there are any, for each query.
    sinks: Option<Tensor>,
}

/// Computes the softmax of products `[.., S]` of queries and keys over `S`. The mask is added to the scores; `sinks`, of a shape
/// that broadcasts to `[.., 1]`, are scores without keys.
///
/// ```text
/// s = scale qᵢ · kⱼ,   s ← cap tanh(s / cap),   p = e^s / (e^sink + Σ e^s)
/// ```
pub(super) fn weigh(
    products: &Tensor,
    heads: Heads,
    mask: &Tensor,
    sinks: Option<&Tensor>,
) -> Result<Weighed> {
    let (mut scores, mut slopes) = ((products * scale(heads))?, None);
    if let Some(cap) = heads.scores.softcap.map(f64::from) {
        let bounded = (scores / cap)?.tanh()?;
        slopes = Some((1.0 - bounded.sqr()?)?);
        scores = (bounded * cap)?;
    }
    let scores = scores.broadcast_add(mask)?;
    let mut most = scores.detach().max_keepdim(D::Minus1)?;
    if let Some(sinks) = sinks {
        most = most.broadcast_maximum(&sinks.detach())?;
    }
    let e = scores.broadcast_sub(&most)?.exp()?;
    let mut sum = e.sum_keepdim(D::Minus1)?;
    let sinks = sinks.map(|sinks| sinks.broadcast_sub(&most)?.exp()).transpose()?;
    if let Some(sinks) = &sinks {
        sum = (sum + sinks)?;
    }
    let sinks = sinks.map(|sinks| sinks / &sum).transpose()?;
    Ok(Weighed { weights: e.broadcast_div(&sum)?, slopes, sinks })
}

/// Returns the factor of products.
fn scale(heads: Heads) -> f64 {
    heads.scores.scale.map_or_else(|| 1.0 / (heads.dim as f64).sqrt(), f64::from)
}

/// Queries, or what has their shape, by heads of keys: `[T, H d]` -> `[K, g T, d]`.
pub(super) fn by_key_head(q: &Tensor, heads: Heads) -> Result<Tensor> {
    let (t, group) = (q.dim(0)?, heads.q / heads.kv);
    let split = q.reshape((t, heads.kv, group, heads.dim))?.permute((1, 2, 0, 3))?;
    split.reshape((heads.kv, group * t, heads.dim))
}

/// `[K, g T, d]` -> `[T, H d]`.
pub(super) fn by_token(x: &Tensor, heads: Heads) -> Result<Tensor> {
    let group = heads.q / heads.kv;
    let split = x.reshape((heads.kv, group, x.dim(1)? / group, heads.dim))?;
    split.permute((2, 0, 1, 3))?.reshape(((), heads.q * heads.dim))
}

/// Keys or values of a sequence: `[S, K d]` -> `[K, S, d]`.
pub(super) fn of_keys(x: &Tensor, heads: Heads) -> Result<Tensor> {
    x.reshape(((), heads.kv, heads.dim))?.transpose(0, 1)?.contiguous()
}

/// Computes the weights `[K, g, T, S]` of keys `[K, S, d]` for queries `[K, g T, d]`, with sinks `[H]`.
pub(super) fn tile_weights(
    [q, k]: [&Tensor; 2],
    mask: &Tensor,
    heads: Heads,
    sinks: Option<&Tensor>,
) -> Result<Weighed> {
    let (t, s) = mask.dims2()?;
    let group = heads.q / heads.kv;
    let products = q.matmul(&k.t()?)?.reshape((heads.kv, group, t, s))?;
    let sinks = sinks.map(|sinks| sinks.reshape((heads.kv, group, 1, 1))).transpose()?;
    weigh(&products, heads, mask, sinks.as_ref())
}

/// Computes the attended values `[T, H d]` of a tile, from its queries `[T, H d]` and its keys and values `[S, K d]`.
pub(super) fn attend_tile(
    q: &Tensor,
    [k, v]: [&Tensor; 2],
    mask: &Tensor,
    (heads, sinks): (Heads, Option<&Tensor>),
) -> Result<Tensor> {
    let (q, k, v) = (by_key_head(q, heads)?, of_keys(k, heads)?, of_keys(v, heads)?);
    let weights = tile_weights([&q, &k], mask, heads, sinks)?.weights;
    by_token(&weights.reshape((heads.kv, (), k.dim(1)?))?.matmul(&v)?, heads)
}

/// Node of a packing: its tokens, and those of its path from the root on.
struct PackingNode {
    own: Range<usize>,
    /// Tokens of the path in pieces, own ones included.
    path: Vec<Range<usize>>,
    past: usize,
}

impl PackingNode {
    fn all(packing: Packing<'_>) -> Vec<Self> {
        let mut nodes: Vec<Self> = Vec::new();
        for (n, bounds) in packing.offsets.windows(2).enumerate() {
            let own = bounds[0]..bounds[1];
            let parent = packing.parent_of_node(n).map(|parent| &nodes[parent]);
            let mut path = parent.map_or_else(Vec::new, |parent| parent.path.clone());
            path.push(own.clone());
            let past = parent.map_or(0, |parent| parent.past + parent.own.len());
            nodes.push(Self { own, path, past });
        }
        nodes
    }

    /// Returns the rows of `x [N, ..]` of the path.
    fn path_rows(&self, x: &Tensor) -> Result<Tensor> {
        let rows = self.path.iter().map(|tokens| x.narrow(0, tokens.start, tokens.len()));
        Tensor::cat(&rows.collect::<Result<Vec<_>>>()?, 0)
    }

    /// Adds rows of the path to those of `x [N, ..]`.
    fn add_path(&self, x: &Tensor, rows: &Tensor) -> Result<()> {
        let mut start = 0;
        for tokens in &self.path {
            add_rows(x, tokens.start, &rows.narrow(0, start, tokens.len())?)?;
            start += tokens.len();
        }
        Ok(())
    }

    /// Returns the queries of a tile in `x [N, ..]`.
    fn queries(&self, x: &Tensor, tile: &QueryTile) -> Result<Tensor> {
        x.narrow(0, self.own.start + tile.queries.start, tile.queries.len())
    }
}

/// Computes attention of packed rows from `q [N, H d]` to `k`, `v [N, K d]`, with sinks `[H]`.
pub(super) fn attend(
    [q, k, v]: [&Tensor; 3],
    packing: Packing<'_>,
    (heads, sinks): (Heads, Option<&Tensor>),
) -> Result<Tensor> {
    let mut parts = Vec::new();
    for node in PackingNode::all(packing) {
        let [k, v] = [node.path_rows(k)?, node.path_rows(v)?];
        for tile in QueryTile::of(node.past, node.own.len(), heads) {
            let [k, v] = [&k, &v].map(|x| x.narrow(0, tile.keys.start, tile.keys.len()));
            let (q, mask) = (node.queries(q, &tile)?, tile.mask(q.device())?);
            parts.push(attend_tile(&q, [&k?, &v?], &mask, (heads, sinks))?);
        }
    }
    join_rows(&parts, heads.q * heads.dim, q.device())
}

/// Computes the gradients of [`attend`] by queries, keys, values and sinks, from its result and the gradient of it. Keys and
/// values that several rows share get the sum of their gradients, in the order of the rows.
pub(super) fn attend_back(
    [q, k, v]: [&Tensor; 3],
    [out, dout]: [&Tensor; 2],
    packing: Packing<'_>,
    (heads, sinks): (Heads, Option<&Tensor>),
) -> Result<[Tensor; 4]> {
    let (device, mut dqs) = (q.device(), Vec::new());
    let [dk, dv] = [k, v].map(Tensor::zeros_like);
    let (dk, dv) = (dk?, dv?);
    let mut dsinks = Tensor::zeros(heads.q, DType::F32, device)?;
    for node in PackingNode::all(packing) {
        let [k, v] = [node.path_rows(k)?, node.path_rows(v)?];
        let [dk_path, dv_path] = [k.zeros_like()?, v.zeros_like()?];
        for tile in QueryTile::of(node.past, node.own.len(), heads) {
            let (first, count) = (tile.keys.start, tile.keys.len());
            let given = TileInputs {
                q: by_key_head(&node.queries(q, &tile)?, heads)?,
                k: of_keys(&k.narrow(0, first, count)?, heads)?,
                v: of_keys(&v.narrow(0, first, count)?, heads)?,
                out: by_key_head(&node.queries(out, &tile)?, heads)?,
                dout: by_key_head(&node.queries(dout, &tile)?, heads)?,
                mask: tile.mask(device)?,
            };
            let [dq, dk, dv, dsink] = given.backward(heads, sinks)?;
            dqs.push(dq);
            add_rows(&dk_path, first, &dk)?;
            add_rows(&dv_path, first, &dv)?;
            dsinks = (dsinks + dsink)?;
        }
        node.add_path(&dk, &dk_path)?;
        node.add_path(&dv, &dv_path)?;
    }
    Ok([join_rows(&dqs, heads.q * heads.dim, device)?, dk, dv, dsinks])
}

/// Sums over the queries of each key: `[K, g T, S]`, `[K, g T, d]` -> `[S, K d]`.
fn sum_by_key(weights: &Tensor, of: &Tensor, heads: Heads) -> Result<Tensor> {
    let sums = weights.transpose(1, 2)?.contiguous()?.matmul(of)?;
    sums.transpose(0, 1)?.reshape(((), heads.kv * heads.dim))
}

/// Inputs of the backward pass of a tile: queries, result and its gradient `[K, g T, d]`, keys and values `[K, S, d]`, and the
/// mask `[T, S]`.
struct TileInputs {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    dout: Tensor,
    mask: Tensor,
}

impl TileInputs {
    /// Computes the gradients of queries `[T, H d]`, keys and values `[S, K d]`, and sinks `[H]`.
    ///
    /// ```text
    /// dp = dout vᵀ,   ds = p (dp − dout · out),   dq = scale ds k,   dk = scale dsᵀ q,   dv = pᵀ dout
    /// dsink = −Σ p_sink dout · out
    /// ```
    fn backward(&self, heads: Heads, sinks: Option<&Tensor>) -> Result<[Tensor; 4]> {
        let Self { q, k, v, out, dout, mask } = self;
        let of = tile_weights([q, k], mask, heads, sinks)?;
        let (t, s) = mask.dims2()?;
        let p = of.weights.reshape((heads.kv, (), s))?;
        let along = (dout * out)?.sum_keepdim(D::Minus1)?;
        let mut ds = (&p * dout.matmul(&v.t()?)?.broadcast_sub(&along)?)?;
        if let Some(slopes) = &of.slopes {
            ds = (ds * slopes.reshape((heads.kv, (), s))?)?;
        }
        let ds = (ds * scale(heads))?;
        let dq = by_token(&ds.matmul(k)?, heads)?;
        let dsinks = match &of.sinks {
            None => Tensor::zeros(heads.q, DType::F32, q.device())?,
            Some(sinks) => {
                (sinks.reshape((heads.q, t))? * along.reshape((heads.q, t))?)?.sum(1)?.neg()?
            }
        };
        Ok([dq, sum_by_key(&ds, q, heads)?, sum_by_key(&p, dout, heads)?, dsinks])
    }
}
