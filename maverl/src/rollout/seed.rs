//! Seeds of episodes: functions of the episode, never of time.
//!
//! The seed of a request is a function of the run's seed, the stage (training, or evaluation of a split), the step, the
//! task, the index of the episode among those of its task, and the path of the turn.

use maverl_kernels::sample::derive_seed;

use crate::task::Task;

/// Computes the seed of an episode. Every request's seed derives from it and the turn's path. The same run seed, stage
/// (`train`, `eval`, ...), step, task and index therefore give the same episode, in whatever order episodes are played.
pub fn episode_seed(run_seed: u64, stage: &str, step: u64, task: &Task, index: u32) -> u64 {
    let parts = [fnv1a(stage), step, fnv1a(&task.source), fnv1a(&task.id), u64::from(index)];
    parts.into_iter().fold(run_seed, derive_seed)
}

/// Computes FNV-1a with 64 bits ([Fowler, Noll, Vo]). Its value is the same in every build and on every machine, which
/// `std`'s hashes do not guarantee.
///
/// [Fowler, Noll, Vo]: http://www.isthe.com/chongo/tech/comp/fnv/
fn fnv1a(text: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    text.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rollout::testing::task;

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn every_part_of_an_episode_is_in_its_seed() {
        let mut other = task("b");
        let mut seeds = vec![
            episode_seed(1, "train", 0, &task("a"), 0),
            episode_seed(2, "train", 0, &task("a"), 0),
            episode_seed(1, "eval", 0, &task("a"), 0),
            episode_seed(1, "train", 1, &task("a"), 0),
            episode_seed(1, "train", 0, &other, 0),
            episode_seed(1, "train", 0, &task("a"), 1),
        ];
        other.source = "other".to_owned();
        seeds.push(episode_seed(1, "train", 0, &other, 0));
        assert_eq!(seeds.iter().collect::<BTreeSet<_>>().len(), seeds.len());
        assert_eq!(seeds[0], episode_seed(1, "train", 0, &task("a"), 0));
    }
}
