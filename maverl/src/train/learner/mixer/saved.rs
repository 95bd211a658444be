//! State of a mixer in a checkpoint: parameters, moments and counters.

use std::path::Path;

use crate::algo::Mixing;
use crate::files::save::{SavedTensor, one_file};
use crate::files::{ModelError, ModelErrorKind, Shards};
use crate::plan::Plan;
use crate::train::learner::mixer::TeamMixer;

impl TeamMixer {
    /// Writes parameters and moments into a file; a sum has none.
    pub(crate) fn save(&self, file: &Path) -> Result<(), ModelError> {
        let Mixing::Monotone(network) = &self.mixing else { return Ok(()) };
        let params = self.mixing.params();
        let counters = [network.state() as f32, self.step as f32];
        let n = [params.len()];
        let entries = [
            SavedTensor::slice("counters", &[2], &counters),
            SavedTensor::slice("params", &n, params),
            SavedTensor::slice("m", &n, &self.moments[0]),
            SavedTensor::slice("v", &n, &self.moments[1]),
        ];
        one_file(file, &entries)
    }

    /// Reads a mixer from a file that [`TeamMixer::save`] wrote; `None` if there is no file.
    pub(crate) fn load(plan: &Plan, file: &Path) -> Result<Option<Self>, ModelError> {
        let Some(mixed) = plan.mixer_plan().filter(|_| file.is_file()) else { return Ok(None) };
        let saved = Shards::open_file(file)?;
        let counters = saved.values("counters")?;
        let [state, step] = [0, 1].map(|i| counters.get(i).map_or(0, |counter| *counter as u64));
        let mut mixer = Self::new(plan, mixed, state as usize);
        let [params, m, v] = ["params", "m", "v"].map(|name| saved.values(name));
        let parts = [("params", params?), ("m", m?), ("v", v?)];
        let n = mixer.mixing.params().len();
        if let Some((name, part)) = parts.iter().find(|(_, part)| part.len() != n) {
            let (file, found) = (file.display(), part.len());
            let message = format!("{file}: `{name}` has {found} numbers, the mixer {n}");
            return Err(ModelError::new(ModelErrorKind::Mismatch, message));
        }
        let [(_, params), (_, m), (_, v)] = parts;
        mixer.mixing.params_mut().copy_from_slice(&params);
        (mixer.moments, mixer.step) = ([m, v], step);
        Ok(Some(mixer))
    }
}
