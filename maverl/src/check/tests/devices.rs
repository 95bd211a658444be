//! Devices of worker groups.

use super::*;
use crate::config::Dtype;
use crate::plan::{json, table};
use crate::runtime::DeviceChoice;

/// Returns the problems of a configuration in one line.
fn told(toml: &str) -> String {
    let found = problems(&text(toml.trim_start()), &search());
    let lines = found.lines().map(|line| line.trim().trim_start_matches("| "));
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// Returns a configuration in which the verifier has a worker group of its own, on a device.
fn own(device: &str) -> String {
    format!(
        "[agents.\"search/verifier\"]\nworker_group = \"own\"\n[worker_groups.own]\ndevice = {device:?}\n"
    )
}

#[test]
fn a_worker_group_is_on_the_device_of_its_table_or_on_that_of_the_runtime() {
    let plan = plan_of(&text(&own("auto")));
    let devices: Vec<(&str, Option<DeviceChoice>)> =
        plan.workers.iter().map(|worker| (worker.name.as_str(), worker.device)).collect();
    let auto = DeviceChoice::Auto;
    assert_eq!(devices, [("own", Some(auto)), ("tiny", None)]);
    let of: Vec<DeviceChoice> = plan.workers.iter().map(|worker| plan.device_of(worker)).collect();
    assert_eq!(of, [auto, DeviceChoice::default()]);
    let specs = plan.worker_specs();
    assert_eq!([specs[0].device, specs[1].device], [Some(DeviceChoice::Auto), None]);

    let resolved = toml::to_string(&plan.config).unwrap();
    assert!(resolved.contains("[worker_groups.own]\ndevice = \"auto\""), "{resolved}");
    assert_eq!(plan_of(&text(&resolved)), plan);
    let without = toml::to_string(&plan_of(&text("")).config).unwrap();
    assert!(!without.contains("worker_groups"), "{without}");
}

#[test]
fn a_plan_names_the_devices_of_its_worker_groups_where_they_differ() {
    let line = "devices: worker `own` on auto, worker `tiny` on cpu; advantages on cpu";
    let plan = plan_of(&text(&own("auto")));
    assert!(table(&plan, 120).contains(line), "{}", table(&plan, 120));
    let summary: Value = serde_json::from_str(&json(&plan)).unwrap();
    let workers = &summary["summary"]["workers"];
    assert_eq!((&workers[0]["device"], &workers[1]["device"]), (&"auto".into(), &Value::Null));
    let same = plan_of(&text(&own("cpu")));
    assert!(!table(&same, 120).contains("devices: "));
    assert_eq!(same.summary(), plan_of(&text(&own("cpu").replace("device", "#device"))).summary());
}

#[test]
fn a_table_of_a_worker_group_that_no_agent_uses_is_an_error_with_the_names_there_are() {
    check(
        &search(),
        r#"
[agents."search/verifier"]
worker_group = "own"
[worker_groups.owm]
device = "cpu"
"#,
        r#"
  x no agent uses a worker group `owm`; worker groups of the plan: `own` and `tiny`
   ,-[run.toml:3:16]
 3 | [worker_groups.owm]
   :                ^^^
   `----
  help: did you mean `own`?
"#,
    );
    let found = told("[worker_groups.answers]\ndevice = \"cpu\"");
    assert!(found.contains("worker groups of the plan: `tiny`"), "{found}");
    let help = "write `worker_group = \"answers\"` for an agent, or remove the table";
    assert!(found.contains(help), "{found}");
}

#[test]
fn a_table_of_a_worker_group_has_a_name_and_a_device() {
    for (toml, parts) in [
        (
            "[worker_groups]\ndevice = \"cpu\"",
            &["its keys stand under a name: `[worker_groups.NAME]`"][..],
        ),
        ("[worker_groups]\ntiny = \"cpu\"", &["write `worker_groups.tiny.device = \"cpu\"`"]),
        (
            "[worker_groups.tiny]\ndevise = \"cpu\"",
            &["`worker_groups.tiny.devise`", "did you mean `device`?"],
        ),
        (
            "[worker_groups.tiny]\ndevice = \"gpu\"",
            &[
                "\"gpu\"",
                "expected \"cpu\", \"auto\", \"cuda\", \"cuda:1\", \"candle:cpu\" or \"emulated\"",
            ],
        ),
    ] {
        let found = told(toml);
        for part in parts {
            assert!(found.contains(part), "{part} is missing in {found}");
        }
    }
}

#[test]
fn a_device_that_cannot_be_used_is_reported_at_the_worker_group_that_asks_for_it() {
    let found = told(&own("cuda:99"));
    let message = "`worker_groups.own.device` is \"cuda:99\", which cannot be used here";
    assert!(found.contains(message) && found.contains("[run.toml:4:10]"), "{found}");
    assert!(found.contains("write `worker_groups.own.device = \"cpu\"`"), "{found}");
    let both = told(&format!("{}[runtime]\ndevice = \"cuda:98\"", own("cuda:99")));
    assert!(both.contains("`runtime.device` is \"cuda:98\"") && both.contains(message), "{both}");
}

#[test]
fn a_model_of_a_worker_group_on_an_accelerator_has_products_in_bf16() {
    if let Some(reason) = DeviceChoice::Emulated.unavailable() {
        return eprintln!("skipped: {reason}");
    }
    let two = "[models.a]\npath = \"builtin:tiny\"\n[models.b]\npath = \"builtin:tiny\"\n\
               [agents.\"search/verifier\"]\nmodel = \"a\"\nworker_group = \"own\"\n\
               [agents.\"search/searcher\"]\nmodel = \"a\"\n[agents.\"search/answerer\"]\nmodel = \"b\"\n";
    let dtypes = |more: &str| -> Vec<(String, Dtype)> {
        let plan = plan_of(&text(&format!("{two}{more}")));
        plan.workers.iter().map(|worker| (worker.name.clone(), worker.dtype)).collect()
    };
    let of = |a: Dtype, b: Dtype, own: Dtype| -> Vec<(String, Dtype)> {
        [("a", a), ("b", b), ("own", own)].map(|(name, dtype)| (name.to_owned(), dtype)).to_vec()
    };
    let (f32, bf16) = (Dtype::F32, Dtype::Bf16);
    let emulated = |group: &str| format!("[worker_groups.{group}]\ndevice = \"emulated\"\n");
    assert_eq!(dtypes(""), of(f32, f32, f32));
    // The worker groups of one model have one precision.
    assert_eq!(dtypes(&emulated("own")), of(bf16, f32, bf16));
    assert_eq!(dtypes(&emulated("b")), of(f32, bf16, f32));
    let all = "[runtime]\ndevice = \"emulated\"\n";
    assert_eq!(dtypes(all), of(bf16, bf16, bf16));
    let cpu = |group: &str| format!("[worker_groups.{group}]\ndevice = \"cpu\"\n");
    assert_eq!(dtypes(&format!("{all}{}", cpu("b"))), of(bf16, f32, bf16));
    assert_eq!(dtypes(&format!("{all}{}", cpu("own"))), of(bf16, bf16, bf16));
}

#[test]
fn what_a_device_does_not_support_is_reported_at_the_worker_group_that_is_on_it() {
    if let Some(reason) = DeviceChoice::Emulated.unavailable() {
        return eprintln!("skipped: {reason}");
    }
    let model = "[models.tiny]\npath = \"builtin:tiny\"\ndtype = \"f32\"\n";
    let found = told(&format!("{}{model}", own("emulated")));
    let message = "`worker_groups.own.device` is \"emulated\", which does not support the plan: worker group `own`: \
                   products are in bf16: write `dtype = \"bf16\"`";
    assert!(found.contains(message) && found.contains("[run.toml:4:10]"), "{found}");
    assert!(!found.contains("worker group `tiny`"), "{found}");
    // The other way round, the worker groups without a device are reported at that of the runtime.
    let runtime = "[runtime]\ndevice = \"emulated\"\n";
    let found = told(&format!("{}{model}{runtime}", own("cpu")));
    assert!(found.contains("`runtime.device` is \"emulated\""), "{found}");
    assert!(found.contains("worker group `tiny`") && !found.contains("group `own`"), "{found}");
}

#[cfg(feature = "cuda")]
#[test]
fn memory_is_predicted_for_the_worker_groups_on_a_device() {
    if let Some(reason) = DeviceChoice::Emulated.unavailable() {
        return eprintln!("skipped: {reason}");
    }
    let on = |toml: &str| -> Vec<(String, DeviceChoice)> {
        let memory = plan_of(&text(toml)).device_memory;
        memory.into_iter().map(|of| (of.worker, of.device)).collect()
    };
    let emulated = |name: &str| (name.to_owned(), DeviceChoice::Emulated);
    assert!(on(&own("cpu")).is_empty());
    assert_eq!(on(&own("emulated")), [emulated("own")]);
    let runtime = "[runtime]\ndevice = \"emulated\"\n";
    assert_eq!(on(&format!("{}{runtime}", own("cpu"))), [emulated("tiny")]);
    assert_eq!(on(&format!("{}{runtime}", own("emulated"))), [emulated("own"), emulated("tiny")]);
}

#[test]
fn a_device_of_candle_is_refused_without_its_feature_and_warned_of_with_it() {
    let (config, note) = (own("candle:cpu"), "results on candle:cpu depend on timing");
    if let Some(reason) = DeviceChoice::CandleCpu.unavailable() {
        let found = told(&config);
        assert!(reason.contains("lacks the feature `candle`"), "{reason}");
        assert!(found.contains("this program lacks the feature `candle`"), "{found}");
        return;
    }
    let plan = plan_of(&text(&config));
    assert_eq!(plan.warnings.iter().filter(|warning| warning.starts_with(note)).count(), 1);
    let none = plan_of(&text(&own("cpu")));
    assert!(!none.warnings.iter().any(|warning| warning.starts_with(note)));
    let found =
        told(&format!("{config}[models.tiny]\npath = \"builtin:tiny\"\ndtype = \"bf16\"\n"));
    assert!(found.contains("products are in f32: write `dtype = \"f32\"`"), "{found}");
}
