//! GGUF files as models of a configuration.

use std::path::Path;

use super::*;

/// Returns a configuration whose model has a path, relative to a directory.
fn with_path(home: &Path, path: &str) -> Sources {
    let text = format!("[models.a]\npath = {path:?}\n");
    let file = File::Text { name: "run.toml".into(), text, base: home.into() };
    Sources { file: Some(file), ..Sources::default() }
}

fn told(home: &Path, path: &str) -> String {
    let told = super::mistakes::plain(&problems(&with_path(home, path), &search()));
    told.replace(&home.display().to_string(), "HOME")
}

#[test]
fn a_gguf_file_that_is_not_there_is_answered_with_those_that_are() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("qwen.gguf"), "").unwrap();
    let told = told(home.path(), "qwem.gguf");
    assert!(told.contains("there is no file `qwem.gguf`"), "{told}");
    assert!(told.contains("did you mean `qwen.gguf`?"), "{told}");
}

#[cfg(not(feature = "candle"))]
#[test]
fn without_the_feature_a_gguf_file_is_one_error_that_names_it() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("qwen.gguf"), "GGUF").unwrap();
    let told = told(home.path(), "qwen.gguf");
    assert_eq!(
        told.matches("qwen.gguf is a GGUF file: this program lacks the").count(),
        1,
        "{told}"
    );
}

#[cfg(feature = "candle")]
#[test]
fn a_gguf_file_is_planned_as_the_directory_of_its_model() {
    use crate::files::gguf::NumberKind;
    use crate::net::GgufOptions;

    let home = tempfile::tempdir().unwrap();
    let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    let options = GgufOptions { kind: NumberKind::Q8_0, pre: None, name: "tiny".to_owned() };
    let path = home.path().join("tiny.gguf");
    Model::load(&files).unwrap().save_gguf(&path, &files, &options).unwrap();
    let [from_file, own] =
        ["tiny.gguf", "builtin:tiny"].map(|path| plan_of(&with_path(home.path(), path)));
    assert_eq!(from_file.workers[0].source, ModelSource::Gguf(path.clone()));
    let parameters = |plan: &Plan| plan.summary().workers[0].parameters;
    assert_eq!(parameters(&from_file), parameters(&own));
    std::fs::write(&path, b"GGUF\x03\0\0\0").unwrap();
    let told = told(home.path(), "tiny.gguf");
    assert_eq!(told.matches("it ends within its header").count(), 1, "{told}");
}
