//! Keys and values of cached sequences, and attention to them.

use super::attention::{
    QUERIES, TILE, attend_shape, by_width, check_heads, heaviest_first, scale2,
};
use crate::attention::{BLOCK_TOKENS, Heads, Segment};
use crate::cuda::array::{args, expect_length};
use crate::cuda::{DeviceArray, Kernels, LaunchShape, Machine, Slice, SliceMut};

/// Keys that one block of decoding walks; longer sequences have several, merged in order.
pub(super) const SPAN: usize = 2048;
/// Query heads of a key head that a warp has.
const GROUP: usize = 16;

/// Shape of blocks of 16 tokens: of each layer keys, then values, each `[kv_heads, 16, dim]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvShape {
    /// Number of layers.
    pub layers: usize,
    /// Number of key and value heads.
    pub heads: usize,
    /// Elements of a head.
    pub dim: usize,
}

impl KvShape {
    /// Returns the elements of a block.
    pub fn block_len(self) -> usize {
        self.layers * self.layer_len()
    }

    fn layer_len(self) -> usize {
        2 * self.heads * BLOCK_TOKENS * self.dim
    }
}

/// Blocks of sequences and the tokens that are new, as attention reads them.
#[derive(Debug)]
pub struct BlockTables<M: Machine> {
    pub(super) new_tokens: usize,
    /// Number of blocks that must exist.
    pub(super) blocks: usize,
    pub(super) table: DeviceArray<M, i32>,
    /// Blocks of a row of the table.
    pub(super) most: usize,
    /// Tiles of sequences with several new tokens.
    pub(super) tiles: DeviceArray<M, i32>,
    /// Sequences with one new token, four numbers each.
    pub(super) single: DeviceArray<M, i32>,
    /// Keys of the longest sequence with one new token.
    pub(super) longest: usize,
    pub(super) slots: DeviceArray<M, u32>,
}

