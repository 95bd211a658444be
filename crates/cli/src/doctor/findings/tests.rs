//! Findings about made-up machines.

use super::super::facts::{
    DiskFacts, GpuFacts, MemoryFacts, ProcessorFacts, ProgramFacts, SandboxFacts,
};
use super::super::step::StepFacts;
use super::*;
use crate::machine::{GpuEntry, LibraryEntry};

/// A machine on which everything is as it should be.
fn machine() -> Facts {
    let step =
        StepFacts { bits: BITS.to_owned(), tokens: 700, tokens_per_s: 9000.0, update_s: 0.05 };
    Facts {
        program: ProgramFacts {
            version: "1.0.0",
            target: "x86_64 linux".to_owned(),
            libc: "glibc 2.36".to_owned(),
            path: "/v/bin/maverl".into(),
            installed: Installation::Wheel,
            features: vec!["view"],
            without_features: vec!["mpi"],
        },
        processor: ProcessorFacts {
            paths: vec!["scalar", "avx2"],
            used: "avx2",
            forced: None,
            threads: 8,
            machine_threads: Some(8),
        },
        memory: MemoryFacts { allowed: Some(8 << 30), free: Some(4 << 30) },
        disk: DiskFacts { dir: "/work".into(), free: Some(9 << 30), refused: None },
        open_files: Some(1024),
        sandbox: SandboxFacts {
            layers: vec!["namespaces: files, network".to_owned(), "seccomp: calls".to_owned()],
            missing: Vec::new(),
            refused: None,
            without_python: false,
        },
        gpu: GpuFacts { gpus: Vec::new(), none: None, libraries: Vec::new() },
        proxies: Vec::new(),
        cache: Some("/home/me/.cache".into()),
        step: StepOutcome::Computed(step),
    }
}

/// Returns the finding about a part, and checks that all others are good.
#[track_caller]
fn only(facts: &Facts, part: &str) -> Finding {
    let all = judge_machine(facts);
    let others = all.iter().filter(|finding| finding.part != part);
    others.for_each(|other| assert_eq!(other.level, FindingLevel::Good, "{other:?}"));
    let found = all.iter().find(|finding| finding.part == part);
    found.unwrap_or_else(|| panic!("nothing about {part}")).clone()
}

#[track_caller]
fn found(facts: &Facts, part: &str, level: FindingLevel, text: &str, remedy: &str) {
    let finding = only(facts, part);
    assert_eq!(finding.level, level, "{finding:?}");
    assert!(finding.text.contains(text), "{finding:?}");
    assert!(finding.remedy.as_deref().unwrap_or_default().contains(remedy), "{finding:?}");
}

#[test]
fn a_machine_on_which_all_is_well_needs_no_remedy() {
    let all = judge_machine(&machine());
    assert!(
        all.iter().all(|one| one.level == FindingLevel::Good && one.remedy.is_none()),
        "{all:?}"
    );
    let texts: Vec<&str> = all.iter().map(|one| one.text.as_str()).collect();
    for part in [
        "1.0.0 for x86_64 linux, glibc 2.36; installed as a wheel: /v/bin/maverl; without the features mpi",
        "uses avx2 of scalar, avx2",
        "8.0 GiB allowed, 4.0 GiB free",
        "all layers: namespaces, seccomp",
    ] {
        assert!(texts.contains(&part), "{part} is not in {texts:?}");
    }
}

#[test]
fn a_processor_with_the_scalar_path_alone_is_70_times_slower() {
    let mut facts = machine();
    facts.processor.paths = vec!["scalar"];
    facts.processor.used = "scalar";
    found(&facts, "vectors", FindingLevel::Warning, "70 times slower", "AVX2");
}

#[test]
fn a_scalar_path_that_was_asked_for_is_undone_by_the_variable() {
    let mut facts = machine();
    facts.processor.used = "scalar";
    facts.processor.forced = Some("scalar".to_owned());
    found(&facts, "vectors", FindingLevel::Warning, "70 times slower", "unset `MAVERL_SIMD`");
    facts.processor.forced = None;
    found(&facts, "vectors", FindingLevel::Warning, "70 times slower", "`MAVERL_SIMD=avx2`");
}

