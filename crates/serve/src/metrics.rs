//! Metrics of a server as Prometheus text, version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that is read when the metrics are.
    Gauge,
    /// Counts of durations in seconds, by upper bound.
    Histogram,
}

/// A metric and its documentation.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Its name, with the unit as a suffix.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Its meaning.
    pub help: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
}

impl Family {
    /// Creates a counter.
    pub const fn counter(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self { name, kind: Kind::Counter, help, labels }
    }

    /// Creates a gauge.
    pub const fn gauge(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self { name, kind: Kind::Gauge, help, labels }
    }

    /// Creates a histogram.
    pub const fn histogram(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self { name, kind: Kind::Histogram, help, labels }
    }
}

/// Upper bounds of histograms in seconds.
const BOUNDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0];

/// Values of labels, in the order of [`Family::labels`].
type Labels = Vec<String>;

/// Source of a gauge: its values with their labels.
type Gauge = Box<dyn Fn() -> Vec<(Labels, f64)> + Send + Sync>;

/// Metrics of a server. Clones share them.
///
/// Values of labels come from the server's own names and numbers, never from a client's text, so that their number is
/// bounded.
#[derive(Clone)]
pub struct ServerMetrics(Arc<FamilyValues>);

struct FamilyValues {
    families: Vec<Family>,
    counters: Mutex<BTreeMap<(&'static str, Labels), u64>>,
    histograms: Mutex<BTreeMap<(&'static str, Labels), Histogram>>,
    gauges: Mutex<BTreeMap<&'static str, Gauge>>,
}

#[derive(Default)]
struct Histogram {
    counts: [u64; BOUNDS.len()],
    count: u64,
    sum: f64,
}

impl ServerMetrics {
    /// Creates metrics of these families.
    pub fn new(families: &[Family]) -> Self {
        Self(Arc::new(FamilyValues {
            families: families.to_vec(),
            counters: Mutex::default(),
            histograms: Mutex::default(),
            gauges: Mutex::default(),
        }))
    }

    /// Adds to a counter.
    pub fn add(&self, name: &'static str, labels: &[&str], by: u64) {
        debug_assert!(self.is(name, Kind::Counter, labels.len()), "{name}");
        let mut counters = self.0.counters.lock().unwrap_or_else(PoisonError::into_inner);
        *counters.entry((name, owned_labels(labels))).or_default() += by;
    }

    /// Adds a duration to a histogram.
    pub fn observe(&self, name: &'static str, labels: &[&str], duration: Duration) {
        debug_assert!(self.is(name, Kind::Histogram, labels.len()), "{name}");
        let mut histograms = self.0.histograms.lock().unwrap_or_else(PoisonError::into_inner);
        let histogram = histograms.entry((name, owned_labels(labels))).or_default();
        let seconds = duration.as_secs_f64();
        for (count, bound) in histogram.counts.iter_mut().zip(BOUNDS) {
            *count += u64::from(seconds <= bound);
        }
        histogram.count += 1;
        histogram.sum += seconds;
    }

    /// Sets the source of a gauge.
    pub fn gauge(
        &self,
        name: &'static str,
        read: impl Fn() -> Vec<(Vec<String>, f64)> + Send + Sync + 'static,
    ) {
        let mut gauges = self.0.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.insert(name, Box::new(read));
    }

    /// Returns the text of all metrics.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for family in &self.0.families {
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let Family { name, help, .. } = family;
            // Writing to a string does not fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            match family.kind {
                Kind::Counter => self.counter_lines(family, &mut text),
                Kind::Gauge => self.gauge_lines(family, &mut text),
                Kind::Histogram => self.histogram_lines(family, &mut text),
            }
        }
        text
    }

    fn counter_lines(&self, family: &Family, text: &mut String) {
        let counters = self.0.counters.lock().unwrap_or_else(PoisonError::into_inner);
        for ((_, labels), value) in counters.iter().filter(|((name, _), _)| *name == family.name) {
            let _ = writeln!(text, "{}{} {value}", family.name, set(family.labels, labels, None));
        }
    }

    fn gauge_lines(&self, family: &Family, text: &mut String) {
        let gauges = self.0.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(read) = gauges.get(family.name) else { return };
        for (labels, value) in read() {
            let _ = writeln!(text, "{}{} {value}", family.name, set(family.labels, &labels, None));
        }
    }

    fn histogram_lines(&self, family: &Family, text: &mut String) {
        let histograms = self.0.histograms.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = histograms.iter().filter(|((name, _), _)| *name == family.name);
        for ((name, labels), Histogram { counts, count, sum }) in mine {
            let bounds = BOUNDS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
            for (bound, n) in bounds.zip(counts.iter().chain([count])) {
                let set = set(family.labels, labels, Some(&bound));
                let _ = writeln!(text, "{name}_bucket{set} {n}");
            }
            let set = set(family.labels, labels, None);
            let _ = writeln!(text, "{name}_sum{set} {sum}\n{name}_count{set} {count}");
        }
    }

    fn is(&self, name: &str, kind: Kind, labels: usize) -> bool {
        let mut families = self.0.families.iter();
        families.any(|f| f.name == name && f.kind == kind && f.labels.len() == labels)
    }
}

