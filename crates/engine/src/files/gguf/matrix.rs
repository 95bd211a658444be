//! Matrices that stay in the blocks of a file. Their numbers are computed by rows, by the kernels of candle.

use std::borrow::Cow;
use std::ops::Range;

use candle_core::quantized::{QStorage, QTensor};
use candle_core::{Device, Result};
use rayon::prelude::*;

use super::kinds::NumberKind;
use super::write::to_halves;

/// A matrix `[rows, columns]` in blocks. Each row is whole blocks.
#[derive(Debug)]
pub(crate) struct BlockMatrix {
    kind: NumberKind,
    rows: usize,
    columns: usize,
    blocks: QTensor,
}

impl BlockMatrix {
    /// Copies the blocks of a matrix of these dimensions. With `heads`, pairs of its rows become halves of as many heads.
    ///
    /// # Errors
    ///
    /// If the bytes are not those of whole rows.
    pub(crate) fn new(
        kind: NumberKind,
        bytes: &[u8],
        [rows, columns]: [usize; 2],
        heads: Option<usize>,
    ) -> Result<Self> {
        let width = kind.bytes_of(columns).filter(|_| columns.is_multiple_of(kind.block()));
        let Some(width) = width.filter(|width| rows.checked_mul(*width) == Some(bytes.len()))
        else {
            let (found, name) = (bytes.len(), kind.name());
            candle_core::bail!("{found} bytes are no {rows} rows of {columns} numbers of {name}");
        };
        let mut bytes = Cow::Borrowed(bytes);
        if let Some(heads) = heads {
            to_halves(bytes.to_mut(), heads, width);
        }
        let blocks = QStorage::from_data(bytes, &Device::Cpu, kind.ggml())?;
        Ok(Self { kind, rows, columns, blocks: QTensor::new(blocks, (rows, columns))? })
    }

    /// Returns its numbers of rows and columns.
    pub(crate) fn dims(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// Returns the kind of its numbers.
    pub(crate) fn kind(&self) -> NumberKind {
        self.kind
    }

    /// Returns its bytes, row by row.
    pub(crate) fn bytes(&self) -> Cow<'_, [u8]> {
        self.blocks.data().expect("blocks in host memory have bytes")
    }

    /// Computes the numbers of some rows.
    ///
    /// # Errors
    ///
    /// If candle fails.
    pub(crate) fn rows(&self, rows: Range<usize>) -> Result<Vec<f32>> {
        let mut numbers = vec![0.0; rows.len() * self.columns];
        self.read(&self.bytes(), rows, &mut numbers)?;
        Ok(numbers)
    }

    /// Computes the numbers of the rows of indices, one after the other.
    ///
    /// # Errors
    ///
    /// If candle fails.
    pub(crate) fn gather(&self, rows: &[u32]) -> Result<Vec<f32>> {
        let (bytes, mut numbers) = (self.bytes(), vec![0.0; rows.len() * self.columns]);
        let all = numbers.par_chunks_mut(self.columns.max(1)).zip(rows);
        all.try_for_each(|(to, &row)| self.read(&bytes, row as usize..row as usize + 1, to))?;
        Ok(numbers)
    }

    /// Writes the numbers of some rows of the bytes of all.
    fn read(&self, bytes: &[u8], rows: Range<usize>, to: &mut [f32]) -> Result<()> {
        let width = self.kind.bytes_of(self.columns).unwrap_or(0);
        let Some(bytes) = bytes.get(rows.start * width..rows.end * width) else {
            candle_core::bail!("rows {rows:?} of a matrix with {} bytes", bytes.len());
        };
        if self.kind.read(bytes, to) {
            return Ok(());
        }
        candle_core::bail!("blocks of {} have no numbers", self.kind.name())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn rows_of_blocks_are_the_numbers_of_the_whole_matrix() {
        let values: Vec<f32> =
            (0..8 * 512).map(|i| ((i * 37 % 101) as f32 - 50.0) / 40.0).collect();
        for kind in [
            NumberKind::F16,
            NumberKind::Bf16,
            NumberKind::Q4_0,
            NumberKind::Q5_1,
            NumberKind::Q8_0,
            NumberKind::Q4K,
            NumberKind::Q6K,
        ] {
            let bytes = kind.write(&values).unwrap();
            let mut whole = vec![0.0; values.len()];
            assert!(kind.read(&bytes, &mut whole));
            let matrix = BlockMatrix::new(kind, &bytes, [8, 512], None).unwrap();
            assert_eq!((matrix.dims(), &*matrix.bytes()), ([8, 512], &bytes[..]));
            assert_eq!(matrix.rows(3..6).unwrap(), whole[3 * 512..6 * 512], "{kind:?}");
            let gathered = matrix.gather(&[7, 0, 7]).unwrap();
            assert_eq!(gathered[..512], whole[7 * 512..], "{kind:?}");
            assert_eq!(gathered[512..1024], whole[..512], "{kind:?}");
            assert_eq!(gathered[1024..], whole[7 * 512..], "{kind:?}");
            // Pairs of rows become halves, as those of numbers do.
            let turned = BlockMatrix::new(kind, &bytes, [8, 512], Some(2)).unwrap();
            let mut halves = whole.clone();
            to_halves(&mut halves, 2, 512);
            assert_ne!(halves, whole);
            assert_eq!(turned.rows(0..8).unwrap(), halves, "{kind:?}");
            assert!(matrix.rows(7..9).is_err() && matrix.gather(&[8]).is_err());
        }
    }

    #[test]
    fn bytes_that_are_no_whole_rows_are_an_error() {
        let wrong = BlockMatrix::new(NumberKind::Q8_0, &[0; 34], [1, 64], None).unwrap_err();
        assert!(wrong.to_string().contains("34 bytes are no 1 rows of 64 numbers of Q8_0"));
        assert!(BlockMatrix::new(NumberKind::Q4K, &[0; 144], [2, 128], None).is_err());
    }
}
