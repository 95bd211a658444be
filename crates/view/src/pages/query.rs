//! Parameters of requests.

use std::str::FromStr;

use crate::report::problem::ReportProblem;

/// Parameters of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    /// Decodes the parameters of a query.
    pub(crate) fn new(text: &str) -> Result<Self, ReportProblem> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode_percent(name)?, decode_percent(value)?))
        });
        let pairs: Option<Vec<_>> = pairs.collect();
        pairs.map(Self).ok_or_else(|| ReportProblem::invalid("the query is not encoded text"))
    }

    /// Returns the value of a parameter that is not empty.
    pub(crate) fn text_value(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(given, value)| given == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the value of a parameter; `Err` if it cannot be parsed.
    pub(crate) fn parse_value<T: FromStr>(&self, name: &str) -> Result<Option<T>, ReportProblem> {
        let Some(text) = self.text_value(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| wrong_value(name, text))
    }

    /// Returns the ends of a range written `A..B`, either of which may be missing, or one value for both.
    pub(crate) fn range_value<T>(&self, name: &str) -> Result<(Option<T>, Option<T>), ReportProblem>
    where
        T: FromStr + Copy,
    {
        let Some(text) = self.text_value(name) else { return Ok((None, None)) };
        match text.split_once("..") {
            Some((low, high)) => Ok((parse_end(name, text, low)?, parse_end(name, text, high)?)),
            None => parse_end(name, text, text).map(|value| (value, value)),
        }
    }
}

/// Decodes `%XX` and `+`; `None` if the result is not UTF-8.
fn decode_percent(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut found = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        found.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                let [high, low] = digits.map(|byte| char::from(byte).to_digit(16));
                (high? * 16 + low?) as u8
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(found).ok()
}

fn wrong_value(name: &str, value: &str) -> ReportProblem {
    ReportProblem::invalid(format!("`{name}` cannot be `{value}`"))
}

/// Parses an end of a range, which is open if it is empty.
fn parse_end<T: FromStr>(name: &str, range: &str, end: &str) -> Result<Option<T>, ReportProblem> {
    if end.is_empty() {
        return Ok(None);
    }
    end.parse().map(Some).map_err(|_| wrong_value(name, range))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::report::problem::ProblemKind;

    #[test]
    fn queries_are_decoded_or_refused() {
        let found = QueryParameters::new("q=a%20b+%C3%A4&step=3..&limit=7&empty=").unwrap();
        assert_eq!(found.text_value("q"), Some("a b ä"));
        assert_eq!(found.text_value("empty"), None);
        assert_eq!(found.range_value::<u64>("step").unwrap(), (Some(3), None));
        assert_eq!(found.parse_value::<u64>("limit").unwrap(), Some(7));
        assert_eq!(found.parse_value::<u64>("q").unwrap_err().kind, ProblemKind::Invalid);
        for query in ["q=%", "q=%f", "q=%zz", "q=%ff", "%ff=1"] {
            assert_eq!(
                QueryParameters::new(query).unwrap_err().kind,
                ProblemKind::Invalid,
                "{query}"
            );
        }
    }
}
