//! The index that the options describe: its corpus, its encoder, and embeddings from a file.

use std::path::{Path, PathBuf};

use super::dense::{Dense, Encoder, EncoderOptions, EncoderShape, encoder_error};
use super::{Index, Neighbors, Normalization, Pooling, Ranking, SearchEnvironment};
use crate::builtin::Document;
use crate::data::{self, Bounds};
use crate::env::EnvError;
use crate::files::{FlatMetric, FlatVectors, FlatWriter, ModelFiles, ModelSource};

/// Number of documents that are embedded between two writes.
const WRITTEN_AT_ONCE: usize = 256;

impl SearchEnvironment {
    /// Returns the model of the encoder if the ranking needs one, after validating its options. Of one on the hub, only the
    /// configuration is downloaded.
    ///
    /// # Errors
    ///
    /// If it is missing, does not exist or is not supported, or an option is given without effect.
    pub(super) fn encoder_model(&self, base: &Path) -> Result<Option<ModelSource>, EnvError> {
        if self.ranking == Ranking::Bm25 {
            self.refuse_without_encoder()?;
            return Ok(None);
        }
        if !self.retriever.is_empty() {
            return Err(EnvError::new(
                "`ranking` has no effect beside `retriever`, which ranks as it does; leave one of them out",
            ));
        }
        if self.encoder.is_empty() {
            return Err(EnvError::new(
                "`encoder` is empty, and the ranking needs one; write a model directory, `hf:ORG/NAME`, or `builtin:tiny`",
            ));
        }
        if self.max_tokens == 0 {
            return Err(EnvError::new("`max_tokens` is 0; an encoder must read something"));
        }
        if !self.index.is_empty() && self.neighbors == Neighbors::Hnsw {
            return Err(EnvError::new(
                "`neighbors` is \"hnsw\", and an `index` from a file is searched exactly; leave one of them out",
            ));
        }
        let local = if ["builtin:", "hf:"].iter().any(|start| self.encoder.starts_with(start)) {
            ModelSource::parse(&self.encoder)
        } else {
            Ok(ModelSource::at(base.join(&self.encoder)))
        };
        let there = local.and_then(|source| {
            ModelFiles::new(&source).require("config.json")?;
            Ok(source)
        });
        there.map(Some).map_err(encoder_error)
    }

    /// Refuses options of encoders beside a ranking by words.
    fn refuse_without_encoder(&self) -> Result<(), EnvError> {
        let useless = [
            ("encoder", !self.encoder.is_empty()),
            ("index", !self.index.is_empty()),
            ("pooling", self.pooling != Pooling::Auto),
            ("normalize", self.normalize != Normalization::Auto),
        ];
        match useless.into_iter().find(|(_, given)| *given) {
            Some((key, _)) => Err(EnvError(format!(
                "`{key}` has no effect on words; write `ranking = \"dense\"` or `\"hybrid\"` beside it"
            ))),
            None => Ok(()),
        }
    }

    /// Checks the corpus, the encoder and the file of embeddings without reading weights.
    ///
    /// # Errors
    ///
    /// If one of them cannot be used, or they do not fit each other.
    pub(super) fn check_index(
        &self,
        base: &Path,
        model: Option<&ModelSource>,
    ) -> Result<(), EnvError> {
        let documents = self.documents(base)?.len();
        let Some(model) = model else { return Ok(()) };
        let shape = EncoderShape::read(&ModelFiles::new(model), self.encoder_options())?;
        match self.vectors(base)? {
            Some(vectors) => check_vectors(&vectors, shape.width, documents),
            None => Ok(()),
        }
    }

    /// Builds the index that the options describe.
    ///
    /// # Errors
    ///
    /// If the corpus, the encoder or the file of embeddings cannot be read, or an option is invalid.
    pub fn index(&self, base: &Path) -> Result<Index, EnvError> {
        let model = self.encoder_model(base)?;
        let documents = self.documents(base)?;
        let Some(model) = model else { return Index::new(documents) };
        let dense = self.dense();
        model.fetch().map_err(encoder_error)?;
        if let Some(vectors) = self.vectors(base)? {
            // Before the weights are read.
            let shape = EncoderShape::read(&ModelFiles::new(&model), self.encoder_options())?;
            check_vectors(&vectors, shape.width, documents.len())?;
            let encoder = Encoder::load(&model, self.encoder_options())?;
            return Index::stored(documents, vectors, encoder, &dense, self.ranking);
        }
        let encoder = Encoder::load(&model, self.encoder_options())?;
        match self.ranking {
            Ranking::Hybrid => Index::hybrid(documents, encoder, &dense),
            Ranking::Bm25 | Ranking::Dense => Index::dense(documents, encoder, &dense),
        }
    }

