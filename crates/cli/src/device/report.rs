//! Lines of a check, printed as they are known.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::args::DevicePart;
use crate::tell;
use maverl::output;

/// A result.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Line {
    pub(super) name: String,
    /// True if a check passes; none for measurements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ok: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<f64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) unit: &'static str,
    /// Share of a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) share: Option<f64>,
    /// The limit.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) of: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) note: String,
}

impl Line {
    pub(super) fn note(name: impl Into<String>, note: impl Into<String>) -> Self {
        Self { name: name.into(), note: note.into(), ..Self::default() }
    }

    pub(super) fn check(name: impl Into<String>, ok: bool, note: impl Into<String>) -> Self {
        Self { ok: Some(ok), ..Self::note(name, note) }
    }

    pub(super) fn value(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value: Some(value), unit, ..Self::default() }
    }

    #[cfg(any(feature = "cuda", test))]
    #[must_use]
    pub(super) fn share(self, share: f64, of: &'static str) -> Self {
        Self { share: Some(share), of, ..self }
    }

    #[cfg(any(feature = "cuda", test))]
    #[must_use]
    pub(super) fn with(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }
}

/// A line with its part and the seconds since the start.
#[derive(Serialize)]
struct Record<'a> {
    part: DevicePart,
    #[serde(flatten)]
    line: &'a Line,
    seconds: f64,
}

/// Results of a check so far.
pub(super) struct DeviceReport {
    json: bool,
    start: Instant,
    limit: Duration,
    failures: usize,
    checks: usize,
}

impl DeviceReport {
    pub(super) fn new(json: bool, minutes: f64) -> Self {
        let limit = Duration::try_from_secs_f64(minutes * 60.0).unwrap_or(Duration::MAX);
        Self { json, start: Instant::now(), limit, failures: 0, checks: 0 }
    }

    /// Returns true if there is time for another measurement.
    pub(super) fn has_time(&self) -> bool {
        self.start.elapsed() < self.limit
    }

    /// Prints how many checks passed. Returns the exit code.
    pub(super) fn end(self) -> ExitCode {
        let Self { checks, failures, .. } = self;
        tell(format_args!("{} of {checks} checks passed", checks - failures));
        if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Prints a line. A reader that is gone ends nothing: the exit code has the result.
    pub(super) fn add(&mut self, part: DevicePart, line: &Line) {
        self.checks += usize::from(line.ok.is_some());
        self.failures += usize::from(line.ok == Some(false));
        let seconds = (self.start.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        let text = if self.json {
            output::json_line(&Record { part, line, seconds }).unwrap_or_default()
        } else {
            plain_line(part, line, seconds)
        };
        drop(output::print(&format!("{text}\n")));
    }
}

fn plain_line(part: DevicePart, line: &Line, seconds: f64) -> String {
    let part = crate::bench::setup::written_option(&part);
    let state = match line.ok {
        Some(true) => "ok  ",
        Some(false) => "FAIL",
        None => "    ",
    };
    let mut text = format!("{seconds:>6.1} s  {part:<10} {state}  {}", line.name);
    if let Some(value) = line.value {
        text.push_str(&format!(": {} {}", round_number(value), line.unit));
    }
    if let Some(share) = line.share {
        text.push_str(&format!(", {:.0} % of {}", 100.0 * share, line.of));
    }
    if !line.note.is_empty() {
        text.push_str(&format!(": {}", line.note));
    }
    text
}

/// Formats a number with four digits.
fn round_number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if !(1e-3..1e7).contains(&size) => format!("{value:.3e}"),
        size if size >= 1000.0 => format!("{value:.0}"),
        size => {
            format!(
                "{value:.*}",
                3_usize.saturating_sub(libm::log10(size).floor().max(0.0) as usize)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        let found = [0.0, 0.25, 3.25169, 42.4242, 999.96, 12345.6, 3e9].map(round_number);
        assert_eq!(found, ["0", "0.250", "3.252", "42.42", "1000.0", "12346", "3.000e9"]);
    }

    #[test]
    fn a_line_says_part_state_value_and_share() {
        let line = Line::value("adamw", 3400.0, "GB/s").share(0.81, "a copy").with("fine");
        let text = plain_line(DevicePart::Kernels, &line, 2.5);
        assert_eq!(text, "   2.5 s  kernels          adamw: 3400 GB/s, 81 % of a copy: fine");
        let mut report = DeviceReport::new(true, 1.0);
        report.add(DevicePart::Parity, &Line::check("a", true, ""));
        report.add(DevicePart::Parity, &Line::check("b", false, "why"));
        assert_eq!((report.checks, report.failures, report.has_time()), (2, 1, true));
    }
}
