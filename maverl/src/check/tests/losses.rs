//! Corrections and surrogates of a loss.

use super::*;
use crate::config::{
    AdvantagePlan, Aggregation, Correction, CorrectionUnit, GroupBy, OpoPlan, Ratio,
};
use crate::config::{Preset, Selection, SurrogatePlan};
use crate::loss::{KeptWeight, LossUnit};

fn corrections(toml: &str) -> Vec<Correction> {
    plan_of(&text(toml)).seats[0].loss.correction.clone()
}

fn refused(toml: &str, part: &str) {
    let problems = super::super::check(&text(toml), &search(), Purpose::Train).unwrap_err();
    let found = render(&problems, GraphicalTheme::none());
    assert!(found.contains(part), "{found}");
}

#[test]
fn a_correction_is_a_name_a_table_or_a_list() {
    assert_eq!(corrections(""), []);
    assert_eq!(corrections("[algorithm.loss]\ncorrection = \"none\""), []);
    let one = corrections("[algorithm.loss]\ncorrection = \"truncate\"");
    assert!(matches!(one[..], [Correction::Truncate(options)] if options.high == 2.0));
    let one =
        corrections("[algorithm.loss.correction]\nkind = \"mask\"\nof = \"mean\"\nkeep = \"one\"");
    let [Correction::Mask(mask)] = one[..] else { panic!("{one:?}") };
    assert_eq!(
        (mask.of, mask.keep, mask.low, mask.high),
        (CorrectionUnit::Mean, KeptWeight::One, 0.5, 5.0)
    );
    let list = "[[algorithm.loss.correction]]\nkind = \"truncate\"\nhigh = 3\n\
                [[algorithm.loss.correction]]\nkind = \"mask_tokens\"\ncap = 4\n\
                [[algorithm.loss.correction]]\nkind = \"none\"";
    let two = corrections(list);
    assert!(
        matches!(two[..], [Correction::Truncate(_), Correction::MaskTokens(mask)] if mask.cap == 4.0)
    );
    let plan = plan_of(&text(list));
    let resolved = toml::to_string(&plan.config).unwrap();
    assert_eq!(plan_of(&text(&resolved)), plan);
}

#[test]
fn an_agent_changes_keys_of_one_table_and_replaces_a_list() {
    let own = "[agents.\"search/answerer\".loss.correction]\n";
    let of = |run: &str, own: &str| {
        let plan = plan_of(&text(&format!("{run}\n{own}")));
        let seat = plan.seats.iter().find(|seat| seat.seat.agent == "search/answerer").unwrap();
        seat.loss.correction.clone()
    };
    let run = "[algorithm.loss.correction]\nkind = \"mask\"\nhigh = 7";
    let [Correction::Mask(mask)] = of(run, &format!("{own}low = 0.25"))[..] else { panic!() };
    assert_eq!((mask.low, mask.high), (0.25, 7.0));
    let list = "[[algorithm.loss.correction]]\nkind = \"truncate\"\n\
                [[algorithm.loss.correction]]\nkind = \"mask\"";
    assert_eq!(of(list, "").len(), 2);
    assert_eq!(of(list, &format!("{own}kind = \"none\"")), []);
}

#[test]
fn mistakes_in_a_list_of_corrections_are_reported_with_their_place() {
    refused("[algorithm.loss]\ncorrection = [{ kind = \"truncate\", hihg = 2 }]", "hihg");
    refused("[[algorithm.loss.correction]]\nkind = \"cut\"", "no correction is called `cut`");
    refused("[[algorithm.loss.correction]]\nkind = \"mask\"\nhigh = 0", "is 0; expected");
    refused("[algorithm.loss]\ncorrection = []", "an empty list");
}

#[test]
fn corrections_that_exclude_each_other_are_refused_with_the_reason() {
    let table = "[algorithm.loss]\ncorrection = ";
    refused(
        &format!("{table}[\"truncate\", \"truncate\"]"),
        "`algorithm.loss.correction` truncates twice",
    );
    refused(
        &format!("{table}{{ kind = \"truncate\", of = \"max\" }}"),
        "truncates the ratio of `max`",
    );
    refused(
        &format!("{table}{{ kind = \"truncate\", cap = 3, high = 4 }}"),
        "`algorithm.loss.correction` has both `cap` and `high`",
    );
    // The second is the default.
    refused(&format!("{table}{{ kind = \"truncate\", cap = 3, high = 2 }}"), "has both");
    refused(&format!("{table}[{{ kind = \"truncate\", high = 2, cap = 3 }}]"), "has both");
    refused(
        "[agents.\"search/answerer\".loss.correction]\nkind = \"truncate\"\ncap = 3\nhigh = 2",
        "loss.correction` has both `cap` and `high`",
    );
    refused(
        &format!("{table}{{ kind = \"mask\", low = 0.9, high = 0.5 }}"),
        "has a `low` above its `high`",
    );
}

