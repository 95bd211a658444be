//! Files that attempt to exhaust the memory: each is refused, and its peak memory is printed.
//!
//! Each file is read in a separate process, since the peak memory of a process cannot be reset.
#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

use std::fs;
use std::io::Write;
use std::num::NonZeroU64;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use maverl::config::TaskConfig;
use maverl::data::{self, Bounds};
use maverl::run_dir::{read_clock, read_rollouts, read_samples};

/// Variable with the case of a child process; without it, the tests run.
const CASE: &str = "MAVERL_HOSTILE_CASE";
/// Maximum unpacked size of files in these tests in MiB; in one of them it is the default.
const BOUND: u64 = 64;
/// Maximum memory for reading any of them in MiB.
const MOST: u64 = 512;

/// Returns the stride through the cases of a test: `n` in the first tier, 1 in the second (`MAVERL_FULL`).
fn stride(n: usize) -> usize {
    if std::env::var_os("MAVERL_FULL").is_some() { 1 } else { n }
}

/// Returns the peak memory of a process in MiB.
fn peak(process: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) >> 10
}

/// Returns a command that runs this test on a case, in a separate process.
fn child(test: &str, case: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CASE, case);
    command
}

/// Packs repetitions of a text with gzip, as repeated members of 16 MiB.
fn gzip(begin: &str, part: &str, mib: usize) -> Vec<u8> {
    let member = |text: &[u8]| {
        let mut out = GzEncoder::new(Vec::new(), Compression::best());
        out.write_all(text).unwrap();
        out.finish().unwrap()
    };
    let many = part.repeat((16 << 20) / part.len());
    let (first, many) = (member(begin.as_bytes()), member(many.as_bytes()));
    [first, many.repeat(mib.div_ceil(16))].concat()
}

/// Packs repetitions of a text with zstd.
fn zstd(part: &str, mib: usize) -> Vec<u8> {
    let mut out = zstd::Encoder::new(Vec::new(), 1).unwrap();
    let many = part.repeat((1 << 20) / part.len());
    (0..mib).for_each(|_| out.write_all(many.as_bytes()).unwrap());
    out.finish().unwrap()
}

#[cfg(feature = "parquet")]
mod columns {
    use std::sync::Arc;

    use parquet::basic::Compression;
    use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    /// Writes one question many times, in few bytes, since a dictionary holds it once.
    pub(super) fn questions(text: usize, times: usize, compression: Compression) -> Vec<u8> {
        let schema = "message rows { required binary question (UTF8); }";
        let properties = WriterProperties::builder().set_compression(compression).build();
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values = vec![ByteArray::from("x".repeat(text).as_str()); times];
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        file.into_inner().unwrap()
    }

    /// Writes one row with a list of many equal numbers.
    pub(super) fn list(values: usize) -> Vec<u8> {
        let schema = "message rows { repeated int32 question; }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let levels: Vec<i16> = (0..values).map(|i| i16::from(i > 0)).collect();
        let column_of = column.typed::<Int32Type>();
        column_of.write_batch(&vec![7; values], Some(&vec![1; values]), Some(&levels)).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        file.into_inner().unwrap()
    }

    /// Writes a footer with columns nested deeply enough to overflow the stack of a recursive reader.
    pub(super) fn nested(depth: usize) -> Vec<u8> {
        let mut footer = vec![0x15, 2, 0x19, 0xfc];
        let mut size = depth + 1;
        while size >= 0x80 {
            footer.push(size as u8 | 0x80);
            size >>= 7;
        }
        footer.push(size as u8);
        for _ in 0..depth {
            footer.extend([0x35, 0, 0x18, 1, b'a', 0x15, 2, 0]);
        }
        footer.extend([0x15, 2, 0x25, 0, 0x18, 1, b'b', 0]);
        footer.extend([0x16, 0, 0x19, 0x0c, 0]);
        let length = (footer.len() as u32).to_le_bytes();
        [b"PAR1", &footer[..], &length, b"PAR1"].concat()
    }
}

/// Reader of a file.
#[derive(Clone, Copy)]
enum As {
    Tasks,
    /// Tasks, with the default bound.
    TasksByDefault,
    Corpus,
    Demonstrations,
    Rollouts,
    Samples,
    Clock,
}

type Archive = (&'static str, As, fn() -> Vec<u8>, &'static str);

const WHOLE: &str = "unpacks to more than 64 MiB; raise `task.max_mib`";
const ROWS: &str = "unpacks to more than 262144 rows; raise `task.max_mib`";
const ROW: &str = "a row of more than 16 MiB; raise `task.max_row_mib`";

