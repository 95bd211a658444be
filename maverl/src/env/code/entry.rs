//! Names in the Python of a row: the tested function, and the modules that the tests use.

use std::collections::BTreeSet;

/// Python's built-in functions, which tests call beside the tested one, and keywords that may precede a parenthesis.
const OWN: &str = "abs aiter all and any anext as ascii assert async await bin bool bytearray bytes callable candidate chr \
    classmethod compile complex delattr del dict dir divmod elif else enumerate eval except exec filter float for format \
    from frozenset getattr globals hasattr hash hex id if import in input int is isinstance issubclass iter lambda len \
    list locals map max memoryview min next not object oct open or ord pow print property raise range repr return \
    reversed round set setattr slice sorted staticmethod str sum super tuple type vars while with yield zip";

/// Returns the function that the test statements call. Candidates are the functions that a solution defines, or without
/// one, those that are neither built in nor defined by the setup or the tests. Returns `None` if the statements call no
/// such function.
///
/// # Errors
///
/// The names of the functions, if the statements call several.
pub(super) fn entry(
    tests: &[&str],
    setup: &str,
    solution: Option<&str>,
) -> Result<Option<String>, String> {
    let calls: Vec<Vec<&str>> = tests.iter().map(|test| called(test)).collect();
    let mut names: Vec<&str> = Vec::new();
    for name in calls.iter().flatten() {
        if !names.contains(name) {
            names.push(name);
        }
    }
    if let Some(solution) = solution {
        let (functions, classes) = (defined(solution, "def "), defined(solution, "class "));
        // A class whose instances are arguments of tests is not the tested one, unless there is nothing else.
        let functions = [functions, classes].into_iter().map(|defined| -> Vec<&str> {
            names.iter().copied().filter(|name| defined.contains(name)).collect()
        });
        let Some(found) = functions.into_iter().find(|found| !found.is_empty()) else {
            return Ok(None);
        };
        return one(&found, &calls).map(Some);
    }
    let own: BTreeSet<&str> = OWN.split_whitespace().collect();
    let made: BTreeSet<&str> = tests.iter().chain([&setup]).flat_map(|code| bound(code)).collect();
    names.retain(|name| !own.contains(name) && !made.contains(name));
    if names.is_empty() { Ok(None) } else { one(&names, &calls).map(Some) }
}

/// Returns the imports at the top of a solution that bind a name used by the tests. Test harnesses that run both in one
/// process share them.
pub(super) fn imports(tests: &[&str], solution: &str) -> Vec<String> {
    let used: BTreeSet<&str> =
        tests.iter().flat_map(|test| words(test)).map(|(_, word, _)| word).collect();
    let imports = solution.lines().filter(|line| {
        let import = line.starts_with("import ") || line.starts_with("from ");
        import && !line.contains(['(', '\\', '*'])
    });
    let imports = imports.filter(|line| {
        let made = line.split_once("import ").map_or("", |(_, made)| made);
        words(made).iter().any(|(_, word, _)| *word != "as" && used.contains(word))
    });
    imports.map(str::to_owned).collect()
}

/// Returns the only name, or the only one that occurs in every test.
fn one(names: &[&str], calls: &[Vec<&str>]) -> Result<String, String> {
    let common = names.iter().copied().filter(|name| calls.iter().all(|it| it.contains(name)));
    match (names, common.collect::<Vec<_>>().as_slice()) {
        ([name], _) | (_, [name]) => Ok((*name).to_owned()),
        _ => {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            Err(format!(
                "its tests call {}, and one function is tested; name it as the row's `entry_point`, and define the \
                 others in its `setup`",
                names.join(" and ")
            ))
        }
    }
}

/// Returns the last function that a program defines at its top level.
pub(super) fn last_defined(code: &str) -> Option<String> {
    defined(code, "def ").pop().map(str::to_owned)
}

/// Returns the names that a program defines at its top level, in order.
fn defined<'c>(code: &'c str, keyword: &str) -> Vec<&'c str> {
    let heads = code.lines().filter_map(|line| line.strip_prefix(keyword));
    heads.map(|head| head.split(['(', ':']).next().unwrap_or_default().trim()).collect()
}

/// Returns the names that code calls: words before a parenthesis that are not attributes and are outside of strings and
/// comments.
fn called(code: &str) -> Vec<&str> {
    let calls = words(code).into_iter().filter(|(before, word, after)| {
        let calls = *after == Some('(') && *before != Some('.');
        calls && !word.starts_with(|c: char| c.is_ascii_digit())
    });
    calls.map(|(_, word, _)| word).collect()
}

