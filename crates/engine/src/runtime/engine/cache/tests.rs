#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::files::create::Size;

impl Cache {
    /// Asserts that the reference counts are those of these requests and of the tree, and that no block is lost.
    pub(in crate::runtime::engine) fn check(&self, table: &[&BlockTable]) {
        let mut refs = vec![0; self.store.len()];
        for block in table.iter().flat_map(|table| &table.blocks) {
            refs[*block as usize] += 1;
        }
        let own = |id: &usize| refs[*id] == 0 && self.cached[*id];
        assert_eq!(self.idle, (0..refs.len()).filter(own).count(), "idle blocks");
        refs.iter_mut().zip(&self.cached).for_each(|(refs, cached)| *refs += u32::from(*cached));
        assert_eq!(refs, self.refs, "reference counts");
        let mut free: Vec<u32> = self.free.iter().chain(&self.bare).copied().collect();
        free.sort_unstable();
        let unheld = (0..refs.len()).filter(|&id| refs[id] == 0).map(|id| id as u32);
        assert_eq!(free, unheld.collect::<Vec<u32>>(), "free blocks");
        let made = self.made_blocks() * self.block_bytes + self.windows.made_bytes();
        assert!(made <= self.budget(), "{made} bytes of {}", self.budget());
        self.windows.check(table, &free);
        self.states.check(table.iter().filter_map(|table| table.state));
    }

    /// Returns the number of blocks.
    pub(in crate::runtime::engine) fn blocks(&self) -> usize {
        self.store.len()
    }

    /// Returns the number of blocks that have their part for layers with a window.
    pub(in crate::runtime::engine) fn window_parts(&self) -> usize {
        self.windows.parts()
    }
}

fn config() -> HfConfig {
    let dir = tempfile::tempdir().unwrap();
    let size = Size {
        vocab_size: 8,
        hidden_size: 4,
        num_hidden_layers: 1,
        num_attention_heads: 1,
        num_key_value_heads: 1,
        intermediate_size: 4,
        max_position_embeddings: 256,
    };
    crate::files::create::random_model(dir.path(), size, "{}", 0).unwrap();
    HfConfig::parse(&std::fs::read(dir.path().join("config.json")).unwrap()).unwrap()
}

/// Returns the configuration of a model, some of whose layers have a window of 20 keys.
fn windowed_config() -> HfConfig {
    let dir = crate::net::tests::fixture("families").join("gemma3_text");
    let text = std::fs::read_to_string(dir.join("config.json")).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["sliding_window"] = 20.into();
    HfConfig::parse(json.to_string().as_bytes()).unwrap()
}

fn cache(config: &HfConfig, blocks: usize) -> Cache {
    let bytes = blocks * KvStore::new(config).block_bytes();
    Cache::new(&Cpu::default(), config, bytes, true, 2, 64)
}

/// Generates sequences with common prefixes: runs of 0 and 1 of random lengths.
fn sequence() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(1..20usize, 1..5).prop_map(|runs| {
        let runs = runs.into_iter().enumerate();
        runs.flat_map(|(i, run)| std::iter::repeat_n(i as u32 % 2, run)).collect()
    })
}

/// Computes a whole sequence.
fn compute(cache: &mut Cache, table: &mut BlockTable, tokens: &[u32]) {
    assert!(cache.reserve(table, tokens.len()).unwrap());
    table.len = tokens.len();
}

fn runner(cases: u32) -> proptest::test_runner::TestRunner {
    proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    })
}

#[test]
fn a_request_joins_the_longest_start_that_any_other_computed() {
    let config = config();
    let sequences = (prop::collection::vec(sequence(), 1..8), sequence());
    let longest = |known: &[Vec<u32>], tokens: &[u32]| {
        let agree = |other: &Vec<u32>| other.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        known.iter().map(agree).max().unwrap_or(0).min(tokens.len() - 1)
    };
    let result = runner(256).run(&sequences, |(known, tokens)| {
        let mut cache = cache(&config, 100);
        for sequence in &known {
            let mut table = BlockTable::nothing(0);
            cache.acquire_prefix(&mut table, sequence);
            compute(&mut cache, &mut table, sequence);
            cache.check(&[&table]);
            cache.release(&mut table, sequence);
        }
        let (mut table, mut stranger) = (BlockTable::nothing(0), BlockTable::nothing(1));
        cache.acquire_prefix(&mut table, &tokens);
        cache.acquire_partial_block(&mut table, &tokens).unwrap();
        prop_assert_eq!(table.len, longest(&known, &tokens));
        cache.acquire_prefix(&mut stranger, &tokens);
        cache.acquire_partial_block(&mut stranger, &tokens).unwrap();
        prop_assert_eq!(stranger.len, 0);
        cache.check(&[&table, &stranger]);
        Ok(())
    });
    result.unwrap();
}

