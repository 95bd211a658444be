//! Tests: packing, batches, caches and reused prefixes change no bit of a token's logits.

use proptest::prelude::*;

use super::*;

fn rows_of_ids() -> impl Strategy<Value = Vec<Vec<u32>>> {
    prop::collection::vec(prop::collection::vec(0..60_u32, 1..40), 1..6)
}

fn bits(logits: &[Vec<f32>]) -> Vec<Vec<u32>> {
    logits.iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
}

fn models() -> [Model; KINDS] {
    made_configs().map(|config| made(&config))
}

#[test]
fn a_row_has_the_same_bits_alone_and_packed_in_any_order() {
    let models = models();
    proptest!(ProptestConfig::with_cases(48), |(rows in rows_of_ids(), which in 0..KINDS)| {
        let model = &models[which];
        let packed = packed_logits(model, &rows);
        let mut reversed: Vec<Vec<u32>> = rows.clone();
        reversed.reverse();
        let reversed = packed_logits(model, &reversed);
        for ((row, here), there) in rows.iter().zip(&packed).zip(reversed.iter().rev()) {
            let alone = packed_logits(model, std::slice::from_ref(row));
            prop_assert_eq!(bits(&alone[0]), bits(here));
            prop_assert_eq!(bits(&alone[0]), bits(there));
        }
    });
}

#[test]
fn a_cache_fed_in_chunks_in_any_company_gives_the_bits_of_no_cache() {
    let models = models();
    let cases = (rows_of_ids(), prop::collection::vec(1..12_usize, 6), 0..KINDS);
    proptest!(ProptestConfig::with_cases(48), |((rows, chunks, which) in cases)| {
        let model = &models[which];
        let expected = packed_logits(model, &rows);
        let mut caches = Caches::new(model, rows.len());
        let mut found: Vec<Vec<Vec<f32>>> = rows.iter().map(|_| Vec::new()).collect();
        // Every sequence continues by chunks of its own size; finished ones have no new tokens.
        while found.iter().zip(&rows).any(|(found, row)| found.len() < row.len()) {
            let next = rows.iter().zip(&found).zip(&chunks).map(|((row, found), chunk)| {
                row[found.len()..].iter().copied().take(*chunk).collect()
            });
            let next: Vec<Vec<u32>> = next.collect();
            let logits = cached_logits(model, &mut caches, &next);
            found.iter_mut().zip(logits).for_each(|(found, logits)| found.extend(logits));
        }
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert_eq!(bits(found), bits(expected));
        }
    });
}

#[test]
fn continuations_of_a_reused_prefix_have_the_bits_of_whole_rows() {
    let models = models();
    let ids = || prop::collection::vec(0..60_u32, 1..30);
    let cases = (ids(), prop::collection::vec(ids(), 1..4), 0..KINDS);
    proptest!(ProptestConfig::with_cases(48), |((prefix, endings, which) in cases)| {
        let model = &models[which];
        let rows: Vec<Vec<u32>> =
            endings.iter().map(|ending| [&prefix[..], ending].concat()).collect();
        let expected = packed_logits(model, &rows);
        let mut caches = Caches::new(model, 1);
        cached_logits(model, &mut caches, std::slice::from_ref(&prefix));
        caches.fan_out(endings.len());
        let found = cached_logits(model, &mut caches, &endings);
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert_eq!(bits(found), bits(&expected[prefix.len()..]));
        }
    });
}

#[test]
fn every_parameter_of_every_kind_gets_a_gradient() {
    for model in models() {
        let packed = pack(&[(0..30).collect(), (20..60).rev().collect()]);
        let targets: Vec<u32> = packed.ids.iter().map(|id| (id * 7 + 3) % 60).collect();
        let gradients = gradients_of(&model, &packed, &targets, &vec![1.0; targets.len()]);
        for ((name, _), grad) in model.weights.vars().iter().zip(gradients.sums().unwrap()) {
            let some = grad.iter().filter(|g| g.is_finite() && g.abs() > 1e-6).count();
            assert!(2 * some > grad.len(), "`{name}`: {some} of {} numbers", grad.len());
        }
    }
}

#[test]
fn a_position_beyond_the_longest_sequence_is_an_error() {
    let model = made(&made_configs()[0]);
    let context = || Context::Packed(Packing::from_offsets(&[0, 1]));
    let forward = |id, at| model.decoder.forward(&[id], &[at], context(), &mut Pool::default());
    let error = forward(1, 256).unwrap_err();
    assert!(error.to_string().contains("position 256"), "{error}");
    let error = forward(60, 0).unwrap_err();
    assert!(error.to_string().contains("token id 60 in a vocabulary of 60"), "{error}");
}
