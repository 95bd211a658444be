//! Judgements of a machine, from facts alone.

use serde::Serialize;

use super::facts::{Facts, Installation};
use super::step::{BITS, StepOutcome};

/// Memory in bytes below which the built-in models hardly train.
const LEAST_MEMORY: u64 = 1 << 30;

/// Free bytes of a disk below which a run may not end.
const LEAST_DISK: u64 = 1 << 30;

/// Open files below which servers refuse connections.
const LEAST_FILES: u64 = 1024;

/// Weight of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FindingLevel {
    /// As it should be.
    Good,
    /// Something that some users miss.
    Note,
    /// Something that makes training slow, or that takes a feature away.
    Warning,
    /// Something that makes training impossible.
    Error,
}

impl FindingLevel {
    /// Returns the word in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A judgement of a part of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) level: FindingLevel,
    pub(super) part: &'static str,
    pub(super) text: String,
    /// Remedy; a finding that is good has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl Finding {
    /// Creates a finding that needs no remedy.
    pub(super) fn good(part: &'static str, text: impl Into<String>) -> Self {
        Self { level: FindingLevel::Good, part, text: text.into(), remedy: None }
    }

    /// Creates a finding with a remedy.
    pub(super) fn new(
        level: FindingLevel,
        part: &'static str,
        text: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { level, part, text: text.into(), remedy: Some(remedy.into()) }
    }
}

/// Judges a machine, part by part.
pub(super) fn judge_machine(facts: &Facts) -> Vec<Finding> {
    vec![
        of_program(facts),
        of_vectors(facts),
        of_threads(facts),
        of_memory(facts),
        of_disk(facts),
        of_files(facts),
        of_sandbox(facts),
        of_gpu(facts),
        of_network(facts),
        of_cache(facts),
        of_step(facts),
    ]
}

fn of_program(Facts { program, .. }: &Facts) -> Finding {
    let from = match program.installed {
        Installation::Built => "built in",
        Installation::Cargo => "installed by cargo:",
        Installation::Wheel => "installed as a wheel:",
        Installation::Copied => "at",
    };
    let without = match program.without_features[..] {
        [] => String::new(),
        _ => format!("; without the features {}", program.without_features.join(", ")),
    };
    let (version, target, libc, path) =
        (program.version, &program.target, &program.libc, program.path.display());
    Finding::good("program", format!("{version} for {target}, {libc}; {from} {path}{without}"))
}

fn of_vectors(Facts { processor, .. }: &Facts) -> Finding {
    let (part, paths) = ("vectors", processor.paths.join(", "));
    let best = processor.paths.last().copied().unwrap_or("scalar");
    let text = format!("uses {} of {paths}", processor.used);
    if processor.used != "scalar" {
        return Finding::good(part, text);
    }
    let slow = "training is about 70 times slower than with AVX2, with the same bits";
    if best == "scalar" {
        let text = format!("has none that maverl uses: {slow}");
        let remedy = "run on a processor with AVX2 (Intel since 2013, AMD since 2015) or on aarch64; in a virtual machine, let it \
                      have the host's processor (`-cpu host`)";
        return Finding::new(FindingLevel::Warning, part, text, remedy);
    }
    let remedy = match &processor.forced {
        Some(value) => format!("unset `MAVERL_SIMD`, which is `{value}`"),
        None => format!("set `MAVERL_SIMD={best}`"),
    };
    Finding::new(FindingLevel::Warning, part, format!("{text}: {slow}"), remedy)
}

fn of_threads(Facts { processor, .. }: &Facts) -> Finding {
    let (part, threads) = ("threads", processor.threads);
    match processor.machine_threads {
        Some(all) if all > threads => Finding::new(
            FindingLevel::Note,
            part,
            format!("this process may use {threads} of the machine's {all}"),
            "if it should use more: raise the limit of its container or control group (`--cpus`, `cpu.max`), or its affinity (`taskset`)",
        ),
        _ => Finding::good(part, threads.to_string()),
    }
}

fn of_memory(Facts { memory, .. }: &Facts) -> Finding {
    let part = "memory";
    let Some(allowed) = memory.allowed else {
        return Finding::good(part, "the system does not report it");
    };
    let free = memory.free.map(|free| free.min(allowed));
    let text = match free {
        Some(free) => format!("{} allowed, {} free", gib(allowed), gib(free)),
        None => format!("{} allowed", gib(allowed)),
    };
    if free.unwrap_or(allowed) >= LEAST_MEMORY {
        return Finding::good(part, text);
    }
    let remedy = "end other programs, or raise the limit of the container; `maverl check` computes what a configuration needs";
    Finding::new(FindingLevel::Warning, part, text, remedy)
}

fn of_disk(Facts { disk, .. }: &Facts) -> Finding {
    let (part, dir) = ("disk", disk.dir.display());
    if let Some(reason) = &disk.refused {
        let text = format!("{dir} cannot be written: {reason}");
        return Finding::new(
            FindingLevel::Error,
            part,
            text,
            "change into a directory of yours, or write runs elsewhere with `--out DIR`",
        );
    }
    match disk.free {
        None => Finding::good(part, format!("{dir} can be written")),
        Some(free) if free >= LEAST_DISK => {
            Finding::good(part, format!("{} free in {dir}", gib(free)))
        }
        Some(free) => Finding::new(
            FindingLevel::Warning,
            part,
            format!("{} free in {dir}", gib(free)),
            "remove old runs, or write runs elsewhere with `--out DIR`",
        ),
    }
}

