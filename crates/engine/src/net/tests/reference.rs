//! Comparison of every family with transformers, in every layout. The differences are printed.

use maverl_kernels::adamw::{AdamW, adamw_step};

use super::*;

const LOGITS: f32 = 2e-4;
const LOGPROBS: f32 = 1e-4;
const GRADIENTS: f64 = 1e-3;
const STEPS: f64 = 1e-4;

/// Returns the rows of one side without padding, and without the positions of the padding.
pub(super) fn stripped(reference: &Reference, side: &str) -> (Vec<Vec<u32>>, PackedRows) {
    let rows = rows(reference, side);
    let packed = pack(&rows);
    let (positions, mask) = (
        reference.ints(&format!("{side}.position_ids")),
        reference.ints(&format!("{side}.attention_mask")),
    );
    let kept = positions.concat().into_iter().zip(mask.concat()).filter(|(_, mask)| *mask == 1);
    let kept: Vec<u32> = kept.map(|(position, _)| position as u32).collect();
    assert_eq!(kept, packed.positions[..], "rows are counted from their first token");
    (rows, packed)
}

/// Returns the numbers of the tokens of `[3, T, ..]`, `width` each, without padding, row after row. `T` may end a token
/// early; a row's last token then has no number.
pub(super) fn unpadded(reference: &Reference, name: &str, width: usize) -> Vec<f32> {
    let side = name.split('.').next().unwrap();
    let mask = reference.ints(&format!("{side}.attention_mask"));
    let (values, tokens) = (reference.floats(name), reference.shape(name)[1]);
    let mut kept = Vec::new();
    for (row, mask) in values.chunks_exact(tokens * width).zip(&mask) {
        for (t, value) in row.chunks_exact(width).enumerate() {
            let both = mask[t] == 1 && (tokens == mask.len() || mask[t + 1] == 1);
            kept.extend(value.iter().filter(|_| both));
        }
    }
    kept
}

#[test]
fn logits_logprobs_and_entropies_equal_the_reference_however_rows_were_padded() {
    for (name, dir, model) in layouts() {
        let reference = Reference::open(&dir);
        for side in ["left", "right"] {
            let (rows, packed) = stripped(&reference, side);
            let columns = reference.columns(model.config.vocab_size);
            let of_columns = |logits: &Vec<f32>| -> Vec<f32> {
                columns.iter().map(|&column| logits[column]).collect()
            };
            let logits = packed_logits(&model, &rows).concat();
            let logits = logits.iter().flat_map(of_columns).collect::<Vec<f32>>();
            let expected = unpadded(&reference, &format!("{side}.logits"), columns.len());
            assert_eq!(logits.len(), expected.len());
            let logits = furthest(&logits, &expected);

            // The last token of a row has no next token: any target is valid, and its log-prob is dropped.
            let targets = rows.iter().flat_map(|row| row.iter().copied().skip(1).chain([0]));
            let targets: Vec<u32> = targets.collect();
            let (even, mut pool) = (vec![1.0; targets.len()], Pool::default());
            let context = Context::Packed(Packing::from_offsets(&packed.offsets));
            let decoder = &model.decoder;
            let hidden =
                decoder.forward(&packed.ids, &packed.positions, context, &mut pool).unwrap();
            let (logp, entropy) = decoder.logprobs(&hidden, &targets, &even).unwrap();
            let logprobs: Vec<f32> = packed
                .offsets
                .windows(2)
                .flat_map(|row| &logp[row[0]..row[1] - 1])
                .copied()
                .collect();
            let expected = unpadded(&reference, &format!("{side}.logprobs"), 1);
            assert_eq!(logprobs.len(), expected.len());
            let logprobs = furthest(&logprobs, &expected);
            let expected = unpadded(&reference, &format!("{side}.entropy"), 1);
            assert_eq!(entropy.len(), expected.len());
            let entropies = furthest(&entropy, &expected);

            println!(
                "{name}, padded {side}: furthest logit {logits:.1e}, log-prob {logprobs:.1e}, \
                 entropy {entropies:.1e}"
            );
            assert!(logits <= LOGITS && logprobs <= LOGPROBS && entropies <= LOGPROBS);
        }
    }
}

