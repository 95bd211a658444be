#![allow(clippy::unwrap_used)]

use super::*;
use crate::files::{ModelFiles, ModelSource, Shards};
use crate::net::Model;
use crate::net::tests::mutation::fuzz_binary;
use crate::net::tests::{counting, fixture};

/// A tensor to be pickled: name, class of its storage, shape, strides, bytes.
struct Pickled {
    name: String,
    class: &'static str,
    shape: Vec<usize>,
    strides: Vec<usize>,
    bytes: Vec<u8>,
}

impl Pickled {
    fn rows(name: &str, class: &'static str, shape: &[usize], bytes: Vec<u8>) -> Self {
        let strides = (0..shape.len()).map(|dim| shape[dim + 1..].iter().product());
        let (name, strides) = (name.to_owned(), strides.collect());
        Self { name, class, shape: shape.to_vec(), strides, bytes }
    }
}

fn push_text(program: &mut Vec<u8>, text: &str) {
    program.push(b'X');
    program.extend((text.len() as u32).to_le_bytes());
    program.extend(text.as_bytes());
}

fn push_sizes(program: &mut Vec<u8>, sizes: &[usize]) {
    program.push(b'(');
    for size in sizes {
        program.push(b'J');
        program.extend((*size as i32).to_le_bytes());
    }
    program.push(b't');
}

/// Returns the program that `torch.save` writes for a dict of tensors.
fn program(tensors: &[Pickled]) -> Vec<u8> {
    let mut program = b"\x80\x02}q\x00(".to_vec();
    for (key, tensor) in tensors.iter().enumerate() {
        push_text(&mut program, &tensor.name);
        program.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        push_text(&mut program, "storage");
        program.extend(format!("ctorch\n{}\n", tensor.class).bytes());
        push_text(&mut program, &key.to_string());
        push_text(&mut program, "cpu");
        program.extend(b"K\x01tQK\x00");
        push_sizes(&mut program, &tensor.shape);
        push_sizes(&mut program, &tensor.strides);
        program.extend(b"\x89ccollections\nOrderedDict\n)RtR");
    }
    program.extend(b"u.");
    program
}

