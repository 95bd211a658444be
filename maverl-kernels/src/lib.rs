//! The numeric hot spots of maverl, as safe functions over slices.
#![deny(missing_docs)]
