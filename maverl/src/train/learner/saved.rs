//! What a checkpoint has of a learner: policies, mixer and the state of the algorithm.

use std::collections::BTreeMap;

use crate::checkpoint::{Checkpoint, Draft};
use crate::config::SavedMoments;
use crate::plan::Plan;
use crate::runtime::PolicyCopy;
use crate::train::error::TrainError;
use crate::train::learner::Learner;
use crate::train::learner::mixer::TeamMixer;
use crate::train::learner::state::{AlgorithmState, VERIFIER};
use crate::train::run::trainable::WriteRest;

/// File of the mixer in a checkpoint.
const MIXER: &str = "mixer.safetensors";
/// File of the algorithm's state in a checkpoint.
const STATE: &str = "algorithm.json";

impl Learner {
    /// Saves policies, mixer and state. With `copies`, policies are copied in memory, and what is left is to write these copies.
    pub(in crate::train) async fn save(
        &self,
        draft: &Draft,
        moments: SavedMoments,
        copies: bool,
    ) -> Result<WriteRest, TrainError> {
        let mut copied = Vec::new();
        for policy in &self.policies {
            let dir = draft.policy(policy.name())?;
            if copies {
                copied.push(policy.copy_with(&dir, moments).await?);
            } else {
                policy.save_with(&dir, moments).await?;
            }
        }
        if let Some(mixer) = &self.mixer {
            mixer.save(&draft.file(MIXER)).map_err(|source| TrainError::Mixer { source })?;
        }
        if let Some(record) = &self.verifier {
            draft.write(VERIFIER, record)?;
        }
        if self.state != AlgorithmState::default() {
            draft.write(STATE, &self.state)?;
        }
        Ok(Box::new(move || write_copies(copied)))
    }

    /// Takes part in saving, which rank 0 does.
    pub(in crate::train) async fn share(&self) -> Result<(), TrainError> {
        for policy in &self.policies {
            policy.share().await?;
        }
        Ok(())
    }

    /// Loads policies, mixer and state of a checkpoint.
    pub(in crate::train) async fn load(
        &mut self,
        plan: &Plan,
        checkpoint: &Checkpoint,
    ) -> Result<(), TrainError> {
        for policy in &self.policies {
            policy.load(&checkpoint.policy(policy.name())?).await?;
        }
        self.state = checkpoint.read(STATE)?.unwrap_or_default();
        self.find_kept_groups()?;
        self.verifier = checkpoint.read(VERIFIER)?;
        let mixer = TeamMixer::load(plan, &checkpoint.path().join(MIXER));
        self.mixer = mixer.map_err(|source| TrainError::Mixer { source })?;
        Ok(())
    }

    /// Returns the hash of each policy's weights, by name.
    pub(in crate::train) async fn fingerprints(
        &self,
    ) -> Result<BTreeMap<String, String>, TrainError> {
        let mut weights = BTreeMap::new();
        for policy in &self.policies {
            weights.insert(policy.name().to_owned(), policy.fingerprint().await?);
        }
        Ok(weights)
    }
}

/// Writes the copies of policies.
fn write_copies(copied: Vec<PolicyCopy>) -> Result<(), TrainError> {
    Ok(copied.into_iter().try_for_each(PolicyCopy::write)?)
}
