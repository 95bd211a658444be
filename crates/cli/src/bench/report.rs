//! Results of measurements, for people and for machines.

use serde::{Deserialize, Serialize};

use super::measure::median;
use super::setup::{BenchDtype, BenchSize, Setup, written_option};
use maverl::plan;
use maverl::table::Table;

/// Results of one part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    part: String,
    size: BenchSize,
    dtype: BenchDtype,
    threads: usize,
    /// Vector instructions in use.
    simd: String,
    figures: Vec<Figure>,
    /// GFLOP/s of a large matrix product, measured after the part in the same process.
    #[serde(skip_serializing_if = "Option::is_none")]
    matmul_gflops: Option<f64>,
    /// Peak memory of the process, if the system reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// Average number of processors that other processes used meanwhile, if the system reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_cores: Option<f64>,
}

/// A repeatedly measured number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Description of the number.
    pub what: String,
    /// Unit of the number.
    pub unit: String,
    /// Median of the values.
    pub median: f64,
    min: f64,
    max: f64,
    /// Values in the order of measurement.
    values: Vec<f64>,
    /// GFLOP/s of the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    gflops: Option<f64>,
    /// Share of the matrix product's speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<f64>,
    /// Share of the speed of multiply-adds in registers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_share: Option<f64>,
}

impl Figure {
    /// Creates a figure from measured values.
    pub fn new(what: impl Into<String>, unit: impl Into<String>, values: Vec<f64>) -> Self {
        Self {
            what: what.into(),
            unit: unit.into(),
            median: median(&values),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            values,
            gflops: None,
            share: None,
            ceiling_share: None,
        }
    }

    /// Creates a rate: `amount` per time, for each of the measured seconds.
    pub fn rate(what: impl Into<String>, unit: &str, amount: f64, seconds: &[f64]) -> Self {
        Self::new(what, unit, seconds.iter().map(|seconds| amount / seconds).collect())
    }

    /// Adds the operations per unit.
    pub fn of_flop(mut self, flop: f64) -> Self {
        self.gflops = Some(self.median * flop / 1e9);
        self
    }

    /// Adds the median's share of a ceiling in the same unit.
    pub fn below(mut self, ceiling: f64) -> Self {
        self.ceiling_share = Some(self.median / ceiling);
        self
    }
}

impl BenchReport {
    /// Creates the report of a part. `matmul_gflops` is the speed of products.
    pub fn new(
        part: String,
        setup: &Setup,
        mut figures: Vec<Figure>,
        matmul_gflops: Option<f64>,
    ) -> Self {
        for figure in &mut figures {
            figure.share = figure.gflops.zip(matmul_gflops).map(|(reached, limit)| reached / limit);
        }
        let (size, dtype, threads) = (setup.size, setup.dtype, rayon::current_num_threads());
        let simd =
            maverl_kernels::simd::select_path().map_or_else(|e| e.to_string(), |p| p.to_string());
        Self {
            part,
            size,
            dtype,
            threads,
            simd,
            figures,
            matmul_gflops,
            peak_bytes: None,
            other_cores: None,
        }
    }
}

/// Formats one line per figure, of at most `width` columns.
pub fn table(reports: &[BenchReport], width: usize) -> String {
    let Some(BenchReport { size, dtype, threads, simd, .. }) = reports.first() else {
        return String::new();
    };
    let mut table = Table::without_frame(HEADER).right(&NUMBERS).title(2);
    for report in reports {
        for (i, figure) in report.figures.iter().enumerate() {
            table.row(report.line(figure, i == 0));
        }
    }
    let (size, dtype) = (written_option(size), written_option(dtype));
    format!("size {size}, {dtype}, {threads} threads, {simd}\n\n{}", table.draw(width))
}

const HEADER: [&str; 11] = [
    "part",
    "what",
    "median",
    "min",
    "max",
    "unit",
    "GFLOP/s",
    "of matmul",
    "of ceiling",
    "peak",
    "others",
];
/// Columns of numbers.
const NUMBERS: [usize; 8] = [2, 3, 4, 6, 7, 8, 9, 10];

impl BenchReport {
    /// Formats a line of the table; values of the whole part are in the first.
    fn line(&self, figure: &Figure, first: bool) -> [String; 11] {
        let [share, ceiling_share] = [figure.share, figure.ceiling_share]
            .map(|share| share.map_or_else(String::new, |share| format!("{:.0}%", 100.0 * share)));
        let part = Some(self.part.clone());
        let [part, peak_bytes, other_cores] =
            [part, self.peak_bytes.map(plan::bytes), self.other_cores.map(round_digits)]
                .map(|value| value.filter(|_| first).unwrap_or_default());
        [
            part,
            figure.what.clone(),
            round_digits(figure.median),
            round_digits(figure.min),
            round_digits(figure.max),
            figure.unit.clone(),
            figure.gflops.map(round_digits).unwrap_or_default(),
            share,
            ceiling_share,
            peak_bytes,
            other_cores,
        ]
    }
}

/// Rounds to the significant digits of a measurement.
fn round_digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn a_rate_has_its_extremes_and_its_share_of_the_limit() {
        let figure = Figure::rate("x1", "tokens/s", 8.0, &[4.0, 1.0, 2.0]).of_flop(2e9);
        assert_eq!((figure.min, figure.median, figure.max), (2.0, 4.0, 8.0));
        assert_eq!((figure.gflops, figure.values), (Some(8.0), vec![2.0, 8.0, 4.0]));
    }

    #[test]
    fn the_table_fits_60_80_and_120_columns() {
        let figure = |what: &str| {
            json!({
                "what": what, "unit": "new tokens/s", "median": 8192.4, "min": 8000.0, "max": 9000.0,
                "values": [8192.4], "gflops": 12.5, "share": 0.45,
            })
        };
        let report = json!({
            "part": "rollout", "size": "S", "dtype": "f32", "threads": 2, "simd": "avx2", "matmul_gflops": 30.0,
            "figures": [figure("64 rows"), figure("128 rows, a prompt for eight each")],
            "peak_bytes": 123_456_789, "other_cores": 0.5,
        });
        let report: BenchReport = serde_json::from_value(report).unwrap();
        for width in [60, 80, 120] {
            let text = table(std::slice::from_ref(&report), width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for part in ["rollout 64 rows", "128 rows, a prompt for eight each", "45%", "8192"] {
                assert!(plain.contains(part), "{part} is missing at {width}\n{text}");
            }
        }
    }

    #[test]
    fn figures_have_three_digits() {
        let texts = [8192.4, 99.96, 12.345, 1.2345, 0.0].map(round_digits);
        assert_eq!(texts, ["8192", "100.0", "12.3", "1.23", "0.00"]);
    }
}
