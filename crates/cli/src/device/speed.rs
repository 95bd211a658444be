//! Speed of every kernel, beside that of a copy and the peak of products.

use maverl_kernels::cuda::speed::{Amounts, KernelBench, Speed};
use maverl_kernels::cuda::{Kernels, Machine};

use super::args::{DevicePart, ModelSize};
use super::checked::Checked;
use super::report::{DeviceReport, Line};
use crate::Failure;
use maverl::runtime::DeviceKernels;

/// Rows of the measured products: decoding of few and of many sequences, and training.
const ROWS: [usize; 4] = [16, 64, 256, 8192];

/// Operations for each byte above which products are bound by the peak, about.
const INTENSE: f64 = 150.0;

/// Amounts of work on a GPU.
const AMOUNTS: Amounts = Amounts {
    tokens: 8192,
    row: 1024,
    rows: 256,
    logits: 512,
    parameters: 1 << 28,
    milliseconds: 60.0,
};

/// Measures every kernel.
pub(super) fn kernels(checked: &mut Checked<'_>) -> Result<(), Failure> {
    let Checked { args, kernels, peak, copy, report } = checked;
    let bandwidth = match kernels {
        DeviceKernels::Cuda(gpu) => groups(gpu, &args.sizes, *peak, report)?,
        DeviceKernels::Emulated(emulated) => groups(emulated, &args.sizes, *peak, report)?,
    };
    *copy = Some(bandwidth);
    Ok(())
}

/// Returns the bytes of a second that a copy reads and writes.
pub(super) fn bandwidth(checked: &mut Checked<'_>) -> Result<f64, Failure> {
    if let Some(copy) = checked.copy {
        return Ok(copy);
    }
    let speed = match &checked.kernels {
        DeviceKernels::Cuda(gpu) => KernelBench::new(gpu, AMOUNTS, drop).measure_copy()?,
        DeviceKernels::Emulated(emulated) => {
            KernelBench::new(emulated, AMOUNTS, drop).measure_copy()?
        }
    };
    let found = speed.bandwidth() * 1e9;
    checked.copy = Some(found);
    Ok(found)
}

fn groups<M: Machine<Error: std::error::Error> + Clone>(
    kernels: &Kernels<M>,
    sizes: &[ModelSize],
    peak: Option<f64>,
    report: &mut DeviceReport,
) -> Result<f64, Failure> {
    let copy = KernelBench::new(kernels, AMOUNTS, drop).measure_copy()?;
    let bandwidth = copy.bandwidth() * 1e9;
    report.add(DevicePart::Kernels, &Line::value(copy.name.clone(), copy.bandwidth(), "GB/s"));
    type Group<M> = fn(&mut KernelBench<'_, M>, ModelSize) -> Result<(), <M as Machine>::Error>;
    let once: [Group<M>; 4] = [
        |bench, _| bench.measure_launch(),
        |bench, _| bench.measure_product("square", [8192; 3]),
        |bench, _| bench.product_back("square", [8192; 3]),
        |bench, _| bench.measure_optimizer(),
    ];
    let of_size: [Group<M>; 4] = [
        |bench, size| bench.measure_products(&size.sizes(), &ROWS),
        |bench, size| bench.measure_attention(&size.sizes()),
        |bench, size| bench.measure_elementwise(&size.sizes()),
        |bench, size| bench.measure_softmax(&size.sizes()),
    ];
    let first = sizes.first().copied().unwrap_or(ModelSize::Half);
    let once = once.into_iter().map(|group| (group, first));
    let of_sizes = sizes.iter().flat_map(|size| of_size.map(|group| (group, *size)));
    for (group, size) in once.chain(of_sizes) {
        if !report.has_time() {
            report.add(
                DevicePart::Kernels,
                &Line::note("the rest", "skipped: no time left (`--minutes`)"),
            );
            break;
        }
        let mut bench = KernelBench::new(kernels, AMOUNTS, |speed| {
            report.add(DevicePart::Kernels, &line(&speed, bandwidth, peak));
        });
        group(&mut bench, size)?;
    }
    Ok(bandwidth)
}

/// Returns the line of a measurement: beside the peak where products bound it, else beside a copy.
fn line(speed: &Speed, bandwidth: f64, peak: Option<f64>) -> Line {
    let time = Line::value(speed.name.clone(), speed.milliseconds * 1e3, "us");
    match peak {
        _ if speed.bytes == 0.0 => time,
        Some(peak) if speed.flop > INTENSE * speed.bytes => {
            let note = format!("{:.1} TFLOP/s", speed.teraflops());
            time.share(speed.teraflops() * 1e12 / peak, "the peak").with(note)
        }
        None if speed.flop > INTENSE * speed.bytes => time.with(format!(
            "{:.1} TFLOP/s; the peak of this device is not known",
            speed.teraflops()
        )),
        _ => {
            let note = format!("{:.0} GB/s", speed.bandwidth());
            time.share(speed.bandwidth() * 1e9 / bandwidth, "a copy").with(note)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_many_rows_are_compared_with_the_peak_and_others_with_a_copy() {
        let speed = |bytes, flop| Speed { name: "x".to_owned(), milliseconds: 1.0, bytes, flop };
        let of = |speed: &Speed, peak| line(speed, 1e12, peak);
        let many = of(&speed(1e8, 1e11), Some(200e12));
        assert_eq!((many.share, many.of), (Some(0.5), "the peak"));
        let few = of(&speed(5e8, 1e9), Some(200e12));
        assert_eq!((few.share, few.of), (Some(0.5), "a copy"));
        assert_eq!(of(&speed(1e8, 1e11), None).share, None);
        assert_eq!(of(&speed(0.0, 0.0), None).note, "");
    }
}
