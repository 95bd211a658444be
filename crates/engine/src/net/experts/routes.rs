//! Router replay (Ma et al., 2025, arXiv:2510.11370): experts that a sampler chose for the tokens of a text, which a pass takes in
//! place of those that the routers choose. Weights are those of the routers' own scores, so the routers are still trained.

use maverl_kernels::attention::Packing;

use crate::files::{HfConfig, ModelError};
use crate::message::Routes;
use crate::net::model::Model;
use crate::net::ops::Ops;
use crate::net::pool::Pool;
use crate::net::rows::Rows;

impl Routes {
    /// Returns the problem of routes that are not those of a model, for a text of so many tokens.
    pub fn problem(&self, config: &HfConfig, tokens: usize) -> Option<String> {
        let layers: Vec<_> =
            config.layers.iter().filter_map(|layer| Some(layer.mlp.experts()?.router)).collect();
        let width = layers.iter().map(|router| router.chosen).sum::<usize>();
        if self.width() != width {
            return Some(format!(
                "routes of {} choices for each token, and the model has {width}",
                self.width()
            ));
        }
        if self.tokens() != tokens {
            let found = self.tokens();
            return Some(format!("routes of {found} tokens, and the text has {tokens}"));
        }
        for (token, choices) in self.experts().chunks_exact(width).enumerate() {
            let mut rest = choices;
            for (layer, router) in layers.iter().enumerate() {
                let (own, after) = rest.split_at(router.chosen);
                rest = after;
                if let Some(expert) = own.iter().find(|e| usize::from(**e) >= router.experts) {
                    let last = router.experts - 1;
                    return Some(format!(
                        "the expert {expert} of token {token} in layer {layer} with experts; they are 0 to {last}"
                    ));
                }
                if (1..own.len()).any(|at| own[..at].contains(&own[at])) {
                    return Some(format!(
                        "an expert twice for token {token} in layer {layer} with experts: {own:?}"
                    ));
                }
            }
        }
        None
    }
}

/// Routes of the tokens of a pass.
#[derive(Debug, Clone)]
pub struct PackedRoutes {
    experts: Vec<u8>,
    width: usize,
    /// True for each token that has a route, `[N]`.
    given: Vec<bool>,
}

impl PackedRoutes {
    /// Creates the routes of tokens without any.
    pub(crate) fn none(tokens: usize, width: usize) -> Self {
        Self { experts: vec![0; tokens * width], width, given: vec![false; tokens] }
    }

    /// Sets the routes of the tokens from `first` on.
    ///
    /// # Panics
    ///
    /// If they have another width, or are beyond the last token.
    pub(crate) fn set(&mut self, first: usize, routes: &Routes) {
        assert_eq!(self.width, routes.width(), "routes of one model");
        let last = first + routes.tokens();
        self.experts[first * self.width..last * self.width].copy_from_slice(routes.experts());
        self.given[first..last].fill(true);
    }

    /// Returns the routes in the layer of a number of a model.
    pub(crate) fn in_layer(&self, config: &HfConfig, layer: usize) -> LayerRoutes<'_> {
        let before = config.layers[..layer].iter().filter_map(|layer| layer.mlp.experts());
        let start = before.map(|experts| experts.router.chosen).sum();
        LayerRoutes { all: self, start }
    }
}

/// Routes of the tokens of a pass in a layer.
#[derive(Debug, Clone, Copy)]
pub struct LayerRoutes<'a> {
    all: &'a PackedRoutes,
    /// First choice of the layer among those of a token.
    start: usize,
}

impl LayerRoutes<'_> {
    /// Replaces the experts that a router chose, `[N, k]`, by those of the routes, by rising numbers. Returns a number for each
    /// token: none without a route, else true if the experts are others.
    pub(crate) fn replace(self, chosen: &mut [u32], k: usize) -> Vec<Option<bool>> {
        let PackedRoutes { experts, width, given } = self.all;
        let tokens = chosen.chunks_exact_mut(k).zip(experts.chunks_exact(*width)).zip(given);
        let replaced = tokens.map(|((chosen, experts), given)| {
            let own = &experts[self.start..self.start + k];
            given.then(|| replace_token(chosen, own))
        });
        replaced.collect()
    }
}

/// Replaces the experts of a token. Returns true if they are others.
fn replace_token(chosen: &mut [u32], experts: &[u8]) -> bool {
    let before = chosen.to_vec();
    chosen.iter_mut().zip(experts).for_each(|(to, &from)| *to = u32::from(from));
    chosen.sort_unstable();
    before != chosen
}

impl Model {
    /// Returns the experts that the routers choose for the tokens of a text; none if no layer has experts.
    ///
    /// # Errors
    ///
    /// If an id is not in the vocabulary, or the text is too long.
    pub fn routes(&self, ids: &[u32]) -> Result<Option<Routes>, ModelError> {
        let (decoder, offsets, mut pool) = (&self.decoder, [0, ids.len()], Pool::default());
        let positions: Vec<u32> = (0..ids.len() as u32).collect();
        decoder.check(ids, &positions)?;
        let packing = Packing::from_offsets(&offsets);
        let at = decoder.ops().place(Rows { ids, positions: &positions, packing })?;
        let mut x = decoder.embed(&at, &mut pool)?;
        let mut experts: Vec<Vec<u8>> = vec![Vec::new(); ids.len()];
        for index in 0..decoder.layers() {
            let (out, saved) = decoder.layer(index, x, (&at, None), &mut pool)?;
            if let Some(of_layer) = saved.experts() {
                let chosen = of_layer.chosen.chunks_exact(of_layer.router.chosen);
                for (experts, chosen) in experts.iter_mut().zip(chosen) {
                    experts.extend(chosen.iter().map(|&expert| expert as u8));
                }
            }
            x = out;
        }
        let width = experts.first().map_or(0, Vec::len);
        Ok(Routes::new(experts.concat(), width))
    }
}