    /// Embeds the corpus and writes the embeddings in the order of its rows, as a flat index of inner products. Returns the number of
    /// documents. `written` is called with their number so far.
    ///
    /// # Errors
    ///
    /// If the corpus or the encoder cannot be read, or the file cannot be written.
    pub fn write_index(
        &self,
        base: &Path,
        path: &Path,
        mut written: impl FnMut(usize, usize),
    ) -> Result<usize, EnvError> {
        let Some(model) = self.encoder_model(base)? else {
            return Err(EnvError::new(
                "an index of embeddings needs an encoder; write `ranking = \"dense\"` and `encoder`",
            ));
        };
        let documents = data::corpus_rows(&self.corpus, base, Bounds::of_corpus(self.max_mib))
            .map_err(|error| EnvError(format!("`corpus`: {error}")))?;
        model.fetch().map_err(encoder_error)?;
        let encoder = Encoder::load(&model, self.encoder_options())?;
        let (dense, count) = (self.dense(), documents.len());
        let failed = |error| EnvError(format!("`index`: {error}"));
        let metric = FlatMetric::InnerProduct;
        let mut writer =
            FlatWriter::create(path, metric, encoder.width(), count).map_err(failed)?;
        for (part, documents) in documents.chunks(WRITTEN_AT_ONCE).enumerate() {
            let texts: Vec<String> = documents.iter().map(|it| dense.document_text(it)).collect();
            writer.add(&encoder.encode(&texts)?).map_err(failed)?;
            written(part * WRITTEN_AT_ONCE + documents.len(), count);
        }
        writer.finish().map_err(failed)?;
        Ok(count)
    }

    /// Reads the documents of the corpus: by key, or in the order of rows if the embeddings are those of a file.
    fn documents(&self, base: &Path) -> Result<Vec<Document>, EnvError> {
        let bounds = Bounds::of_corpus(self.max_mib);
        let documents = if self.index.is_empty() {
            data::corpus(&self.corpus, base, bounds)
        } else {
            data::corpus_rows(&self.corpus, base, bounds)
        };
        documents.map_err(|error| EnvError(format!("`corpus`: {error}")))
    }

    /// Opens the file of embeddings, if there is one.
    fn vectors(&self, base: &Path) -> Result<Option<FlatVectors>, EnvError> {
        if self.index.is_empty() {
            return Ok(None);
        }
        let path: PathBuf = base.join(&self.index);
        let vectors = FlatVectors::open(&path);
        vectors.map(Some).map_err(|error| EnvError(format!("`index`: {error}")))
    }

    fn dense(&self) -> Dense {
        Dense {
            query_prefix: self.query_prefix.clone(),
            document_prefix: self.document_prefix.clone(),
            neighbors: self.neighbors,
        }
    }

    fn encoder_options(&self) -> EncoderOptions {
        EncoderOptions {
            pooling: self.pooling,
            normalization: self.normalize,
            max_tokens: self.max_tokens,
        }
    }
}

