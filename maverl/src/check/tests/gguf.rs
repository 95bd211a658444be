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

#[test]
fn a_model_that_is_no_gguf_file_has_no_blocks_to_keep() {
    let toml = "[models.a]\npath = \"builtin:tiny\"\ndtype = \"file\"\n";
    let found = super::mistakes::plain(&problems(&text(toml), &search()));
    let message = "`models.a.dtype` is \"file\", which keeps the blocks of a GGUF file, and builtin:tiny is none";
    assert!(found.contains(message), "{found}");
    assert!(found.contains("write `dtype = \"f32\"`, or the path of a GGUF file"), "{found}");
}

#[cfg(feature = "candle")]
mod blocks {
    //! Weights that stay in the blocks of a file.

    use super::*;
    use crate::files::gguf::NumberKind;
    use crate::net::GgufOptions;

    /// Writes the built-in model as a file, and returns a configuration with its blocks on candle.
    fn in_blocks(home: &Path, more: &str) -> Sources {
        let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
        let options = GgufOptions { kind: NumberKind::Q8_0, pre: None, name: "tiny".to_owned() };
        Model::load(&files).unwrap().save_gguf(&home.join("tiny.gguf"), &files, &options).unwrap();
        let text = format!("[models.a]\npath = \"tiny.gguf\"\ndtype = \"file\"\n{more}");
        let file = File::Text { name: "run.toml".into(), text, base: home.into() };
        Sources { file: Some(file), ..Sources::default() }
    }

    const CANDLE: &str = "[runtime]\ndevice = \"candle:cpu\"\n";
    const LORA: &str = "[models.a.lora]\nrank = 4\n";

    fn told(home: &Path, more: &str) -> String {
        super::super::mistakes::plain(&problems(&in_blocks(home, more), &search()))
    }

    #[test]
    fn a_base_in_blocks_is_planned_with_the_bytes_of_its_blocks() {
        let home = tempfile::tempdir().unwrap();
        let blocks = plan_of(&in_blocks(home.path(), &format!("{CANDLE}{LORA}")));
        let dense = in_blocks(home.path(), &format!("{CANDLE}{LORA}"));
        let dense = Sources { set: vec!["models.a.dtype=f32".to_owned()], ..dense };
        let dense = plan_of(&dense);
        let [found, whole] = [&blocks, &dense].map(|plan| plan.summary().workers.remove(0));
        let adapter = 4 * blocks.policies[0].adapter.as_ref().unwrap().parameters;
        let adapters = adapter * blocks.policies.len() as u64;
        let [held, full] = [&found, &whole].map(|worker| worker.weight_bytes - adapters);
        println!("{held} bytes in blocks, {full} in f32");
        assert_eq!(full, 4 * whole.parameters);
        assert!(held * 10 <= full * 4, "{held} of {full}");
        assert!(held > full / 4);
        assert_eq!((found.packed_bytes, found.parameters), (0, whole.parameters));
        assert_eq!((found.moment_bytes, found.kv_bytes), (whole.moment_bytes, whole.kv_bytes));
        let resolved = toml::to_string(&blocks.config).unwrap();
        assert!(resolved.contains("dtype = \"file\""), "{resolved}");
    }

    #[test]
    fn a_base_in_blocks_is_refused_where_candle_does_not_multiply_it() {
        let home = tempfile::tempdir().unwrap();
        let found = told(home.path(), LORA);
        let message = "`models.a.dtype` is \"file\" and `runtime.device` is \"cpu\": blocks are multiplied by candle";
        assert!(found.contains(message) && found.contains("[run.toml:3:9]"), "{found}");
        let help = "write `runtime.device = \"candle:cpu\"`, or `dtype = \"bf16\"` (weights of ";
        assert!(found.contains(help), "{found}");
        let own = format!("{LORA}{CANDLE}[worker_groups.a]\ndevice = \"cpu\"\n");
        let found = told(home.path(), &own);
        assert!(found.contains("and `worker_groups.a.device` is \"cpu\": blocks are"), "{found}");
        let found = told(home.path(), &format!("{LORA}{}", CANDLE.replace("candle:cpu", "auto")));
        assert!(found.contains("and `runtime.device` is \"auto\": blocks are"), "{found}");
        // Its worker groups may be on both engines' devices in one run, but not those of this model.
        plan_of(&in_blocks(
            home.path(),
            &format!("{LORA}[worker_groups.a]\ndevice = \"candle:cpu\"\n"),
        ));
    }

    #[test]
    fn weights_in_blocks_that_are_to_be_trained_are_refused_with_what_to_write() {
        let home = tempfile::tempdir().unwrap();
        let found = told(home.path(), CANDLE);
        assert!(
            found.contains("`models.a` trains all weights of a base in blocks (Q8_0)"),
            "{found}"
        );
        assert!(found.contains("add `[models.a.lora]`, or write `dtype = \"f32\"`"), "{found}");
        let critic = "[algorithm]\nname = \"ppo\"\n";
        let found = told(home.path(), &format!("{CANDLE}{LORA}{critic}"));
        let message =
            "the critic trains a copy of all weights of `models.a`, a base in blocks (Q8_0)";
        assert!(found.contains(message), "{found}");
        let trunk = format!("{CANDLE}{LORA}{critic}advantage.trunk = \"lora\"\n");
        plan_of(&in_blocks(home.path(), &trunk));
        let both = told(home.path(), "");
        assert!(both.contains("blocks are multiplied by candle"), "{both}");
        assert!(both.contains("trains all weights of a base in blocks"), "{both}");
    }
}
