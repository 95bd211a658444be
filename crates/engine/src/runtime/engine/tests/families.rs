//! Completions of models of further families.

use maverl_kernels::attention::Packing;

use super::*;
use crate::net::Context;
use crate::net::tests::fixture;

/// Returns the models of `tests/fixtures/families`.
fn fixtures() -> impl Iterator<Item = (String, Fixture)> {
    let dirs = std::fs::read_dir(fixture("families")).unwrap().map(|entry| entry.unwrap().path());
    dirs.filter(|dir| dir.join("config.json").exists()).map(|dir| {
        let files = ModelFiles::new(&ModelSource::Directory(dir.clone()));
        let model = Model::load(&files).unwrap();
        let tokenizer = Arc::new(Tokenizer::load(&files).unwrap());
        let name = dir.file_name().unwrap().to_str().unwrap().to_owned();
        (name, Fixture { tokenizer, versions: [model.clone(), model] })
    })
}

/// Returns requests of a group, with one prompt, and one with a longer prompt.
fn group() -> impl Iterator<Item = Request> {
    let prompt = |len: u32| (0..len).map(|t| 7 + t * 29 % 250).collect::<Vec<u32>>();
    (0..5).map(move |seed| request(prompt(37), 12, seed)).chain([request(prompt(45), 8, 9)])
}

#[test]
fn a_group_with_a_shared_prompt_has_the_completions_of_requests_alone_and_the_log_probs_of_training()
 {
    let mut count = 0;
    for (name, fixture) in fixtures() {
        let model = &fixture.versions[0];
        let alone = fixture.alone(0, group());
        let mut engine = fixture.engine(200, true, 16);
        let answers = group().map(|request| send(&mut engine, model, request)).collect();
        let together = finish(&mut engine, model, answers);
        assert_eq!(together, alone, "{name}");
        assert!(work(&engine).reused > 0, "{name}: no prompt is shared");
        for (request, completion) in group().zip(&alone) {
            let (first, ids) =
                (request.prompt.len() - 1, [&request.prompt[..], &completion.ids].concat());
            let (rows, n) = ([0, ids.len() - 1], ids.len() - 1);
            let positions: Vec<u32> = (0..n as u32).collect();
            let context = Context::Packed(Packing::from_offsets(&rows));
            let decoder = &model.decoder;
            let hidden = decoder.forward(&ids[..n], &positions, context, &mut Pool::default());
            let even = vec![1.0 / 1.5; n];
            let (logp, _) = decoder.logprobs(&hidden.unwrap(), &ids[1..], &even).unwrap();
            assert_eq!(logp[first..], completion.logprobs[..], "{name}");
        }
        count += 1;
    }
    assert_eq!(count, 15);
}

/// Returns the models with recurrent layers.
fn recurrent() -> impl Iterator<Item = (String, Fixture)> {
    fixtures().filter(|(_, fixture)| fixture.versions[0].config.is_recurrent())
}

/// Returns the first tokens of a text, with a tail of its own for some lengths.
fn start(len: usize) -> Vec<u32> {
    let own = (0..len % 3).map(|t| 3 + (len * 17 + t) as u32 % 200);
    (0..len as u32).map(|t| 7 + t * 29 % 250).chain(own).collect()
}

#[test]
fn a_prompt_that_ends_anywhere_within_earlier_ones_goes_on_from_kept_states_with_the_same_bits() {
    let requests = || (1..70).rev().step_by(7).chain(1..70).map(|n| request(start(n), 3, n as u64));
    for (name, fixture) in recurrent() {
        let model = &fixture.versions[0];
        let alone = fixture.alone(0, requests());
        // Slots for all copies, for some, and for the request alone.
        for (blocks, prefill, least) in [(4000, 4096, 1500), (60, 9, 1), (12, 30, 0)] {
            let mut engine = fixture.engine(blocks, true, prefill);
            for (request, alone) in requests().zip(&alone) {
                let answer = send(&mut engine, model, request);
                let completion = finish(&mut engine, model, vec![answer]).remove(0);
                assert_eq!(&completion, alone, "{name}");
            }
            assert!(work(&engine).reused >= least, "{name}: {}", work(&engine).reused);
        }
    }
}

#[test]
fn turns_of_a_conversation_compute_what_is_new() {
    for (name, fixture) in recurrent() {
        let model = &fixture.versions[0];
        let mut engine = fixture.engine(2000, true, 4096);
        let mut prompt: Vec<u32> = (0..40).map(|t| 7 + t * 29 % 250).collect();
        for turn in 0..4 {
            let before = work(&engine);
            let answer = send(&mut engine, model, request(prompt.clone(), 9, turn));
            let completion = finish(&mut engine, model, vec![answer]).remove(0);
            let stats = work(&engine);
            if turn > 0 {
                // The last token of the reply before, and what the environment said.
                let prefilled = stats.prefilled - before.prefilled;
                assert!(prefilled <= 5, "{name}: {prefilled} tokens in turn {turn}");
            }
            prompt.extend(completion.ids.iter().copied().chain([3, 4, 5]));
        }
    }
}

