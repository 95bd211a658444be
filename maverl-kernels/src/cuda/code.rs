//! Origin of the machine code of kernels: a file of cubins, or NVRTC.

use super::cubins::Cubins;
use super::{CudaError, Module, nvrtc};

/// Origin of the machine code of kernels.
pub(super) enum KernelCode {
    /// A file, and the architecture in it.
    File(Cubins, String),
    /// NVRTC, for an architecture.
    Compiler(String),
}

impl KernelCode {
    /// Finds the code for a device of a compute capability: in a file, else by NVRTC.
    pub(super) fn find(capability: (i32, i32)) -> Result<Self, CudaError> {
        let cubins = Cubins::find()?;
        let arch =
            cubins.as_ref().and_then(|cubins| cubins.arch_for(capability)).map(str::to_owned);
        match (cubins, arch) {
            (Some(cubins), Some(arch)) => Ok(Self::File(cubins, arch)),
            (cubins, _) => {
                nvrtc::load_nvrtc().map_err(|missing| {
                    cubins.map_or(missing, |cubins| cubins.missing_code(capability))
                })?;
                Ok(Self::Compiler(format!("sm_{}{}", capability.0, capability.1)))
            }
        }
    }

    pub(super) fn code_of(&self, module: &Module) -> Result<Vec<u8>, CudaError> {
        match self {
            Self::Compiler(arch) => Ok(nvrtc::compile_module(module, arch)?.code),
            Self::File(cubins, arch) => match cubins.module_code(module, arch) {
                Some(code) => Ok(code.to_vec()),
                None => Ok(nvrtc::compile_module(module, arch)?.code),
            },
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::File(cubins, arch) => format!("{arch} of {}", cubins.path().display()),
            Self::Compiler(arch) => format!("{arch} by NVRTC"),
        }
    }
}
