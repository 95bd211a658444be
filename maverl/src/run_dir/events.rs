//! TensorBoard event files: scalars and texts.
//!
//! A file is a sequence of records: `u64 length | u32 masked crc32c(length) | bytes | u32 masked crc32c(bytes)`, all little
//! endian. Each record is a protobuf `Event`, whose fields are encoded by hand.

/// Returns the first record of every file.
pub(crate) fn header(wall_time: f64) -> Vec<u8> {
    let mut event = wall(wall_time);
    length_delimited(&mut event, 3, b"brain.Event:2"); // Event.file_version
    record(&event)
}

/// Returns the record with the scalars of one step.
pub(crate) fn scalars<'a>(
    wall_time: f64,
    step: u64,
    values: impl Iterator<Item = (&'a str, f64)>,
) -> Vec<u8> {
    let mut summary = Vec::new();
    for (tag, number) in values {
        let mut value = Vec::new();
        length_delimited(&mut value, 1, tag.as_bytes()); // Summary.Value.tag
        value.push(2 << 3 | 5); // Summary.Value.simple_value, 32 bit
        #[allow(clippy::cast_possible_truncation)] // the format has single precision
        value.extend((number as f32).to_le_bytes());
        length_delimited(&mut summary, 1, &value); // Summary.value
    }
    summary_record(wall_time, step, &summary)
}

/// Returns the record with texts of one step under a name, as the plugin `text` shows them.
pub(crate) fn texts(wall_time: f64, step: u64, tag: &str, texts: &[String]) -> Vec<u8> {
    let mut plugin = Vec::new();
    length_delimited(&mut plugin, 1, b"text"); // PluginData.plugin_name
    let mut metadata = Vec::new();
    length_delimited(&mut metadata, 1, &plugin); // SummaryMetadata.plugin_data
    let mut size = vec![1 << 3]; // TensorShapeProto.Dim.size, varint
    varint(&mut size, texts.len() as u64);
    let mut shape = Vec::new();
    length_delimited(&mut shape, 2, &size); // TensorShapeProto.dim
    let mut tensor = vec![1 << 3, 7]; // TensorProto.dtype: DT_STRING
    length_delimited(&mut tensor, 2, &shape); // TensorProto.tensor_shape
    for text in texts {
        length_delimited(&mut tensor, 8, text.as_bytes()); // TensorProto.string_val
    }
    let mut value = Vec::new();
    length_delimited(&mut value, 1, tag.as_bytes()); // Summary.Value.tag
    length_delimited(&mut value, 9, &metadata); // Summary.Value.metadata
    length_delimited(&mut value, 8, &tensor); // Summary.Value.tensor
    let mut summary = Vec::new();
    length_delimited(&mut summary, 1, &value); // Summary.value
    summary_record(wall_time, step, &summary)
}

/// Returns the record of the summary of a step.
fn summary_record(wall_time: f64, step: u64, summary: &[u8]) -> Vec<u8> {
    let mut event = wall(wall_time);
    event.push(2 << 3); // Event.step, varint
    varint(&mut event, step);
    length_delimited(&mut event, 5, summary); // Event.summary
    record(&event)
}

fn wall(seconds: f64) -> Vec<u8> {
    let mut event = vec![1 << 3 | 1]; // Event.wall_time, 64 bit
    event.extend(seconds.to_le_bytes());
    event
}

fn record(event: &[u8]) -> Vec<u8> {
    let length = (event.len() as u64).to_le_bytes();
    let mut bytes = Vec::with_capacity(event.len() + 16);
    bytes.extend(length);
    bytes.extend(masked_checksum(&length).to_le_bytes());
    bytes.extend(event);
    bytes.extend(masked_checksum(event).to_le_bytes());
    bytes
}

/// Masks a checksum as TensorFlow does, so that data that contains checksums can be checksummed.
fn masked_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn length_delimited(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend(bytes);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Reads records and verifies both checksums of each.
    fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            let check = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            assert_eq!(check(8), masked_checksum(&bytes[..8]));
            let event = &bytes[12..12 + length];
            assert_eq!(check(12 + length), masked_checksum(event));
            records.push(event.to_vec());
            bytes = &bytes[16 + length..];
        }
        records
    }

    enum Field {
        Number(u64),
        Bytes(Vec<u8>),
    }

    /// Splits a protobuf message into its fields.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap();
            let value = (0..=end).rev().fold(0, |v, i| v << 7 | u64::from(bytes[i] & 0x7f));
            *bytes = &bytes[end + 1..];
            value
        }
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let field = match key & 7 {
                0 => Field::Number(varint(&mut bytes)),
                wire => {
                    let n = match wire {
                        1 => 8,
                        5 => 4,
                        _ => varint(&mut bytes) as usize,
                    };
                    let (head, tail) = bytes.split_at(n);
                    bytes = tail;
                    Field::Bytes(head.to_vec())
                }
            };
            fields.push((key >> 3, field));
        }
        fields
    }

    fn bytes(message: &[u8], number: u64) -> Vec<Vec<u8>> {
        let pick = |(n, field)| match field {
            Field::Bytes(bytes) if n == number => Some(bytes),
            _ => None,
        };
        fields(message).into_iter().filter_map(pick).collect()
    }

    #[test]
    fn checksums_are_those_of_rfc_3720_masked() {
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa); // RFC 3720, B.4
        let unmasked = masked_checksum(&[0; 32]).wrapping_sub(0xa282_ead8).rotate_left(15);
        assert_eq!(unmasked, 0x8a91_36aa);
    }

    #[test]
    fn texts_are_a_tensor_of_the_plugin_for_texts() {
        let file = texts(13.5, 3, "episodes", &["first".to_owned(), "second".to_owned()]);
        let event = records(&file).remove(0);
        let value = bytes(&bytes(&event, 5)[0], 1).remove(0);
        assert_eq!(bytes(&value, 1), [b"episodes"]);
        assert_eq!(bytes(&bytes(&bytes(&value, 9)[0], 1)[0], 1), [b"text"]);
        let tensor = bytes(&value, 8).remove(0);
        assert_eq!(bytes(&tensor, 8), [&b"first"[..], b"second"]);
        assert!(matches!(fields(&tensor)[0], (1, Field::Number(7))));
    }

    #[test]
    fn a_file_reads_back_as_it_was_written() {
        let mut file = header(12.5);
        let values = [("rollout/solved", 0.25), ("policy/small/loss", -3.0)];
        file.extend(scalars(13.5, 300, values.into_iter()));
        let events = records(&file);
        assert_eq!(events.len(), 2);
        assert_eq!(bytes(&events[0], 3), [b"brain.Event:2"]);
        assert_eq!(bytes(&events[1], 1), [13.5f64.to_le_bytes()]);
        let step = fields(&events[1]).into_iter().find_map(|(n, field)| match field {
            Field::Number(step) if n == 2 => Some(step),
            _ => None,
        });
        assert_eq!(step, Some(300));
        let summary = bytes(&events[1], 5).remove(0);
        let read: Vec<(String, f32)> = bytes(&summary, 1)
            .iter()
            .map(|value| {
                let tag = String::from_utf8(bytes(value, 1).remove(0)).unwrap();
                let number = bytes(value, 2).remove(0).try_into().unwrap();
                (tag, f32::from_le_bytes(number))
            })
            .collect();
        assert_eq!(read, [("rollout/solved".into(), 0.25), ("policy/small/loss".into(), -3.0)]);
    }
}