#[test]
fn the_resolved_configuration_has_the_bound_that_holds_alone() {
    let plan = plan_of(&text("[algorithm.loss.correction]\nkind = \"truncate\"\ncap = 3"));
    let resolved = toml::to_string(&plan.config).unwrap();
    assert!(resolved.contains("cap = 3.0") && !resolved.contains("high = 2.0"), "{resolved}");
    assert_eq!(plan_of(&text(&resolved)), plan);
}

#[test]
fn a_mask_by_a_divergence_has_no_lower_bound() {
    for measure in ["k2", "k3"] {
        let mask = format!("{{ kind = \"mask\", measure = \"{measure}\", high = 0.01 }}");
        plan_of(&text(&format!("[algorithm.loss]\ncorrection = {mask}")));
    }
}

#[test]
fn a_critic_on_the_trunk_of_a_policy_needs_every_row() {
    let ippo = "[algorithm]\nname = \"ippo\"\nloss.truncated = \"skip\"\nadvantage.trunk = ";
    refused(&format!("{ippo}\"shared\""), "truncated replies of");
    plan_of(&text(&format!("{ippo}\"own\"")));
}

#[test]
fn surrogates_of_replies_need_their_ratio_and_their_aggregation() {
    for name in ["gmpo", "vespo", "dppo", "gpg"] {
        refused(
            &format!("[algorithm]\nname = \"{name}\"\nloss.ratio = \"sequence\""),
            &format!(
                "the surrogate \"{}\" and a ratio of the reply",
                name.replace("gpg", "reinforce")
            ),
        );
    }
    refused(
        "[algorithm]\nname = \"gmpo\"\naggregation = \"token_mean\"",
        "the surrogate \"gmpo\" has one loss for a reply",
    );
    refused(
        "[algorithm]\nname = \"grpo\"\nadvantage.normalize_mean = true",
        "`algorithm.advantage.normalize_mean` is true, and advantages are divided by the deviation",
    );
}

#[test]
fn a_selection_is_a_name_or_a_table_and_drops_tokens_of_surrogates_of_tokens() {
    let select = |table: &str| plan_of(&text(&format!("[algorithm]\nselect = {table}")));
    assert_eq!(select("\"none\"").algorithm.select, Selection::None);
    let Selection::ClipCov(options) = select("\"clip_cov\"").algorithm.select else { panic!() };
    assert_eq!((options.share, options.low, options.high), (2e-4, 1.0, 5.0));
    let plan = select("{ kind = \"kl_cov\", coef = 2.0 }");
    assert!(matches!(plan.algorithm.select, Selection::KlCov(options) if options.coef == 2.0));
    let resolved = toml::to_string(&plan.config).unwrap();
    assert_eq!(plan_of(&text(&resolved)), plan);
    refused("[algorithm]\nselect = \"entropie\"", "no selection is called `entropie`");
    refused("[algorithm]\nselect = { kind = \"entropy\", share = 0 }", "is 0; expected");
    refused(
        "[algorithm]\nselect = { kind = \"clip_cov\", low = 3.0, high = 2.0 }",
        "`algorithm.select` has `low = 3` and `high = 2`",
    );
    for preset in
        ["name = \"gspo\"", "name = \"gmpo\"", "name = \"rloo\"\nloss.ratio = \"product\""]
    {
        for kind in ["clip_cov", "entropy"] {
            refused(
                &format!("[algorithm]\n{preset}\nselect = \"{kind}\""),
                "`algorithm.select` drops tokens, and the replies of",
            );
        }
        plan_of(&text(&format!("[algorithm]\n{preset}\nselect = \"kl_cov\"")));
    }
}

#[test]
fn a_selection_without_effect_is_doubted() {
    let warnings =
        |more: &str| plan_of(&text(&format!("[algorithm]\nselect = {more}"))).warnings.join("\n");
    let none = "which is 0 in the first optimizer step";
    assert!(warnings("\"kl_cov\"").contains(none));
    assert!(!warnings("\"kl_cov\"\nepochs = 2").contains(none));
    let few = "less than a token of a minibatch";
    assert!(warnings("{ kind = \"entropy\", share = 1e-7 }").contains(few));
    assert!(!warnings("\"entropy\"").contains(few));
    let unused = "`algorithm.select` has no effect";
    assert!(warnings("\"entropy\"\nname = \"online_dpo\"").contains(unused));
}

#[test]
fn new_presets_have_the_parts_of_their_papers() {
    let algorithm = |preset: Preset| {
        plan_of(&text(&format!("[algorithm]\nname = \"{}\"", preset.name()))).algorithm
    };
    let gmpo = algorithm(Preset::Gmpo);
    assert_eq!(gmpo.loss.surrogate.surrogate().unit(), LossUnit::Reply);
    assert_eq!(gmpo.aggregation, Aggregation::SequenceMean);
    assert_eq!(algorithm(Preset::GspoToken).loss.ratio, Ratio::SequenceToken);
    assert!(matches!(algorithm(Preset::Gpg).loss.surrogate, SurrogatePlan::Reinforce(_)));
    let opo = AdvantagePlan::Opo(OpoPlan { by: GroupBy::Task });
    assert_eq!(algorithm(Preset::Opo).advantage, opo);
    let AdvantagePlan::Group(maxrl) = algorithm(Preset::Maxrl).advantage else { panic!() };
    assert!(maxrl.normalize_mean && !maxrl.normalize_std && !maxrl.compensate_flat);
}