fn of_files(Facts { open_files, .. }: &Facts) -> Finding {
    let part = "open files";
    match *open_files {
        Some(most) if most < LEAST_FILES => Finding::new(
            FindingLevel::Warning,
            part,
            format!("{most} at most: servers refuse connections beyond it"),
            "`ulimit -n 4096` raises the limit of a shell",
        ),
        Some(most) => Finding::good(part, format!("{most} at most")),
        None => Finding::good(part, "no limit"),
    }
}

fn of_sandbox(Facts { sandbox, .. }: &Facts) -> Finding {
    let part = "sandbox";
    if sandbox.without_python {
        return Finding::new(
            FindingLevel::Note,
            part,
            sandbox.refused.clone().unwrap_or_default(),
            "install Python 3.8 or newer, if agents write programs (`code`, the tool `python`); nothing else needs it",
        );
    }
    if let Some(reason) = &sandbox.refused {
        return Finding::new(
            FindingLevel::Warning,
            part,
            format!("programs cannot be run: {reason}"),
            LAYERS,
        );
    }
    if sandbox.missing.is_empty() {
        return Finding::good(part, format!("all layers: {}", names(&sandbox.layers)));
    }
    let (layers, missing) = (names(&sandbox.layers), sandbox.missing.join(", "));
    let text = format!("programs run in {layers}; missing: {missing}");
    Finding::new(FindingLevel::Warning, part, text, LAYERS)
}

/// Remedy for missing layers of the sandbox.
const LAYERS: &str = "in a container, allow user namespaces (`--security-opt seccomp=..` with `clone` and `unshare`, or \
                      `--security-opt seccomp=unconfined`); elsewhere, set `kernel.unprivileged_userns_clone=1` and \
                      `kernel.apparmor_restrict_unprivileged_userns=0`, and use Linux 5.13 or newer for Landlock";

/// Returns the names of layers, without what each protects.
fn names(layers: &[String]) -> String {
    let names: Vec<&str> =
        layers.iter().map(|layer| layer.split(':').next().unwrap_or_default()).collect();
    names.join(", ")
}

fn of_gpu(Facts { gpu, .. }: &Facts) -> Finding {
    let part = "GPU";
    if gpu.gpus.is_empty() {
        let reason = gpu.none.as_deref().unwrap_or("the driver lists none");
        return Finding::good(part, format!("none: {reason}; maverl needs none"));
    }
    let names: Vec<String> = gpu.gpus.iter().map(|one| one.name.clone()).collect();
    let missing: Vec<String> = gpu
        .libraries
        .iter()
        .filter_map(|one| Some(format!("{} ({})", one.name, one.missing.as_ref()?)))
        .collect();
    if missing.is_empty() {
        return Finding::good(part, names.join(", "));
    }
    let text = format!("{}; missing libraries: {}", names.join(", "), missing.join(", "));
    let remedy = "install the libraries of CUDA, or name their directory in `LD_LIBRARY_PATH`; `maverl device check NAME` tests a device";
    Finding::new(FindingLevel::Warning, part, text, remedy)
}

fn of_network(Facts { proxies, .. }: &Facts) -> Finding {
    let roots = "certificates of TLS are built in";
    Finding::good(
        "network",
        match proxies[..] {
            [] => format!("no proxy; {roots}"),
            _ => format!("proxy by {}; {roots}", proxies.join(", ")),
        },
    )
}

fn of_cache(Facts { cache, .. }: &Facts) -> Finding {
    match cache {
        Some(dir) => Finding::good("cache", dir.display().to_string()),
        None => Finding::new(
            FindingLevel::Note,
            "cache",
            "no directory for models of the hub and for files of examples",
            "set `HOME` or `XDG_CACHE_HOME`",
        ),
    }
}

fn of_step(Facts { step, .. }: &Facts) -> Finding {
    let part = "step";
    let step = match step {
        StepOutcome::Computed(step) => step,
        StepOutcome::Failed(error) => {
            let text = format!("a step with `builtin:tiny` failed: {error}");
            let remedy = "report it, with the output of `maverl doctor --json`";
            return Finding::new(FindingLevel::Error, part, text, remedy);
        }
    };
    let text = format!(
        "{} tokens at {:.0} tokens/s, an update in {:.3} s, bits {}",
        step.tokens, step.tokens_per_s, step.update_s, step.bits
    );
    if step.bits == BITS {
        return Finding::good(part, text + ", as elsewhere");
    }
    let text =
        format!("{text} in place of {BITS}: results of a seed differ from those of other machines");
    let remedy = "compare runs of this machine with each other only, and report it, with the output of `maverl doctor --json`";
    Finding::new(FindingLevel::Warning, part, text, remedy)
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests;
