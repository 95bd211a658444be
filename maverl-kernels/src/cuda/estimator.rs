//! Kernels of estimators that other crates declare, on a machine.
#![allow(unsafe_code)] // for the launch

use std::cell::RefCell;

use super::{CudaError, Driver, Emulated, Gpu, LaunchShape, Machine, Module};
use crate::emulate::{EmulateError, KERNEL, KernelLibrary, StepArrays};

/// The kernel in the source of an estimator, which is compiled at run time and has no static source.
const ESTIMATOR: Module = Module { name: "estimator.cu", source: &[], kernels: &[KERNEL] };

/// Kernel of an estimator on a machine.
#[derive(Debug, Clone)]
pub struct StepKernel<M> {
    machine: M,
}

impl StepKernel<Emulated> {
    /// Builds a kernel from what [`estimator_source`](crate::emulate::estimator_source) returns.
    ///
    /// # Errors
    ///
    /// If there is no C++ compiler, or it fails.
    pub fn build(source: &str) -> Result<Self, EmulateError> {
        let library = KernelLibrary::open_cached(source, ESTIMATOR.kernels)?;
        Ok(Self { machine: Emulated::from_libraries(vec![(ESTIMATOR, library)]) })
    }
}

impl StepKernel<Driver> {
    /// Compiles a kernel for the device of `gpu` from what [`estimator_source`](crate::emulate::estimator_source)
    /// returns. It runs on the stream of `gpu`. `file` is its name in messages.
    ///
    /// # Errors
    ///
    /// If NVRTC is missing or fails, or the driver does.
    pub fn compile(gpu: &Gpu, file: &str, source: &str) -> Result<Self, CudaError> {
        let machine = Driver::with_source(gpu.stream(), file, source, ESTIMATOR.kernels)?;
        Ok(Self { machine })
    }
}

impl<M: Machine> StepKernel<M> {
    /// Computes the advantages of a step, `[places]`. A place that the kernel does not write is NaN.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If a field of the step has another length than the rewards.
    pub fn run_step(&self, step: &StepArrays, places: usize) -> Result<Vec<f32>, M::Error> {
        let (machine, packed) = (&self.machine, step.pack_arrays());
        // The arrays live until the result is read.
        let (mut numbers, mut ids) = (Vec::new(), Vec::new());
        let failure = RefCell::new(None);
        let fields = step.field_values(
            &packed,
            |host| upload_array(machine, host, &mut numbers, &failure),
            |host| upload_array(machine, host, &mut ids, &failure),
        );
        if let Some(error) = failure.into_inner() {
            return Err(error);
        }
        let (fields, out) =
            (machine.upload_array(&fields)?, machine.upload_array(&vec![f32::NAN; places])?);
        let threads = places.max(step.rewards.len()).max(1);
        let args = [machine.array_address(&fields), machine.array_address(&out)];
        // SAFETY: the fields are those of `Rewarded`, of the lengths it states, and live until the result is read. The
        // kernel is code of the crate that declares it, trusted to stay within them as its Rust code is.
        unsafe { machine.launch_kernel(KERNEL, LaunchShape::of_threads(threads), &args) }?;
        machine.download_array(&out, places)
    }
}

/// Uploads an array and returns its address; 0 after an error, which is kept.
fn upload_array<M: Machine, T: super::DeviceElement>(
    machine: &M,
    host: &[T],
    held: &mut Vec<M::Array<T>>,
    failure: &RefCell<Option<M::Error>>,
) -> u64 {
    match machine.upload_array(host) {
        Ok(array) => {
            let address = machine.array_address(&array);
            held.push(array);
            address
        }
        Err(error) => {
            failure.borrow_mut().get_or_insert(error);
            0
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::emulate::{Estimator, ORDERS, estimator_source};

    #[test]
    fn a_kernel_of_an_estimator_gives_the_same_on_a_machine_as_on_host_arrays() {
        let text = "ESTIMATOR(step, out) {
            u64 row = thread();
            if (row >= step->rows) return;
            double sum = 0.0;
            for (u32 v = step->value_begin[row]; v < step->value_begin[row + 1]; v++) sum += step->values[v];
            for (u64 p = 0; p < step->parts; p++) sum += settings::scale * step->part[p * step->rows + row];
            u32 group = step->group[row];
            sum += step->group_begin[group + 1] - step->group_begin[group] + step->length[row];
            if (row != 2) out[row] = sum;
        }";
        let source =
            estimator_source("namespace settings { constexpr double scale = 2.0; }", "t.cu", text);
        let host = match Estimator::build(&source) {
            Ok(host) => host,
            Err(error @ EmulateError::NoCompiler(_)) => return eprintln!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        };
        let ids = || vec![0, 1, 0];
        let step = StepArrays {
            rewards: vec![1.0, 0.5, 0.25],
            parts: vec![vec![1.0, 0.0, 0.25], vec![0.0, 0.5, 0.0]],
            values: Some(vec![vec![0.5, 0.25], vec![], vec![1.0]]),
            seats: ids(),
            turns: ids(),
            tasks: ids(),
            episodes: ids(),
            lengths: vec![2, 3, 1],
            units: vec![0, 1, 2],
            groups: ids(),
        };
        let got = StepKernel::build(&source).unwrap().run_step(&step, 3).unwrap();
        assert_eq!(&got[..2], [6.75, 5.0]);
        assert!(got[2].is_nan(), "a place that is not written");
        assert_eq!(got[..2], host.run_step(&step, 3, ORDERS[0])[..2]);
    }
}
