use super::*;
use crate::config::{CriticPasses, Trunk};

fn says(toml: &str, parts: &[&str]) {
    let found = problems(&text(toml.trim_start()), &search());
    // Wrapped lines are one sentence.
    let flat = found.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(flat.contains(part), "{part:?} is not in\n{found}");
    }
}

/// Configuration in which the verifier has a separate policy.
const TWO: &str = r#"
[models.small]
path = "builtin:tiny"
[agents."search/verifier"]
worker_group = "verify"
"#;

#[test]
fn each_policy_or_the_team_has_a_critic() {
    let host = |algorithm: &str| {
        let plan = plan_of(&text(&format!("{TWO}[algorithm]\n{algorithm}")));
        (0..plan.policies.len()).map(|policy| plan.critic_of(policy)).collect::<Vec<_>>()
    };
    assert_eq!(host("name = \"ppo\""), [Some(0), Some(0)]);
    assert_eq!(host("name = \"ippo\""), [Some(0), Some(1)]);
    assert_eq!(host("name = \"grpo\""), [None, None]);
    assert_eq!(host("name = \"ppo\"\nadvantage.kind = \"group\""), [None, None]);
}

#[test]
fn policies_whose_critics_have_one_name_share_one() {
    let host = |toml: &str| {
        let plan = plan_of(&text(toml));
        (0..plan.policies.len()).map(|policy| plan.critic_of(policy)).collect::<Vec<_>>()
    };
    // Policies are `answer`, `small` and `verify`.
    let three = format!(
        "{TWO}critic = \"judge\"\n[agents.\"search/answerer\"]\nworker_group = \"answer\"\n"
    );
    let named = format!("{three}critic = \"judge\"\n[algorithm]\nname = ");
    assert_eq!(host(&format!("{named}\"ippo\"")), [Some(0), Some(1), Some(0)]);
    assert_eq!(host(&format!("{named}\"ppo\"")), [Some(0), Some(1), Some(0)]);
    assert_eq!(host(&format!("{three}[algorithm]\nname = \"ippo\"")), [Some(0), Some(1), Some(2)]);
    let toml = format!("{named}\"ippo\"");
    let plan = plan_of(&text(&toml));
    let critics: Vec<bool> = plan.policies.iter().map(|p| p.critic_parameters > 0).collect();
    assert_eq!(critics, [true, true, false]);
    let again = plan_of(&text(&toml::to_string(&plan.config).unwrap()));
    assert_eq!(again, plan);
}

#[test]
fn names_of_critics_that_cannot_be_are_told_with_what_would_do() {
    let both = format!("{TWO}critic = \"one\"\n[agents.\"search/answerer\"]\ncritic = \"one\"\n");
    says(
        &format!("{both}[algorithm]\nname = \"grpo\""),
        &["has no effect", "`name` that has critics"],
    );
    // The answerer shares its policy with the searcher, which names no critic.
    says(
        &format!("{both}[algorithm]\nname = \"ippo\""),
        &["`critic` is", "both are policy `small`"],
    );
    let all = format!(
        "{both}[agents.\"search/searcher\"]\ncritic = \"one\"\n[algorithm]\nname = \"ippo\"\n"
    );
    assert_eq!(plan_of(&text(&all)).critic_of(1), Some(0));
    says(
        &format!("{all}advantage.trunk = \"shared\""),
        &["the critic \"one\" cannot be on the trunks of both"],
    );
    let other = all.replacen(
        "[agents.\"search/verifier\"]",
        "[models.other]\npath = \"builtin:tiny\"\n[agents.\"search/verifier\"]\nmodel = \"other\"",
        1,
    );
    let other = other
        .replace("[agents.\"search/answerer\"]", "[agents.\"search/answerer\"]\nmodel = \"small\"")
        .replace("[agents.\"search/searcher\"]", "[agents.\"search/searcher\"]\nmodel = \"small\"");
    says(&other, &["the critic \"one\" cannot read both model", "different names"]);
}

#[test]
fn a_cycle_of_training_needs_policies_that_can_take_turns() {
    let cycle = |toml: &str| format!("{toml}\n[algorithm]\ntrain_cycle = 3\n");
    says(
        &cycle("[models.small]\npath = \"builtin:tiny\""),
        &["`algorithm.train_cycle` is 3, and there is one policy", "`worker_group`"],
    );
    assert_eq!(plan_of(&text(&cycle(TWO))).algorithm.train_cycle, 3);
    says(
        &format!("{}name = \"happo\"", cycle(TWO)),
        &["in what order", "update_order = \"together\""],
    );
    says(
        &format!("{}name = \"ippo\"\nadvantage.trunk = \"shared\"", cycle(TWO)),
        &["on the policy's trunk is updated with it"],
    );
    says(&format!("{}swap_every = 2", cycle(TWO)), &["`algorithm.swap_every` exchanges policies"]);
}

