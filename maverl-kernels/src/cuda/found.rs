//! GPUs and libraries of this machine.
#![allow(unsafe_code)] // for the driver's C interface; the result of every call is checked

use std::fs;

use cudarc::driver::{CudaContext, result, sys};
use cudarc::nvrtc::sys as nvrtc_sys;

use super::cubins::Cubins;
use super::cublaslt::Functions;
use super::{CudaError, nvrtc};

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuInfo {
    /// Number, as in `cuda:0`.
    pub number: usize,
    /// Name.
    pub name: String,
    /// Memory in bytes.
    pub memory: u64,
    /// Compute capability.
    pub capability: (i32, i32),
}

/// A library or a file that devices need.
#[derive(Debug, Clone)]
pub struct LibraryInfo {
    /// Name.
    pub name: &'static str,
    /// Its version and place, or the reason why it is not used.
    pub found: Result<String, String>,
}

/// Returns an error if there is no driver.
pub(super) fn check_driver() -> Result<(), CudaError> {
    // SAFETY: opening a library runs its initializers; those of the driver touch no memory of this program.
    if unsafe { sys::is_culib_present() } { Ok(()) } else { Err(CudaError::NoDriver) }
}

/// Returns the GPUs of this machine.
///
/// # Errors
///
/// If there is no driver, or it fails.
pub fn find_gpus() -> Result<Vec<GpuInfo>, CudaError> {
    use sys::CUdevice_attribute as Attribute;

    check_driver()?;
    let count = CudaContext::device_count()?;
    (0..count)
        .map(|number| {
            let device = result::device::get(number)?;
            let [major, minor] = [
                Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            ]
            // SAFETY: the device is one that the driver listed.
            .map(|attribute| unsafe { result::device::get_attribute(device, attribute) });
            // SAFETY: as above.
            let memory = unsafe { result::device::total_mem(device) }? as u64;
            let name = result::device::get_name(device)?;
            Ok(GpuInfo { number: number as usize, name, memory, capability: (major?, minor?) })
        })
        .collect()
}

/// Returns the libraries that devices use: the driver, NVRTC or a file of cubins, and cuBLASLt.
pub fn find_libraries() -> Vec<LibraryInfo> {
    let cubins = match Cubins::find() {
        Ok(Some(cubins)) => {
            Ok(format!("{}: {}", cubins.path().display(), cubins.architectures().join(", ")))
        }
        Ok(None) => Err("none: `maverl device compile` writes them".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    vec![
        LibraryInfo {
            name: "driver",
            found: check_driver().map(|()| driver_version()).map_err(|error| error.to_string()),
        },
        LibraryInfo {
            name: "NVRTC",
            found: nvrtc::load_nvrtc().map(|()| nvrtc_version()).map_err(|error| error.to_string()),
        },
        LibraryInfo { name: "cubins", found: cubins },
        LibraryInfo {
            name: "cuBLASLt",
            found: Functions::find().map(|of| of.version()).map_err(|error| error.to_string()),
        },
    ]
}

/// Returns the newest version of CUDA that the driver runs, and the version of its kernel module.
fn driver_version() -> String {
    let mut version = 0;
    // SAFETY: the driver writes one integer.
    let cuda = match unsafe { sys::cuDriverGetVersion(&mut version) }.result() {
        Ok(()) => format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        Err(error) => format!("fails: {error}"),
    };
    let module = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let number = module.lines().next().and_then(|line| {
        line.split_whitespace()
            .find(|word| word.starts_with(char::is_numeric) && word.contains('.'))
    });
    number.map_or(cuda.clone(), |number| format!("{number}, {cuda}"))
}

fn nvrtc_version() -> String {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: NVRTC writes two integers.
    match unsafe { nvrtc_sys::nvrtcVersion(&mut major, &mut minor) } {
        nvrtc_sys::nvrtcResult::NVRTC_SUCCESS => format!("{major}.{minor}"),
        error => format!("fails: {error:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_has_a_reason() {
        let libraries = find_libraries();
        assert_eq!(
            libraries.iter().map(|of| of.name).collect::<Vec<_>>(),
            ["driver", "NVRTC", "cubins", "cuBLASLt"]
        );
        if let Err(error) = find_gpus() {
            let reason = libraries[0].found.clone();
            println!("{error}");
            assert!(reason.is_ok() || reason == Err(error.to_string()));
        }
    }
}
