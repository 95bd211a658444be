//! Every table of declared settings: its path in a configuration, its keys, their levels.

use serde_json::Value;

use super::reference::{described_path, generic, parts};
use super::{
    AdaptiveEntropyConfig, AdaptiveKlConfig, AdvantagePlan, AgentConfig, AlgorithmConfig,
    BranchConfig, CheckpointConfig, ComponentConfig, Config, Correction, CurriculumConfig,
    DistConfig, DistillConfig, EndpointConfig, EvalConfig, FutureRewards, InfluenceConfig,
    LoraConfig, LossConfig, LossScaleConfig, ModelConfig, OptimConfig, PreferenceConfig,
    RecordConfig, ReferenceConfig, ReplayConfig, RewardConfig, RewardJudgeConfig,
    RewardPythonConfig, RewardServerConfig, RewardUsageConfig, RewardVerifierConfig, RolloutConfig,
    RolloutServerConfig, RuntimeOptions, SamplingConfig, Selection, Shaping, SurrogatePlan,
    TaskConfig, TeacherConfig, TrackConfig, TrainOn, UpdateOrder, VerifierConfig,
    WorkerGroupConfig,
};
use crate::settings::{Description, Key, Table, TableKind, Tagged};

/// A table of declared settings.
#[derive(Clone, Copy)]
pub struct DeclaredTable {
    /// Its header in the reference, without brackets; empty for keys before any table.
    pub header: &'static str,
    title: &'static str,
    /// Name of its definition in the schema.
    pub name: &'static str,
    /// The `kind` under which a table with one has these keys.
    pub kind: Option<&'static str>,
    /// Its keys.
    pub keys: &'static [Key],
    /// Its defaults, an object.
    pub defaults: fn() -> Value,
}

impl DeclaredTable {
    pub(super) const fn of<T: Table>(header: &'static str, title: &'static str) -> Self {
        Self { header, title, name: T::NAME, kind: None, keys: T::KEYS, defaults: T::defaults }
    }

    const fn kind(header: &'static str, kind: &TableKind) -> Self {
        let TableKind { name, table, keys, defaults, .. } = *kind;
        Self { header, title: "", name: table, kind: Some(name), keys, defaults }
    }

    /// Its name in messages.
    pub fn title(&self) -> String {
        match self.kind {
            Some(kind) => format!("`[{}]` with `kind = {kind:?}`", self.header),
            None => self.title.to_owned(),
        }
    }

    /// Its keys with their defaults.
    pub fn descriptions(&self) -> Vec<Description> {
        Description::of_keys(self.keys, &(self.defaults)())
    }

    /// Its place in a configuration, with `NAME` for names that a user chooses.
    pub fn place(&self) -> Vec<String> {
        if self.header.is_empty() { Vec::new() } else { generic(&parts(self.header)) }
    }
}

/// A table whose `kind` decides which keys it has.
pub struct TaggedTable {
    /// Its header in the reference, without brackets.
    pub header: &'static str,
    /// Name of its definition in the schema.
    pub definition: &'static str,
    /// Noun for what its `kind` names.
    pub noun: &'static str,
    /// Its kinds, the default one first.
    pub kinds: &'static [TableKind],
    /// True if other crates declare further kinds.
    pub open: bool,
}

impl TaggedTable {
    const fn of<T: Tagged>(
        header: &'static str,
        definition: &'static str,
        noun: &'static str,
    ) -> Self {
        Self { header, definition, noun, kinds: T::KINDS, open: false }
    }

    const fn open(self) -> Self {
        Self { open: true, ..self }
    }

    /// Names of its kinds.
    pub fn names(&self) -> Vec<&'static str> {
        self.kinds.iter().map(|kind| kind.name).collect()
    }

    /// Its place in a configuration.
    pub fn place(&self) -> Vec<String> {
        parts(self.header)
    }
}

/// Every table with a `kind`.
pub static TAGGED: [TaggedTable; 8] = [
    TaggedTable::of::<AdvantagePlan>("algorithm.advantage", "Advantage", "advantage").open(),
    TaggedTable::of::<SurrogatePlan>("algorithm.loss.surrogate", "Surrogate", "surrogate").open(),
    TaggedTable::of::<Correction>("algorithm.loss.correction", "Correction", "correction"),
    TaggedTable::of::<Selection>("algorithm.select", "Selection", "selection"),
    TaggedTable::of::<Shaping>("algorithm.shaping", "Shaping", "shaping"),
    TaggedTable::of::<UpdateOrder>("algorithm.update_order", "UpdateOrder", "update order"),
    TaggedTable::of::<FutureRewards>("algorithm.future_rewards", "FutureRewards", "future reward"),
    TaggedTable::of::<TrainOn>("algorithm.train_on", "TrainOn", "selection of tokens"),
];