fn owned_labels(labels: &[&str]) -> Labels {
    labels.iter().map(|&label| label.to_owned()).collect()
}

/// Formats a set of labels; `bound` is that of a histogram's bucket.
fn set(names: &[&str], values: &[String], bound: Option<&str>) -> String {
    let values = values
        .iter()
        .map(|value| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"));
    let mut pairs: Vec<String> =
        names.iter().zip(values).map(|(n, value)| format!("{n}=\"{value}\"")).collect();
    pairs.extend(bound.map(|bound| format!("le=\"{bound}\"")));
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
}

/// Returns counts by the values of a label.
pub(crate) fn label_counts<const N: usize>(
    names: [&str; N],
    counts: [usize; N],
) -> Vec<(Vec<String>, f64)> {
    let pairs = names.into_iter().zip(counts);
    pairs.map(|(name, count)| (vec![name.to_owned()], count as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAMILIES: [Family; 3] = [
        Family { name: "x_total", kind: Kind::Counter, help: "Xs.", labels: &["model", "code"] },
        Family { name: "y_seconds", kind: Kind::Histogram, help: "Ys.", labels: &["model"] },
        Family { name: "z", kind: Kind::Gauge, help: "Zs.", labels: &[] },
    ];

    #[test]
    fn the_text_is_that_of_prometheus() {
        let metrics = ServerMetrics::new(&FAMILIES);
        metrics.add("x_total", &["a\"\\\n", "200"], 2);
        metrics.add("x_total", &["a\"\\\n", "200"], 1);
        metrics.observe("y_seconds", &["a"], Duration::from_millis(3));
        metrics.observe("y_seconds", &["a"], Duration::from_secs(500));
        metrics.gauge("z", || vec![(Vec::new(), 1.5)]);
        let text = metrics.text();
        for line in [
            "# HELP x_total Xs.",
            "# TYPE x_total counter",
            "x_total{model=\"a\\\"\\\\\\n\",code=\"200\"} 3",
            "# TYPE y_seconds histogram",
            "y_seconds_bucket{model=\"a\",le=\"0.0025\"} 0",
            "y_seconds_bucket{model=\"a\",le=\"0.005\"} 1",
            "y_seconds_bucket{model=\"a\",le=\"120\"} 1",
            "y_seconds_bucket{model=\"a\",le=\"+Inf\"} 2",
            "y_seconds_sum{model=\"a\"} 500.003",
            "y_seconds_count{model=\"a\"} 2",
            "# TYPE z gauge",
            "z 1.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.ends_with('\n'));
    }
}
