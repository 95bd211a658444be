//! Tensors of a file that PyTorch pickled.

use std::path::Path;

use super::index::{Form, Stored};
use super::{Bytes, Shards};
use crate::files::map::map_file;
use crate::files::pickle::pickled_tensors;
use crate::files::{ModelError, ModelErrorKind};

impl Shards {
    /// Opens one file that PyTorch pickled.
    ///
    /// # Errors
    ///
    /// If it is missing, damaged, or has tensors that are not read.
    pub(super) fn open_pickled(path: &Path) -> Result<Self, ModelError> {
        let map = map_file(path)?;
        let tensors = pickled_tensors(&map).map_err(|what| {
            let message = format!("{}: {what}", path.display());
            ModelError::new(ModelErrorKind::Invalid, message)
        })?;
        let tensors = tensors.into_iter().map(|(name, tensor)| {
            let form = if tensor.by_columns { Form::Columns } else { Form::Rows };
            let (form, span, shape) = (form(tensor.dtype), tensor.span, tensor.shape);
            (name, Stored { file: 0, span, form, shape })
        });
        Ok(Self { tensors: tensors.collect(), files: vec![Bytes::Mapped(map)] })
    }
}
