//! Experts of tokens in the answers of servers (router replay). vLLM sends an array of NumPy, SGLang the numbers alone; both have
//! a row for each token of prompt and completion but the last, and in it the experts of each layer.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use crate::files::HfConfig;
use crate::rollout::servers::request::AnswerProblem;
use crate::runtime::Routes;

/// First bytes of an array of NumPy.
const MAGIC: &[u8] = b"\x93NUMPY";

/// Numbers of experts as a server sent them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SentRoutes {
    /// Numbers of a token, those of each layer one after the other.
    columns: usize,
    /// Numbers `[tokens, columns]`.
    experts: Vec<u32>,
}

impl SentRoutes {
    /// Reads an array of NumPy `[tokens, layers, k]`.
    pub(super) fn of_array(sent: &Value) -> Result<Self, AnswerProblem> {
        let bytes = decode(sent)?;
        read_array(&bytes).ok_or_else(|| wrong("no array of NumPy with whole numbers"))
    }

    /// Reads numbers of four bytes, `[tokens, layers, k]`, of so many tokens.
    pub(super) fn of_numbers(sent: &Value, tokens: usize) -> Result<Self, AnswerProblem> {
        let bytes = decode(sent)?;
        let (numbers, rest) = bytes.as_chunks::<4>();
        let columns = numbers.len().checked_div(tokens).unwrap_or(0);
        if !rest.is_empty() || columns == 0 || columns * tokens != numbers.len() {
            let found = bytes.len();
            return Err(wrong(&format!(
                "{found} bytes, no numbers of four bytes for {tokens} tokens"
            )));
        }
        let experts = numbers.iter().map(|number| u32::from_le_bytes(*number)).collect();
        Ok(Self { columns, experts })
    }

    /// Returns the experts of a text of so many tokens in the layers of a model that have experts. A server may send numbers of
    /// the other layers, too.
    pub(super) fn routes(self, shape: &HfConfig, tokens: usize) -> Result<Routes, AnswerProblem> {
        let routers = shape.layers.iter().map(|layer| Some(layer.mlp.experts()?.router.chosen));
        let routers: Vec<Option<usize>> = routers.collect();
        let k = routers.iter().flatten().copied().max().unwrap_or(0);
        let width: usize = routers.iter().flatten().sum();
        let all = k * routers.len();
        if ![width, all].contains(&self.columns) || width == 0 {
            return Err(wrong(&format!(
                "{} numbers for each token; the model has {width}, {k} of each layer with experts",
                self.columns
            )));
        }
        let places = routers.iter().enumerate();
        let sparse: Vec<usize> =
            places.filter(|(_, router)| router.is_some()).map(|(layer, _)| layer).collect();
        let mut experts = Vec::with_capacity(tokens * width);
        for token in self.experts.chunks_exact(self.columns) {
            for (place, layer) in sparse.iter().enumerate() {
                let place = if self.columns == width { place } else { *layer };
                for expert in &token[place * k..(place + 1) * k] {
                    let expert = u8::try_from(*expert);
                    experts.push(expert.map_err(|_| wrong("a number of an expert above 255"))?);
                }
            }
        }
        let routes = Routes::new(experts, width).ok_or_else(|| wrong("no whole tokens"))?;
        match routes.problem(shape, tokens) {
            None => Ok(routes),
            Some(problem) => Err(wrong(&problem)),
        }
    }
}

fn wrong(problem: &str) -> AnswerProblem {
    AnswerProblem::Wrong(format!("gave as `routed_experts` {problem}"))
}

/// Problem of an answer without experts.
const NO_EXPERTS: &str = "answered without `routed_experts`: start it with `--enable-return-routed-experts`, or write \
    `router_replay = false`";

/// Returns the bytes of a text in base64.
fn decode(sent: &Value) -> Result<Vec<u8>, AnswerProblem> {
    let text = sent.as_str().ok_or_else(|| AnswerProblem::Wrong(NO_EXPERTS.to_owned()))?;
    BASE64_STANDARD.decode(text).map_err(|error| wrong(&format!("no base64: {error}")))
}

/// Reads an array of NumPy (format 1.0 and 2.0) with whole numbers in the order of C, whose first dimension is that of tokens.
fn read_array(bytes: &[u8]) -> Option<SentRoutes> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (version, rest) = rest.split_first_chunk::<2>()?;
    let (length, rest) = match version[0] {
        1 => {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        2 => {
            let (length, rest) = rest.split_first_chunk::<4>()?;
            (usize::try_from(u32::from_le_bytes(*length)).ok()?, rest)
        }
        _ => return None,
    };
    let (header, data) = rest.split_at_checked(length)?;
    let header = std::str::from_utf8(header).ok()?;
    if !header.contains("'fortran_order': False") {
        return None;
    }
    let (_, shape) = header.split_once("'shape': (")?;
    let (shape, _) = shape.split_once(')')?;
    let shape: Vec<usize> = shape
        .split(',')
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().ok())
        .collect::<Option<_>>()?;
    let columns = shape.get(1..)?.iter().try_fold(1_usize, |all, size| all.checked_mul(*size))?;
    let count = columns.checked_mul(*shape.first()?)?;
    let (_, kind) = header.split_once("'descr': '")?;
    let experts = numbers_of_kind(kind.get(..3)?, data)?;
    (columns > 0 && experts.len() == count).then_some(SentRoutes { columns, experts })
}