/// The table with a `kind` at a place, whatever its agents and so on are called.
pub fn tagged_table(path: &[String]) -> Option<&'static TaggedTable> {
    let path = described_path(path);
    TAGGED.iter().find(|table| table.place() == path)
}

/// Every table of declared settings.
pub static TABLES: [DeclaredTable; 71] = [
    DeclaredTable::of::<Config>("", "the file itself (before any table)"),
    DeclaredTable::of::<TaskConfig>("task", "`[task]`"),
    DeclaredTable::of::<CurriculumConfig>("task.curriculum", "`[task.curriculum]`"),
    DeclaredTable::of::<ComponentConfig>("task.mixture.quiz", "`[task.mixture.NAME]`"),
    DeclaredTable::of::<SamplingConfig>("sampling", "`[sampling]` (or an agent's `sampling`)"),
    DeclaredTable::of::<ModelConfig>("models.tiny", "`[models.NAME]`"),
    DeclaredTable::of::<OptimConfig>("models.tiny.optim", "a model's (or agent's) `optim`"),
    DeclaredTable::of::<LossScaleConfig>("models.tiny.loss_scale", "a model's `loss_scale`"),
    DeclaredTable::of::<LoraConfig>("models.tiny.lora", "a model's (or agent's) `lora`"),
    DeclaredTable::of::<EndpointConfig>("endpoints.expert", "`[endpoints.NAME]`"),
    DeclaredTable::of::<RolloutServerConfig>("rollout_servers.fast", "`[rollout_servers.NAME]`"),
    DeclaredTable::of::<TeacherConfig>("teachers.big", "`[teachers.NAME]`"),
    DeclaredTable::of::<AgentConfig>("agents.\"search/verifier\"", "`[agents.\"team/role\"]`"),
    DeclaredTable::of::<AlgorithmConfig>("algorithm", "`[algorithm]`"),
    DeclaredTable::kind("algorithm.advantage", &AdvantagePlan::KINDS[0]),
    DeclaredTable::kind("algorithm.advantage", &AdvantagePlan::KINDS[1]),
    DeclaredTable::kind("algorithm.advantage", &AdvantagePlan::KINDS[2]),
    DeclaredTable::kind("algorithm.advantage", &AdvantagePlan::KINDS[3]),
    DeclaredTable::kind("algorithm.advantage", &AdvantagePlan::KINDS[4]),
    DeclaredTable::kind("algorithm.advantage", &AdvantagePlan::KINDS[5]),
    DeclaredTable::kind("algorithm.advantage", &AdvantagePlan::KINDS[6]),
    DeclaredTable::kind("algorithm.advantage", &AdvantagePlan::KINDS[7]),
    DeclaredTable::kind("algorithm.advantage", &AdvantagePlan::KINDS[8]),
    DeclaredTable::kind("algorithm.advantage", &AdvantagePlan::KINDS[9]),
    DeclaredTable::kind("algorithm.advantage", &AdvantagePlan::KINDS[10]),
    DeclaredTable::kind("algorithm.shaping", &Shaping::KINDS[1]),
    DeclaredTable::kind("algorithm.shaping", &Shaping::KINDS[2]),
    DeclaredTable::kind("algorithm.update_order", &UpdateOrder::KINDS[1]),
    DeclaredTable::kind("algorithm.update_order", &UpdateOrder::KINDS[2]),
    DeclaredTable::kind("algorithm.future_rewards", &FutureRewards::KINDS[1]),
    DeclaredTable::kind("algorithm.future_rewards", &FutureRewards::KINDS[2]),
    DeclaredTable::kind("algorithm.train_on", &TrainOn::KINDS[3]),
    DeclaredTable::of::<LossConfig>("algorithm.loss", "`[algorithm.loss]` (or an agent's `loss`)"),
    DeclaredTable::kind("algorithm.loss.surrogate", &SurrogatePlan::KINDS[0]),
    DeclaredTable::kind("algorithm.loss.surrogate", &SurrogatePlan::KINDS[1]),
    DeclaredTable::kind("algorithm.loss.surrogate", &SurrogatePlan::KINDS[2]),
    DeclaredTable::kind("algorithm.loss.surrogate", &SurrogatePlan::KINDS[3]),
    DeclaredTable::kind("algorithm.loss.surrogate", &SurrogatePlan::KINDS[4]),
    DeclaredTable::kind("algorithm.loss.surrogate", &SurrogatePlan::KINDS[5]),
    DeclaredTable::kind("algorithm.loss.surrogate", &SurrogatePlan::KINDS[6]),
    DeclaredTable::kind("algorithm.loss.surrogate", &SurrogatePlan::KINDS[7]),
    DeclaredTable::kind("algorithm.loss.correction", &Correction::KINDS[1]),
    DeclaredTable::kind("algorithm.loss.correction", &Correction::KINDS[2]),
    DeclaredTable::kind("algorithm.loss.correction", &Correction::KINDS[3]),
    DeclaredTable::kind("algorithm.loss.correction", &Correction::KINDS[4]),
    DeclaredTable::kind("algorithm.select", &Selection::KINDS[1]),
    DeclaredTable::kind("algorithm.select", &Selection::KINDS[2]),
    DeclaredTable::kind("algorithm.select", &Selection::KINDS[3]),
    DeclaredTable::of::<DistillConfig>("algorithm.distill", "`[algorithm.distill]`"),
    DeclaredTable::of::<AdaptiveKlConfig>("algorithm.adaptive_kl", "`[algorithm.adaptive_kl]`"),
    DeclaredTable::of::<AdaptiveEntropyConfig>(
        "algorithm.adaptive_entropy",
        "`[algorithm.adaptive_entropy]`",
    ),
    DeclaredTable::of::<ReplayConfig>("algorithm.replay", "`[algorithm.replay]`"),
    DeclaredTable::of::<ReferenceConfig>("algorithm.reference", "`[algorithm.reference]`"),
    DeclaredTable::of::<InfluenceConfig>("algorithm.influence", "`[algorithm.influence]`"),
    DeclaredTable::of::<PreferenceConfig>("algorithm.preference", "`[algorithm.preference]`"),
    DeclaredTable::of::<VerifierConfig>("algorithm.verifier", "`[algorithm.verifier]`"),
    DeclaredTable::of::<RewardConfig>("rewards.brevity", "`[rewards.NAME]`"),
    DeclaredTable::of::<RewardServerConfig>("rewards.brevity.server", "`[rewards.NAME.server]`"),
    DeclaredTable::of::<RewardPythonConfig>("rewards.brevity.python", "`[rewards.NAME.python]`"),
    DeclaredTable::of::<RewardJudgeConfig>("rewards.brevity.judge", "`[rewards.NAME.judge]`"),
    DeclaredTable::of::<RewardVerifierConfig>(
        "rewards.brevity.verifier",
        "`[rewards.NAME.verifier]`",
    ),
    DeclaredTable::of::<RewardUsageConfig>("rewards.brevity.usage", "`[rewards.NAME.usage]`"),
    DeclaredTable::of::<RolloutConfig>("rollout", "`[rollout]`"),
    DeclaredTable::of::<BranchConfig>("rollout.branch", "`[rollout.branch]`"),
    DeclaredTable::of::<EvalConfig>("eval", "`[eval]`"),
    DeclaredTable::of::<CheckpointConfig>("checkpoint", "`[checkpoint]`"),
    DeclaredTable::of::<RecordConfig>("record", "`[record]`"),
    DeclaredTable::of::<TrackConfig>("track", "`[track]`"),
    DeclaredTable::of::<RuntimeOptions>("runtime", "`[runtime]`"),
    DeclaredTable::of::<WorkerGroupConfig>("worker_groups.own", "`[worker_groups.NAME]`"),
    DeclaredTable::of::<DistConfig>("dist", "`[dist]`"),
];

