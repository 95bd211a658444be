//! Comparison of a run with the processor.

use maverl_kernels::simd::{Path, available_paths};

/// Returns the warnings about this processor.
pub(super) fn check_processor() -> Option<String> {
    slow_processor(&available_paths())
}

/// Returns a warning if no set of vector instructions among the paths of a processor is one that the kernels use.
fn slow_processor(paths: &[Path]) -> Option<String> {
    paths.iter().all(|path| *path == Path::Scalar).then(|| {
        "this processor has no vector instructions that maverl uses: on the CPU, training is about 70 times slower than with AVX2, \
         with the same bits; `maverl doctor` says what helps"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_without_vector_instructions_is_said_to_be_slow() {
        let warning = slow_processor(&[Path::Scalar]).unwrap_or_default();
        assert!(warning.contains("about 70 times slower"), "{warning}");
        assert_eq!(slow_processor(&[Path::Scalar, Path::Avx2]), None);
    }
}