#[test]
fn a_limit_of_threads_is_named_beside_those_of_the_machine() {
    let mut facts = machine();
    facts.processor.machine_threads = Some(64);
    found(&facts, "threads", FindingLevel::Note, "8 of the machine's 64", "cpu.max");
    facts.processor.machine_threads = None;
    assert_eq!(only(&facts, "threads").text, "8");
}

#[test]
fn little_memory_is_a_warning_and_unknown_memory_is_none() {
    let mut facts = machine();
    facts.memory = MemoryFacts { allowed: Some(1 << 29), free: Some(8 << 30) };
    found(&facts, "memory", FindingLevel::Warning, "0.5 GiB allowed, 0.5 GiB free", "maverl check");
    facts.memory = MemoryFacts { allowed: Some(8 << 30), free: Some(1 << 20) };
    found(&facts, "memory", FindingLevel::Warning, "0.0 GiB free", "end other programs");
    facts.memory = MemoryFacts { allowed: None, free: None };
    assert_eq!(only(&facts, "memory").level, FindingLevel::Good);
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_and_a_full_disk_a_warning() {
    let mut facts = machine();
    facts.disk.free = Some(1 << 20);
    found(&facts, "disk", FindingLevel::Warning, "0.0 GiB free in /work", "--out DIR");
    facts.disk.refused = Some("Permission denied".to_owned());
    found(&facts, "disk", FindingLevel::Error, "Permission denied", "--out DIR");
}

#[test]
fn few_open_files_are_a_warning() {
    let mut facts = machine();
    facts.open_files = Some(256);
    found(&facts, "open files", FindingLevel::Warning, "256 at most", "ulimit -n");
    facts.open_files = None;
    assert_eq!(only(&facts, "open files").text, "no limit");
}

#[test]
fn missing_layers_of_the_sandbox_are_named_with_their_reason() {
    let mut facts = machine();
    facts.sandbox.missing = vec!["Landlock (ENOSYS)".to_owned()];
    let text = "programs run in namespaces, seccomp; missing: Landlock (ENOSYS)";
    found(&facts, "sandbox", FindingLevel::Warning, text, "Landlock");
    facts.sandbox.refused = Some("this machine lacks seccomp".to_owned());
    found(&facts, "sandbox", FindingLevel::Warning, "programs cannot be run", "user namespaces");
    facts.sandbox.without_python = true;
    found(&facts, "sandbox", FindingLevel::Note, "lacks seccomp", "install Python");
}

#[test]
fn a_gpu_without_its_libraries_is_a_warning_and_no_gpu_is_none() {
    let mut facts = machine();
    facts.gpu.none = Some("this program lacks the feature `cuda`".to_owned());
    assert!(only(&facts, "GPU").text.contains("maverl needs none"));
    facts.gpu.gpus = vec![GpuEntry {
        device: "cuda:0".to_owned(),
        name: "H200".to_owned(),
        memory_bytes: 1 << 37,
        compute_capability: "9.0".to_owned(),
    }];
    assert_eq!(only(&facts, "GPU").text, "H200");
    facts.gpu.libraries =
        vec![LibraryEntry { name: "NVRTC", found: None, missing: Some("not found".to_owned()) }];
    found(
        &facts,
        "GPU",
        FindingLevel::Warning,
        "missing libraries: NVRTC (not found)",
        "LD_LIBRARY_PATH",
    );
}

#[test]
fn a_proxy_is_named_by_its_variable_and_a_missing_cache_is_a_note() {
    let mut facts = machine();
    facts.proxies = vec!["HTTPS_PROXY"];
    assert!(only(&facts, "network").text.starts_with("proxy by HTTPS_PROXY;"));
    facts.cache = None;
    found(&facts, "cache", FindingLevel::Note, "models of the hub", "XDG_CACHE_HOME");
}

#[test]
fn other_bits_are_a_warning_and_a_step_that_fails_is_an_error() {
    let mut facts = machine();
    let other = "1".to_owned();
    let step = StepFacts { bits: other, tokens: 1, tokens_per_s: 1.0, update_s: 1.0 };
    facts.step = StepOutcome::Computed(step);
    found(
        &facts,
        "step",
        FindingLevel::Warning,
        "differ from those of other machines",
        "report it",
    );
    facts.step = StepOutcome::Failed("no memory".to_owned());
    found(&facts, "step", FindingLevel::Error, "failed: no memory", "maverl doctor --json");
}