/// Returns a zip file without compression.
fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let at = bytes.len() as u32;
        let sizes = [content.len() as u32; 2].map(u32::to_le_bytes).concat();
        let length = (name.len() as u16).to_le_bytes();
        bytes.extend(b"PK\x03\x04");
        bytes.extend([0; 14]);
        bytes.extend(&sizes);
        bytes.extend(length);
        bytes.extend([0; 2]);
        bytes.extend(name.as_bytes());
        bytes.extend(content);
        directory.extend(b"PK\x01\x02");
        directory.extend([0; 16]);
        directory.extend(&sizes);
        directory.extend(length);
        directory.extend([0; 12]);
        directory.extend(at.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let start = bytes.len() as u32;
    let count = (files.len() as u16).to_le_bytes();
    bytes.extend(&directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend([count, count].concat());
    bytes.extend((directory.len() as u32).to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend([0; 2]);
    bytes
}

fn file(tensors: &[Pickled]) -> Vec<u8> {
    let mut files = vec![
        ("m/data.pkl".to_owned(), program(tensors)),
        ("m/byteorder".to_owned(), b"little".to_vec()),
    ];
    let data = tensors.iter().enumerate();
    files.extend(data.map(|(key, tensor)| (format!("m/data/{key}"), tensor.bytes.clone())));
    archive(&files)
}

/// Returns the tensors of a fixture, to be pickled as f32.
fn of_fixture(name: &str) -> (Model, Vec<Pickled>) {
    let model = Model::load(&ModelFiles::new(&ModelSource::Directory(fixture(name)))).unwrap();
    let tensors = model.weights.vars().iter().map(|(name, var)| {
        let bytes = var.values().iter().flat_map(|x| x.to_le_bytes()).collect();
        Pickled::rows(name, "FloatStorage", var.dims(), bytes)
    });
    let tensors = tensors.collect();
    (model, tensors)
}

/// Copies configuration and tokenizer of a fixture.
fn companions(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(fixture(name).join(file), dir.path().join(file)).unwrap();
    }
    dir
}

fn load(dir: &std::path::Path) -> Result<Model, String> {
    let place = format!("{}", dir.display());
    let files = ModelFiles::new(&ModelSource::Directory(dir.to_owned()));
    Model::load(&files).map_err(|error| error.to_string().replace(&place, "DIR"))
}

#[test]
fn a_pickled_model_has_the_bits_of_its_safetensors() {
    let (model, tensors) = of_fixture("qwen2");
    let dir = companions("qwen2");
    std::fs::write(dir.path().join("pytorch_model.bin"), file(&tensors)).unwrap();
    assert_eq!(load(dir.path()).unwrap().fingerprint(), model.fingerprint());
    // Safetensors come first, and are damaged here.
    std::fs::write(dir.path().join("model.safetensors"), "x").unwrap();
    assert!(load(dir.path()).err().unwrap().contains("model.safetensors is damaged"));
}

#[test]
fn shards_are_found_by_their_index() {
    let (model, mut tensors) = of_fixture("qwen2");
    let dir = companions("qwen2");
    let rest = tensors.split_off(9);
    let mut map = serde_json::Map::new();
    for (part, tensors) in [("a.bin", &tensors), ("b.bin", &rest)] {
        std::fs::write(dir.path().join(part), file(tensors)).unwrap();
        map.extend(tensors.iter().map(|tensor| (tensor.name.clone(), part.into())));
    }
    let index = serde_json::json!({ "weight_map": map });
    std::fs::write(dir.path().join("pytorch_model.bin.index.json"), index.to_string()).unwrap();
    assert_eq!(load(dir.path()).unwrap().fingerprint(), model.fingerprint());
}

#[test]
fn a_file_of_python_is_read_with_parameters_shared_storages_and_columns() {
    let bytes = std::fs::read(fixture("pickle/small.bin")).unwrap();
    let tensors = pickled_tensors(&bytes).unwrap();
    let names: Vec<&str> = tensors.keys().map(String::as_str).collect();
    assert_eq!(names, ["a.bias", "a.weight", "b.weight", "half", "turned"]);
    let shards = {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pytorch_model.bin");
        std::fs::write(&path, &bytes).unwrap();
        Shards::open(&ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()))).unwrap()
    };
    let values = |name: &str| shards.values(name).unwrap();
    assert_eq!(values("a.weight"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(values("b.weight"), values("a.weight"));
    assert_eq!(values("a.bias"), [4.0, 5.0]);
    assert_eq!(values("half"), [0.5, -2.0]);
    assert_eq!(
        (values("turned"), shards.shape("turned")),
        (vec![0.0, 2.0, 4.0, 1.0, 3.0, 5.0], Some(vec![2, 3]))
    );
}

/// Returns a file with one tensor of two numbers and this program.
fn with_program(program: Vec<u8>) -> Vec<u8> {
    archive(&[("m/data.pkl".to_owned(), program), ("m/data/0".to_owned(), vec![0; 8])])
}

#[test]
fn a_view_that_changes_its_numbers_is_refused() {
    let plain = program(&[Pickled::rows("w", "FloatStorage", &[2], vec![0; 8])]);
    assert!(pickled_tensors(&with_program(plain.clone())).is_ok());
    let end = plain.len() - b"tRu.".len();
    // {"neg": True} as the last argument, as PyTorch writes it for the imaginary part of a conjugate.
    let negated = [&plain[..end], b"}X\x03\0\0\0neg\x88s", &plain[end..]].concat();
    let told = pickled_tensors(&with_program(negated)).unwrap_err();
    assert!(
        told.starts_with("`w` is a view that changes its numbers; write safetensors"),
        "{told}"
    );
}

#[test]
fn names_that_the_memo_shares_take_neither_memory_nor_time() {
    let shared = |name: usize, entries: usize, value: &[u8]| {
        let mut program = b"\x80\x02}(".to_vec();
        push_text(&mut program, &"k".repeat(name));
        program.extend(b"q\x00");
        program.extend(value);
        (1..entries).for_each(|_| program.extend([&b"h\x00"[..], value].concat()));
        program.extend(b"u.");
        with_program(program)
    };
    for (name, value, expected) in [
        (300_000, &b"K\x01"[..], "a key is no text, or a long one; "),
        (1000, b"K\x01", "is no tensor of numbers; "),
    ] {
        let file = shared(name, 20_000, value);
        let (told, bytes) = counting::peak(|| pickled_tensors(&file).unwrap_err());
        assert!(
            told.contains(expected) && told.contains("; and more; write safetensors"),
            "{told}"
        );
        assert!(bytes <= 64 * file.len() + 64 * 1024, "{bytes} bytes for a file of {}", file.len());
    }
    let mut twice = program(&[Pickled::rows("w", "FloatStorage", &[2], vec![0; 8])]);
    let entry = twice[b"\x80\x02}q\x00(".len()..twice.len() - 2].to_vec();
    twice.splice(twice.len() - 2..twice.len() - 2, entry);
    let told = pickled_tensors(&with_program(twice)).unwrap_err();
    assert!(told.starts_with("it has two tensors `w`; write safetensors"), "{told}");
}

#[test]
fn experts_by_columns_have_the_numbers_of_experts_by_rows() {
    let bytes = std::fs::read(fixture("families/gpt_oss/model.safetensors")).unwrap();
    let stored = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Vec<Pickled> = stored
        .iter()
        .map(|(name, it)| {
            let class = if it.dtype() == Dtype::F32 { "FloatStorage" } else { "BFloat16Storage" };
            Pickled::rows(name, class, it.shape(), it.data().to_vec())
        })
        .collect();
    let source = ModelSource::Directory(fixture("families/gpt_oss"));
    let model = Model::load(&ModelFiles::new(&source)).unwrap();
    for tensor in tensors.iter_mut().filter(|it| it.name.ends_with("_proj_bias")) {
        let [rows, columns] = tensor.shape[..] else { panic!("{:?}", tensor.shape) };
        let width = tensor.bytes.len() / (rows * columns);
        let number = |at: usize| tensor.bytes[width * at..width * (at + 1)].to_vec();
        let places = (0..columns).flat_map(|column| (0..rows).map(move |row| (row, column)));
        let turned = places.flat_map(|(row, column)| number(row * columns + column)).collect();
        (tensor.bytes, tensor.strides) = (turned, vec![1, rows]);
    }
    let dir = companions("families/gpt_oss");
    std::fs::write(dir.path().join("pytorch_model.bin"), file(&tensors)).unwrap();
    assert_eq!(load(dir.path()).unwrap().fingerprint(), model.fingerprint());
}

#[test]
fn what_is_not_read_is_named_with_a_remedy() {
    let zeros = |name, class, shape: &[usize], width: usize| {
        Pickled::rows(name, class, shape, vec![0; width * shape.iter().product::<usize>()])
    };
    let strided = Pickled { strides: vec![7, 2], ..zeros("odd", "FloatStorage", &[2, 3], 8) };
    let complex = zeros("z", "ComplexFloatStorage", &[2], 8);
    let short = Pickled { bytes: vec![0; 4], ..zeros("short", "FloatStorage", &[2], 4) };
    let told = pickled_tensors(&file(&[strided, complex, short])).unwrap_err();
    let expected = "`odd` has the strides [7, 2] for the shape [2, 3]; `z` has numbers of \"ComplexFloatStorage\"; `short` ends \
                    after its storage; write safetensors: `python -c";
    assert!(told.starts_with(expected), "{told}");
    let old = pickled_tensors(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.").unwrap_err();
    assert!(old.starts_with("it is of PyTorch before 1.6; write safetensors: "), "{old}");
    assert_eq!(pickled_tensors(b"PK\x03\x04").unwrap_err(), "it is no zip file, or damaged");
    let wide = companions("qwen2");
    let (_, mut tensors) = of_fixture("qwen2");
    tensors[0] = zeros("model.embed_tokens.weight", "DoubleStorage", &[416, 24], 8);
    std::fs::write(wide.path().join("pytorch_model.bin"), file(&tensors)).unwrap();
    let told = load(wide.path()).err().unwrap();
    assert_eq!(told, "DIR: `model.embed_tokens.weight` is F64; f32, f16 or bf16 are supported");
}

#[test]
fn a_damaged_file_is_an_error_or_tensors_and_costs_what_it_has_bytes() {
    let small = std::fs::read(fixture("pickle/small.bin")).unwrap();
    let rows = |name| Pickled::rows(name, "BFloat16Storage", &[3, 2], vec![1; 12]);
    let files = [small, file(&[rows("a"), rows("b")])];
    fuzz_binary("pytorch_model.bin", &files, 64, |bytes| {
        pickled_tensors(bytes).is_ok_and(|tensors| {
            tensors.values().all(|tensor| bytes.get(tensor.span.clone()).is_some())
        })
    });
}

#[test]
fn every_hostile_file_that_is_kept_is_refused() {
    let mut told = Vec::new();
    let mut paths: Vec<_> = std::fs::read_dir(fixture("hostile/pickle"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    for path in paths {
        let what = pickled_tensors(&std::fs::read(&path).unwrap()).unwrap_err();
        let what = what.split("; write safetensors").next().unwrap().to_owned();
        told.push(format!("{}: {what}", path.file_stem().unwrap().to_string_lossy()));
    }
    let expected = [
        "doubling: it is no dict of tensors",
        "far_offset: `a` ends after its storage",
        "long_text: its program has no end",
        "nested: it is no dict of tensors",
        "reduce_system: it is no dict of tensors",
        "short_call: `a` is no tensor of numbers",
        "underflow: its program takes an object that is not there",
        "unknown: its program has the instruction 0x69 at byte 42, which is not read",
    ];
    assert_eq!(told, expected);
}