impl<M: Machine> Kernels<M> {
    /// Copies the blocks of sequences to the machine.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    ///
    /// # Panics
    ///
    /// If a sequence has more tokens than its blocks, or fewer than are new.
    pub fn block_tables(&self, segments: &[Segment<'_>]) -> Result<BlockTables<M>, M::Error> {
        let most = segments.iter().map(|segment| segment.blocks.len()).max().unwrap_or(0);
        let mut table = vec![0; segments.len() * most];
        let (mut tiles, mut single, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        let (mut new_tokens, mut longest) = (0, 0);
        for (i, &Segment { new_tokens: new, len, blocks, .. }) in segments.iter().enumerate() {
            assert!(
                new <= len && len <= blocks.len() * BLOCK_TOKENS,
                "segment {i} has {new} new of {len} tokens in {} blocks",
                blocks.len()
            );
            for (to, &block) in table[i * most..].iter_mut().zip(blocks) {
                *to = block as i32;
            }
            for at in len - new..len {
                let block = blocks[at / BLOCK_TOKENS] as usize;
                slots.push((block * BLOCK_TOKENS + at % BLOCK_TOKENS) as u32);
            }
            if new == 1 {
                single.extend([new_tokens, i, len, 0].map(|word| word as i32));
                longest = longest.max(len);
            } else {
                for begin in (0..new).step_by(QUERIES) {
                    let count = QUERIES.min(new - begin);
                    tiles.push([new_tokens + begin, len - new + begin, count, 0, 0, 0, i, 0]);
                }
            }
            new_tokens += new;
        }
        let last = segments.iter().flat_map(|segment| segment.blocks).max();
        Ok(BlockTables {
            new_tokens,
            blocks: last.map_or(0, |&block| block as usize + 1),
            table: self.array_of(&table)?,
            most,
            tiles: self.array_of(&heaviest_first(&mut tiles))?,
            single: self.array_of(&single)?,
            longest,
            slots: self.array_of(&slots)?,
        })
    }

    /// Copies keys and values of new tokens, `[new, kv * dim]`, to their blocks of a layer.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or a block does not exist.
    pub fn append_tokens(
        &self,
        [k, v]: [Slice<'_, u16>; 2],
        tables: &BlockTables<M>,
        shape: KvShape,
        layer: usize,
        blocks: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let (n, width) = (tables.new_tokens, shape.heads * shape.dim);
        expect_length("append", "k", k.len(), n * width);
        expect_length("append", "v", v.len(), n * width);
        check_blocks("append", tables, shape, layer, blocks.len());
        assert!(width.is_multiple_of(8) && shape.dim.is_multiple_of(8), "append: {shape:?}");
        let of = blocks.sub_slice(layer * shape.layer_len()..blocks_end(tables, shape));
        let args = args![k, v, tables.slots, n, shape.heads, shape.dim, shape.block_len(), of];
        self.run_model_kernel("append_kv", LaunchShape::of_threads(n * width / 8), args)
    }

    /// Computes [`attention_cached`](crate::attention::attention_cached): `q`, `out` are `[new, heads.q * dim]`,
    /// packed in the order of the segments. The bits equal those of [`Self::attend_packed`] on the whole row, however it is
    /// split into calls and wherever its blocks are.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, a block does not exist, heads are not 32, 64 or 128 wide, or more than 16
    /// query heads share a key head.
    #[expect(clippy::too_many_arguments, reason = "the shapes of the blocks and of the heads")]
    pub fn attend_cached(
        &self,
        q: Slice<'_, u16>,
        blocks: Slice<'_, u16>,
        tables: &BlockTables<M>,
        shape: KvShape,
        layer: usize,
        heads: Heads,
        out: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let Heads { q: q_heads, kv, dim, .. } = heads;
        check_heads("attend_cached", heads);
        assert!(q_heads / kv <= GROUP, "attend_cached: {q_heads} query heads over {kv}");
        assert_eq!((shape.heads, shape.dim), (kv, dim), "attend_cached: heads of the blocks");
        let width = q_heads * dim;
        expect_length("attend_cached", "q", q.len(), tables.new_tokens * width);
        expect_length("attend_cached", "out", out.len(), tables.new_tokens * width);
        check_blocks("attend_cached", tables, shape, layer, blocks.len());
        let of = blocks.sub_slice(layer * shape.layer_len()..blocks_end(tables, shape));
        let BlockTables { table, most, tiles, single, longest, .. } = tables;
        let given = args![q, of, *table, *most, shape.block_len()];
        if !tiles.is_empty() {
            let names = ["attend_cached_32", "attend_cached_64", "attend_cached_128"];
            let args = [given, args![*tiles, q_heads, kv, scale2(dim), out]].concat();
            let launch = attend_shape(tiles.len(), heads);
            self.run_model_kernel(by_width(dim, names), launch, &args)?;
        }
        let (rows, spans) = (single.len() / 4, longest.div_ceil(SPAN));
        if rows == 0 {
            return Ok(());
        }
        let places = rows * kv * spans * GROUP;
        let (values, sums) =
            (self.new_array::<f32>(places * dim)?, self.new_array::<f32>(places * 2)?);
        let launch = LaunchShape {
            grid: [rows as u32, kv as u32, spans as u32],
            threads: 32,
            shared: (3 * TILE * dim * 2) as u32,
        };
        let args = [given, args![*single, q_heads, kv, scale2(dim), values, sums]].concat();
        let names = ["attend_one_32", "attend_one_64", "attend_one_128"];
        self.run_model_kernel(by_width(dim, names), launch, &args)?;
        let args = args![values, sums, *single, rows, q_heads, kv, dim, spans, out];
        let shape = LaunchShape::of_blocks((rows * q_heads).div_ceil(8));
        self.run_model_kernel("attend_merge", shape, args)
    }
}

/// Returns the elements of the blocks that tables name.
fn blocks_end<M: Machine>(tables: &BlockTables<M>, shape: KvShape) -> usize {
    tables.blocks * shape.block_len()
}

#[track_caller]
fn check_blocks<M: Machine>(
    kernel: &str,
    tables: &BlockTables<M>,
    shape: KvShape,
    layer: usize,
    len: usize,
) {
    let KvShape { layers, .. } = shape;
    assert!(layer < layers, "{kernel}: layer {layer} of {layers}");
    let (have, want) = (len / shape.block_len(), tables.blocks);
    assert!(want <= have, "{kernel}: block {} of {have}", want.max(1) - 1);
}