/// The declaration of a key, whatever its models, agents and so on are called.
pub fn key(path: &[String]) -> Option<&'static Key> {
    let path = described_path(path);
    let (name, place) = path.split_last()?;
    let mut tables = TABLES.iter().filter(|table| table.place() == place);
    tables.find_map(|table| table.keys.iter().find(|key| key.name == name))
}

/// Returns the descriptions of a key, one for each table with a `kind` that has it, with this kind.
pub fn descriptions(path: &[String]) -> Vec<(Option<&'static str>, Description)> {
    let path = described_path(path);
    let Some((name, place)) = path.split_last() else { return Vec::new() };
    let tables = TABLES.iter().filter(|table| table.place() == place);
    let keys =
        tables.flat_map(|table| table.descriptions().into_iter().map(move |key| (table.kind, key)));
    keys.filter(|(_, key)| key.name == *name).collect()
}

/// Returns true if a key may change when a run is resumed: its level is `run`.
pub fn may_change(path: &[String]) -> bool {
    key(path).is_some_and(|key| key.level == "run" && !key.table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Preset;
    use crate::settings::Settings;

    #[test]
    fn keys_of_level_run_may_change_and_no_others() {
        for name in [
            "steps",
            "eval.temperature",
            "checkpoint.every",
            "rollout.max_unscored",
            "algorithm.max_flat_steps",
            "models.small.gradient_checkpointing",
            "endpoints.expert.url",
            "rollout_servers.fast.urls",
            "runtime.threads",
        ] {
            assert!(may_change(&parts(name)), "{name}");
        }
        for name in [
            "seed",
            "task",
            "task.data",
            "rollout.timeout_s",
            "runtime.micro_batch_tokens",
            "runtime.device",
            "worker_groups.own.device",
            "runtime",
            "endpoints.expert",
            "endpoints.expert.model",
            "rollout_servers.fast.kind",
            "models.small.rollout_servers",
            "models.small.optim.lr",
            "agents.\"a/b\".sampling.temperature",
            "agents.\"a/b\".options.threads",
            "algorithm.loss.kl_coef",
            "algorithm.loss.surrogate.clip_low",
            "algorithm.shaping.weight",
            "algorithm.advantage.optim.lr",
            "nothing",
        ] {
            assert!(!may_change(&parts(name)), "{name}");
        }
    }

    #[test]
    fn the_first_kind_of_a_table_is_its_default_and_every_kind_with_keys_is_declared() {
        let defaults = [
            AdvantagePlan::default().written(),
            SurrogatePlan::default().written(),
            Correction::default().written(),
            Selection::default().written(),
            Shaping::default().written(),
            UpdateOrder::default().written(),
            FutureRewards::default().written(),
            TrainOn::default().written(),
        ];
        for (table, default) in TAGGED.iter().zip(defaults) {
            assert_eq!(default.kind.as_deref(), Some(table.kinds[0].name), "{}", table.header);
            for kind in table.kinds.iter().filter(|kind| !kind.keys.is_empty()) {
                let declared = |other: &DeclaredTable| {
                    other.header == table.header && other.kind == Some(kind.name)
                };
                assert!(TABLES.iter().any(declared), "{} {}", table.header, kind.name);
            }
        }
    }

    #[test]
    fn conditions_of_keys_name_other_keys_of_their_table_and_existing_presets() {
        let supervised: Vec<&str> =
            Preset::ALL.into_iter().filter(|p| p.is_supervised()).map(Preset::name).collect();
        let pairs: Vec<&str> =
            Preset::ALL.into_iter().filter(|p| p.compares_pairs()).map(Preset::name).collect();
        let mut declared = 0;
        for table in &TABLES {
            for (key, idle) in
                table.keys.iter().flat_map(|key| key.idle.iter().map(move |i| (key, i)))
            {
                let Some((other, values)) = idle.parts() else {
                    panic!("{} {}: {:?}", table.header, key.name, idle.condition)
                };
                assert_ne!(other, key.name, "{}", table.header);
                assert!(table.keys.iter().any(|key| key.name == other), "{} {other}", table.header);
                declared += 1;
                if other == "name" && values.len() > 1 {
                    let presets: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
                    assert_eq!(
                        &presets,
                        if idle.holds { &supervised } else { &pairs },
                        "{}",
                        key.name
                    );
                }
            }
        }
        assert!(declared > 15, "{declared}");
    }

    /// Names of the keys that may change when a run is resumed; of a table without others, the table's.
    fn changeable() -> Vec<String> {
        let mut names = Vec::new();
        for table in &TABLES {
            let place = table.place();
            let run: Vec<&Key> =
                table.keys.iter().filter(|key| key.level == "run" && !key.table).collect();
            let whole = run.len() == table.keys.len();
            if whole {
                names.push(name(&place))
            } else {
                names.extend(
                    run.iter()
                        .map(|key| name(&[place.as_slice(), &[key.name.to_owned()]].concat())),
                )
            }
        }
        names
    }

    /// A place as a key is written, with `*` for names that a user chooses.
    fn name(place: &[String]) -> String {
        let parts = place.iter().map(|part| if part == "NAME" { "*" } else { part });
        format!("`{}`", parts.collect::<Vec<_>>().join("."))
    }

    #[test]
    fn the_page_about_resuming_names_every_key_that_may_change() {
        let page = include_str!("../../../docs/src/resume.md").replace("\n  ", " ");
        let list = changeable().join(", ");
        assert!(page.contains(&list), "docs/src/resume.md has another list than: {list}");
    }
}
