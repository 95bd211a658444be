//! Router replay: passes with experts that a sampler chose.

use super::reference::{apart, scalar, stripped};
use super::*;
use crate::message::Routes;
use crate::net::experts::{PackedRoutes, RouterLoad};
use crate::net::tape::RoutedTokens;

/// Families with experts.
const NAMES: [&str; 3] = ["gpt_oss", "qwen3_5_moe", "qwen3_moe"];

fn models() -> impl Iterator<Item = (&'static str, Model, Reference)> {
    NAMES.into_iter().map(|name| {
        let dir = fixture("families").join(name);
        let files = ModelFiles::new(&ModelSource::Directory(dir.clone()));
        (name, Model::load(&files).unwrap(), Reference::open(&dir))
    })
}

/// Returns the layers with experts.
fn sparse(model: &Model) -> Vec<usize> {
    let layers = model.config.layers.iter().enumerate();
    layers.filter(|(_, layer)| layer.mlp.experts().is_some()).map(|(index, _)| index).collect()
}

/// Packs the routes of rows that share nothing.
fn packed_routes(routes: &[Routes]) -> PackedRoutes {
    let tokens = routes.iter().map(Routes::tokens).sum();
    let mut packed = PackedRoutes::none(tokens, routes[0].width());
    let mut first = 0;
    for of_row in routes {
        packed.set(first, of_row);
        first += of_row.tokens();
    }
    packed
}

/// Returns the routes of the reference for each row.
fn stored_routes(model: &Model, reference: &Reference, rows: &[Vec<u32>]) -> Vec<Routes> {
    let layers: Vec<(Vec<Vec<i64>>, usize)> = sparse(model)
        .into_iter()
        .map(|layer| {
            let name = format!("replay.{layer}.experts");
            (reference.ints(&name), reference.shape(&name)[1])
        })
        .collect();
    let of_row = |(index, row): (usize, &Vec<u32>)| {
        let mut experts = Vec::new();
        for token in 0..row.len() {
            for (of_layer, width) in &layers {
                experts.extend(of_layer[index * width + token].iter().map(|&e| e as u8));
            }
        }
        Routes::new(experts, layers.len() * layers[0].0[0].len()).unwrap()
    };
    rows.iter().enumerate().map(of_row).collect()
}

/// Returns the log-probs after each token of rows.
fn logprobs(
    model: &Model,
    packed: &PackedRows,
    routes: &PackedRoutes,
    targets: &[u32],
) -> Vec<f32> {
    let context = Context::Routed(Packing::from_offsets(&packed.offsets), routes);
    let (decoder, mut pool) = (&model.decoder, Pool::default());
    let hidden = decoder.forward(&packed.ids, &packed.positions, context, &mut pool).unwrap();
    decoder.logprobs(&hidden, targets, &vec![1.0; targets.len()]).unwrap().0
}

/// Computes gradients with routes, and the load of the experts.
fn gradients<'m>(
    model: &'m Model,
    packed: &PackedRows,
    routes: &PackedRoutes,
    (targets, dlogp): (&[u32], &[f32]),
    checkpointing: bool,
) -> (Gradients<'m>, RouterLoad) {
    let (mut gradients, mut pool) = (Gradients::new(model.trainable()), Pool::default());
    let packing = Packing::from_offsets(&packed.offsets);
    let rows = Rows { ids: &packed.ids, positions: &packed.positions, packing };
    let counts = vec![1.0; packed.ids.len()];
    let tokens = RoutedTokens { counts: &counts, slopes: None, routes: Some(routes) };
    let decoder = &model.decoder;
    let tape = Tape::record_routed(decoder, rows, Some(tokens), checkpointing, &mut pool).unwrap();
    let load = RouterLoad::sum(tape.loads().iter().map(|(_, load)| load));
    let even = vec![1.0; targets.len()];
    let of = Targets { ids: targets, inv_temperature: &even };
    let loss = |_, _: [&[f32]; 2], [out, _]: [&mut [f32]; 2]| {
        out.copy_from_slice(dlogp);
        Ok(())
    };
    let dhidden = decoder.loss(tape.hidden(), of, &[0, targets.len()], &mut gradients, loss);
    tape.backward(&dhidden.unwrap(), &mut gradients, &mut pool).unwrap();
    (gradients, load)
}

/// Returns targets and derivatives of the loss of the reference.
fn learned(reference: &Reference, rows: &[Vec<u32>]) -> (Vec<u32>, Vec<f32>) {
    let (mask, width) = (reference.floats("loss_mask"), reference.shape("loss_mask")[1]);
    let total = mask.iter().sum::<f32>();
    let (mut targets, mut dlogp) = (Vec::new(), Vec::new());
    for (r, row) in rows.iter().enumerate() {
        targets.extend(row.iter().copied().skip(1).chain([0]));
        dlogp.extend(mask[r * width..][..row.len() - 1].iter().map(|mask| -mask / total));
        dlogp.push(0.0);
    }
    (targets, dlogp)
}

