//! Keys of the algorithm that were given another value than they would have, and change nothing beside the others.

use crate::config::{
    AdvantagePlan, AlgorithmConfig, Config, Credit, KlIn, MixerNetwork, MixerPlan, Preset, Trunk,
    VerifierTrunk,
};
use crate::plan::{AlgorithmPlan, CriticPlan, LossPlan, SeatPlan};

/// A key, whether its value is another than without it, and why it has no effect, if it has none.
type Key = (&'static str, bool, Option<&'static str>);

/// The keys of `$table` that differ between two plans.
macro_rules! keys {
    ($given:expr, $unset:expr, $table:literal, $($($field:ident).+: $idle:expr;)*) => {
        vec![$((
            concat!($table, stringify!($($field).+)),
            $given.$($field).+ != $unset.$($field).+,
            $idle
        )),*]
    };
}

/// Returns a sentence for each key that was written and has no effect.
pub(super) fn warnings(
    config: &Config,
    algorithm: &AlgorithmPlan,
    seats: &[SeatPlan],
) -> Vec<String> {
    let written = &config.algorithm;
    let unset = AlgorithmConfig { name: written.name, ..AlgorithmConfig::default() };
    let unset = AlgorithmPlan::from(&unset);
    let mut keys = estimates(algorithm, &unset);
    match &algorithm.advantage {
        AdvantagePlan::Critic(critic) => keys.extend(values(critic)),
        AdvantagePlan::Mixer(mixer) => keys.extend(mixed(mixer)),
        _ => {}
    }
    if !algorithm.preset.is_supervised() {
        let given = LossPlan::from(&written.loss);
        keys.extend(losses(&given, &LossPlan::from(&written.name.parts().loss), seats));
    }
    keys.push((
        "reference.every",
        algorithm.reference != unset.reference,
        no_reference(algorithm, seats),
    ));
    let idle = |(name, changed, why): Key| {
        why.filter(|_| changed).map(|why| format!("`algorithm.{name}` has no effect: {why}"))
    };
    keys.into_iter().filter_map(idle).collect()
}

/// Returns the reason why no policy has a reference, if none has.
fn no_reference(given: &AlgorithmPlan, seats: &[SeatPlan]) -> Option<&'static str> {
    match given.preset {
        Preset::Sft => Some("`name = \"sft\"` has no reference"),
        _ if given.preset.compares_pairs() => {
            when(given.preference.reference_free, "`preference.reference_free` is true")
        }
        _ => {
            let free = |seat: &SeatPlan| !seat.trained || seat.loss.kl_coef == 0.0;
            when(seats.iter().all(free), "`loss.kl_coef` is 0")
        }
    }
}

/// Returns the reason if the condition holds.
fn when(idle: bool, why: &'static str) -> Option<&'static str> {
    idle.then_some(why)
}

/// Returns the reason why a verifier has no adapter, if it has none.
fn no_adapter(given: &AlgorithmPlan) -> Option<&'static str> {
    let own = given.preset == Preset::Verifier && given.verifier.trunk == VerifierTrunk::Own;
    when(own, "`verifier.trunk` is \"own\"")
}

fn estimates(given: &AlgorithmPlan, unset: &AlgorithmPlan) -> Vec<Key> {
    let supervised = when(given.preset.is_supervised(), "given replies have no advantages");
    let taught = when(given.preset != Preset::Sft, "it is a key of `name = \"sft\"`");
    keys! { given, unset, "",
        shaping: supervised;
        whiten: supervised;
        resample: supervised;
        early_stop_kl: supervised.or(when(given.epochs == 1, "`epochs` is 1"));
        update_order: supervised;
        future_rewards: supervised;
        influence: supervised;
        adaptive_kl.target: supervised;
        adaptive_kl.horizon: supervised.or(when(
            given.adaptive_kl.target == 0.0, "`adaptive_kl.target` is 0"
        ));
        train_on: taught;
        preference: when(
            !given.preset.compares_pairs(), "it is a table of `name = \"dpo\"` and `name = \"spin\"`"
        );
        verifier: when(
            given.preset != Preset::Verifier, "it is a table of `name = \"verifier\"`"
        );
        verifier.rank: no_adapter(given);
        verifier.alpha: no_adapter(given);
    }
}

fn values(given: &CriticPlan) -> Vec<Key> {
    let unset = CriticPlan::default();
    keys! { given, unset, "advantage.",
        value_coef: when(given.trunk != Trunk::Shared, "`trunk` is not \"shared\"");
    }
}

fn mixed(given: &MixerPlan) -> Vec<Key> {
    let unset = MixerPlan::default();
    let whole = when(
        given.credit != Credit::Tokens,
        "a mixer's values are of whole episodes, unless `credit` is \"tokens\"",
    );
    keys! { given, unset, "advantage.",
        width: when(given.network != MixerNetwork::Monotone, "`network` is not \"monotone\"");
        gamma: whole;
        lambda: whole;
    }
}

fn losses(given: &LossPlan, unset: &LossPlan, seats: &[SeatPlan]) -> Vec<Key> {
    let all = |idle: fn(&LossPlan) -> bool, why| {
        when(seats.iter().filter(|seat| seat.trained).all(|seat| idle(&seat.loss)), why)
    };
    let free = all(|loss| loss.kl_coef == 0.0, "`loss.kl_coef` is 0");
    keys! { given, unset, "loss.",
        kl: free;
        kl_in: free;
        kl_corrected: free.or(all(|loss| loss.kl_in == KlIn::Reward, "`loss.kl_in` is \"reward\""));
        overlong_penalty: all(|loss| loss.overlong_buffer == 0.0, "`loss.overlong_buffer` is 0");
    }
}
