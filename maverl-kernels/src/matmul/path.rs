//! Which instructions a product uses, chosen at run time by what the processor has.

use super::layout::{BLOCK, Element};
use crate::simd;

/// Asks for a cache line before it is needed. Any address will do.
#[inline(always)]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    super::x86::prefetch(address.cast());
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The instructions of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// Plain Rust, compiled for every vector width.
    Portable,
    /// AVX-512, with its `bf16` dot product for `bf16`.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AMX tiles; `bf16` only.
    #[cfg(target_arch = "x86_64")]
    Amx,
    /// [`Path::Portable`] cut as [`Path::Amx`] is.
    #[cfg(test)]
    Tiles,
}

impl Path {
    /// The instructions of the path in use.
    pub(super) fn best<E: Element>() -> Self {
        match simd::path() {
            #[cfg(target_arch = "x86_64")]
            simd::Path::Amx if Self::Amx.works::<E>() => Self::Amx,
            #[cfg(target_arch = "x86_64")]
            simd::Path::Amx | simd::Path::Avx512 if Self::Avx512.works::<E>() => Self::Avx512,
            _ => Self::Portable,
        }
    }

    /// Whether this processor has the path for this element.
    pub(super) fn works<E: Element>(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 if E::TERMS == 1 => super::x86::has_avx512(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => super::x86::has_avx512_bf16(),
            #[cfg(target_arch = "x86_64")]
            Self::Amx => E::TERMS == 2 && super::amx::works(),
            _ => true,
        }
    }

    /// Rows that a kernel takes at most.
    pub(super) fn rows(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => 32,
            #[cfg(test)]
            Self::Tiles => 32,
            _ => 12,
        }
    }

    /// Whether the words of a tile's row are read together.
    pub(super) fn reads_rows(self) -> bool {
        self.rows() == 32
    }

    /// Turns a block of words.
    pub(super) fn transpose(self, block: &mut [[u32; BLOCK]; BLOCK]) {
        #[cfg(target_arch = "x86_64")]
        if matches!(self, Self::Avx512 | Self::Amx) {
            return super::x86::transpose(block);
        }
        let lines = *block;
        for (i, line) in block.iter_mut().enumerate() {
            line.iter_mut().zip(&lines).for_each(|(word, line)| *word = line[i]);
        }
    }
}
