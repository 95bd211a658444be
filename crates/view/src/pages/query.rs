//! Parameters of requests.

use std::str::FromStr;

use crate::report::problem::Problem;

/// Parameters of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes the parameters of a query.
    pub(crate) fn new(text: &str) -> Result<Self, Problem> {
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(name)?, decoded(value)?))
        };
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(pair);
        let pairs: Option<Vec<_>> = pairs.collect();
        pairs.map(Self).ok_or_else(|| Problem::invalid("the query is not encoded text"))
    }

    /// Returns the value of a parameter that is not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(given, value)| given == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the value of a parameter; `Err` if it cannot be parsed.
    pub(crate) fn parse<T: FromStr>(&self, name: &str) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let refusal = |_| Problem::invalid(format!("`{name}` cannot be `{text}`"));
        text.parse().map(Some).map_err(refusal)
    }

    /// Returns the ends of a range written `A..B`, either of which may be missing, or one value for both.
    pub(crate) fn range<T>(&self, name: &str) -> Result<(Option<T>, Option<T>), Problem>
    where
        T: FromStr + Copy,
    {
        let Some(text) = self.text(name) else { return Ok((None, None)) };
        let refusal = || Problem::invalid(format!("`{name}` cannot be `{text}`"));
        let end = |text: &str| match text {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| refusal()),
        };
        match text.split_once("..") {
            Some((low, high)) => Ok((end(low)?, end(high)?)),
            None => end(text).map(|value| (value, value)),
        }
    }
}

/// Decodes `%XX` and `+`; `None` if the result is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut found = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        found.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                (digit(bytes.next())? * 16 + digit(bytes.next())?) as u8
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(found).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::report::problem::ProblemKind;

    #[test]
    fn queries_are_decoded_or_refused() {
        let found = Query::new("q=a%20b+%C3%A4&step=3..&limit=7&empty=").unwrap();
        assert_eq!(found.text("q"), Some("a b ä"));
        assert_eq!(found.text("empty"), None);
        assert_eq!(found.range::<u64>("step").unwrap(), (Some(3), None));
        assert_eq!(found.parse::<u64>("limit").unwrap(), Some(7));
        assert_eq!(found.parse::<u64>("q").unwrap_err().kind, ProblemKind::Invalid);
        for query in ["q=%", "q=%f", "q=%zz", "q=%ff", "%ff=1"] {
            assert_eq!(Query::new(query).unwrap_err().kind, ProblemKind::Invalid, "{query}");
        }
    }
}
