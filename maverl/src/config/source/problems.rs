//! Problems of a configuration, collected with their positions in the sources.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::diagnostic::Diagnostic;
use super::excerpt::ExcerptMark;
use super::layer::Unreadable;
use super::layers::ConfigLayers;
use super::names::key;
use super::sources::Sources;

/// Reads all sources.
///
/// # Errors
///
/// The problems of sources that cannot be read.
pub(crate) fn read_layers(sources: &Sources) -> Result<ConfigLayers, Vec<Diagnostic>> {
    let (layers, unreadable) = ConfigLayers::read(sources);
    if unreadable.is_empty() {
        return Ok(layers);
    }
    let mut problems = Problems::new(&layers);
    unreadable.into_iter().for_each(|problem| problems.unreadable(problem));
    Err(problems.into_found())
}

/// Underlined part of an entry.
#[derive(Clone, Copy)]
enum EntryPart {
    Key,
    Value,
}

/// Collected problems. The first problem of a key hides later ones of it, but all conflicts are reported.
pub(crate) struct Problems<'l> {
    layers: &'l ConfigLayers,
    found: Vec<Diagnostic>,
    keys: BTreeSet<Vec<String>>,
    gone: BTreeSet<Vec<String>>,
    /// Messages of the conflicts.
    conflicts: BTreeSet<String>,
}

impl<'l> Problems<'l> {
    pub(crate) fn new(layers: &'l ConfigLayers) -> Self {
        let found = Vec::new();
        let (keys, gone, conflicts) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Self { layers, found, keys, gone, conflicts }
    }

    pub(crate) fn layers(&self) -> &'l ConfigLayers {
        self.layers
    }

    /// Returns the text of a value; `None` if it is not in the sources.
    pub(crate) fn written_text(&self, path: &[String]) -> Option<&'l str> {
        let place = self.layers.has(path).then(|| self.layers.place(path))??;
        self.layers.layer(place.layer).source.text.get(place.value)
    }

    /// Returns the name of the only model, if there is only one.
    pub(crate) fn only_model(&self) -> Option<&'l str> {
        let models =
            self.layers.merged_values().find_ref("models").and_then(|models| models.as_dict())?;
        let mut names = models.keys();
        names.next().map(String::as_str).filter(|_| names.next().is_none())
    }

    /// Returns true if a key is already reported, or was removed with a table around it.
    pub(crate) fn is_reported(&self, path: &[String]) -> bool {
        self.keys.contains(path) || (1..path.len()).any(|end| self.gone.contains(&path[..end]))
    }

    /// Marks a reported value as removed, so that its content is not reported.
    pub(crate) fn mark_removed(&mut self, path: &[String]) {
        self.gone.insert(path.to_vec());
    }

    /// Reports a source that could not be read.
    fn unreadable(&mut self, problem: Unreadable) {
        let text = &self.layers.layer(problem.layer).source.text;
        // A problem at the end of a line is shown there, not on the next line.
        let span = problem.span.map(|span| {
            let ends = text.get(span.clone()).is_none_or(|c| c == "\n" || c.is_empty());
            let before = text.get(..span.start).and_then(|text| text.char_indices().next_back());
            before.filter(|_| ends).map_or(span.clone(), |(start, _)| start..span.start)
        });
        let labels = span.map(|span| (span, None)).into_iter().collect();
        self.push(Some(problem.layer), labels, problem.message, problem.help);
    }

    /// Reports a key.
    pub(crate) fn key(
        &mut self,
        path: &[String],
        message: String,
        help: impl Into<Option<String>>,
    ) {
        self.report_one(path, EntryPart::Key, message, help.into());
    }

    /// Reports the value of a key.
    pub(crate) fn value(
        &mut self,
        path: &[String],
        message: String,
        help: impl Into<Option<String>>,
    ) {
        self.report_one(path, EntryPart::Value, message, help.into());
    }

    /// Reports a value that conflicts with that of another key.
    pub(crate) fn conflict(&mut self, path: &[String], message: String, help: String) {
        if !self.is_reported(path) && self.conflicts.insert(message.clone()) {
            self.place(path, EntryPart::Value, message, Some(help));
        }
    }

    /// Reports values that conflict, each with a note.
    pub(crate) fn values(
        &mut self,
        notes: &[(Vec<String>, String)],
        message: String,
        help: String,
    ) {
        if !self.conflicts.insert(message.clone()) {
            return;
        }
        let mut layer = None;
        let mut labels = Vec::new();
        for (path, note) in notes.iter().filter(|(path, _)| self.layers.has(path)) {
            let Some(place) = self.layers.place(path) else { continue };
            if *layer.get_or_insert(place.layer) == place.layer {
                labels.push((place.value, Some(note.clone())));
            }
        }
        self.push(layer, labels, message, Some(help));
    }

    /// Reports a problem without a key.
    pub(crate) fn report_whole(&mut self, message: String, help: impl Into<Option<String>>) {
        self.push(None, Vec::new(), message, help.into());
    }

    fn report_one(
        &mut self,
        path: &[String],
        part: EntryPart,
        message: String,
        help: Option<String>,
    ) {
        if self.is_reported(path) {
            return;
        }
        self.keys.insert(path.to_vec());
        self.place(path, part, message, help);
    }

    fn place(&mut self, path: &[String], part: EntryPart, message: String, help: Option<String>) {
        self.report_placed(path, part, message, help);
        if let Some(last) = self.found.last_mut() {
            last.key = Some(key(path));
        }
    }

    fn report_placed(
        &mut self,
        path: &[String],
        part: EntryPart,
        message: String,
        help: Option<String>,
    ) {
        match self.layers.place(path) {
            None => self.push(None, Vec::new(), message, help),
            Some(place) => {
                let span = match part {
                    EntryPart::Key => place.key,
                    EntryPart::Value => place.value,
                };
                self.push(Some(place.layer), vec![(span, None)], message, help);
            }
        }
    }

    fn push(
        &mut self,
        layer: Option<usize>,
        marks: Vec<ExcerptMark>,
        message: String,
        help: Option<String>,
    ) {
        let start = marks.iter().map(|(mark, _)| mark.start).min().unwrap_or(0);
        let source = layer.map(|index| Arc::clone(&self.layers.layer(index).source));
        let order = (layer.unwrap_or(usize::MAX), start);
        self.found.push(Diagnostic { message, help, source, marks, key: None, order });
    }

    /// Returns the value, or all problems in the order of the sources.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<T, Vec<Diagnostic>> {
        let found = self.into_found();
        match value {
            Some(value) if found.is_empty() => Ok(value),
            _ => {
                assert!(!found.is_empty(), "whatever stops the plan is reported");
                Err(found)
            }
        }
    }

    /// Returns all problems in the order of the sources.
    fn into_found(self) -> Vec<Diagnostic> {
        let mut found = self.found;
        found.sort_by_key(|diagnostic| diagnostic.order);
        found
    }
}