/// Returns the names that imports and definitions in code bind.
fn bound(code: &str) -> Vec<&str> {
    let keywords = ["import ", "from ", "def ", "class "];
    let lines = code
        .lines()
        .filter(|line| keywords.iter().any(|keyword| line.trim_start().starts_with(keyword)));
    lines.flat_map(words).map(|(_, word, _)| word).collect()
}

/// Iterates over the words of Python code outside of strings and comments, each with the characters before and after
/// it, blanks excluded.
fn words(code: &str) -> Vec<(Option<char>, &str, Option<char>)> {
    let (mut words, mut before, mut rest) = (Vec::new(), None, code);
    while let Some(c) = rest.chars().next() {
        let skipped = if c == '#' {
            rest.find('\n').unwrap_or(rest.len())
        } else if c == '"' || c == '\'' {
            text(rest, c)
        } else if is_word_part(c) {
            let end = rest.find(|c| !is_word_part(c)).unwrap_or(rest.len());
            let after = rest[end..].trim_start_matches([' ', '\t']).chars().next();
            // A word directly before a quotation mark is a string prefix.
            if !matches!(after, Some('"' | '\'')) {
                words.push((before, &rest[..end], after));
            }
            end
        } else {
            c.len_utf8()
        };
        if c != ' ' && c != '\t' {
            before = Some(c);
        }
        rest = &rest[skipped..];
    }
    words
}

fn is_word_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length of the string literal that begins here, quotation marks included.
fn text(code: &str, quote: char) -> usize {
    let triple = [quote; 3].iter().collect::<String>();
    let mark = if code.starts_with(&triple) { triple } else { quote.to_string() };
    let mut at = mark.len();
    while let Some(c) = code[at..].chars().next() {
        if code[at..].starts_with(&mark) {
            return at + mark.len();
        }
        at += c.len_utf8();
        if c == '\\' {
            at += code[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn of(tests: &[&str], setup: &str, solution: Option<&str>) -> String {
        match entry(tests, setup, solution) {
            Ok(name) => name.unwrap_or_default(),
            Err(error) => error,
        }
    }

    #[test]
    fn the_function_that_tests_call_is_the_one_they_test() {
        let solution = "class Pair(object):\n    def near(self): pass\ndef f(x):\n    return x\ndef g(x): pass\n";
        for (tests, wanted) in [
            (&["assert f(1) == g2(1)"][..], "f"),
            (&["assert g(1)", "assert set( g (2)) == set()"], "g"),
            (&["assert math.isclose(f(2), 1.0)"], "f"),
            (&["assert f([Pair(1, 2), Pair(3, 4)]) == 1"], "f"),
            (&["assert f(1)", "assert f(g(1)) == 1"], "f"),
            (&["assert candidate(1)"], ""),
            (&["assert f(1)", "assert g(1)"], "its tests call `f` and `g`, and one"),
            (&["assert f(1) == 'g(1) \\' g(2)'  # g(3)", "assert f(1) == '''g(4)'''"], "f"),
        ] {
            let found = of(tests, "", Some(solution));
            assert!(found == wanted || wanted.len() > 2 && found.starts_with(wanted), "{found}");
        }
    }

    #[test]
    fn imports_of_the_solution_that_tests_use_are_theirs_too() {
        let solution = "import sys\nimport re, os\nfrom math import (\n    pi)\nfrom collections import Counter as C\n";
        let of = |test| imports(&[test], solution);
        assert_eq!(of("assert f(1) == sys.getsizeof(1)"), ["import sys"]);
        assert_eq!(of("assert f(C()) == 'sys'"), ["from collections import Counter as C"]);
        assert_eq!(of("assert f(pi) is os"), ["import re, os"]);
    }

    #[test]
    fn without_a_solution_what_is_nobody_elses_is_tested() {
        for (tests, setup, wanted) in [
            (&["assert f(1) == sorted([1])"][..], "", "f"),
            (&["assert isclose(f(1), sqrt(2))"], "from math import isclose, sqrt", "f"),
            (&["from math import sqrt\nassert f(2) == sqrt(4)"], "", "f"),
            (&["def close(a, b): return a == b\nassert close(f(2), 1)"], "", "f"),
            (&["assert s.f(1) == rf'g(1)'"], "", ""),
            (&["assert sum(1)"], "", ""),
            (&["x = 2 (f)"], "", ""),
            (&["assert f(g(1))"], "", "its tests call `f` and `g`, and one"),
        ] {
            let found = of(tests, setup, None);
            assert!(found == wanted || wanted.len() > 2 && found.starts_with(wanted), "{found}");
        }
    }
}
