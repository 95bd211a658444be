//! Critics that cannot be.

use std::collections::BTreeSet;

use crate::check::files::Models;
use crate::config::source::{Problems, empty_modules, key, path, path_within};
use crate::config::{
    AdvantagePlan, CriticInput, CriticScope, HeadKind, MixerNetwork, Preset, Trunk, VerifierLoss,
    VerifierPlan,
};
use crate::plan::{AdapterPlan, AlgorithmPlan, CriticPlan, PolicyPlan, WorkerPlan, host};

/// Reports critics that have nothing to sit on, or parts of one that do not go together.
pub(crate) fn check_critics(
    algorithm: &AlgorithmPlan,
    policies: &[PolicyPlan],
    workers: &[WorkerPlan],
    models: &Models,
    problems: &mut Problems<'_>,
) {
    let Some(critic) = &algorithm.critic else { return nowhere(policies, problems) };
    if algorithm.preset == Preset::Verifier {
        return of_replies(&algorithm.verifier, problems);
    }
    if algorithm.preset.is_supervised() {
        return;
    }
    let mixer = match &algorithm.advantage {
        AdvantagePlan::Mixer(mixer) => Some(mixer.network),
        _ => None,
    };
    let trained: Vec<&PolicyPlan> = policies.iter().filter(|policy| policy.trained).collect();
    parts(critic, trained.len(), problems);
    check_shared_critics(critic, &trained, workers, problems);
    let unnamed: Vec<&PolicyPlan> =
        trained.iter().copied().filter(|policy| policy.critic.is_none()).collect();
    if critic.scope == CriticScope::Team {
        let help = "set `algorithm.advantage.scope = \"policy\"`: each policy has a critic that reads its tokens";
        one_model(
            "scope",
            "one critic for the team cannot read",
            help,
            &unnamed,
            workers,
            problems,
        );
    } else if mixer == Some(MixerNetwork::Monotone) {
        let help = "use one model for all of them, or set `network = \"sum\"`, which has no state";
        one_model(
            "network",
            "one mixer cannot take its state from",
            help,
            &trained,
            workers,
            problems,
        );
    }
    if let Some(lora) = &critic.lora {
        empty_modules(lora, &critic_key("lora"), problems);
    }
    if critic.trunk == Trunk::Lora {
        adapters(critic, &trained, workers, models, problems);
    } else if critic.lora.is_some() {
        let message = "`algorithm.advantage.lora` has no effect: the critic is no adapter";
        let help = "set `trunk = \"lora\"`, or remove it";
        problems.key(&critic_key("lora"), message.to_owned(), help.to_owned());
    }
}

/// Reports a head that has one logit for a reply with a loss that needs one at single tokens.
fn of_replies(verifier: &VerifierPlan, problems: &mut Problems<'_>) {
    let loss = match (verifier.head, verifier.loss) {
        (HeadKind::Likelihood, VerifierLoss::Span) => "span",
        (HeadKind::Likelihood, VerifierLoss::Steps) => "steps",
        _ => return,
    };
    let message = format!(
        "`loss = {loss:?}` needs logits at single tokens, and `head = \"likelihood\"` has one for a reply"
    );
    let help = "set `loss = \"last\"` or `\"pairs\"`, or `head = \"linear\"`";
    problems.conflict(&path(["algorithm", "verifier", "loss"]), message, help.to_owned());
}

/// Reports critics that agents name where there are none.
fn nowhere(policies: &[PolicyPlan], problems: &mut Problems<'_>) {
    if let Some(policy) = policies.iter().find(|policy| policy.critic.is_some()) {
        let name = policy.critic.as_deref().unwrap_or_default();
        let message = format!("`critic = {name:?}` has no effect: advantages are among episodes");
        let help = "set `algorithm.advantage.kind = \"critic\"`, or a `name` that has critics, as \"ppo\"; or remove it";
        problems.value(&path(["algorithm", "name"]), message, help.to_owned());
    }
}

/// Reports critics that several policies are to share and cannot.
fn check_shared_critics(
    critic: &CriticPlan,
    trained: &[&PolicyPlan],
    workers: &[WorkerPlan],
    problems: &mut Problems<'_>,
) {
    let names: BTreeSet<&str> = trained.iter().filter_map(|p| p.critic.as_deref()).collect();
    for name in names {
        let its: Vec<&PolicyPlan> =
            trained.iter().copied().filter(|p| p.critic.as_deref() == Some(name)).collect();
        let what = format!("the critic {name:?} cannot read");
        let help = "a critic reads the tokens of one model: give them critics of different names";
        one_model("scope", &what, help, &its, workers, problems);
        if critic.trunk == Trunk::Shared && its.len() > 1 {
            let message = format!(
                "the critic {name:?} cannot be on the trunks of both policy `{}` and policy `{}`",
                its[0].name, its[1].name
            );
            let help = "give it a trunk with `trunk = \"own\"`, or give each its own name";
            problems.value(&critic_key("trunk"), message, help.to_owned());
        }
    }
}

