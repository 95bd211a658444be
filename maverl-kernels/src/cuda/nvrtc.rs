//! NVRTC: loading the library, and compiling a [`Module`] to machine code. Neither needs a GPU or a driver.
//!
//! Searched in order: the paths of the dynamic loader (`LD_LIBRARY_PATH`); the folders `lib64` and `lib` of
//! `CUDA_HOME`, `CUDA_PATH` and `/usr/local/cuda`; Python wheels (PyTorch's, or `pip install nvidia-cuda-nvrtc`) in the
//! folder `site-packages` that `MAVERL_SITE_PACKAGES` names, in that of `VIRTUAL_ENV`, and in that of the first `python3`
//! on `PATH`. cuBLASLt is searched for in the same folders.
#![allow(unsafe_code)] // for the library's C interface; the result of every call is checked

use std::ffi::{CStr, CString};
use std::path::Path;
use std::sync::Once;

use cudarc::nvrtc::{result, sys};

use super::{CudaError, Module, folders};

/// Rounds multiplications and additions one by one, as on the CPU.
///
/// The last option prints the registers and spills of each kernel to the log.
pub(super) const OPTIONS: [&str; 3] = ["--std=c++17", "--fmad=false", "--ptxas-options=-v"];

/// Machine code, and what the compiler printed.
#[derive(Debug, Clone)]
pub struct CompiledModule {
    /// Machine code.
    pub code: Vec<u8>,
    /// Log of the compiler.
    pub log: String,
}

/// Registers and spills of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resources {
    /// Name of the kernel.
    pub kernel: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of local memory that registers are stored to, or loaded from.
    pub spilled: u32,
}

impl CompiledModule {
    /// Reads the registers and spills of each kernel from the log.
    pub fn resources(&self) -> Vec<Resources> {
        let mut found: Vec<Resources> = Vec::new();
        for line in self.log.lines() {
            if let Some((_, name)) = line.split_once("Compiling entry function '") {
                let kernel = name.split('\'').next().unwrap_or_default().to_owned();
                found.push(Resources { kernel, registers: 0, spilled: 0 });
            }
            let Some(kernel) = found.last_mut() else { continue };
            if let Some(bytes) = number_before(line, " bytes spill stores") {
                kernel.spilled = bytes;
            }
            if let Some(registers) = number_before(line, " registers") {
                kernel.registers = registers;
            }
        }
        found
    }
}

/// Returns the number before a word of a line.
fn number_before(line: &str, word: &str) -> Option<u32> {
    let (numbers, _) = line.split_once(word)?;
    numbers.split_whitespace().last()?.parse().ok()
}

/// Loads NVRTC, once.
///
/// # Errors
///
/// [`CudaError::NoNvrtc`] with the folders that were searched.
pub fn load_nvrtc() -> Result<(), CudaError> {
    static LOOKED: Once = Once::new();
    LOOKED.call_once(|| {
        if !is_present() {
            folders::kernel_library_folders().iter().for_each(|folder| open_folder(folder));
        }
    });
    if is_present() {
        Ok(())
    } else {
        Err(CudaError::NoNvrtc { searched: folders::kernel_library_folders() })
    }
}

fn is_present() -> bool {
    // SAFETY: opening a library runs its initializers; those of NVRTC touch no memory of this program.
    unsafe { sys::is_culib_present() }
}

/// Opens NVRTC from a folder, after which it is found by name. The built-ins are opened first, because NVRTC loads them
/// by name.
fn open_folder(folder: &Path) {
    for path in folders::files_in(folder, &["libnvrtc-builtins.so", "libnvrtc.so"]) {
        // A library that does not open is reported by `is_present`.
        folders::open_library(&path);
    }
}

/// Compiles a module for an architecture such as `sm_90`.
///
/// # Errors
///
/// [`CudaError::NoNvrtc`]; [`CudaError::Compile`] with the compiler's log.
pub fn compile_module(module: &Module, arch: &str) -> Result<CompiledModule, CudaError> {
    compile_source(module.name, &module.source_text(), arch)
}

/// Compiles a source for an architecture such as `sm_90`. `name` is its name in messages.
///
/// # Errors
///
/// [`CudaError::NoNvrtc`]; [`CudaError::Compile`] with the compiler's log.
pub fn compile_source(name: &str, source: &str, arch: &str) -> Result<CompiledModule, CudaError> {
    load_nvrtc()?;
    let compiled = run_compiler(name, source, arch);
    compiled.map_err(|why| CudaError::Compile { arch: arch.to_owned(), why })
}

fn run_compiler(name: &str, source: &str, arch: &str) -> Result<CompiledModule, String> {
    let source = CString::new(source).map_err(|error| error.to_string())?;
    let name = CString::new(name).map_err(|error| error.to_string())?;
    let program = result::create_program(&source, Some(&name)).map_err(error_name)?;
    let options: Vec<String> = OPTIONS.map(str::to_owned).to_vec();
    let options = [options, vec![format!("--gpu-architecture={arch}")]].concat();
    // SAFETY: the program is destroyed once, after its last use, and `source` outlives it.
    unsafe {
        let compiled = result::compile_program(program, &options);
        let out = match compiled {
            Ok(()) => program_code(program)
                .and_then(|code| Ok(CompiledModule { code, log: program_log(program)? }))
                .map_err(error_name),
            Err(error) => Err(program_log(program).unwrap_or_else(|_| error_name(error))),
        };
        result::destroy_program(program).map_err(error_name)?;
        out
    }
}

fn error_name(error: result::NvrtcError) -> String {
    format!("{:?}", error.0)
}

/// Returns the machine code of a program.
///
/// # Safety
///
/// The program is compiled and not destroyed.
unsafe fn program_code(program: sys::nvrtcProgram) -> Result<Vec<u8>, result::NvrtcError> {
    let mut size = 0;
    // SAFETY: the buffer has the size that NVRTC reports.
    unsafe {
        sys::nvrtcGetCUBINSize(program, &mut size).result()?;
        let mut code = vec![0_u8; size];
        sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()).result()?;
        Ok(code)
    }
}

/// Returns the log of a program.
///
/// # Safety
///
/// The program is not destroyed.
unsafe fn program_log(program: sys::nvrtcProgram) -> Result<String, result::NvrtcError> {
    // SAFETY: the log ends with a zero byte.
    unsafe {
        let log = result::get_program_log(program)?;
        Ok(CStr::from_ptr(log.as_ptr()).to_string_lossy().into_owned())
    }
}
