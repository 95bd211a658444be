//! Products of backward passes by the machine's library, and by a library in C++ that takes its place: it checks what it is
//! given, and multiplies on the CPU.

use super::products::{nt, transposed};
use super::*;
use crate::cuda::{AdapterTerms, Destination, LinearOutput};

/// Rows, columns and terms. Tokens, which are rows or terms, need not be multiples of anything.
const SHAPES: [[usize; 3]; 4] = [[1, 8, 16], [7, 24, 72], [33, 136, 40], [300, 64, 8]];

pub(super) fn backward_products_by_the_library_agree_with_f64_for_every_destination<M: Tested>(
    kernels: &Kernels<M>,
) {
    for [tokens, i, o] in SHAPES {
        let (dy, w, x) =
            (random_bf16(1, tokens * o), random_bf16(2, o * i), random_bf16(3, tokens * i));
        let input = nt(&dy, &transposed(&w, o, i), [tokens, i, o]);
        let (dyt, xt) = (transposed(&dy, tokens, o), transposed(&x, tokens, i));
        let weight = nt(&dyt, &xt, [o, i, tokens]);
        let [dy, w, x] = [&dy, &w, &x].map(|x| kernels.array_of(x).unwrap());
        every_destination(kernels, &format!("input, {tokens} x {i} x {o}"), &input, |out| {
            kernels.linear_back(dy.as_slice(), w.as_slice(), [tokens, i, o], None, out).unwrap();
        });
        every_destination(kernels, &format!("weight, {o} x {i} x {tokens}"), &weight, |out| {
            kernels.linear_back_weight(dy.as_slice(), x.as_slice(), [o, i, tokens], out).unwrap();
        });
    }
}