#[test]
fn requests_that_wait_for_slots_and_blocks_have_the_completions_of_requests_alone() {
    let requests = || (0..24).map(|i| request(start(20 + (i as usize * 7) % 30), 6, i));
    for (name, fixture) in recurrent() {
        let model = &fixture.versions[0];
        let alone = fixture.alone(0, requests());
        for blocks in [14, 25, 70] {
            let mut engine = fixture.engine(blocks, true, 16);
            let answers = requests().map(|request| send(&mut engine, model, request)).collect();
            assert_eq!(finish(&mut engine, model, answers), alone, "{name}, {blocks} blocks");
            engine.forget(0);
        }
    }
}

/// Returns the models whose windows shorten the cache.
fn windowed() -> impl Iterator<Item = (String, Fixture)> {
    fixtures().filter(|(_, fixture)| fixture.versions[0].config.evicted_window().is_some())
}

#[test]
fn a_prompt_that_ends_anywhere_within_earlier_ones_goes_on_after_evicted_windows_with_the_same_bits()
 {
    let requests = || (1..70).rev().step_by(7).chain(1..70).map(|n| request(start(n), 3, n as u64));
    let mut count = 0;
    for (name, fixture) in windowed() {
        let model = &fixture.versions[0];
        let alone = fixture.alone(0, requests());
        for (blocks, prefill, least) in [(4000, 4096, 1500), (60, 9, 500), (9, 30, 0)] {
            let mut engine = fixture.engine(blocks, true, prefill);
            for (request, alone) in requests().zip(&alone) {
                let answer = send(&mut engine, model, request);
                let completion = finish(&mut engine, model, vec![answer]).remove(0);
                assert_eq!(&completion, alone, "{name}");
            }
            let reused = work(&engine).reused;
            println!("{name}, {blocks} blocks: {reused} tokens reused");
            assert!(reused >= least, "{name}, {blocks} blocks: {reused}");
        }
        count += 1;
    }
    assert!(count >= 6, "{count} families");
}

#[test]
fn requests_of_long_and_short_texts_wait_for_memory_of_windows_and_have_the_same_completions() {
    let count = case_count(12, 24) as u64;
    let requests = || (0..count).map(|i| request(start(20 + (i as usize * 7) % 60), 40, i));
    for (name, fixture) in windowed() {
        let model = &fixture.versions[0];
        let alone = fixture.alone(0, requests());
        for (blocks, share) in [(9, true), (9, false), (20, true), (70, true)] {
            let mut engine = fixture.engine(blocks, share, 16);
            let answers = requests().map(|request| send(&mut engine, model, request)).collect();
            assert_eq!(finish(&mut engine, model, answers), alone, "{name}, {blocks} blocks");
            engine.forget(0);
            assert_eq!(engine.cache.window_parts(), 0, "{name}");
        }
    }
}

#[test]
fn a_turn_of_a_conversation_goes_on_in_the_window_of_the_last_reply() {
    for (name, fixture) in windowed() {
        let model = &fixture.versions[0];
        let mut engine = fixture.engine(2000, true, 4096);
        let mut prompt: Vec<u32> = (0..40).map(|t| 7 + t * 29 % 250).collect();
        for turn in 0..4 {
            let before = work(&engine);
            let answer = send(&mut engine, model, request(prompt.clone(), 21, turn));
            let completion = finish(&mut engine, model, vec![answer]).remove(0);
            let prefilled = work(&engine).prefilled - before.prefilled;
            // The last token of the reply before, and what the environment said.
            assert!(turn == 0 || prefilled <= 5, "{name}: {prefilled} tokens in turn {turn}");
            prompt.extend(completion.ids.iter().copied().chain([3, 4, 5]));
        }
    }
}

#[test]
fn a_long_completion_holds_the_parts_of_its_window_alone() {
    for (name, fixture) in windowed() {
        let model = &fixture.versions[0];
        let (window, config) = (model.config.evicted_window().unwrap(), &model.config);
        for share in [false, true] {
            let mut engine = fixture.engine(2000, share, 4096);
            let prompt: Vec<u32> = (0..20).map(|t| 7 + t * 29 % 250).collect();
            let tokens = config.max_position_embeddings.min(400) - prompt.len();
            let answer = send(&mut engine, model, request(prompt, tokens, 1));
            let mut most = 0;
            while !engine.is_idle() {
                step(&mut engine, model);
                most = most.max(engine.cache.window_parts());
            }
            drop(answer);
            // The window, the block before it, and with shared prefixes the end of the prompt.
            let bound = window.div_ceil(16) + 2 + if share { 3 } else { 0 };
            assert!(most <= bound, "{name}: {most} parts; {bound} are needed");
            let store = KvStore::new(config);
            let whole = store.block_bytes() - store.window_bytes();
            let bytes = engine.cache.store.held_bytes();
            let blocks = engine.cache.blocks();
            assert!(bytes <= blocks * whole + (most + 1) * store.window_bytes(), "{name}");
            let saved = blocks * store.block_bytes() - bytes;
            println!("{name}: {most} of {blocks} parts; {bytes} bytes, {saved} fewer");
            assert!(saved > 0, "{name}");
        }
    }
}

#[test]
fn a_request_may_be_longer_if_windows_shorten_its_cache() {
    for (name, fixture) in windowed() {
        let store = KvStore::new(&fixture.versions[0].config);
        let engine = fixture.engine(100, true, 16);
        let tokens = engine.capacity();
        println!("{name}: {tokens} tokens in 100 blocks");
        let whole = store.block_bytes() - store.window_bytes();
        assert!(tokens > 100 * 16 && tokens / 16 * whole <= 100 * store.block_bytes(), "{name}");
    }
}
