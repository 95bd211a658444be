//! Files of a collection: rows, provenance, and a card.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::collect::card::card;
use crate::collect::collection::{Collection, RowSource};
use crate::collect::kind::RowFormat;
use crate::collect::options::CollectOptions;
use crate::collect::rows::Row;
use crate::run_dir::FileHash;

/// Writes a collection into a directory.
///
/// # Errors
///
/// If the disk fails.
pub fn write(
    dir: &Path,
    collection: &Collection,
    options: &CollectOptions,
    sources: &[RowSource],
) -> std::io::Result<()> {
    let mut files = BTreeMap::new();
    for (kind, set) in &collection.sets {
        for (split, rows) in [("train", &set.train), ("test", &set.test)] {
            if split == "test" && options.test_share <= 0.0 {
                continue;
            }
            let name = options.file_name(*kind, split);
            let path = dir.join(&name);
            match options.format {
                RowFormat::Jsonl => std::fs::write(&path, jsonl(rows)?)?,
                #[cfg(feature = "parquet")]
                RowFormat::Parquet => {
                    let written =
                        crate::collect::parquet::write(rows, std::fs::File::create(&path)?);
                    written.map_err(std::io::Error::other)?;
                }
            }
            let hash = FileHash::of(&std::fs::read(&path)?);
            files.insert(name, json!({"rows": rows.len(), "sha256": hash.sha256}));
        }
    }
    let provenance = json!({
        "maverl": env!("CARGO_PKG_VERSION"),
        "sources": sources,
        "options": recorded_options(options),
        "files": files,
    });
    let mut text = serde_json::to_string_pretty(&provenance)?;
    text.push('\n');
    std::fs::write(dir.join("provenance.json"), text)?;
    std::fs::write(dir.join("card.md"), card(collection, options, sources))
}

fn jsonl(rows: &[Row]) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut bytes, &row.columns)?;
        bytes.write_all(b"\n")?;
    }
    Ok(bytes)
}

fn texts_of<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(T::to_string).collect()
}

/// Returns the options for the provenance.
fn recorded_options(options: &CollectOptions) -> Value {
    let CollectOptions { kinds, filters, dedup, balance, label, .. } = options;
    let CollectOptions { margin, pairs, test_share, format, .. } = options;
    json!({
        "as": kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
        "solved": filters.solved,
        "min_reward": filters.min_reward,
        "seats": texts_of(&filters.seats),
        "no_truncated": filters.no_truncated,
        "no_errors": filters.no_errors,
        "max_tokens": filters.max_tokens,
        "match": texts_of(&filters.matches),
        "no_match": texts_of(&filters.no_matches),
        "dedup": dedup.name(),
        "balance": balance,
        "label": label,
        "margin": margin,
        "pairs": pairs,
        "test_share": test_share,
        "format": format.name(),
    })
}
