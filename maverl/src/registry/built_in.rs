//! The engine's surrogates as declarations, beside those of linked crates.

use serde_json::Value;

use super::{Build, Entry, SourceLocation, from_options, in_range};
use crate::loss::{
    CispoOptions, ClipOptions, CpgdOptions, DppoOptions, DroOptions, GmpoOptions, ReinforceOptions,
    SapoOptions, VespoOptions,
};
use crate::settings::{Key, Table};

/// Registers surrogates with their names and first lines of documentation.
macro_rules! surrogates {
    ($($name:literal: $options:ident, $summary:literal;)*) => {$(
        impl Build for $options {
            const KEYS: &'static [Key] = <Self as Table>::KEYS;

            fn defaults() -> Value {
                <Self as Table>::defaults()
            }

            fn build(options: &Value) -> Result<Self, String> {
                let built = from_options(options)?;
                in_range(&built).map(|()| built)
            }
        }

        inventory::submit! {
            Entry::surrogate::<$options>($name, $summary, SourceLocation {
                file: file!(),
                line: line!(),
                item: concat!("maverl::loss::", stringify!($options)),
            })
        }
    )*};
}

surrogates! {
    "clip": ClipOptions, "The clipped ratio (PPO). arXiv:1707.06347, eq. 7; arXiv:1912.09729, eq. 8";
    "cispo": CispoOptions, "The log-probability, weighted by the clipped ratio (CISPO). arXiv:2506.13585";
    "sapo": SapoOptions, "A soft gate of the ratio (SAPO). arXiv:2511.20347";
    "cpgd": CpgdOptions, "The clipped log-ratio (CPGD). arXiv:2505.12504";
    "gmpo": GmpoOptions, "The geometric mean of the clipped ratios of a reply (GMPO). arXiv:2507.20673";
    "vespo": VespoOptions, "The log-probability, weighted by a smooth function of the ratio of the reply (VESPO). arXiv:2602.10693";
    "dppo": DppoOptions, "The log-probability, weighted by the ratio; 0 for tokens whose probability has moved too far in the direction of the advantage (DPPO). arXiv:2602.04879";
    "dro": DroOptions, "The log-probability, and a quadratic pull towards the sampling policy (DRO). arXiv:2405.19107";
    "reinforce": ReinforceOptions, "The log-probability, without a ratio (REINFORCE, GPG). arXiv:2504.02546";
}
