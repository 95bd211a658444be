//! `maverl device compile`.

use std::process::ExitCode;

use maverl_kernels::cuda::cubins::{ARCHITECTURES, FILE, VARIABLE, compile_file};

use super::args::CompileArgs;
use crate::{Failure, print};

/// Writes a file of machine code.
pub(super) fn compile(args: &CompileArgs) -> Result<ExitCode, Failure> {
    let arch: Vec<&str> = if args.arch.is_empty() {
        ARCHITECTURES.to_vec()
    } else {
        args.arch.iter().map(String::as_str).collect()
    };
    let wrong: Vec<&str> = arch.iter().copied().filter(|name| !is_arch(name)).collect();
    if !wrong.is_empty() {
        return Err(Failure(format!(
            "`{}` is no architecture; write `--arch {}`, for example",
            wrong.join("`, `"),
            ARCHITECTURES[1]
        )));
    }
    let bytes = compile_file(&arch, |arch, bytes| {
        maverl::train::tell(format_args!("{arch}: {bytes} bytes"));
    })?;
    let out = if args.out.is_dir() { args.out.join(FILE) } else { args.out.clone() };
    std::fs::write(&out, &bytes)
        .map_err(|error| Failure(format!("cannot write `{}`: {error}", out.display())))?;
    print(&format!(
        "wrote {}: {:.1} MiB for {}; copy it beside the program as `{FILE}`, or name it in {VARIABLE}",
        out.display(),
        bytes.len() as f64 / f64::from(1 << 20),
        arch.join(", ")
    ))
}

fn is_arch(name: &str) -> bool {
    let number = name.strip_prefix("sm_").map(|number| number.trim_end_matches(['a', 'f']));
    number
        .is_some_and(|number| number.len() >= 2 && number.bytes().all(|byte| byte.is_ascii_digit()))
}
