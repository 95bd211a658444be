//! Tables with a `kind`: each kind has keys of its own.

use std::collections::BTreeMap;

use figment::value::Value;

use super::names::{path, path_within, suggestion};
use super::problems::Problems;
use super::values::out_of_range;
use super::{alias, load};
use crate::config::tables::{self, TaggedTable};
use crate::config::{AlgorithmConfig, Config, LossConfig};
use crate::settings::{TaggedConfig, TaggedListConfig, read};

/// Names of the kinds that crates declare, by the name of the table's definition.
pub(crate) type DeclaredKinds = BTreeMap<&'static str, Vec<&'static str>>;

/// Reports kinds that do not exist, and keys and values that are not those of their kind. Returns the configuration without
/// them.
pub(super) fn check_kinds(
    mut config: Config,
    declared: &DeclaredKinds,
    problems: &mut Problems<'_>,
) -> Config {
    let mut tables = Tables { declared, problems };
    let parts = config.algorithm.name.parts();
    let at = path(["algorithm"]);
    let AlgorithmConfig {
        advantage, select, shaping, update_order, future_rewards, train_on, ..
    } = &mut config.algorithm;
    for (key, written, inherited) in [
        ("advantage", advantage, &parts.advantage),
        ("select", select, &parts.select),
        ("shaping", shaping, &parts.shaping),
        ("update_order", update_order, &parts.update_order),
        ("future_rewards", future_rewards, &parts.future_rewards),
        ("train_on", train_on, &parts.train_on),
    ] {
        tables.check(written, inherited, &path_within(&at, key));
    }
    tables.loss(&mut config.algorithm.loss, &parts.loss, &at);
    let run = config.algorithm.loss.over(&parts.loss);
    for (name, agent) in &mut config.agents {
        let at = path(["agents", name]);
        let mut own = run.clone();
        if let Some(written) = &mut agent.loss {
            tables.loss(written, &run, &at);
            own = written.over(&run);
        }
        for (number, seat) in &mut agent.seats {
            if let Some(written) = &mut seat.loss {
                let at = path_within(&path_within(&at, "seats"), &number.to_string());
                tables.loss(written, &own, &at);
            }
        }
    }
    config
}

/// Checks of tables, with the declared kinds and the problems so far.
struct Tables<'c, 'l> {
    declared: &'c DeclaredKinds,
    problems: &'c mut Problems<'l>,
}

impl Tables<'_, '_> {
    /// Reports what is wrong in the loss of the table at a place.
    fn loss(&mut self, written: &mut LossConfig, inherited: &LossConfig, at: &[String]) {
        let at = path_within(at, "loss");
        let surrogate = path_within(&at, "surrogate");
        self.check(&mut written.surrogate, &inherited.surrogate, &surrogate);
        self.check_list(
            &mut written.correction,
            &inherited.correction,
            &path_within(&at, "correction"),
        );
    }

    /// Reports what is wrong in a table, or in each table of a list. A list inherits nothing.
    fn check_list(
        &mut self,
        written: &mut TaggedListConfig,
        inherited: &TaggedListConfig,
        at: &[String],
    ) {
        let alone = TaggedConfig::default();
        if !matches!(self.problems.layers().value(at), Some(Value::Array(..))) {
            let inherited = inherited.0.first().unwrap_or(&alone);
            return written.0.iter_mut().for_each(|table| self.check(table, inherited, at));
        }
        for (index, table) in written.0.iter_mut().enumerate() {
            self.check(table, &alone, &path_within(at, &index.to_string()));
        }
    }

    /// Reports what is wrong in one table, and takes it out. The kind is inherited if none is written.
    fn check(&mut self, written: &mut TaggedConfig, inherited: &TaggedConfig, at: &[String]) {
        let Some(table) = tables::tagged_table(at) else { return };
        let name = written.kind_or(&inherited.kind_or(table.kinds[0].name));
        let Some(kind) = table.kinds.iter().find(|kind| kind.name == name) else {
            if !self.declared_kinds(table).contains(&name.as_str()) {
                self.report_unknown(table, &name, at);
                *written = TaggedConfig::default();
            }
            return;
        };
        let given = self.problems.layers().value(at);
        let Some(Value::Dict(tag, mut dict)) = given.cloned() else { return };
        dict.remove("kind");
        let mut value = Value::Dict(tag, dict);
        for wrong in
            load::read_repaired(&mut value, at, kind.read, self.problems).unwrap_or_default()
        {
            out_of_range(&wrong, at, self.problems);
        }
        written.settings = read(&value).unwrap_or_default();
    }

    /// Names of the declared kinds of a table.
    fn declared_kinds(&self, table: &TaggedTable) -> &[&'static str] {
        self.declared.get(table.definition).map_or(&[], Vec::as_slice)
    }

    /// Reports a kind that does not exist.
    fn report_unknown(&mut self, table: &TaggedTable, name: &str, at: &[String]) {
        let mut known = table.names();
        known.extend(self.declared_kinds(table));
        known.sort_unstable();
        known.dedup();
        let message = format!("no {} is called `{name}`", table.noun);
        let meant = alias::value(at.last().map_or("", String::as_str), name)
            .or_else(|| alias::value("kind", name))
            .map(|name| format!("did you mean `{name}`?"));
        let help = meant.unwrap_or_else(|| suggestion(name, known));
        self.problems.value(&path_within(at, "kind"), message, help);
    }
}
