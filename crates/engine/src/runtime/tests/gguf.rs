use super::adapters::{adapters, train};
use super::*;
use crate::files::ModelFiles;
use crate::files::gguf::NumberKind;
use crate::net::{GgufOptions, Model};

#[tokio::test]
async fn an_adapter_on_a_file_learns_as_on_the_directory_with_its_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let tiny = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    let options = GgufOptions { kind: NumberKind::Q8_0, pre: None, name: "tiny".to_owned() };
    let file = ModelSource::at(dir.path().join("tiny.gguf"));
    Model::load(&tiny).unwrap().save_gguf(&dir.path().join("tiny.gguf"), &tiny, &options).unwrap();
    let saved = dir.path().join("saved");
    std::fs::create_dir(&saved).unwrap();
    Model::load(&ModelFiles::new(&file)).unwrap().save(&saved).unwrap();
    let mut found = Vec::new();
    for source in [file, ModelSource::Directory(saved)] {
        let mut setup = adapters(&["a"], 0.0);
        setup.workers[0].source = source;
        let runtime = setup.start();
        let policy = &runtime.policies()[0];
        let stats = train(policy).await;
        assert!(stats.grad_norm > 0.0 && stats.mismatch_max < 1e-4, "{stats:?}");
        let completion = policy.generate(request(3)).await.unwrap();
        found.push((policy.fingerprint().await.unwrap(), stats.grad_norm.to_bits(), completion));
    }
    assert_eq!(found[0], found[1]);
}