/// Computes the loss of the reference, the mean negative log-prob of the unmasked targets, and the gradient of each
/// parameter.
pub(super) fn loss<'m>(reference: &Reference, model: &'m Model) -> (f64, Gradients<'m>) {
    let (rows, packed) = stripped(reference, "right");
    let (mask, width) = (reference.floats("loss_mask"), reference.shape("loss_mask")[1]);
    let total = mask.iter().sum::<f32>();
    let (mut targets, mut dlogp) = (Vec::new(), Vec::new());
    for (r, row) in rows.iter().enumerate() {
        // The last token of a row has no next token: any target is valid, with weight 0.
        targets.extend(row.iter().copied().skip(1).chain([0]));
        dlogp.extend(mask[r * width..][..row.len() - 1].iter().map(|mask| -mask / total));
        dlogp.push(0.0);
    }
    let (even, mut pool) = (vec![1.0; targets.len()], Pool::default());
    let context = Context::Packed(Packing::from_offsets(&packed.offsets));
    let decoder = &model.decoder;
    let hidden = decoder.forward(&packed.ids, &packed.positions, context, &mut pool).unwrap();
    let (logp, _) = decoder.logprobs(&hidden, &targets, &even).unwrap();
    let loss = logp.iter().zip(&dlogp).map(|(l, d)| f64::from(*l) * f64::from(*d)).sum();
    (loss, gradients_of(model, &packed, &targets, &dlogp))
}