#[test]
fn replayed_experts_give_the_log_probs_and_the_gradient_of_the_reference() {
    for (name, model, reference) in models() {
        let allowed = if name.starts_with("qwen3_5") { 2e-4 } else { 1e-4 };
        let (rows, packed) = stripped(&reference, "right");
        let routes = packed_routes(&stored_routes(&model, &reference, &rows));
        let (targets, dlogp) = learned(&reference, &rows);
        let found = logprobs(&model, &packed, &routes, &targets);
        let stored = reference.floats("replay.right.logprobs");
        let width = reference.shape("replay.right.logprobs")[1];
        let mut off = 0.0_f32;
        for (index, at) in packed.offsets.windows(2).enumerate() {
            let own = &found[at[0]..at[1] - 1];
            off = off.max(furthest(own, &stored[index * width..][..own.len()]));
        }
        let loss: f64 = found.iter().zip(&dlogp).map(|(l, d)| f64::from(l * d)).sum();
        let of_loss = (loss - scalar(&reference, "replay.loss")).abs();
        let (sums, load) = gradients(&model, &packed, &routes, (&targets, &dlogp), false);
        let router = model.config.layers[0].mlp.experts().unwrap().scores.name;
        let router = model.config.names.in_layer(0, &format!("{router}.weight"));
        let slot = model.weights.vars().iter().position(|(found, _)| *found == router).unwrap();
        let expected = reference.floats(&format!("replay.grad.{router}"));
        let of_gradient = apart(sums.sums().unwrap()[slot], &expected);
        println!(
            "{name}, replayed: log-probs {off:.1e}, loss {of_loss:.1e}, gradient of a router {of_gradient:.1e}; {:.0} of {:.0} \
             tokens and layers have other experts",
            load.changed, load.replayed
        );
        assert!(off <= allowed && of_loss <= f64::from(allowed) && of_gradient <= 1e-3, "{name}");
        assert!(load.replayed == load.tokens && load.changed > 0.0, "{name}: {load:?}");
        let (again, _) = gradients(&model, &packed, &routes, (&targets, &dlogp), true);
        let bits = |of: &Gradients<'_>| {
            of.sums().unwrap().concat().iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
        };
        assert!(bits(&sums) == bits(&again), "{name}: recomputed layers have other experts");
    }
}

/// Returns the experts that the routers choose for each row, in either order of a token's.
fn own_routes(model: &Model, rows: &[Vec<u32>], turn: bool) -> PackedRoutes {
    let k = model.config.layers[0].mlp.experts().unwrap().router.chosen;
    let of_row = |row: &Vec<u32>| {
        let routes = model.routes(row).unwrap().unwrap();
        let mut experts = routes.experts().to_vec();
        if turn {
            experts.chunks_exact_mut(k).for_each(<[u8]>::reverse);
        }
        Routes::new(experts, routes.width()).unwrap()
    };
    packed_routes(&rows.iter().map(of_row).collect::<Vec<_>>())
}

#[test]
fn replay_of_the_experts_that_the_routers_choose_changes_no_bit_in_any_order_of_a_token_s() {
    for (name, model, reference) in models() {
        let (rows, packed) = stripped(&reference, "right");
        let (targets, dlogp) = learned(&reference, &rows);
        let plain = gradients_of(&model, &packed, &targets, &dlogp);
        let context = Context::Packed(Packing::from_offsets(&packed.offsets));
        let (decoder, mut pool) = (&model.decoder, Pool::default());
        let hidden = decoder.forward(&packed.ids, &packed.positions, context, &mut pool).unwrap();
        let (expected, _) = decoder.logprobs(&hidden, &targets, &vec![1.0; targets.len()]).unwrap();
        for turn in [false, true] {
            let routes = own_routes(&model, &rows, turn);
            assert_eq!(logprobs(&model, &packed, &routes, &targets), expected, "{name}");
            let (sums, load) = gradients(&model, &packed, &routes, (&targets, &dlogp), false);
            assert!(sums.sums().unwrap() == plain.sums().unwrap(), "{name}");
            assert_eq!((load.changed, load.replayed), (0.0, load.tokens), "{name}");
        }
    }
}

#[test]
fn routes_of_other_models_texts_and_experts_are_refused_by_name() {
    let (_, model, _) = models().last().unwrap();
    let problem = |experts: Vec<u8>, width, tokens| {
        Routes::new(experts, width).unwrap().problem(&model.config, tokens).unwrap_or_default()
    };
    assert_eq!(problem(vec![0, 1, 2, 5, 4, 3], 6, 1), "");
    let told = problem(vec![0, 1, 2], 3, 1);
    assert_eq!(told, "routes of 3 choices for each token, and the model has 6");
    let told = problem(vec![0, 1, 2, 0, 1, 2], 6, 2);
    assert_eq!(told, "routes of 1 tokens, and the text has 2");
    let told = problem(vec![0, 1, 2, 0, 1, 6], 6, 1);
    assert_eq!(told, "the expert 6 of token 0 in layer 1 with experts; they are 0 to 5");
    let told = problem(vec![0, 1, 1, 0, 1, 2], 6, 1);
    assert_eq!(told, "an expert twice for token 0 in layer 0 with experts: [0, 1, 1]");
    assert_eq!(Routes::new(vec![0; 5], 2), None);
    assert_eq!(Routes::new(vec![0; 5], 0), None);
}