const ARCHIVES: &[Archive] = &[
    ("blanks, 3 GiB", As::TasksByDefault, || gzip("", " ", 3072), "more than 1024 MiB"),
    ("empty lines", As::Tasks, || gzip("{\"question\": \"?\"}\n", "\n", 256), WHOLE),
    ("one long text", As::Tasks, || gzip("{\"question\": \"", "x", 256), ROW),
    ("many short rows", As::Tasks, || gzip("", "{\"question\":\"?\"}\n", 256), ROWS),
    ("one long list of numbers", As::Tasks, || gzip("{\"a\": [0", ",0", 256), ROW),
    ("a list of one long element", As::Tasks, || gzip("[{\"a\": [0", ",0", 256), ROW),
    (
        "a list of short elements",
        As::Tasks,
        || gzip("[{\"question\":\"?\"}", ",{\"question\":\"?\"}", 256),
        ROWS,
    ),
    (
        "SQuAD of empty paragraphs",
        As::Tasks,
        || gzip("{\"data\":[{\"paragraphs\":[{\"context\":\"\"}", ",{\"context\":\"\"}", 256),
        "unpacks to more than 8 MiB; raise `task.max_mib`",
    ),
    (
        "documents of a corpus",
        As::Corpus,
        || gzip("", "{\"text\":\"?\"}\n", 256),
        "rows; raise `environment.max_mib`",
    ),
    (
        "demonstrations",
        As::Demonstrations,
        || gzip("", "{\"prompt\":\"?\",\"completion\":\"!\"}\n", 256),
        ROWS,
    ),
    ("rollouts of one line", As::Rollouts, || zstd(" ", 1024), "it has more than 64 MiB"),
    ("samples of one line", As::Samples, || zstd(" ", 1024), "it has more than 64 MiB"),
    ("times of one line", As::Clock, || zstd(" ", 1024), "it has more than 64 MiB"),
    #[cfg(feature = "parquet")]
    (
        "Parquet: a page of 256 MiB",
        As::Tasks,
        || columns::questions(256 << 20, 1, parquet::basic::Compression::GZIP(Default::default())),
        WHOLE,
    ),
    #[cfg(feature = "parquet")]
    (
        "Parquet: a million equal rows",
        As::Tasks,
        || columns::questions(1, 1 << 20, parquet::basic::Compression::SNAPPY),
        ROWS,
    ),
    #[cfg(feature = "parquet")]
    (
        "Parquet: a thousand rows of one text",
        As::Tasks,
        || {
            columns::questions(
                1 << 20,
                1 << 10,
                parquet::basic::Compression::ZSTD(Default::default()),
            )
        },
        WHOLE,
    ),
    #[cfg(feature = "parquet")]
    ("Parquet: a row of 16 million values", As::Tasks, || columns::list(16 << 20), WHOLE),
    #[cfg(feature = "parquet")]
    (
        "Parquet: columns nested 100000 deep",
        As::Tasks,
        || columns::nested(100_000),
        "its columns are nested 100000 deep; 64 are read",
    ),
];

/// Reads a file, and returns the error.
fn read(path: &Path, read_as: As) -> String {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let base = path.parent().unwrap();
    let bounded = TaskConfig {
        data: name.clone(),
        max_mib: NonZeroU64::new(BOUND).unwrap(),
        ..TaskConfig::default()
    };
    let refused = match read_as {
        As::Tasks => data::load(&bounded, data::ALL, base).map(drop).map_err(|e| e.to_string()),
        As::TasksByDefault => {
            let config = TaskConfig { data: name, ..TaskConfig::default() };
            data::load(&config, data::ALL, base).map(drop).map_err(|e| e.to_string())
        }
        As::Corpus => {
            let bounds = Bounds::of_corpus(BOUND);
            data::corpus(&name, base, bounds).map(drop).map_err(|e| e.to_string())
        }
        As::Demonstrations => {
            data::demonstrations(path, &bounded).map(drop).map_err(|e| e.to_string())
        }
        As::Rollouts => read_rollouts(path).map(drop).map_err(|e| e.to_string()),
        As::Samples => read_samples(path).map(drop).map_err(|e| e.to_string()),
        As::Clock => read_clock(path).map(drop).map_err(|e| e.to_string()),
    };
    refused.expect_err("it is refused")
}

#[test]
fn hostile_archives_are_refused_in_bounded_memory() {
    if let Ok(case) = std::env::var(CASE) {
        let (number, path) = case.split_once(' ').unwrap();
        let (_, read_as, ..) = ARCHIVES[number.parse::<usize>().unwrap()];
        let begin = Instant::now();
        let error = read(Path::new(path), read_as);
        println!("{CASE} {} {:.1} {error}", peak("self"), begin.elapsed().as_secs_f64());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    println!("| archive | bytes | MiB held | seconds | what is said |\n|---|---|---|---|---|");
    for (number, (name, _, make, wanted)) in ARCHIVES.iter().enumerate().step_by(stride(3)) {
        let path = dir.path().join("rows");
        fs::write(&path, make()).unwrap();
        let bytes = fs::metadata(&path).unwrap().len();
        let case = format!("{number} {}", path.display());
        let test = "hostile_archives_are_refused_in_bounded_memory";
        let output = child(test, &case).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{name}: {}\n{text}", output.status);
        let said = text.lines().find_map(|line| line.split_once(CASE)).unwrap().1.trim();
        let [held, seconds, error] = said.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!() };
        let error = error.replace(&format!("{}", dir.path().display()), "");
        println!("| {name} | {bytes} | {held} | {seconds} | {error} |");
        assert!(held.parse::<u64>().unwrap() <= MOST, "{name}: {held} MiB");
        assert!(error.contains(wanted), "{name}: {error}");
        assert!(bytes < 4 << 20, "{name}: {bytes} bytes are no small file");
    }
}