/// Checks that a file has an embedding of the encoder for each document.
pub(super) fn check_vectors(
    vectors: &FlatVectors,
    width: usize,
    documents: usize,
) -> Result<(), EnvError> {
    if vectors.width() != width {
        return Err(EnvError(format!(
            "`index` has vectors of {} numbers, and the embeddings of `encoder` have {width}; name the encoder that the index was \
             made with",
            vectors.width()
        )));
    }
    if vectors.len() != documents {
        return Err(EnvError(format!(
            "`index` has {} vectors, and `corpus` has {documents} documents; name the corpus that the index was made of",
            vectors.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::builtin::facts;
    use crate::env::Environment;
    use crate::task::TaskList;

    /// Returns an environment with the built-in encoder over `builtin:facts`.
    fn dense(index: &str) -> SearchEnvironment {
        SearchEnvironment {
            ranking: Ranking::Dense,
            encoder: "builtin:tiny".to_owned(),
            max_tokens: 32,
            index: index.to_owned(),
            ..SearchEnvironment::default()
        }
    }

    /// Returns the keys and the bits of the scores of the documents for a query; equal scores by key.
    fn found(index: &Index, query: &str) -> Vec<(u32, String)> {
        let hits = index.search(&[query], 9).unwrap();
        let hits = hits[0].iter().map(|hit| (hit.score.to_bits(), hit.document.key.clone()));
        let mut hits: Vec<(u32, String)> = hits.collect();
        hits.sort();
        hits
    }

    #[test]
    fn an_index_from_a_file_ranks_as_the_one_that_is_computed() {
        let dir = tempfile::tempdir().unwrap();
        let mut told = Vec::new();
        let path = dir.path().join("facts.index");
        let count = dense("").write_index(dir.path(), &path, |n, of| told.push((n, of))).unwrap();
        assert_eq!(count, facts::corpus().len());
        assert_eq!(told.last(), Some(&(count, count)));
        let computed = dense("").index(dir.path()).unwrap();
        let stored = dense("facts.index").index(dir.path()).unwrap();
        let queries = ["Magdor", "Where was the author of Magdor born?", "a city by the sea"];
        for query in queries {
            assert_eq!(found(&computed, query), found(&stored, query), "{query}");
        }
        let hybrid = SearchEnvironment { ranking: Ranking::Hybrid, ..dense("facts.index") };
        assert_eq!(hybrid.index(dir.path()).unwrap().ranking(), Ranking::Hybrid);
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 1, "only the index is left");
    }

    #[test]
    fn an_index_that_does_not_fit_is_refused_with_both_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, width: usize, rows: usize| {
            let path = dir.path().join(name);
            let mut file =
                FlatWriter::create(&path, FlatMetric::InnerProduct, width, rows).unwrap();
            file.add(&vec![0.5; width * rows]).unwrap();
            file.finish().unwrap();
        };
        let documents = facts::corpus().len();
        let shape = EncoderShape::read(
            &ModelFiles::new(&ModelSource::Builtin("tiny".to_owned())),
            dense("").encoder_options(),
        );
        let width = shape.unwrap().width;
        write("wide.index", width + 1, documents);
        write("short.index", width, documents - 1);
        std::fs::write(dir.path().join("other.index"), [b"IHNf".as_slice(), &[0; 60]].concat())
            .unwrap();
        let hnsw = SearchEnvironment { neighbors: Neighbors::Hnsw, ..dense("short.index") };
        let words = SearchEnvironment {
            ranking: Ranking::Bm25,
            encoder: String::new(),
            ..dense("short.index")
        };
        let cls = SearchEnvironment { pooling: Pooling::Cls, ..dense("") };
        for (environment, expected) in [
            (
                dense("wide.index"),
                format!(
                    "`index` has vectors of {} numbers, and the embeddings of `encoder` have {width}",
                    width + 1
                ),
            ),
            (
                dense("short.index"),
                format!(
                    "`index` has {} vectors, and `corpus` has {documents} documents",
                    documents - 1
                ),
            ),
            (dense("other.index"), "begins with \"IHNf\", and only flat indexes".to_owned()),
            (dense("none.index"), "none.index: ".to_owned()),
            (
                hnsw,
                "`neighbors` is \"hnsw\", and an `index` from a file is searched exactly"
                    .to_owned(),
            ),
            (words, "`index` has no effect on words".to_owned()),
            (cls, "`pooling` is \"cls\", and the first token".to_owned()),
        ] {
            let checked = environment.validate(dir.path(), &TaskList::default());
            let message = checked.unwrap_err().to_string();
            assert!(message.contains(&expected), "{message}");
            let built = environment.index(dir.path()).err().unwrap().to_string();
            assert_eq!(built, message);
        }
    }

    /// Prints queries per second over many vectors.
    #[test]
    #[ignore = "measurement"]
    fn queries_per_second_of_a_flat_index() {
        let (rows, width) = (100_000, 384);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large.index");
        let mut file = FlatWriter::create(&path, FlatMetric::InnerProduct, width, rows).unwrap();
        let mut draw = crate::rng::SplitMix64::new(1);
        let mut vector = || -> Vec<f32> {
            (0..width).map(|_| (draw.bits() >> 40) as f32 / (1 << 24) as f32 - 0.5).collect()
        };
        (0..rows).for_each(|_| file.add(&vector()).unwrap());
        file.finish().unwrap();
        let index = crate::env::search::dense::FlatIndex::new(FlatVectors::open(&path).unwrap());
        for count in [1, 8, 64] {
            let queries: Vec<f32> = (0..count).flat_map(|_| vector()).collect();
            index.search(&queries, 10);
            let begin = std::time::Instant::now();
            (0..5).for_each(|_| drop(index.search(&queries, 10)));
            let seconds = begin.elapsed().as_secs_f64() / 5.0;
            let (rate, gib) = (
                count as f64 / seconds,
                (4 * rows * width) as f64 / seconds / (1_u64 << 30) as f64,
            );
            println!("[{rows}, {width}], batch of {count}: {rate:.1} queries/s, {gib:.2} GiB/s");
        }
    }
}
