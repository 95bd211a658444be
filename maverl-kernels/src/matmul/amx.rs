//! The kernel in AMX tiles: 16 x 16 sums of 32 `bf16` terms by one instruction.
//!
//! A thread uses tiles from [`Tiles::configure_tiles`] until the returned guard is dropped. The processor reads a tile as rows of
//! 64 bytes at a stride, so tiles and panels are read in place.
#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::sync::OnceLock;

use super::part::TileSums;
use super::tiles::{BLOCK, PANEL, Panel, Tile};

/// Words of a tile's row.
const ROW: usize = 16;

/// Returns true if the processor has AMX for `bf16` and the operating system lets this process use it. The first call
/// requests it.
pub(super) fn is_available() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| is_x86_feature_detected!("avx512f") && in_processor() && permit_tiles())
}

/// Returns true if the processor has `AMX-TILE` and `AMX-BF16`, and the system saves the state of tiles.
fn in_processor() -> bool {
    const BF16_AND_TILE: u32 = 1 << 22 | 1 << 24;
    const OSXSAVE: u32 = 1 << 27;
    const TILE_STATE: u64 = 1 << 17 | 1 << 18;
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    // SAFETY: OSXSAVE says that the system has enabled `xgetbv`.
    let saved = unsafe { _xgetbv(0) };
    __cpuid_count(7, 0).edx & BF16_AND_TILE == BF16_AND_TILE && saved & TILE_STATE == TILE_STATE
}

/// Requests the tile state from Linux, once for all threads of the process.
#[cfg(target_os = "linux")]
fn permit_tiles() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: this request takes a number and touches no memory of the program.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

/// Returns false: other systems are not supported.
#[cfg(not(target_os = "linux"))]
fn permit_tiles() -> bool {
    false
}

/// Tiles of this thread, all of 16 rows of 64 bytes. Dropping it releases them.
pub(super) struct Tiles(std::marker::PhantomData<*const ()>);

impl Tiles {
    /// Configures the tiles of this thread.
    ///
    /// # Panics
    ///
    /// If AMX is unavailable.
    pub(super) fn configure_tiles() -> Self {
        #[repr(C, align(64))]
        struct TileConfig {
            palette: u8,
            start_row: u8,
            reserved: [u8; 14],
            row_bytes: [u16; 16],
            rows: [u8; 16],
        }
        assert!(is_available(), "the AMX path is for processors that have it");
        let mut config = TileConfig {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        config.row_bytes[..8].fill(64);
        config.rows[..8].fill(16);
        // SAFETY: AMX works, and the 64 bytes are a configuration of palette 1. No other code uses tiles: compiled Rust
        // has none.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly)) };
        Self(std::marker::PhantomData)
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: a `Tiles` exists only where AMX works.
        unsafe { asm!("tilerelease", options(nomem, nostack)) };
    }
}

/// Sets the first `rows` (16 or 32) rows of `sums` to `tile [rows, depth]` times `panel [depth, PANEL]`. `depth` is a
/// multiple of a tile's row.
///
/// # Panics
///
/// If the shapes differ from that.
pub(super) fn multiply_rows(
    _: &Tiles,
    tile: Tile<'_>,
    panel: Panel<'_>,
    rows: usize,
    sums: &mut TileSums,
) {
    let Panel { stride, half, depth, .. } = panel;
    assert!(depth > 0 && depth.is_multiple_of(ROW), "a depth of {depth} words");
    assert_eq!((stride, half), (PANEL, BLOCK), "a panel of whole lines");
    panel.assert_words();
    assert_eq!(tile.word, 1, "the words of a row are read together");
    tile.assert_shape(rows, depth);
    match rows {
        16 => multiply_sixteen(tile, panel, sums),
        32 => thirty_two(tile, panel, sums),
        _ => unreachable!("a tile of {rows} rows"),
    }
}

/// Computes two tiles of sums: 16 rows, 32 columns.
fn multiply_sixteen(tile: Tile<'_>, panel: Panel<'_>, sums: &mut TileSums) {
    // SAFETY: a `Tiles` is alive, so the tiles are configured. Each of `depth / 16` steps reads 16 rows of 64 bytes
    // from `tile`, `tile.row` words apart, and 16 lines of `panel`; both have them. The sums are written to 16 rows of
    // `sums`.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "2:",
            "tileloadd tmm4, [{a} + {row}*1]",
            "tileloadd tmm6, [{b} + {line}*1]",
            "tileloadd tmm7, [{b} + {line}*1 + 64]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "add {a}, 64",
            "add {b}, 2048",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{out} + {line}*1], tmm0",
            "tilestored [{out} + {line}*1 + 64], tmm1",
            a = inout(reg) tile.words.as_ptr() => _,
            b = inout(reg) panel.words.as_ptr() => _,
            steps = inout(reg) panel.depth / ROW => _,
            row = in(reg) tile.row * 4,
            line = in(reg) PANEL * 4,
            out = in(reg) sums.as_mut_ptr(),
            out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// Computes four tiles of sums: 32 rows, 32 columns.
fn thirty_two(tile: Tile<'_>, panel: Panel<'_>, sums: &mut TileSums) {
    // SAFETY: as in `multiply_sixteen`, with 32 rows of `tile` and `sums`.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "2:",
            "tileloadd tmm4, [{a} + {row}*1]",
            "tileloadd tmm6, [{b} + {line}*1]",
            "tileloadd tmm7, [{b} + {line}*1 + 64]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{a2} + {row}*1]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a}, 64",
            "add {a2}, 64",
            "add {b}, 2048",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{out} + {line}*1], tmm0",
            "tilestored [{out} + {line}*1 + 64], tmm1",
            "tilestored [{out} + {line}*1 + 2048], tmm2",
            "tilestored [{out} + {line}*1 + 2112], tmm3",
            a = inout(reg) tile.words.as_ptr() => _,
            a2 = inout(reg) tile.words[16 * tile.row..].as_ptr() => _,
            b = inout(reg) panel.words.as_ptr() => _,
            steps = inout(reg) panel.depth / ROW => _,
            row = in(reg) tile.row * 4,
            line = in(reg) PANEL * 4,
            out = in(reg) sums.as_mut_ptr(),
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// Multiplies tiles in registers, four sums `steps` times. Returns the number of multiply-adds.
pub(super) fn multiply_registers(_: &Tiles, steps: usize) -> usize {
    if steps == 0 {
        return 0;
    }
    // SAFETY: a `Tiles` is alive, so the tiles are configured. Only tiles are read and written.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "tilezero tmm4",
            "tilezero tmm5",
            "tilezero tmm6",
            "tilezero tmm7",
            "2:",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "dec {steps}",
            "jnz 2b",
            steps = inout(reg) steps => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nomem, nostack),
        );
    }
    steps * 4 * ROW * ROW * 2 * ROW
}