#[derive(Debug, Clone)]
enum Op {
    /// Starts a request for a sequence, of a policy.
    Start(Vec<u32>, usize),
    /// Appends tokens to a request.
    Grow(usize, usize),
    Leave(usize),
    LetGo(usize),
    Forget(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (sequence(), 0..2usize).prop_map(|(tokens, policy)| Op::Start(tokens, policy)),
        8 => (any::<usize>(), 1..40usize).prop_map(|(which, by)| Op::Grow(which, by)),
        2 => any::<usize>().prop_map(Op::Leave),
        1 => any::<usize>().prop_map(Op::LetGo),
        1 => (0..2usize).prop_map(Op::Forget),
    ]
}

/// Performs one operation on the running requests.
fn perform(cache: &mut Cache, requests: &mut Vec<(Vec<u32>, BlockTable, usize)>, op: Op) {
    let n = requests.len();
    match op {
        Op::Start(tokens, policy) => {
            let mut table = BlockTable::nothing(policy);
            cache.acquire_prefix(&mut table, &tokens);
            cache.acquire_partial_block(&mut table, &tokens).unwrap();
            requests.push((tokens, table, policy));
        }
        Op::Grow(which, by) if n > 0 => {
            let (tokens, table, _) = &mut requests[which % n];
            let to = tokens.len().min(table.len + by);
            let fits = Cache::<Cpu>::lacking(table, to) <= cache.available();
            assert_eq!(cache.reserve(table, to).unwrap(), fits);
            if fits && to > table.len {
                table.len = to;
                cache.insert_prefix(table, tokens, by % 2 == 0);
                cache.move_window(table, by % 3, by % 5 == 0);
            }
        }
        Op::Leave(which) if n > 0 => {
            let (tokens, mut table, _) = requests.remove(which % n);
            cache.release(&mut table, &tokens);
        }
        Op::LetGo(which) if n > 0 => {
            cache.drop_blocks(&mut requests.remove(which % n).1);
        }
        // A barrier waits for every request.
        Op::Forget(policy) if requests.iter().all(|(.., of)| *of != policy) => cache.forget(policy),
        _ => {}
    }
}

#[test]
fn no_block_and_no_part_is_lost_or_held_twice_in_any_sequence_of_operations() {
    for config in [config(), windowed_config()] {
        no_block_is_lost(&config);
    }
}

/// Performs random operations, and checks the counts after each.
fn no_block_is_lost(config: &HfConfig) {
    let ops = (1..12usize, prop::collection::vec(op(), 1..120));
    let result = runner(256).run(&ops, |(blocks, ops)| {
        let (mut cache, mut requests) = (cache(config, blocks), Vec::new());
        for op in ops {
            perform(&mut cache, &mut requests, op);
            cache.check(&requests.iter().map(|(_, table, _)| table).collect::<Vec<&BlockTable>>());
        }
        for (tokens, mut table, _) in requests {
            cache.release(&mut table, &tokens);
        }
        prop_assert_eq!(cache.available(), blocks);
        cache.forget(0);
        cache.forget(1);
        prop_assert_eq!(cache.blocks(), 0);
        Ok(())
    });
    result.unwrap();
}

#[test]
fn what_was_asked_for_longest_ago_is_evicted_first_and_from_its_end() {
    let config = config();
    let mut cache = cache(&config, 4);
    let [old, new] = [5, 6].map(|token| vec![token; 2 * TOKENS]);
    for tokens in [&old, &new] {
        let mut table = BlockTable::nothing(0);
        compute(&mut cache, &mut table, tokens);
        cache.release(&mut table, tokens);
    }
    let known = |cache: &mut Cache, tokens: &[u32]| {
        let (mut table, tokens) = (BlockTable::nothing(0), [tokens, &[7]].concat());
        cache.acquire_prefix(&mut table, &tokens);
        let len = table.len;
        cache.drop_blocks(&mut table);
        len
    };
    let mut table = BlockTable::nothing(0);
    assert!(cache.reserve(&mut table, 1).unwrap());
    assert_eq!(known(&mut cache, &new), 2 * TOKENS);
    assert_eq!(known(&mut cache, &old), TOKENS, "its last block went");
    assert!(cache.reserve(&mut table, 2 * TOKENS).unwrap());
    assert_eq!(known(&mut cache, &old), TOKENS, "it was asked for after the other");
    assert_eq!(known(&mut cache, &new), TOKENS);
    assert!(!cache.reserve(&mut table, 5 * TOKENS).unwrap());
    cache.check(&[&table]);
}
