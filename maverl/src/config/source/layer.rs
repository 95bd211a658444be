//! One source of a configuration: its text, and the values in it.

use std::ops::Range;
use std::sync::Arc;

use figment::value::Value;
use toml_edit::ImDocument;

use super::excerpt::SourceText;
use super::yaml;

/// One source of values, with its text.
#[derive(Debug)]
pub(super) struct SourceLayer {
    /// Name and text.
    pub(super) source: Arc<SourceText>,
    pub(super) content: LayerContent,
}

impl SourceLayer {
    /// Returns a layer with its text.
    pub(super) fn new(name: String, text: String, content: LayerContent) -> Self {
        Self { source: Arc::new(SourceText::new(name, text)), content }
    }
}

/// Values of a layer.
#[derive(Debug)]
pub(super) enum LayerContent {
    /// A file in TOML.
    File(ImDocument<String>),
    /// A file in YAML.
    Yaml(yaml::YamlNode),
    /// A variable of the environment, or `--set`.
    Assignment { path: Vec<String>, key: Range<usize>, value: Range<usize>, parsed: Value },
    /// The source could not be read.
    Nothing,
}

/// Error of reading a source.
pub(super) struct Unreadable {
    /// Index of its layer.
    pub(super) layer: usize,
    /// Place in its text.
    pub(super) span: Option<Range<usize>>,
    /// Description of the problem.
    pub(super) message: String,
    /// Remedy.
    pub(super) help: Option<String>,
}
