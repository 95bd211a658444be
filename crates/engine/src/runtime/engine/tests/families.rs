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
    assert_eq!(count, 11);
}