/// Compares half of a product with f64 in every destination.
fn every_destination<M: Tested>(
    kernels: &Kernels<M>,
    name: &str,
    product: &[f64],
    multiply: impl Fn(LinearOutput<'_>),
) {
    let n = product.len();
    let base = random(9, n);
    let onto = kernels.array_of(&base).unwrap();
    let (mut half, mut plain) =
        (kernels.new_array::<u16>(n).unwrap(), kernels.new_array::<f32>(n).unwrap());
    let (mut sum, mut apart) =
        (kernels.array_of(&base).unwrap(), kernels.new_array::<f32>(n).unwrap());
    for to in [
        Destination::Bf16(half.slice_mut()),
        Destination::F32(plain.slice_mut()),
        Destination::Add(sum.slice_mut()),
        Destination::Onto(onto.as_slice(), apart.slice_mut()),
    ] {
        multiply(LinearOutput { scale: 0.5, bias: None, to });
    }
    let want: Vec<f64> = product.iter().map(|x| 0.5 * x).collect();
    near_bf16(name, &kernels.read_array(&half).unwrap(), &want);
    near(name, &kernels.read_array(&plain).unwrap(), &want, 1e-6);
    let want: Vec<f64> = want.iter().zip(&base).map(|(x, &base)| x + f64::from(base)).collect();
    for of in [&sum, &apart] {
        near(name, &kernels.read_array(of).unwrap(), &want, 1e-6);
    }
}

#[cfg(test)]
mod fake {
    use std::ffi::{CString, c_int, c_void};
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;
    use std::process::Command;
    use std::{env, fs};

    use super::*;
    use crate::cuda::cublaslt::Functions;
    use crate::cuda::{CublasLt, CublasLtError};

    /// Answer of the library to a product.
    #[derive(Debug, Clone, Copy)]
    enum Mode {
        Works = 0,
        NoAlgorithm = 1,
        NotSupported = 2,
        Fails = 3,
    }

    /// A library that is built and opened, with what it counts.
    struct Fake {
        folder: PathBuf,
        set: unsafe extern "C" fn(c_int),
        counts: unsafe extern "C" fn(*mut c_int),
    }

    impl Fake {
        /// Builds the library under a name of its own; `None` without a compiler. `flags` are further options.
        fn build(name: &str, flags: &[&str]) -> Option<(Self, PathBuf)> {
            if let Err(error) = crate::emulate::check_compiler() {
                eprintln!("skipped: {error}");
                return None;
            }
            let folder = env::temp_dir().join(format!("maverl-fake-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            let (source, library) = (folder.join("fake.cpp"), folder.join("libcublasLt.so.13"));
            fs::write(&source, include_str!("fake_cublaslt.cpp")).unwrap();
            let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
            let built = Command::new(compiler)
                .args(["-std=c++17", "-O1", "-shared", "-fPIC", "-Wl,-Bsymbolic"])
                .args(flags)
                .arg(&source)
                .arg("-o")
                .arg(&library)
                .output()
                .unwrap();
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            let path = CString::new(library.as_os_str().as_bytes()).unwrap();
            // SAFETY: the library has both functions, of these types.
            #[allow(unsafe_code)]
            let (set, counts) = unsafe {
                let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
                assert!(!handle.is_null());
                let [set, counts] =
                    [c"fake_set", c"fake_counts"].map(|name| libc::dlsym(handle, name.as_ptr()));
                (
                    std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int)>(set),
                    std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int)>(counts),
                )
            };
            Some((Self { folder, set, counts }, library))
        }

        #[allow(unsafe_code)]
        fn set(&self, mode: Mode) {
            // SAFETY: the function stores a number.
            unsafe { (self.set)(mode as c_int) };
        }

        /// Returns the objects that are alive, the searches for an algorithm, and the products.
        #[allow(unsafe_code)]
        fn counts(&self) -> [c_int; 3] {
            let mut counts = [0; 3];
            // SAFETY: the function writes three numbers.
            unsafe { (self.counts)(counts.as_mut_ptr()) };
            counts
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    /// The emulated machine with a library of its own.
    fn machine(name: &str) -> Option<(Fake, Kernels<Emulated>)> {
        let (fake, path) = Fake::build(name, &[])?;
        let library = CublasLt::new(Functions::open(&path).unwrap()).unwrap();
        assert_eq!(library.version(), "13.2.1");
        Some((fake, Kernels::new(Emulated::shared_machine(&MODEL).unwrap().with_products(library))))
    }

    fn computed(kernels: &Kernels<Emulated>) -> u64 {
        kernels.machine().product_library().unwrap().product_count()
    }

    #[test]
    fn the_library_gets_layouts_and_transposes_of_every_product_and_destroys_what_it_made() {
        let Some((fake, kernels)) = machine("layouts") else { return };
        backward_products_by_the_library_agree_with_f64_for_every_destination(&kernels);
        // Four destinations of two gradients; results in f32 share an algorithm.
        let products = 8 * SHAPES.len() as c_int;
        assert_eq!(fake.counts(), [1, 4 * SHAPES.len() as c_int, products]);
        assert_eq!(computed(&kernels), products as u64);
        drop(kernels);
        assert_eq!(fake.counts()[0], 0, "objects that nobody destroyed");
    }

    #[test]
    fn an_algorithm_is_chosen_once_for_numbers_of_tokens_that_are_rounded_up_to_256() {
        let Some((fake, kernels)) = machine("tokens") else { return };
        let w = kernels.array_of(&random_bf16(1, 8 * 16)).unwrap();
        for tokens in [1, 200, 256, 257, 500, 9] {
            let x = kernels.array_of(&random_bf16(2, tokens * 16)).unwrap();
            let mut dx = kernels.new_array::<f32>(tokens * 8).unwrap();
            let mut dw = kernels.new_array::<f32>(16 * 16).unwrap();
            let out = |to| LinearOutput { scale: 1.0, bias: None, to };
            let to = out(Destination::F32(dx.slice_mut()));
            kernels.linear_back(x.as_slice(), w.as_slice(), [tokens, 8, 16], None, to).unwrap();
            let to = out(Destination::F32(dw.slice_mut()));
            kernels.linear_back_weight(x.as_slice(), x.as_slice(), [16, 16, tokens], to).unwrap();
        }
        assert_eq!(fake.counts()[1..], [4, 12]);
    }

    /// Returns the gradient of an input with an adapter, in f32 and in bf16.
    fn with_adapter(kernels: &Kernels<Emulated>) -> (Vec<f32>, Vec<u16>) {
        let [m, n, k, rank] = [5, 24, 16, 8];
        let [dy, w, left, right] = [m * k, k * n, m * rank, rank * n]
            .map(|len| kernels.array_of(&random_bf16(len as u64, len)).unwrap());
        let terms = AdapterTerms { left: left.as_slice(), right: right.as_slice(), rank };
        let mut wide = kernels.array_of(&random(1, m * n)).unwrap();
        let mut half = kernels.new_array::<u16>(m * n).unwrap();
        for to in [Destination::Add(wide.slice_mut()), Destination::Bf16(half.slice_mut())] {
            let out = LinearOutput { scale: 0.5, bias: None, to };
            kernels.linear_back(dy.as_slice(), w.as_slice(), [m, n, k], Some(terms), out).unwrap();
        }
        (kernels.read_array(&wide).unwrap(), kernels.read_array(&half).unwrap())
    }

    #[test]
    fn terms_of_an_adapter_are_a_product_of_their_own_unless_the_result_is_rounded() {
        let Some((_fake, kernels)) = machine("adapter") else { return };
        let (wide, half) = with_adapter(&kernels);
        assert_eq!(computed(&kernels), 2);
        let (own_wide, own_half) = with_adapter(&kernels.with_own_products());
        assert_eq!((computed(&kernels), &half), (2, &own_half));
        let own: Vec<f64> = own_wide.iter().map(|&x| f64::from(x)).collect();
        near("with an adapter", &wide, &own, 1e-6);
    }

    #[test]
    fn products_that_the_library_does_not_compute_have_the_bits_of_own_ones() {
        let Some((fake, kernels)) = machine("own") else { return };
        let own = with_adapter(&kernels.with_own_products());
        for mode in [Mode::NoAlgorithm, Mode::NotSupported] {
            fake.set(mode);
            let fresh =
                CublasLt::new(Functions::open(&fake.folder.join("libcublasLt.so.13")).unwrap());
            let machine = Emulated::shared_machine(&MODEL).unwrap().with_products(fresh.unwrap());
            assert_eq!(with_adapter(&Kernels::new(machine)), own, "{mode:?}");
        }
        fake.set(Mode::Works);
        // Rows of 17 numbers do not begin at multiples of 16 bytes.
        let x = kernels.array_of(&random_bf16(1, 3 * 17)).unwrap();
        let w = kernels.array_of(&random_bf16(2, 17 * 17)).unwrap();
        let product = |kernels: &Kernels<Emulated>| {
            let mut y = kernels.new_array::<f32>(3 * 17).unwrap();
            let to = Destination::F32(y.slice_mut());
            let out = LinearOutput { scale: 1.0, bias: None, to };
            kernels.linear_back(x.as_slice(), w.as_slice(), [3, 17, 17], None, out).unwrap();
            bits(&kernels.read_array(&y).unwrap())
        };
        assert_eq!(product(&kernels), product(&kernels.with_own_products()));
        assert_eq!(computed(&kernels), 0);
    }

    #[test]
    fn the_forward_pass_never_uses_the_library() {
        let Some((_fake, kernels)) = machine("forward") else { return };
        let (x, w) = (random_bf16(1, 40 * 16), random_bf16(2, 8 * 16));
        let [x, w] = [&x, &w].map(|x| kernels.array_of(x).unwrap());
        let mut y = kernels.new_array::<f32>(40 * 8).unwrap();
        let to = Destination::F32(y.slice_mut());
        let out = LinearOutput { scale: 1.0, bias: None, to };
        kernels.linear(x.as_slice(), w.as_slice(), [40, 8, 16], None, out).unwrap();
        assert_eq!(computed(&kernels), 0);
    }

    #[test]
    fn a_product_that_fails_is_an_error_with_the_status() {
        let Some((fake, kernels)) = machine("fails") else { return };
        fake.set(Mode::Fails);
        let (x, w) = (random_bf16(1, 3 * 16), random_bf16(2, 16 * 8));
        let [x, w] = [&x, &w].map(|x| kernels.array_of(x).unwrap());
        let mut y = kernels.new_array::<f32>(3 * 8).unwrap();
        let to = Destination::F32(y.slice_mut());
        let out = LinearOutput { scale: 1.0, bias: None, to };
        let error =
            kernels.linear_back(x.as_slice(), w.as_slice(), [3, 8, 16], None, out).unwrap_err();
        let told = "the kernel fails: cublasLtMatmul of cuBLASLt failed with status 13";
        assert_eq!(error.to_string(), told);
    }

    #[test]
    fn a_library_that_is_missing_or_lacks_a_function_is_named_with_what_to_install() {
        let missing = Functions::open(std::path::Path::new("/nowhere/libcublasLt.so.13"));
        let error = missing.err().unwrap();
        assert!(matches!(&error, CublasLtError::Missing { .. }));
        assert!(error.to_string().contains("`pip install nvidia-cublas`"), "{error}");
        let Some((_fake, path)) = Fake::build("lacks", &["-DWITHOUT_VERSION"]) else { return };
        let error = Functions::open(&path).err().unwrap();
        let told = format!("`{}` has no function `cublasLtGetVersion`", path.display());
        assert!(error.to_string().starts_with(&told), "{error}");
    }
}