pub(super) fn norm(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// Returns the norm of the difference, relative to the norm.
pub(super) fn apart(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let wide = |(a, b): (&f32, &f32)| f64::from(*a) - f64::from(*b);
    norm(found.iter().zip(expected).map(wide)) / norm(expected.iter().map(|x| f64::from(*x)))
}

pub(super) fn scalar(reference: &Reference, name: &str) -> f64 {
    reference.doubles(name)[0]
}

#[test]
fn every_gradient_equals_the_reference() {
    for (name, dir, model) in layouts() {
        let reference = Reference::open(&dir);
        let (loss, gradients) = loss(&reference, &model);
        let off = loss - scalar(&reference, "loss");
        assert!(off.abs() <= f64::from(LOGPROBS), "{name}: the loss is {off} off");
        let names = model.weights.vars().iter().map(|(name, _)| name);
        let global = gradients.norm(&Cpu::default()).unwrap();
        let gradients: Vec<_> = names.zip(gradients.sums().unwrap()).collect();
        let (mut whole, mut norms, mut dots, mut count) = (0.0_f64, 0.0_f64, 0.0_f64, 0);
        for (parameter, grad) in &gradients {
            let expected = scalar(&reference, &format!("grad_l2.{parameter}"));
            let wide = || grad.iter().map(|g| f64::from(*g));
            norms = norms.max((norm(wide()) - expected).abs() / expected);
            let dot: f64 = wide().enumerate().map(|(i, g)| g * (i as f64).cos()).sum();
            let expected_dot = scalar(&reference, &format!("grad_dot.{parameter}"));
            dots = dots.max((dot - expected_dot).abs() / expected);
            let stored = format!("grad.{parameter}");
            if reference.has(&stored) {
                whole = whole.max(apart(grad, &reference.floats(&stored)));
                count += 1;
            }
        }
        let (embed, d) = ("model.embed_tokens.weight", model.config.hidden_size);
        let (_, grad) = gradients.iter().find(|(parameter, _)| *parameter == embed).unwrap();
        let index = reference.ints("grad_rows.index").remove(0);
        let rows = index.iter().flat_map(|&row| &grad[row as usize * d..][..d]);
        let rows: Vec<f32> = rows.copied().collect();
        let rows = apart(&rows, &reference.floats(&format!("grad_rows.{embed}")));
        let all = global;
        let expected = scalar(&reference, "grad_norm");
        let all = (all - expected).abs() / expected;
        println!(
            "{name}: {} gradients; {count} whole {whole:.1e}, embedding rows {rows:.1e}, norms \
             {norms:.1e}, dots {dots:.1e}, global norm {all:.1e}",
            gradients.len()
        );
        assert!(count > 10 && [whole, rows, norms, dots, all].iter().all(|x| *x <= GRADIENTS));
    }
}

#[test]
fn five_steps_of_adamw_equal_the_reference() {
    for (name, dir, model) in layouts() {
        let reference = Reference::open(&dir);
        let constants = AdamW { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };
        let zeros = |var: &Tensor| vec![0.0; var.elem_count()];
        let mut moments: Vec<_> =
            model.weights.vars().iter().map(|(_, var)| (zeros(var), zeros(var))).collect();
        let (mut losses, mut norms) = (Vec::new(), Vec::new());
        for step in 1..=5 {
            let (loss, gradients) = loss(&reference, &model);
            let norm = gradients.norm(&Cpu::default()).unwrap();
            let scale = (1.0 / (norm + 1e-6)).min(1.0) as f32;
            losses.push(loss as f32);
            norms.push(norm as f32);
            let state =
                model.weights.vars().iter().zip(gradients.sums().unwrap()).zip(&mut moments);
            for (((_, var), grad), (m, v)) in state {
                var.update(|values| adamw_step(&constants, step, scale, values, grad, m, v));
            }
        }
        let losses = furthest(&losses, &reference.floats("adamw.losses"));
        let norms = furthest(&norms, &reference.floats("adamw.grad_norms"));
        let (mut last, mut count) = (0.0_f32, 0);
        for (parameter, var) in model.weights.vars() {
            let stored = format!("adamw.final.{parameter}");
            if reference.has(&stored) {
                last = last.max(furthest(&*var.values(), &reference.floats(&stored)));
                count += 1;
            }
        }
        println!(
            "{name}: five steps; furthest loss {losses:.1e}, gradient norm {norms:.1e}, \
             {count} final parameters {last:.1e}"
        );
        assert_eq!(count, 2);
        assert!([losses, norms, last].iter().all(|x| f64::from(*x) <= STEPS));
    }
}

/// Returns the index of the largest number, and its log-prob.
pub(super) fn best(logits: &[f32]) -> (u32, f32) {
    let (at, most) = logits
        .iter()
        .enumerate()
        .fold((0, f32::NEG_INFINITY), |best, (i, &x)| if x > best.1 { (i, x) } else { best });
    let sum: f64 = logits.iter().map(|x| f64::from(x - most).exp()).sum();
    (at as u32, -sum.ln() as f32)
}

#[test]
fn greedy_tokens_and_their_logprobs_equal_the_reference() {
    for (name, dir, model) in layouts() {
        let reference = Reference::open(&dir);
        let (prompts, mask) =
            (reference.ints("gen.prompt_ids"), reference.ints("gen.attention_mask"));
        let mut next: Vec<Vec<u32>> = prompts
            .iter()
            .zip(&mask)
            .map(|(ids, mask)| ids.iter().zip(mask).filter(|(_, m)| **m == 1))
            .map(|kept| kept.map(|(id, _)| *id as u32).collect())
            .collect();
        let mut caches = Caches::new(&model, next.len());
        let (mut ids, mut logprobs) = (vec![Vec::new(); 3], vec![Vec::new(); 3]);
        for _ in 0..32 {
            let logits = cached_logits(&model, &mut caches, &next);
            for (row, logits) in logits.iter().enumerate() {
                let (id, logprob) = best(logits.last().unwrap());
                ids[row].push(i64::from(id));
                logprobs[row].push(logprob);
                next[row] = vec![id];
            }
        }
        let margin = reference.floats("gen.margin").into_iter().fold(f32::INFINITY, f32::min);
        assert!(margin > 1e-3, "{name}: the reference itself is near a tie");
        assert_eq!(ids, reference.ints("gen.output_ids"), "{name}");
        let off = furthest(&logprobs.concat(), &reference.floats("gen.logprobs"));
        println!("{name}: 96 greedy tokens, smallest margin {margin:.1e}; log-probs {off:.1e}");
        assert!(off <= LOGPROBS);

        let stop = reference.ints("gen.stop_token")[0][0];
        let config: Value =
            serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap()).unwrap();
        let pad = config["pad_token_id"].as_i64().unwrap();
        for row in &mut ids {
            let end = row.iter().position(|id| *id == stop).map_or(row.len(), |at| at + 1);
            row[end..].fill(pad);
        }
        assert_eq!(ids, reference.ints("gen.stop_output_ids"), "{name}");
    }
}