/// Returns the policies with the number of parameters of the critic that each is the host of.
pub(crate) fn with_critics(
    mut policies: Vec<PolicyPlan>,
    algorithm: &AlgorithmPlan,
    workers: &[WorkerPlan],
    models: &Models,
) -> Vec<PolicyPlan> {
    let supervised = algorithm.preset.is_supervised() && algorithm.preset != Preset::Verifier;
    let Some(critic) = algorithm.critic.as_ref().filter(|_| !supervised) else { return policies };
    for index in 0..policies.len() {
        if host(&policies, critic.scope, index) == Some(index)
            && let Some(found) = parameters(critic, &policies[index], workers, models)
        {
            policies[index].critic_parameters = found;
        }
    }
    policies
}

/// Returns the number of parameters of a critic; `None` if the model of its policy could not be opened.
fn parameters(
    critic: &CriticPlan,
    policy: &PolicyPlan,
    workers: &[WorkerPlan],
    models: &Models,
) -> Option<u64> {
    let worker = &workers[policy.worker];
    let shape = &models.get(&worker.model)?.shape;
    let trunk = match critic.trunk {
        Trunk::Shared => 0,
        Trunk::Own => worker.parameters,
        Trunk::Lora => {
            AdapterPlan::new(&critic.lora(), None, shape).map_or(0, |adapter| adapter.parameters)
        }
    };
    Some(trunk + shape.hidden_size as u64 + 1)
}

fn critic_key(name: &str) -> Vec<String> {
    path_within(&path(["algorithm", "advantage"]), name)
}

/// Reports parts that do not go together.
fn parts(critic: &CriticPlan, trained: usize, problems: &mut Problems<'_>) {
    let shared = critic.trunk == Trunk::Shared;
    let updated_alone = critic.epochs.is_some() || critic.minibatches.is_some();
    let own = if critic.epochs.is_some() { "epochs" } else { "minibatches" };
    let wrong: [(bool, [&str; 2], &str, &str); 4] = [
        (
            shared && critic.input == CriticInput::Transcript,
            ["trunk", "input"],
            "on the policy's trunk, a critic reads what the policy is given, not the transcript",
            "set `input = \"prompt\"`, or give it a trunk with `trunk = \"own\"` or `\"lora\"`",
        ),
        (
            shared && critic.scope == CriticScope::Team && trained > 1,
            ["trunk", "scope"],
            "one critic for the team cannot be on the trunks of several policies",
            "set `scope = \"policy\"`, or give it a trunk with `trunk = \"own\"`",
        ),
        (
            shared && critic.warmup_steps > 0,
            ["trunk", "warmup_steps"],
            "a critic on the policy's trunk is updated with it, never before it",
            "remove `warmup_steps`, or set `trunk = \"own\"` or `\"lora\"`",
        ),
        (
            shared && updated_alone,
            [own, "trunk"],
            "a critic on the policy's trunk is updated in the policy's optimizer steps",
            "set `epochs` and `minibatches` of `[algorithm]`, or set `trunk = \"own\"` or `\"lora\"`",
        ),
    ];
    for (_, names, message, help) in wrong.into_iter().filter(|(wrong, ..)| *wrong) {
        let given = names.map(critic_key).into_iter().find(|key| problems.layers().has(key));
        let at = given.unwrap_or_else(|| path(["algorithm", "name"]));
        problems.conflict(&at, message.to_owned(), help.to_owned());
    }
}

/// Reports policies that are to have in common what only policies of one model can.
fn one_model(
    name: &str,
    what: &str,
    help: &str,
    trained: &[&PolicyPlan],
    workers: &[WorkerPlan],
    problems: &mut Problems<'_>,
) {
    let mut all = trained.iter().map(|policy| (&workers[policy.worker].model, &policy.name));
    let Some((model, policy)) = all.next() else { return };
    let Some((other, its)) = all.find(|(other, _)| *other != model) else { return };
    let message = format!(
        "{what} both model `{model}` of policy `{policy}` and model `{other}` of policy `{its}`"
    );
    let at = critic_key(name);
    let at = if problems.layers().has(&at) { at } else { path(["algorithm", "name"]) };
    problems.conflict(&at, message, help.to_owned());
}

/// Reports adapters that do not fit their base, or whose base is trained itself.
fn adapters(
    critic: &CriticPlan,
    trained: &[&PolicyPlan],
    workers: &[WorkerPlan],
    models: &Models,
    problems: &mut Problems<'_>,
) {
    for policy in trained {
        let model = &workers[policy.worker].model;
        if policy.adapter.is_none() {
            let message = format!(
                "an adapter of a critic cannot sit on `{model}`: policy `{}` trains its weights",
                policy.name
            );
            let help = format!(
                "weights under an adapter stay as they are: with `lora` in `[{}]` the policy is an adapter too; or set \
                 `trunk = \"own\"`",
                key(&path(["models", model]))
            );
            problems.value(&critic_key("trunk"), message, help);
            return;
        }
        let Some(opened) = models.get(model) else { continue };
        if let Err(error) = AdapterPlan::new(&critic.lora(), None, &opened.shape) {
            problems.value(
                &path_within(&critic_key("lora"), "target_modules"),
                error.to_string(),
                None,
            );
            return;
        }
    }
}
