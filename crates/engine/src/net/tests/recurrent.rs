//! Models with recurrent layers: their states, and rows that share a beginning.

use maverl_kernels::attention::Packing;

use super::*;
use crate::files::parts::Mixer;

fn load(name: &str) -> Model {
    let source = ModelSource::Directory(fixture("families").join(name));
    Model::load(&ModelFiles::new(&source)).unwrap()
}

#[test]
fn states_after_a_row_equal_the_reference() {
    for name in ["qwen3_5_text", "qwen3_5_moe", "lfm2"] {
        let model = load(name);
        let reference = Reference::open(&fixture("families").join(name));
        let row = rows(&reference, "right").remove(0);
        let mut caches = Caches::new(&model, 1);
        cached_logits(&model, &mut caches, std::slice::from_ref(&row));
        for (index, layer) in model.config.layers.iter().enumerate() {
            let Some(numbers) = layer.mixer.state_numbers() else { continue };
            let kept = |past: &mut [f32], state: &mut [f32]| (past.to_vec(), state.to_vec());
            let (past, state) = caches.store.with_state(caches.rows[0].state, index, kept);
            assert_eq!([past.len(), state.len()], numbers);
            let conv = reference.floats(&format!("state.{index}.conv"));
            let kernel = reference.shape(&format!("state.{index}.conv"))[1];
            let channels = conv.len() / kernel;
            // transformers keeps one input more than the next token needs.
            let wanted = (1..kernel).flat_map(|i| (0..channels).map(move |c| c * kernel + i));
            let wanted: Vec<f32> = wanted.map(|at| conv[at]).collect();
            assert!(furthest(&past, &wanted) <= 1e-4, "{name}, layer {index}");
            if let Mixer::DeltaNet(net) = &layer.mixer {
                let found: Vec<f32> = by_head(&state, net.heads.key_dim, net.heads.value_dim);
                let wanted = reference.floats(&format!("state.{index}.recurrent"));
                let off = furthest(&found, &wanted);
                println!("{name}, layer {index}: furthest number of the state {off:.1e}");
                assert!(off <= 1e-4, "{name}, layer {index}: {off:e}");
            }
        }
    }
}

/// Returns a state of heads of at most 16 columns as `[values, key_dim, value_dim]`.
fn by_head(state: &[f32], key_dim: usize, value_dim: usize) -> Vec<f32> {
    let rows = state.chunks_exact(16);
    assert!(value_dim <= 16 && rows.len().is_multiple_of(key_dim));
    rows.flat_map(|row| row[..value_dim].to_vec()).collect()
}

/// Rows of a group: a prompt, and completions.
struct Group {
    prompt: Vec<u32>,
    replies: Vec<Vec<u32>>,
}

impl Group {
    /// Returns a group of eight, with replies of 3 to 80 tokens.
    fn of_eight() -> Self {
        let ids = |seed: u32, n: u32| (0..n).map(|t| (seed * 31 + t * t * 7 + t) % 250).collect();
        Self { prompt: ids(1, 70), replies: (0..8).map(|i| ids(i + 2, 3 + 11 * i)).collect() }
    }

    fn whole_rows(&self) -> Vec<Vec<u32>> {
        self.replies.iter().map(|reply| [&self.prompt[..], reply].concat()).collect()
    }

    /// Packs the group with its prompt stored once.
    fn shared(&self) -> (PackedRows, Vec<Option<usize>>) {
        let parts: Vec<Vec<u32>> =
            std::iter::once(self.prompt.clone()).chain(self.replies.clone()).collect();
        let mut packed = pack(&parts);
        let (first, n) = (self.prompt.len() as u32, self.replies.len());
        packed.positions = (0..first)
            .chain(self.replies.iter().flat_map(|reply| first..first + reply.len() as u32))
            .collect();
        let parents = std::iter::once(None).chain(std::iter::repeat_n(Some(0), n));
        (packed, parents.collect())
    }
}