#[test]
fn rewards_that_may_be_negative_are_doubted_where_advantages_are_divided_by_their_mean() {
    let warnings = |more: &str| {
        let toml = format!("[algorithm]\nname = \"maxrl\"\n{more}");
        plan_of(&text(&toml)).warnings.join("\n")
    };
    assert!(!warnings("").contains("normalize_mean"));
    for (more, part) in [
        ("loss.invalid_reply_penalty = 0.1", "`algorithm.loss.invalid_reply_penalty`"),
        ("loss.overlong_buffer = 0.2", "`algorithm.loss.overlong_penalty`"),
        ("loss.kl_coef = 0.1\nloss.kl_in = \"reward\"", "`algorithm.loss.kl_in = \"reward\"`"),
    ] {
        let told = warnings(more);
        assert!(told.contains("can make rewards negative") && told.contains(part), "{told}");
    }
}

#[test]
fn a_surrogate_that_averages_the_advantages_of_tokens_is_doubted() {
    let doubts = |more: &str| {
        let toml = format!("[algorithm]\nname = \"ppo\"\n{more}");
        plan_of(&text(&toml)).warnings.join("\n").contains("takes the mean advantage of a reply")
    };
    assert!(!doubts(""));
    assert!(doubts("loss.surrogate = \"vespo\""));
    assert!(!doubts("loss.surrogate = \"vespo\"\nadvantage.granularity = \"turn\""));
}

#[test]
fn losses_of_pairs_without_a_reference_keep_none_and_refuse_one() {
    let online = |loss: &str, more: &str| {
        format!(
            "[algorithm]\nname = \"online_dpo\"\n{more}\n[algorithm.preference]\nloss = {loss:?}"
        )
    };
    for (loss, reference) in [("sigmoid", true), ("orpo", false), ("simpo", false)] {
        assert_eq!(plan_of(&text(&online(loss, ""))).policies[0].reference, reference, "{loss}");
    }
    let message = "`algorithm.reference.every` is 5, and the loss \"simpo\" has no reference";
    refused(&online("simpo", "reference = { every = 5 }"), message);
    let message = "`algorithm.reference.mix` is 0.5, and the loss \"orpo\" has no reference";
    refused(&online("orpo", "reference = { mix = 0.5 }"), message);
    // What a run wrote out is accepted when it is resumed.
    let plan = plan_of(&text(&online("simpo", "")));
    let written = toml::to_string(&plan.config).unwrap();
    assert_eq!(plan_of(&text(&written)), plan);
}

#[test]
fn a_loss_of_labeled_replies_has_a_reference_and_needs_no_group() {
    let kto = |name: &str, more: &str| {
        format!("[algorithm]\nname = {name:?}\n[algorithm.preference]\nloss = \"kto\"\n{more}")
    };
    let one = format!("{}[task]\ngroup_size = 1", kto("online_dpo", ""));
    let plan = plan_of(&text(&one));
    assert!(plan.policies[0].reference);
    assert_eq!(plan.algorithm.preference.threshold, 0.5);
    let none = "good_weight = 0.0\nbad_weight = 0.0";
    refused(&kto("online_dpo", none), "`algorithm.preference.good_weight` and `bad_weight` are 0");
    refused(&kto("online_dpo", "label_smoothing = 0.1"), "which this loss does not have");
    let idle = plan_of(&text("[algorithm]\nname = \"online_dpo\"\npreference.threshold = 0.2"));
    assert!(idle.warnings.join("\n").contains("`algorithm.preference.threshold` has no effect"));
}

#[test]
fn a_reference_moves_only_where_it_is_renewed_and_is_no_opponent() {
    let moved = "[algorithm]\nname = \"online_dpo\"\nreference = { every = 4, mix = 0.5 }";
    assert_eq!(plan_of(&text(moved)).algorithm.reference.mix, 0.5);
    let never = "[algorithm]\nname = \"online_dpo\"\nreference = { every = 0, mix = 0.5 }";
    let told = "`algorithm.reference.mix` has no effect";
    assert!(plan_of(&text(never)).warnings.join("\n").contains(told));
}

#[test]
fn a_controller_of_the_entropy_has_one_coefficient_and_bounds_in_order() {
    let table = "[algorithm.adaptive_entropy]\ntarget = 0.2\n";
    let plan = plan_of(&text(&format!("{table}[algorithm.loss]\nentropy_coef = 0.01")));
    assert_eq!(plan.algorithm.adaptive_entropy.change, 0.005);
    refused(&format!("{table}low = 2.0"), "`algorithm.adaptive_entropy.low` is 2, and `high` is 1");
    let own = "[agents.\"search/answerer\"]\nloss.entropy_coef = 0.1";
    refused(&format!("{table}{own}"), "has one coefficient for a policy");
}
