//! Documents ranked by the words they share with a query.

use std::collections::BTreeSet;

use tantivy::collector::TopDocs;
use tantivy::collector::sort_key::{SortBySimilarityScore, SortByStaticFastValue};
use tantivy::indexer::NoMergePolicy;
use tantivy::query::{BooleanQuery, Occur, Query, TermQuery};
use tantivy::schema::{FAST, Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::tokenizer::{LowerCaser, SimpleTokenizer, TextAnalyzer, TokenStream as _};
use tantivy::{IndexWriter, Order, Score, Searcher, TantivyDocument, Term};

use super::index::Ranked;
use crate::env::EnvError;
use crate::world::Document;

/// Bytes the writer may hold back before it cuts a segment.
const WRITER_BYTES: usize = 64 << 20;
/// The fast field that holds a document's place in key order.
const RANK: &str = "rank";

/// Title and text of every document, indexed together as one field: lower case, split at what is no letter or digit.
///
/// BM25 with k1 = 1.2 and b = 0.75. Lengths of documents are those of the index, quantized to a byte: exact up to 40 words,
/// above that rounded down. Equally good documents come in their order.
pub(super) struct Bm25 {
    searcher: Searcher,
    field: Field,
}

impl Bm25 {
    pub(super) fn new(documents: &[Document]) -> Result<Self, EnvError> {
        let (searcher, field) = index(documents).map_err(|error| failed(&error))?;
        Ok(Self { searcher, field })
    }

    /// The best `k` documents that have a word of the query, best first.
    pub(super) fn search(&self, query: &str, k: usize) -> Result<Vec<Ranked>, EnvError> {
        let words: BTreeSet<String> = words(query);
        if words.is_empty() || k == 0 {
            return Ok(Vec::new());
        }
        let terms = words.iter().map(|word| {
            let term = Term::from_field_text(self.field, word);
            let query: Box<dyn Query> =
                Box::new(TermQuery::new(term, IndexRecordOption::WithFreqs));
            (Occur::Should, query)
        });
        let best = TopDocs::with_limit(k).order_by((
            (SortBySimilarityScore, Order::Desc),
            (SortByStaticFastValue::<u64>::for_field(RANK), Order::Asc),
        ));
        let found: Vec<((Score, Option<u64>), _)> = self
            .searcher
            .search(&BooleanQuery::new(terms.collect()), &best)
            .map_err(|error| failed(&error))?;
        let ranked = found.into_iter().filter_map(|((score, rank), _)| {
            rank.map(|rank| Ranked { place: rank as usize, score })
        });
        Ok(ranked.collect())
    }
}

fn index(documents: &[Document]) -> tantivy::Result<(Searcher, Field)> {
    let mut schema = Schema::builder();
    let indexing = TextFieldIndexing::default()
        .set_tokenizer("words")
        .set_index_option(IndexRecordOption::WithFreqs);
    let field =
        schema.add_text_field("text", TextOptions::default().set_indexing_options(indexing));
    let rank = schema.add_u64_field(RANK, FAST);
    let index = tantivy::Index::create_in_ram(schema.build());
    index.tokenizers().register("words", analyzer());
    // One thread and no merges: the same segments, and the same sums, every time.
    let mut writer: IndexWriter = index.writer_with_num_threads(1, WRITER_BYTES)?;
    writer.set_merge_policy(Box::new(NoMergePolicy));
    for (i, document) in documents.iter().enumerate() {
        let mut entry = TantivyDocument::new();
        entry.add_text(field, format!("{} {}", document.title, document.text));
        entry.add_u64(rank, i as u64);
        writer.add_document(entry)?;
    }
    writer.commit()?;
    writer.wait_merging_threads()?;
    Ok((index.reader()?.searcher(), field))
}

fn analyzer() -> TextAnalyzer {
    TextAnalyzer::builder(SimpleTokenizer::default()).filter(LowerCaser).build()
}

/// The words of a query, each once.
fn words(query: &str) -> BTreeSet<String> {
    let mut analyzer = analyzer();
    let mut stream = analyzer.token_stream(query);
    let mut words = BTreeSet::new();
    while let Some(token) = stream.next() {
        words.insert(token.text.clone());
    }
    words
}

fn failed(error: &tantivy::TantivyError) -> EnvError {
    EnvError::new(format!("the search index failed: {error}"))
}