#[test]
fn a_group_of_eight_equals_eight_rows_alone_in_bits_and_gradients() {
    for name in ["qwen3_5_text", "qwen3_5_moe", "lfm2"] {
        let (model, group) = (load(name), Group::of_eight());
        let (packed, parents) = group.shared();
        let packing = Packing { offsets: &packed.offsets, parents: &parents };
        let mut pool = Pool::default();
        let context = Context::Packed(packing);
        let hidden = model.decoder.forward(&packed.ids, &packed.positions, context, &mut pool);
        let logits = split(&model.decoder.logits(&hidden.unwrap(), &mut pool), &model);
        let (rows, prompt) = (group.whole_rows(), group.prompt.len());
        // The tokens of replies are learned.
        let (mut targets, mut dlogp) = (vec![0; packed.ids.len()], vec![0.0; packed.ids.len()]);
        let mut alone: Vec<Vec<f64>> = Vec::new();
        for (row, start) in rows.iter().zip(&packed.offsets[1..]) {
            let found = packed_logits(&model, std::slice::from_ref(row)).remove(0);
            let shared = logits[..prompt].iter().chain(&logits[*start..]);
            assert!(found.iter().zip(shared).all(|(a, b)| a == b), "{name}");
            let own: Vec<u32> = (0..row.len() as u32).map(|t| (t * 13 + 5) % 250).collect();
            let mut of_own = vec![0.0; row.len()];
            for t in prompt..row.len() {
                of_own[t] = 0.5 + (t % 3) as f32;
                (targets[start + t - prompt], dlogp[start + t - prompt]) = (own[t], of_own[t]);
            }
            let gradients = gradients_of(&model, &pack(std::slice::from_ref(row)), &own, &of_own);
            add_gradients(&mut alone, &gradients.sums().unwrap());
        }
        let gradients = gradients_packed(&model, &packed, packing, &targets, &dlogp);
        let found = gradients.sums().unwrap();
        for (((name, _), found), alone) in model.weights.vars().iter().zip(found).zip(&alone) {
            let size = alone.iter().map(|x| x * x).sum::<f64>().sqrt();
            let off =
                found.iter().zip(alone).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>();
            assert!(off.sqrt() <= 2e-5 * size, "`{name}`: {:e}", off.sqrt() / size);
        }
    }
}

fn add_gradients(sums: &mut Vec<Vec<f64>>, parts: &[&[f32]]) {
    sums.resize_with(parts.len(), Vec::new);
    for (sum, part) in sums.iter_mut().zip(parts) {
        sum.resize(part.len(), 0.0);
        sum.iter_mut().zip(*part).for_each(|(sum, part)| *sum += f64::from(*part));
    }
}

#[test]
fn rows_packed_together_have_the_gradients_of_each_alone() {
    let model = load("qwen3_5_text");
    let rows: Vec<Vec<u32>> =
        [90, 5, 70].map(|n| (0..n).map(|t| (t * t + n) % 250).collect()).to_vec();
    let mut alone = Vec::new();
    let (mut targets, mut dlogp) = (Vec::new(), Vec::new());
    for row in &rows {
        let own: Vec<u32> = (0..row.len() as u32).map(|t| (t * 13 + 5) % 250).collect();
        let of_own: Vec<f32> = (0..row.len()).map(|t| 0.5 + (t % 3) as f32).collect();
        let gradients = gradients_of(&model, &pack(std::slice::from_ref(row)), &own, &of_own);
        add_gradients(&mut alone, &gradients.sums().unwrap());
        targets.extend(own);
        dlogp.extend(of_own);
    }
    let gradients = gradients_of(&model, &pack(&rows), &targets, &dlogp);
    let found = gradients.sums().unwrap();
    for (((name, _), found), alone) in model.weights.vars().iter().zip(found).zip(&alone) {
        let size = alone.iter().map(|x| x * x).sum::<f64>().sqrt();
        let off = found.iter().zip(alone).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>();
        assert!(off.sqrt() <= 2e-5 * size, "`{name}`: {:e}", off.sqrt() / size);
    }
}
