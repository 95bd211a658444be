//! Machine code of the kernels in a file, for machines that have a driver and no NVRTC.
//!
//! [`compile_file()`] compiles the kernels, which needs NVRTC and no GPU. [`Cubins::find`] looks for such a file where
//! `MAVERL_KERNELS` says, then beside the program ([`FILE`]). The file begins with lines of text, a manifest, and ends
//! with the machine code:
//!
//! ```text
//! maverl kernels 1
//! sources <SHA-256 of the sources and options of the compiler>
//! cubin sm_80 elementwise.cu <bytes> <SHA-256>
//! ...
//! ```
//!
//! A file of other sources is refused, because its kernels may take other arguments.

use std::env;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{ADVANTAGES, CudaError, MODEL, Module, nvrtc};

/// Name of the file beside the program.
pub const FILE: &str = "maverl.cubins";

/// Environment variable with the path of the file.
pub const VARIABLE: &str = "MAVERL_KERNELS";

/// Architectures that a file has by default. Code of one runs on devices of the same major version and of an equal or
/// higher minor one.
pub const ARCHITECTURES: [&str; 4] = ["sm_80", "sm_90", "sm_100", "sm_120"];

/// First line of a file.
const FIRST: &str = "maverl kernels 1";

/// Machine code of the kernels for some architectures.
#[derive(Debug, Clone)]
pub struct Cubins {
    path: PathBuf,
    bytes: Vec<u8>,
    cubins: Vec<Cubin>,
}

/// Machine code of a module for an architecture.
#[derive(Debug, Clone)]
struct Cubin {
    arch: String,
    module: String,
    place: Range<usize>,
}

/// Architecture such as `sm_90a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Arch {
    major: i32,
    minor: i32,
    /// True if the code runs on exactly this version.
    exact: bool,
}

impl Arch {
    fn parse(name: &str) -> Option<Self> {
        let number = name.strip_prefix("sm_")?;
        let exact = number.ends_with(['a', 'f']);
        let number: i32 = number.trim_end_matches(['a', 'f']).parse().ok()?;
        Some(Self { major: number / 10, minor: number % 10, exact })
    }

    /// Returns true if its code runs on a device of a compute capability.
    fn runs_on(self, (major, minor): (i32, i32)) -> bool {
        let least = if self.exact { self.minor == minor } else { self.minor <= minor };
        self.major == major && least
    }
}

/// Returns the SHA-256 of the sources of all kernels and of the options of their compiler.
pub fn hash_sources() -> String {
    let mut hash = Sha256::new();
    for module in all_modules() {
        for part in [module.name, &module.source_text()] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
    }
    for option in nvrtc::OPTIONS {
        hash.update(option.as_bytes());
        hash.update([0]);
    }
    hex_digits(&hash.finalize())
}

fn all_modules() -> impl Iterator<Item = Module> {
    [ADVANTAGES].into_iter().chain(MODEL)
}

fn hex_digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compiles all kernels for architectures. Returns the content of a file. `done` is called with each architecture and
/// the bytes of its code.
///
/// # Errors
///
/// [`CudaError::NoNvrtc`]; [`CudaError::Compile`] with the compiler's log.
pub fn compile_file(
    architectures: &[&str],
    mut done: impl FnMut(&str, usize),
) -> Result<Vec<u8>, CudaError> {
    let mut manifest = format!("{FIRST}\nsources {}\n", hash_sources());
    let mut code = Vec::new();
    for arch in architectures {
        let before = code.len();
        for module in all_modules() {
            let cubin = nvrtc::compile_module(&module, arch)?.code;
            let (name, bytes, hash) =
                (module.name, cubin.len(), hex_digits(&Sha256::digest(&cubin)));
            manifest.push_str(&format!("cubin {arch} {name} {bytes} {hash}\n"));
            code.extend(cubin);
        }
        done(arch, code.len() - before);
    }
    manifest.push('\n');
    Ok([manifest.into_bytes(), code].concat())
}

