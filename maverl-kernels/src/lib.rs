//! The numeric hot spots of maverl, as safe functions over slices.
#![deny(missing_docs)]
/// stub
pub mod sample {
    /// m
    pub fn mix(a: u64, b: u64) -> u64 {
        a ^ b
    }
}
