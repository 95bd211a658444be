//! Deterministic damage to files: the same case gives the same damage. `MAVERL_FUZZ_CASES` sets the number of cases of
//! a test.

use super::*;

/// Returns the number of cases of a test.
pub(crate) fn cases() -> u64 {
    std::env::var("MAVERL_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(3000)
}

/// Returns the number of cases of a test: `few` in the first tier, `many` in the second (`MAVERL_FULL`).
pub(crate) fn case_count(few: usize, many: usize) -> usize {
    if std::env::var_os("MAVERL_FULL").is_some() { many } else { few }
}

/// Texts inserted into files: numbers at boundaries, and pieces of JSON.
const PIECES: &[&str] = &[
    "0",
    "1",
    "-1",
    "1.5",
    "1e400",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775807",
    "2305843009213693952",
    "null",
    "true",
    "\"\"",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "\"",
    "\\",
    "\\u0000",
    "\u{fffd}",
    "[]",
    "{}",
    "\"I64\"",
    "\"F4\"",
    "..",
    "/",
    "1024",
    "1048576",
    "\"llama\"",
    "\"llama3\"",
    "\"qwen3\"",
    "\"sliding_attention\"",
    "\"yarn\"",
    "\"longrope\"",
    "\"gemma3\"",
    "[[[[[[[[[[[[[[[[",
];

/// Returns a file with one to four changes: of bytes, or of a JSON value.
pub(crate) fn mutated(file: &[u8], case: u64) -> Vec<u8> {
    let mut lot = 0;
    let mut below = |n: usize| {
        lot += 1;
        (uniform_number(derive_seed(11, case), lot) * n as f64) as usize
    };
    let mut file = file.to_vec();
    for _ in 0..=below(4) {
        let from = below(file.len() + 1);
        let to = (from + below(24)).min(file.len());
        match below(10) {
            0 => file.truncate(from),
            1 => drop(file.drain(from..to)),
            2 => {
                let copy = file[from..to].to_vec();
                let at = below(file.len() + 1);
                file.splice(at..at, copy);
            }
            3 | 4 => drop(file.splice(from..from, PIECES[below(PIECES.len())].bytes())),
            5..9 => {
                // A value, up to its end, is replaced by another.
                let colon = file[from..].iter().position(|byte| *byte == b':');
                let Some(at) = colon else { continue };
                let start = from + at + 1;
                let ends = |byte: &u8| b",}\n".contains(byte);
                let length = file[start..].iter().position(ends).unwrap_or(0);
                drop(file.splice(start..start + length, PIECES[below(PIECES.len())].bytes()));
            }
            _ => file[from..to].iter_mut().take(2).for_each(|byte| *byte ^= 1 << below(8)),
        }
    }
    file
}

/// Sets the header length of a damaged safetensors file without other braces than the header's, so that the header is
/// parsed: serializers pad it with spaces.
pub(crate) fn length_fits(file: &mut [u8]) {
    let brace = file.iter().rposition(|byte| *byte == b'}').map_or(0, |at| at + 1);
    let padding = file[brace..].iter().take_while(|byte| **byte == b' ').count();
    if let Some(length) = (brace + padding).checked_sub(8) {
        file[..8].copy_from_slice(&(length as u64).to_le_bytes());
    }
}

/// Tries mutations of files, and prints the largest cost in bytes per byte of a file. `read` returns true if a file was
/// accepted.
///
/// # Panics
///
/// If `read` panics, or holds more than `factor` times the file's bytes plus a constant.
pub(crate) fn fuzz(what: &str, files: &[Vec<u8>], factor: usize, read: impl FnMut(&[u8]) -> bool) {
    fuzz_over(what, files, [factor, 64 * 1024], read);
}

/// The same, with so many bytes on top of `factor` times the file's.
pub(crate) fn fuzz_over(
    what: &str,
    files: &[Vec<u8>],
    [factor, on_top]: [usize; 2],
    mut read: impl FnMut(&[u8]) -> bool,
) {
    let (mut good, mut worst) = (0, 0.0_f64);
    for case in 0..cases() {
        let file = mutated(&files[case as usize % files.len()], case);
        let (fine, bytes) = counting::peak(|| read(&file));
        good += u64::from(fine);
        worst = worst.max(bytes as f64 / (file.len() + 64) as f64);
        assert!(
            bytes <= factor * file.len() + on_top,
            "{what}, case {case}: {bytes} bytes for a file of {}",
            file.len()
        );
    }
    println!("{what}: {} cases, {good} good, at most {worst:.1} bytes a byte", cases());
}

/// Numbers that are written into binary files.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    8,
    9,
    31,
    255,
    256,
    65_535,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// Returns the number of cases of binary files: 400, in the second tier 200,000; `MAVERL_FUZZ_CASES` sets another.
fn binary_cases() -> u64 {
    let set = std::env::var("MAVERL_FUZZ_CASES").ok().and_then(|n| n.parse().ok());
    set.unwrap_or(case_count(400, 200_000) as u64)
}

/// Returns a binary file with one to four changes: of bits, or of numbers of 1 to 8 bytes.
fn damaged(file: &[u8], case: u64) -> Vec<u8> {
    let mut lot = 0;
    let mut below = |n: usize| {
        lot += 1;
        (uniform_number(derive_seed(13, case), lot) * n as f64) as usize
    };
    let mut file = file.to_vec();
    for _ in 0..=below(4) {
        let from = below(file.len() + 1);
        let to = (from + below(24)).min(file.len());
        match below(8) {
            0 => file.truncate(from),
            1 => drop(file.drain(from..to)),
            2 => {
                let copy = file[from..to].to_vec();
                let at = below(file.len() + 1);
                file.splice(at..at, copy);
            }
            3 => file[from..to].iter_mut().take(2).for_each(|byte| *byte ^= 1 << below(8)),
            _ => {
                let number = NUMBERS[below(NUMBERS.len())].to_le_bytes();
                let width = [1, 2, 4, 8][below(4)];
                let end = (from + width).min(file.len());
                file[from..end].copy_from_slice(&number[..end - from]);
            }
        }
    }
    file
}

/// Tries damaged binary files, as [`fuzz`] tries damaged texts.
///
/// # Panics
///
/// If `read` panics, or holds more than `factor` times the file's bytes plus 64 KiB.
pub(crate) fn fuzz_binary(
    what: &str,
    files: &[Vec<u8>],
    factor: usize,
    mut read: impl FnMut(&[u8]) -> bool,
) {
    let (cases, mut good, mut worst) = (binary_cases(), 0, 0.0_f64);
    for case in 0..cases {
        let file = damaged(&files[case as usize % files.len()], case);
        let (fine, bytes) = counting::peak(|| read(&file));
        good += u64::from(fine);
        worst = worst.max(bytes as f64 / (file.len() + 64) as f64);
        let most = factor * file.len() + 64 * 1024;
        assert!(bytes <= most, "{what}, case {case}: {bytes} bytes for a file of {}", file.len());
    }
    println!("{what}: {cases} cases, {good} good, at most {worst:.1} bytes a byte");
}
