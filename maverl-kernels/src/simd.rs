//! Vector instructions: all paths, those that this processor supports, and the one in use.
//!
//! The path is chosen once per process: the best one, or the one that the environment variable `MAVERL_SIMD` names.
//! Every operation of this crate runs through `dispatch`, on the calling thread and on rayon's, so paths never mix. All
//! paths give the same bits, except for products in `bf16` (see [`matmul`](crate::matmul)).

use std::cell::Cell;
use std::ffi::OsStr;
use std::fmt;
use std::sync::OnceLock;

use pulp::{Arch, WithSimd};

/// Environment variable that names a path.
pub const VARIABLE: &str = "MAVERL_SIMD";

/// Set of vector instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Path {
    /// No vectors. Multiply-adds are fused, one at a time: correct and slow.
    Scalar,
    /// Four lanes of `f32` (aarch64).
    Neon,
    /// Eight lanes of `f32`: AVX2 with FMA and F16C.
    Avx2,
    /// Sixteen lanes of `f32`: AVX-512 F, BW, CD, DQ and VL. Products in `bf16` use AVX512_BF16 where available.
    Avx512,
    /// Products in `bf16` by AMX tiles, everything else by AVX-512.
    Amx,
}

impl Path {
    /// Every path. On a processor that supports two of them, the later one is better.
    pub const ALL: [Self; 5] = [Self::Scalar, Self::Neon, Self::Avx2, Self::Avx512, Self::Amx];

    /// Returns the name of the path, as in `MAVERL_SIMD`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
        }
    }

    /// Returns true if this processor supports the path.
    pub fn is_available(self) -> bool {
        self.supported_choice().is_some()
    }

    /// Returns the instructions that vector code is compiled for on a path.
    ///
    /// # Panics
    ///
    /// If this processor does not support the path.
    pub(crate) fn compiled_arch(self) -> Arch {
        self.available_choice().arch
    }

    fn available_choice(self) -> PathChoice {
        self.supported_choice().unwrap_or_else(|| panic!("this processor lacks the path `{self}`"))
    }

    /// Returns the path with the instructions that vector code is compiled for, if the processor supports them.
    fn supported_choice(self) -> Option<PathChoice> {
        let arch = match self {
            Self::Scalar => Some(Arch::Scalar),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 if is_x86_feature_detected!("f16c") => {
                pulp::x86::V3::try_new().map(Arch::V3)
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => pulp::x86::V4::try_new().map(Arch::V4),
            #[cfg(target_arch = "x86_64")]
            Self::Amx if crate::matmul::has_amx() => pulp::x86::V4::try_new().map(Arch::V4),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => pulp::aarch64::Neon::try_new().map(Arch::Neon),
            _ => None,
        };
        arch.map(|arch| PathChoice { path: self, arch })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Returns the paths that this processor supports, the best one last.
pub fn available_paths() -> Vec<Path> {
    Path::ALL.into_iter().filter(|path| path.is_available()).collect()
}

/// Error in the value of `MAVERL_SIMD`: it names no path, or one that this processor does not support.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathError {
    value: String,
    known: bool,
}

impl std::error::Error for PathError {}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wrong = if self.known { "this processor lacks it" } else { "there is no such path" };
        write!(
            f,
            "`{VARIABLE}={}`: {wrong}; this processor has {} (without the variable, the last one is used)",
            self.value,
            path_names(true)
        )?;
        if !self.known {
            write!(f, ", others {}", path_names(false))?;
        }
        Ok(())
    }
}

/// Lists the paths that this processor supports, or the others.
fn path_names(available: bool) -> String {
    let paths = Path::ALL.into_iter().filter(|path| path.is_available() == available);
    paths.map(Path::name).collect::<Vec<_>>().join(", ")
}

/// A path, and the instructions that vector code is compiled for on it.
#[derive(Debug, Clone, Copy)]
struct PathChoice {
    path: Path,
    arch: Arch,
}

/// Returns the choice for a value of `MAVERL_SIMD`. An empty value counts as unset.
fn parse_choice(value: Option<&OsStr>) -> Result<PathChoice, PathError> {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        let best = Path::ALL.into_iter().rev().find_map(Path::supported_choice);
        return Ok(best.unwrap_or(PathChoice { path: Path::Scalar, arch: Arch::Scalar }));
    };
    let named = Path::ALL.into_iter().find(|path| value == path.name());
    let (value, known) = (value.display().to_string(), named.is_some());
    named.and_then(Path::supported_choice).ok_or(PathError { value, known })
}

/// Returns the choice of this process, made by the first call.
fn process_choice() -> &'static Result<PathChoice, PathError> {
    static CHOSEN: OnceLock<Result<PathChoice, PathError>> = OnceLock::new();
    CHOSEN.get_or_init(|| parse_choice(std::env::var_os(VARIABLE).as_deref()))
}