#[test]
fn a_head_with_one_logit_a_reply_takes_no_loss_at_single_tokens() {
    let verifier =
        |keys: &str| format!("[algorithm]\nname = \"verifier\"\nverifier = {{ {keys} }}");
    for loss in ["span", "steps"] {
        let toml = verifier(&format!("head = \"likelihood\", loss = {loss:?}"));
        says(
            &toml,
            &[&format!("`loss = {loss:?}` needs logits at single tokens"), "head = \"linear\""],
        );
    }
}

#[test]
fn parts_of_critics_that_do_not_go_together_are_told_with_what_would_do() {
    let cases = [
        (
            "name = \"grpo\"\nadvantage.gamma = 0.9",
            "unknown key `algorithm.advantage.gamma`",
            "with `kind = \"critic\"`",
        ),
        (
            "name = \"mappo\"\nadvantage.trunk = \"shared\"\nadvantage.scope = \"policy\"",
            "not the transcript",
            "input = \"prompt\"",
        ),
        (
            "name = \"ppo\"\nadvantage.trunk = \"shared\"",
            "the trunks of several policies",
            "scope = \"policy\"",
        ),
        (
            "name = \"ippo\"\nadvantage = { trunk = \"shared\", warmup_steps = 3 }",
            "never before it",
            "remove `warmup_steps`",
        ),
        (
            "name = \"ippo\"\nadvantage = { trunk = \"shared\", epochs = 5 }",
            "updated in the policy's optimizer steps",
            "set `epochs` and `minibatches` of `[algorithm]`",
        ),
        (
            "name = \"ippo\"\nadvantage = { trunk = \"shared\", minibatches = 2 }",
            "updated in the policy's optimizer steps",
            "`trunk = \"own\"`",
        ),
        ("name = \"vdn\"\nadvantage.epochs = 0", "`algorithm.advantage.epochs` is 0", "1"),
        ("name = \"grpo\"\nadvantage.epochs = 5", "unknown key `algorithm.advantage.epochs`", ""),
        (
            "name = \"vdn\"\nadvantage.trunk = \"shared\"",
            "`algorithm.advantage.trunk` is \"shared\"",
            "expected one of \"own\", \"lora\"",
        ),
        (
            "name = \"vdn\"\nadvantage.granularity = \"token\"",
            "unknown key `algorithm.advantage.granularity`",
            "with `kind = \"critic\"`",
        ),
        (
            "name = \"ippo\"\nadvantage.lora = { rank = 4 }",
            "`algorithm.advantage.lora` has no effect",
            "trunk = \"lora\"",
        ),
        (
            "name = \"ippo\"\nadvantage.trunk = \"lora\"",
            "policy `small` trains its weights",
            "`lora` in `[models.small]`",
        ),
        (
            "name = \"ippo\"\nadvantage.gamma = 1.5",
            "`algorithm.advantage.gamma` is 1.5",
            "from 0 to 1",
        ),
        (
            "name = \"ippo\"\nadvantage.optim.lr = -1.0",
            "`algorithm.advantage.optim.lr` is -1",
            "above 0",
        ),
        ("name = \"maporl\"\ninfluence.follow = -1.0", "`algorithm.influence.follow` is -1", "0"),
        (
            "name = \"sft\"\nadvantage.kind = \"critic\"",
            "`algorithm.advantage` has no effect",
            "remove it",
        ),
    ];
    for (algorithm, message, help) in cases {
        says(&format!("{TWO}[algorithm]\n{algorithm}\n"), &[message, help]);
    }
}

#[test]
fn every_conflict_of_a_critic_is_told_and_not_only_the_first() {
    let critic = "{ trunk = \"shared\", warmup_steps = 5 }";
    let toml = format!("{TWO}[algorithm]\nname = \"mappo\"\nadvantage = {critic}\n");
    for told in ["the trunks of several", "never before it", "not the transcript"] {
        says(&toml, &[told]);
    }
}

#[test]
fn a_sequence_of_policies_has_more_than_one() {
    let one = "[models.small]\npath = \"builtin:tiny\"\n[algorithm]\nname = \"happo\"\n";
    says(one, &["a sequence of policies, and there is one to train", "`worker_group`"]);
    plan_of(&text(&format!("{one}update_order = \"together\"\n")));
    plan_of(&text(&format!("{TWO}[algorithm]\nname = \"happo\"\n")));
}