impl Cubins {
    /// Reads the file that `MAVERL_KERNELS` names, or the one beside the program. `None` if there is neither.
    ///
    /// # Errors
    ///
    /// [`CudaError::Cubins`] if the file cannot be read, is damaged, or was made from other sources.
    pub fn find() -> Result<Option<Self>, CudaError> {
        if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            return Self::read_file(Path::new(&path)).map(Some);
        }
        let beside = env::current_exe().ok().map(|program| program.with_file_name(FILE));
        beside.filter(|path| path.is_file()).map(|path| Self::read_file(&path)).transpose()
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// [`CudaError::Cubins`] if the file cannot be read, is damaged, or was made from other sources.
    pub fn read_file(path: &Path) -> Result<Self, CudaError> {
        let bytes = fs::read(path).map_err(|error| error.to_string());
        let path = path.to_owned();
        match bytes.and_then(|bytes| Ok((parse_manifest(&bytes)?, bytes))) {
            Ok((cubins, bytes)) => Ok(Self { path, bytes, cubins }),
            Err(reason) => Err(CudaError::Cubins { path, reason }),
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the architectures, in the order of the file.
    pub fn architectures(&self) -> Vec<&str> {
        let mut found: Vec<&str> = self.cubins.iter().map(|cubin| cubin.arch.as_str()).collect();
        found.dedup();
        found
    }

    /// Returns the architecture of the code that a device of a compute capability runs: the newest that it can run.
    pub fn arch_for(&self, capability: (i32, i32)) -> Option<&str> {
        let named = self.architectures().into_iter();
        let named = named.filter_map(|name| Some((name, Arch::parse(name)?)));
        let usable = named.filter(|(_, arch)| arch.runs_on(capability));
        usable.max_by_key(|(_, arch)| (arch.minor, arch.exact)).map(|(name, _)| name)
    }

    /// Returns the code of a module for an architecture of the file.
    pub fn module_code(&self, module: &Module, arch: &str) -> Option<&[u8]> {
        let cubin = self.cubins.iter().find(|of| of.arch == arch && of.module == module.name)?;
        Some(&self.bytes[cubin.place.clone()])
    }

    /// Returns the error of a file without code for a device.
    pub(super) fn missing_code(&self, (major, minor): (i32, i32)) -> CudaError {
        let reason = format!(
            "it has code for {}, none of which runs on compute capability {major}.{minor}; write it again with `maverl device \
             compile --arch sm_{major}{minor}`",
            self.architectures().join(", ")
        );
        CudaError::Cubins { path: self.path.clone(), reason }
    }
}

/// Reads the manifest of a file, and compares the code with it.
fn parse_manifest(bytes: &[u8]) -> Result<Vec<Cubin>, String> {
    let end = bytes.windows(2).position(|pair| pair == b"\n\n");
    let manifest = end.and_then(|end| std::str::from_utf8(&bytes[..end]).ok());
    let (Some(end), Some(manifest)) = (end, manifest) else {
        return Err(damaged("it has no manifest"));
    };
    let mut lines = manifest.lines();
    if lines.next() != Some(FIRST) {
        return Err(damaged(&format!("its first line is not `{FIRST}`")));
    }
    let own = hash_sources();
    let found = lines.next().and_then(|line| line.strip_prefix("sources "));
    if found != Some(&own) {
        let found = found.unwrap_or("unknown");
        return Err(damaged(&format!(
            "it was made from other sources ({}) than those of this program ({})",
            short_hash(found),
            short_hash(&own)
        )));
    }
    let mut at = end + 2;
    let mut cubins = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let ["cubin", arch, module, length, hash] = words[..] else {
            return Err(damaged(&format!("its manifest has the line `{line}`")));
        };
        let place =
            length.parse().ok().and_then(|length| Some(at..usize::checked_add(at, length)?));
        let Some((place, code)) = place.and_then(|place| Some((place.clone(), bytes.get(place)?)))
        else {
            return Err(damaged(&format!("it ends within {module} for {arch}")));
        };
        if hex_digits(&Sha256::digest(code)) != hash {
            return Err(damaged(&format!("its {module} for {arch} is damaged")));
        }
        at = place.end;
        cubins.push(Cubin { arch: arch.to_owned(), module: module.to_owned(), place });
    }
    if at == bytes.len() { Ok(cubins) } else { Err(damaged("it is longer than its manifest says")) }
}

fn damaged(what: &str) -> String {
    format!("{what}; write it again with `maverl device compile`")
}

fn short_hash(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Returns a file with code that is none.
    fn made(sources: &str, architectures: &[&str]) -> Vec<u8> {
        let (mut manifest, mut code) = (format!("{FIRST}\nsources {sources}\n"), Vec::new());
        for arch in architectures {
            for module in all_modules() {
                let cubin = format!("{arch} {}\n\n", module.name).into_bytes();
                let hash = hex_digits(&Sha256::digest(&cubin));
                manifest.push_str(&format!(
                    "cubin {arch} {} {} {hash}\n",
                    module.name,
                    cubin.len()
                ));
                code.extend(cubin);
            }
        }
        [manifest.into_bytes(), b"\n".to_vec(), code].concat()
    }

    fn opened(bytes: Vec<u8>) -> Cubins {
        Cubins { path: "k".into(), cubins: parse_manifest(&bytes).unwrap(), bytes }
    }

    #[test]
    fn a_device_gets_the_newest_code_that_it_runs() {
        let cubins =
            opened(made(&hash_sources(), &["sm_80", "sm_86", "sm_90", "sm_90a", "sm_100"]));
        assert_eq!(cubins.architectures(), ["sm_80", "sm_86", "sm_90", "sm_90a", "sm_100"]);
        let of = |major, minor| cubins.arch_for((major, minor));
        assert_eq!([of(8, 0), of(8, 6), of(8, 9)], [Some("sm_80"), Some("sm_86"), Some("sm_86")]);
        assert_eq!(
            [of(9, 0), of(10, 0), of(10, 3)],
            [Some("sm_90a"), Some("sm_100"), Some("sm_100")]
        );
        assert_eq!([of(7, 5), of(12, 0)], [None, None]);
        let error = cubins.missing_code((12, 0)).to_string();
        assert!(
            error.contains("compute capability 12.0") && error.contains("--arch sm_120"),
            "{error}"
        );
        for module in all_modules() {
            let code = cubins.module_code(&module, "sm_90").unwrap();
            assert_eq!(code, format!("sm_90 {}\n\n", module.name).as_bytes());
        }
    }

    #[test]
    fn a_file_that_is_stale_or_damaged_is_refused_with_the_reason() {
        let good = made(&hash_sources(), &["sm_80"]);
        let told = |bytes: &[u8]| parse_manifest(bytes).unwrap_err();
        let stale = told(&made("0123456789abcdef", &["sm_80"]));
        assert!(stale.starts_with("it was made from other sources (0123456789ab) than"), "{stale}");
        assert!(stale.contains("maverl device compile"), "{stale}");
        let mut flipped = good.clone();
        *flipped.last_mut().unwrap() ^= 1;
        assert!(told(&flipped).contains("softmax.cu for sm_80 is damaged"));
        assert!(told(&good[..good.len() - 1]).contains("it ends within softmax.cu for sm_80"));
        assert!(told(&[&good[..], b"x"].concat()).contains("longer than its manifest"));
        assert!(told(b"hello").contains("no manifest"));
        assert!(told(b"hello\n\n").contains("its first line"));
        let missing =
            Cubins::read_file(Path::new("/nowhere/maverl.cubins")).unwrap_err().to_string();
        assert!(
            missing.starts_with("the kernels in `/nowhere/maverl.cubins` cannot be used"),
            "{missing}"
        );
    }

    #[test]
    fn the_kernels_are_compiled_into_a_file_that_is_read_again() {
        if let Err(missing) = nvrtc::load_nvrtc() {
            assert!(env::var_os("MAVERL_REQUIRE_NVRTC").is_none(), "{missing}");
            return eprintln!("skipped: {missing}");
        }
        let mut told = Vec::new();
        let bytes =
            compile_file(&["sm_90"], |arch, bytes| told.push((arch.to_owned(), bytes))).unwrap();
        println!("{told:?}: a file of {} bytes", bytes.len());
        assert_eq!(told[0].0, "sm_90");
        // Far below what a program with the code of all architectures may have.
        assert!(bytes.len() < 4 << 20, "{} bytes", bytes.len());
        let cubins = opened(bytes);
        for module in all_modules() {
            assert_eq!(&cubins.module_code(&module, "sm_90").unwrap()[..4], b"\x7fELF");
        }
    }
}