/// Chooses the path of this process on the first call, and returns it.
///
/// # Errors
///
/// If `MAVERL_SIMD` names no path, or one that this processor does not support. Programs call this before their first
/// operation, which would panic with the same message.
pub fn select_path() -> Result<Path, PathError> {
    match FORCED.get() {
        Some(choice) => Ok(choice.path),
        None => process_choice().as_ref().map(|choice| choice.path).map_err(Clone::clone),
    }
}

thread_local! {
    /// Choice for threads of a pool of [`run_on_path`].
    static FORCED: Cell<Option<PathChoice>> = const { Cell::new(None) };
}

/// Returns the choice for this thread.
#[inline]
fn thread_choice() -> PathChoice {
    FORCED.get().unwrap_or_else(|| match process_choice() {
        Ok(choice) => *choice,
        Err(refused) => panic!("{refused}"),
    })
}

/// Returns the path that operations use on this thread.
///
/// # Panics
///
/// If [`select_path`] returns an error.
pub(crate) fn current_path() -> Path {
    thread_choice().path
}

/// Runs `op` compiled for the path in use. A closure gets the instructions without their token. `op` and everything it
/// calls must be `#[inline(always)]`; otherwise they are compiled without the instructions of the path.
#[inline(always)]
pub(crate) fn dispatch<Op: WithSimd>(op: Op) -> Op::Output {
    thread_choice().arch.dispatch(op)
}

/// Runs `f` on a path, in a thread pool of its own: for tests and measurements of every path in one process. Other
/// threads keep their path, so tests may run in parallel. 0 threads means one per core.
///
/// # Panics
///
/// If this processor does not support the path.
#[doc(hidden)]
pub fn run_on_path<R: Send>(path: Path, threads: usize, f: impl FnOnce() -> R + Send) -> R {
    run_in_pool(Some(path.available_choice()), threads, f)
}

/// Runs `f` in a pool of `threads` threads, on the path of this thread.
#[cfg(test)]
pub(crate) fn threads<R: Send>(threads: usize, f: impl FnOnce() -> R + Send) -> R {
    run_in_pool(FORCED.get(), threads, f)
}

fn run_in_pool<R: Send>(
    choice: Option<PathChoice>,
    threads: usize,
    f: impl FnOnce() -> R + Send,
) -> R {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .start_handler(move |_| FORCED.set(choice))
        .build()
        .expect("the system gives threads for a pool");
    pool.install(f)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rayon::prelude::*;

    use super::*;

    #[test]
    fn without_the_variable_the_best_path_is_chosen() {
        let best = available_paths().last().copied();
        assert_eq!(parse_choice(None).map(|choice| choice.path).ok(), best);
        assert_eq!(parse_choice(Some(OsStr::new(""))).map(|choice| choice.path).ok(), best);
        assert_eq!(available_paths()[0], Path::Scalar);
    }

    #[test]
    fn every_path_of_this_processor_can_be_chosen_by_its_name() {
        for path in available_paths() {
            assert_eq!(
                parse_choice(Some(OsStr::new(path.name()))).map(|choice| choice.path),
                Ok(path)
            );
        }
    }

    #[test]
    fn an_unknown_path_is_refused_with_a_list() {
        let error = parse_choice(Some(OsStr::new("AVX2"))).unwrap_err().to_string();
        assert!(error.starts_with("`MAVERL_SIMD=AVX2`: there is no such path; "), "{error}");
        for path in Path::ALL {
            assert!(error.contains(path.name()), "{error}");
        }
    }

    #[test]
    fn a_path_that_the_processor_lacks_is_refused_with_a_list() {
        // No processor supports both.
        let lacked = if Path::Neon.is_available() { Path::Avx2 } else { Path::Neon };
        let error = parse_choice(Some(OsStr::new(lacked.name()))).unwrap_err().to_string();
        let start =
            format!("`MAVERL_SIMD={lacked}`: this processor lacks it; this processor has scalar");
        assert!(error.starts_with(&start), "{error}");
    }

    #[test]
    fn a_forced_path_reaches_every_thread_of_its_pool_and_no_other() {
        let here = select_path();
        for forced in available_paths() {
            let seen: Vec<Path> = run_on_path(forced, 3, || {
                let inner = threads(2, || {
                    (0..64).into_par_iter().map(|_| current_path()).collect::<Vec<_>>()
                });
                (0..64).into_par_iter().map(|_| current_path()).chain(inner).collect()
            });
            assert!(seen.iter().all(|path| *path == forced), "{seen:?}");
            assert_eq!(select_path(), here);
        }
    }
}
