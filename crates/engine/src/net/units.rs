//! Units of parameters, which ranks divide and exchange as a whole: the embedding, each layer, the head.
//!
//! Parameters are in the order of a checkpoint, so a unit is a range of their array. The last norm belongs to the last layer. The
//! parts of an adapter in a layer are a unit too.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::files::{HfConfig, ModelError};
use crate::net::decoder::Decoder;
use crate::net::gradients::common;
use crate::net::memory::Memory;
use crate::net::ops::Ops;
use crate::net::values::{ALIGN, Param, Params};

/// Returns the places of the units of parameters, in order. They begin and end at multiples of [`ALIGN`], and cover the whole array.
pub(crate) fn unit_places<O: Memory>(params: &Params<O>) -> Vec<Range<usize>> {
    let mut places: Vec<Range<usize>> = Vec::new();
    let mut layer = None;
    for (name, var) in params.vars() {
        let (of, place) = (layer_of(name), var.range());
        let end = place.end.next_multiple_of(ALIGN);
        let vector = of.is_none() && var.dims().len() == 1;
        match places.last_mut() {
            Some(last) if vector || (of.is_some() && of == layer) => last.end = end,
            _ => {
                places.push(place.start..end);
                layer = of;
            }
        }
    }
    places
}

/// Creates a decoder over units of parameters, which are all trained and all that the model has.
///
/// # Errors
///
/// If a weight of the configuration is missing, or the device fails.
pub(crate) fn decoder_over<O: Ops>(
    ops: &O,
    config: &Arc<HfConfig>,
    units: &[Params<O>],
) -> Result<Decoder<O>, ModelError> {
    let vars = units.iter().flat_map(Params::vars).enumerate();
    let params: BTreeMap<&str, Param<O>> = vars
        .map(|(slot, (name, var))| (name.as_str(), Param::new(var.clone(), Some(slot))))
        .collect();
    Decoder::on(ops.clone(), config, &|name| {
        params.get(name).cloned().ok_or_else(|| ModelError::no_match(format!("no weight `{name}`")))
    })
}

/// Returns names and lengths of the parts of tensors in ranges that begin and end at multiples of [`ALIGN`], in order. Parameters of
/// these shapes have the ranges one after the other in their array.
pub(crate) fn parts_in<O: Memory>(
    params: &Params<O>,
    ranges: &[Range<usize>],
) -> Vec<(String, Vec<usize>)> {
    let mut parts = Vec::new();
    for range in ranges {
        let vars = params.vars().iter().map(|(name, var)| (name, common(&var.range(), range)));
        let inside = vars.filter(|(_, part)| !part.is_empty());
        parts.extend(inside.map(|(name, part)| (name.clone(), vec![part.len()])));
    }
    parts
}

/// Returns the number of the layer in the name of a parameter, if it has one.
fn layer_of(name: &str) -> Option<usize> {
    name.split('.').find_map(|part| part.parse().ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::files::{ModelFiles, ModelSource};
    use crate::net::Model;
    use crate::net::tests::fixture;

    #[test]
    fn parts_of_ranges_lie_one_after_the_other() {
        let shapes = [("a", vec![10, 10]), ("b", vec![70]), ("c", vec![1])];
        let params = Params::zeros(shapes.map(|(name, dims)| (name.to_owned(), dims)));
        let parts = parts_in(&params, &[64..192, 192..192, 192..320]);
        let expected = [("a", 36), ("b", 64), ("b", 6), ("c", 1)];
        let expected = expected.map(|(name, length)| (name.to_owned(), vec![length]));
        assert_eq!(parts, expected);
        let places: Vec<_> =
            Params::zeros(parts).vars().iter().map(|(_, var)| var.range()).collect();
        assert_eq!(places, [0..36, 64..128, 128..134, 192..193]);
    }

    #[test]
    fn units_are_the_embedding_the_layers_with_the_last_norm_and_a_head_of_its_own() {
        let families = std::fs::read_dir(fixture("families")).unwrap();
        let mut heads = [0; 2];
        for dir in families.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
            let model =
                Model::load(&ModelFiles::new(&ModelSource::Directory(dir.clone()))).unwrap();
            let (params, config) = (model.trainable(), &model.config);
            let places = unit_places(params);
            let tied = config.tie_word_embeddings;
            heads[usize::from(tied)] += 1;
            assert_eq!(places.len(), config.layers.len() + if tied { 1 } else { 2 }, "{dir:?}");
            assert_eq!((places[0].start, places[places.len() - 1].end), (0, params.elements()));
            assert!(places.windows(2).all(|pair| pair[0].end == pair[1].start), "{dir:?}");
            let of = |name: &str| {
                let var = params.vars().iter().find(|(found, _)| found == name).unwrap().1.clone();
                places.iter().position(|place| place.contains(&var.range().start)).unwrap()
            };
            let names = config.names;
            assert_eq!(of(&names.embedding()), 0);
            let norm = names.beside_layers(&config.norm.tensor().0);
            assert_eq!(of(&norm), config.layers.len());
            if !tied {
                assert_eq!(of(names.head), config.layers.len() + 1);
            }
        }
        assert!(heads.iter().all(|count| *count > 1), "{heads:?}");
    }
}
