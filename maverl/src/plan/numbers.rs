//! Numbers for readers.

/// Bytes of one number: weights, gradients and moments are kept in f32.
pub(super) const NUMBER: u64 = 4;

/// `1234567` is `1.23M`.
pub fn count(n: u64) -> String {
    scaled_number(n, 1000.0, &["", "k", "M", "G", "T"])
}

/// Bytes in binary units.
pub fn bytes(n: u64) -> String {
    if n == 0 {
        "-".to_owned()
    } else {
        scaled_number(n, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
    }
}

/// A maximum of bytes.
pub(super) fn at_most(n: u64) -> String {
    if n == 0 { bytes(n) } else { format!("<= {}", bytes(n)) }
}

fn scaled_number(n: u64, base: f64, units: &[&str]) -> String {
    let mut value = n as f64;
    let mut unit = 0;
    while value >= base && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    if unit == 0 { format!("{n}{}", units[0]) } else { format!("{value:.2}{}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_bytes_are_short() {
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1.23M");
        assert_eq!(bytes(0), "-");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(7 << 30), "7.00 GiB");
    }
}
