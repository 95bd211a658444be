//! Every kernel of a device against f64 and the CPU.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

use maverl_kernels::advantage::checks::agrees_with_the_cpu;
use maverl_kernels::cuda::checks::{Tested, checks};
use maverl_kernels::cuda::{ADVANTAGES, Emulated, Gpu, Kernels};

use super::args::DevicePart;
use super::checked::Checked;
use super::report::{DeviceReport, Line};
use crate::Failure;
use maverl::runtime::{DeviceChoice, DeviceKernels};

/// Name of the check of the kernels of advantages.
const ESTIMATORS: &str = "estimators_agree_with_the_cpu";

/// Runs every check of kernels.
pub(super) fn parity(checked: &mut Checked<'_>) -> Result<(), Failure> {
    let Checked { args, kernels, report, .. } = checked;
    match kernels {
        DeviceKernels::Cuda(gpu) => check_all(gpu, &args.only, report),
        DeviceKernels::Emulated(emulated) => check_all(emulated, &args.only, report),
    }
    if !ESTIMATORS.contains(&args.only) || !report.has_time() {
        return Ok(());
    }
    match args.device {
        DeviceChoice::Cuda(number) => {
            let gpu = Gpu::open(number)?;
            check_one(ESTIMATORS, report, || agrees_with_the_cpu(&gpu));
        }
        _ => {
            let machine = Emulated::shared_machine(&ADVANTAGES_MODULES).map_err(Failure)?;
            let emulated = Kernels::new(machine);
            check_one(ESTIMATORS, report, || agrees_with_the_cpu(&emulated));
        }
    }
    Ok(())
}

static ADVANTAGES_MODULES: [maverl_kernels::cuda::Module; 1] = [ADVANTAGES];

fn check_all<M: Tested>(kernels: &Kernels<M>, only: &str, report: &mut DeviceReport) {
    for check in checks::<M>() {
        if !check.name.contains(only) {
            continue;
        }
        if !report.has_time() {
            report.add(
                DevicePart::Parity,
                &Line::note(check.name, "skipped: no time left (`--minutes`)"),
            );
            continue;
        }
        check_one(check.name, report, || (check.run)(kernels));
    }
}

/// Runs a check, which panics where it fails.
fn check_one(name: &str, report: &mut DeviceReport, check: impl FnOnce()) {
    let hook = take_hook();
    set_hook(Box::new(|_| ()));
    let done = catch_unwind(AssertUnwindSafe(check));
    set_hook(hook);
    let name = name.replace('_', " ");
    match done {
        Ok(()) => report.add(DevicePart::Parity, &Line::check(name, true, "")),
        Err(panic) => report.add(DevicePart::Parity, &Line::check(name, false, message(&*panic))),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}