/// Returns numbers of a type of NumPy.
fn numbers_of_kind(kind: &str, data: &[u8]) -> Option<Vec<u32>> {
    match kind {
        "|u1" => Some(data.iter().map(|&number| u32::from(number)).collect()),
        "<u2" | "<i2" => {
            let (numbers, rest) = data.as_chunks::<2>();
            let numbers = numbers.iter().map(|number| u32::from(u16::from_le_bytes(*number)));
            rest.is_empty().then(|| numbers.collect())
        }
        "<u4" | "<i4" => {
            let (numbers, rest) = data.as_chunks::<4>();
            let numbers = numbers.iter().map(|number| u32::from_le_bytes(*number));
            rest.is_empty().then(|| numbers.collect())
        }
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Returns an array of NumPy in base64.
    pub(in crate::rollout::servers) fn array(kind: &str, shape: &str, data: &[u8]) -> Value {
        let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
        let padded = format!("{header:<117}\n");
        let length = (padded.len() as u16).to_le_bytes();
        let bytes = [MAGIC, &[1, 0], &length, padded.as_bytes(), data].concat();
        BASE64_STANDARD.encode(bytes).into()
    }

    /// Returns a model of three layers, of which the first and the last have six experts, three of a token.
    pub(in crate::rollout::servers) fn shape() -> HfConfig {
        let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/families/qwen3_moe");
        HfConfig::parse(&std::fs::read(format!("{fixture}/config.json")).unwrap()).unwrap()
    }

    fn problem(found: Result<Routes, AnswerProblem>) -> String {
        found.unwrap_err().to_string()
    }

    #[test]
    fn experts_are_read_from_arrays_and_numbers_with_and_without_those_of_dense_layers() {
        let (sparse, all) = ([0, 1, 2, 5, 4, 3], [0, 1, 2, 9, 9, 9, 5, 4, 3]);
        let two = |one: &[u8]| one.repeat(2);
        let routes =
            |sent: Result<SentRoutes, AnswerProblem>| sent.unwrap().routes(&shape(), 2).unwrap();
        let wanted = Routes::new(two(&sparse), 6).unwrap();
        assert_eq!(routes(SentRoutes::of_array(&array("|u1", "2, 2, 3", &two(&sparse)))), wanted);
        assert_eq!(routes(SentRoutes::of_array(&array("|u1", "2, 3, 3", &two(&all)))), wanted);
        let wide: Vec<u8> = two(&all).iter().flat_map(|&e| u16::from(e).to_le_bytes()).collect();
        assert_eq!(routes(SentRoutes::of_array(&array("<u2", "2, 3, 3", &wide))), wanted);
        let wide: Vec<u8> = two(&all).iter().flat_map(|&e| i32::from(e).to_le_bytes()).collect();
        assert_eq!(routes(SentRoutes::of_array(&array("<i4", "2, 3, 3", &wide))), wanted);
        let sent = BASE64_STANDARD.encode(wide).into();
        assert_eq!(routes(SentRoutes::of_numbers(&sent, 2)), wanted);
    }

    #[test]
    fn other_arrays_and_experts_are_refused_by_name() {
        let of = |sent: Value| SentRoutes::of_array(&sent).map_err(|problem| problem.to_string());
        assert!(of(Value::Null).unwrap_err().contains("`--enable-return-routed-experts`"));
        assert!(of("?".into()).unwrap_err().contains("no base64"));
        for damaged in [
            BASE64_STANDARD.encode("text").into(),
            array("<f4", "1, 2, 3", &[0; 24]),
            array("|u1", "1, 2, 3", &[0; 5]),
            array("|u1", "1, 2, x", &[0; 6]),
            array("|u1", "18446744073709551615, 2, 3", &[0; 6]),
            array("|u1", "", &[0; 6]),
        ] {
            assert!(of(damaged).unwrap_err().contains("no array of NumPy"));
        }
        let sent = |shape: &str, data: &[u8]| of(array("|u1", shape, data)).unwrap();
        let few = problem(sent("1, 2, 3", &[0, 1, 2, 0, 1, 2]).routes(&shape(), 2));
        assert!(few.contains("routes of 1 tokens, and the text has 2"), "{few}");
        let other = problem(sent("1, 2, 2", &[0, 1, 0, 1]).routes(&shape(), 1));
        assert!(other.contains("4 numbers for each token; the model has 6, 3 of each"), "{other}");
        let beyond = problem(sent("1, 2, 3", &[0, 1, 2, 0, 1, 6]).routes(&shape(), 1));
        assert!(beyond.contains("the expert 6 of token 0"), "{beyond}");
        let twice = problem(sent("1, 2, 3", &[0, 1, 1, 0, 1, 2]).routes(&shape(), 1));
        assert!(twice.contains("an expert twice"), "{twice}");
        let odd = SentRoutes::of_numbers(&BASE64_STANDARD.encode([0; 7]).into(), 1).unwrap_err();
        assert!(odd.to_string().contains("7 bytes, no numbers of four bytes"), "{odd}");
    }
}
