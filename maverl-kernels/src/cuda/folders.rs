//! Folders in which libraries of CUDA are searched for, in addition to the paths of the dynamic loader.
//!
//! Searched in order: the paths of the dynamic loader (`LD_LIBRARY_PATH`); the folders `lib64` and `lib` of
//! `CUDA_HOME`, `CUDA_PATH` and `/usr/local/cuda`; Python wheels in the folder `site-packages` that
//! `MAVERL_SITE_PACKAGES` names, in that of `VIRTUAL_ENV`, and in that of the first `python3` on `PATH`.
#![allow(unsafe_code)] // a library is opened

use std::env;
use std::ffi::{CString, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Folders of wheels in `site-packages`.
const WHEELS: [&str; 3] = ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", "nvidia/cublas/lib"];

/// Returns the folders for the libraries of kernels and products.
pub(super) fn kernel_library_folders() -> Vec<PathBuf> {
    library_folders(&WHEELS)
}

/// Returns the folders for libraries that are in some folders of wheels, without those of wheels that are not there.
pub fn library_folders(wheels: &[&str]) -> Vec<PathBuf> {
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let homes = homes.chain([PathBuf::from("/usr/local/cuda")]);
    let libraries = homes.flat_map(|home| [home.join("lib64"), home.join("lib")]);
    let named = env::var_os("MAVERL_SITE_PACKAGES").map(PathBuf::from);
    let named = named.into_iter().flat_map(|packages| wheel_folders(&packages, wheels));
    let found = python_roots().flat_map(|python| site_packages(&python));
    let found = found.flat_map(|packages| wheel_folders(&packages, wheels));
    libraries.chain(named).chain(found.filter(|folder| folder.is_dir())).collect()
}

fn wheel_folders(packages: &Path, wheels: &[&str]) -> Vec<PathBuf> {
    wheels.iter().map(|folder| packages.join(folder)).collect()
}

/// Returns the roots of the virtual environment and of the first `python3` on `PATH`.
fn python_roots() -> impl Iterator<Item = PathBuf> {
    let active = env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let paths = env::var_os("PATH").unwrap_or_default();
    let first = env::split_paths(&paths).find(|folder| folder.join("python3").is_file());
    active.into_iter().chain(first.and_then(|bin| Some(bin.parent()?.to_owned())))
}

/// Returns the folders of packages of a Python.
fn site_packages(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root.join("lib")) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let versions = names.filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3"))
    });
    let mut packages: Vec<PathBuf> = versions.map(|path| path.join("site-packages")).collect();
    packages.sort();
    packages
}

/// Returns the files in a folder whose names begin so, in the order of their names.
pub(super) fn files_in(folder: &Path, starts: &[&str]) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        if starts.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}

/// Opens a library, after which it is found by name. Returns null if it does not open.
pub(super) fn open_library(path: &Path) -> *mut c_void {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return std::ptr::null_mut() };
    // SAFETY: opening a library runs its initializers; those of CUDA touch no memory of this program.
    unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn packages_of_a_python_and_libraries_in_a_folder_are_found_by_name() {
        let root = env::temp_dir().join(format!("maverl-folders-{}", std::process::id()));
        let packages = root.join("lib/python3.12/site-packages");
        let libraries = packages.join("nvidia/cublas/lib");
        fs::create_dir_all(&libraries).unwrap();
        for name in ["libcublasLt.so.13", "libcublas.so.13", "libcublasLt.so.12"] {
            fs::write(libraries.join(name), "").unwrap();
        }
        assert_eq!(site_packages(&root), [packages]);
        assert!(site_packages(&root.join("lib")).is_empty());
        let found = files_in(&libraries, &["libcublasLt.so"]);
        assert_eq!(found, ["12", "13"].map(|end| libraries.join(format!("libcublasLt.so.{end}"))));
        assert!(open_library(&found[0]).is_null());
        fs::remove_dir_all(&root).unwrap();
    }
}