#[test]
fn one_critic_does_not_read_the_tokens_of_two_models() {
    let two = "[models.small]\npath = \"builtin:tiny\"\n[models.other]\npath = \"builtin:tiny\"\n\
               [agents.\"search/verifier\"]\nmodel = \"other\"\n[agents.\"search/searcher\"]\nmodel = \"small\"\n\
               [agents.\"search/answerer\"]\nmodel = \"small\"\n[algorithm]\n";
    says(&format!("{two}name = \"ppo\"\n"), &["one critic for the team", "scope = \"policy\""]);
    says(
        &format!("{two}name = \"qmix\"\n"),
        &["one mixer cannot take its state", "network = \"sum\""],
    );
    plan_of(&text(&format!("{two}name = \"ippo\"\n")));
    plan_of(&text(&format!("{two}name = \"vdn\"\n")));
}

#[test]
fn what_is_written_out_makes_the_same_critic() {
    let lora = "[models.small]\npath = \"builtin:tiny\"\nlora = { rank = 2 }\n[algorithm]\nname = \"mappo\"\n\
                advantage = { trunk = \"lora\", lora = { rank = 4 }, optim = { lr = 1e-3 } }\n";
    let plan = plan_of(&text(lora));
    let critic = plan.algorithm.critic.clone().unwrap();
    assert_eq!((critic.trunk, critic.optim().lr), (Trunk::Lora, 1e-3));
    assert_eq!(critic.lora().rank, 4);
    let again = plan_of(&text(&toml::to_string(&plan.config).unwrap()));
    assert_eq!(again.algorithm, plan.algorithm);
}

#[test]
fn how_many_updates_a_critic_gets_is_told_and_follows_its_own_keys_before_those_of_the_algorithm() {
    let cases = [
        ("name = \"ippo\"", "1 update a step (1 x 1", [1, 1]),
        ("name = \"ippo\"\nepochs = 4\nminibatches = 2", "8 updates a step (4 x 2", [4, 2]),
        ("name = \"ippo\"\nadvantage.epochs = 5", "5 updates a step (5 x 1", [5, 1]),
        (
            "name = \"mappo\"\nepochs = 4\nminibatches = 2\nadvantage = { epochs = 15, minibatches = 1 }",
            "15 updates a step (15 x 1",
            [15, 1],
        ),
        ("name = \"maporl\"\nadvantage.minibatches = 3", "12 updates a step (4 x 3", [4, 3]),
        ("name = \"vdn\"\nepochs = 2\nminibatches = 4", "2 updates a step (2 x 1", [2, 1]),
        (
            "name = \"qmix\"\nadvantage = { epochs = 5, minibatches = 2 }",
            "10 updates a step",
            [5, 2],
        ),
        // Credits without a reward are as good as the critics.
        ("name = \"vdn\"\nadvantage.credit = \"difference\"", "5 updates a step (5 x 1", [5, 1]),
        (
            "name = \"qmix\"\nepochs = 8\nadvantage.credit = \"tokens\"",
            "8 updates a step (8 x 1",
            [8, 1],
        ),
        (
            "name = \"vdn\"\nadvantage = { credit = \"tokens\", epochs = 1 }",
            "1 update a step (1 x 1",
            [1, 1],
        ),
        ("name = \"qmix\"\nadvantage.credit = \"without\"", "1 update a step (1 x 1", [1, 1]),
    ];
    for (algorithm, told, [epochs, minibatches]) in cases {
        let mut plan = plan_of(&text(&format!("{TWO}[algorithm]\n{algorithm}\n")));
        plan.config = plan.config.with(|config| config.steps = 7);
        let table = crate::plan::table(&plan, 400);
        let table = table.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(table.contains(&format!("a critic gets {told}")), "{algorithm}: {table}");
        assert!(table.contains(&format!(", {} in the run", 7 * epochs * minibatches)), "{table}");
        assert_eq!(
            plan.algorithm.critic_passes(),
            CriticPasses { epochs, minibatches },
            "{algorithm}"
        );
        let again = plan_of(&text(&toml::to_string(&plan.config).unwrap()));
        assert_eq!(again.algorithm, plan.algorithm);
    }
    let without = plan_of(&text(&format!("{TWO}[algorithm]\nname = \"grpo\"\n")));
    assert!(!crate::plan::table(&without, 400).contains("a critic"));
}
