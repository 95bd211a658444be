//! Excerpts of long lines, of lines with hidden characters, and of files with many mistakes.

use super::*;

/// Number of characters before a mistake, beyond the largest width that the report can format.
const FAR: usize = 70_000;

/// Returns the problems of a file of a name.
fn of_file(name: &str, text: &str) -> String {
    let file = File::Text { name: name.into(), text: text.into(), base: ".".into() };
    problems(&Sources { file: Some(file), ..Sources::default() }, &search())
}

/// Asserts that an excerpt has the line and column of a mistake and its text, and no long line.
#[track_caller]
fn has_place(found: &str, place: &str, part: &str) {
    assert!(found.contains(place), "{place}: {found:.2000}");
    let words = found.split_whitespace().filter(|word| *word != "|").collect::<Vec<_>>().join(" ");
    assert!(words.contains(part.trim_end()), "{part}: {found:.2000}");
    let longest = found.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    assert!(longest <= 330, "{longest} characters: {found:.2000}");
}

#[test]
fn a_mistake_far_in_a_line_is_shown_with_what_is_around_it() {
    let (long, wide) = ("y".repeat(FAR), "ü".repeat(FAR));
    for filler in [&long, &wide] {
        let found = of_file(
            "run.toml",
            &format!("sampling = {{ stop = [\"{filler}\"], max_tokens = -5 }}\n"),
        );
        has_place(&found, "[run.toml:1:70040]", "max_tokens = -5 }\n");
        let found = of_file(
            "run.toml",
            &format!("sampling = {{ max_tokens = -5, stop = [\"{filler}\"] }}\n"),
        );
        has_place(&found, "[run.toml:1:27]", "sampling = { max_tokens = -5, stop");
        let found =
            of_file("run.yaml", &format!("sampling: {{stop: [\"{filler}\"], max_tokens: -5}}\n"));
        has_place(&found, "[run.yaml:1:70036]", "max_tokens: -5}\n");
    }
}

#[test]
fn a_long_key_and_a_long_value_are_cut_too() {
    let long = "y".repeat(FAR);
    let found = of_file("run.toml", &format!("{long} = 3\n"));
    has_place(&found, "[run.toml:1:1]", "unknown key `yyy");
    let found = of_file("run.toml", &format!("steps = \"{long}\"\n"));
    has_place(&found, "[run.toml:1:9]", "`steps` is \"yyy");
    let found = of_file("run.yaml", &format!("steps: {long}\n"));
    has_place(&found, "[run.yaml:1:8]", "`steps` is \"yyy");
    let found = of_file("run.yaml", &format!("? {long}\n: 3\n"));
    has_place(&found, "[run.yaml:1:3]", "unknown key");
    let found = of_file("run.toml", &format!("[models.small]\npath = \"{long}\"\n"));
    has_place(&found, "[run.toml:2:8]", "there is no directory");
    let found = problems(&text("").with(format!("{long}=3")), &search());
    has_place(&found, "[--set:1:1]", "unknown key");
    let found = problems(&text("").with(format!("sampling.stop=[\"{long}\", 3]")), &search());
    has_place(&found, "[--set:1:15]", "expected");
    let env = vec![("MAVERL_STEPS".to_owned(), long.clone())];
    let found = problems(&Sources { env, ..text("") }, &search());
    has_place(&found, "[environment:1:14]", "`steps` is");
}

#[test]
fn text_that_is_no_configuration_is_cut_too() {
    let long = "y".repeat(FAR);
    let found = of_file("run.toml", &format!("sampling = {{ stop = [\"{long}\"], max_tokens }}\n"));
    has_place(&found, "[run.toml:1:", "is not TOML");
    let found = of_file("run.toml", &format!("{long} {long} = 3\n"));
    has_place(&found, "[run.toml:1:", "is not TOML");
    let found = of_file("run.yaml", &format!("sampling: {{stop: [\"{long}\"], a: *b}}\n"));
    has_place(&found, "[run.yaml:1:700", "is not a configuration in YAML");
    let found = of_file("run.toml", &long);
    has_place(&found, "[run.toml:1:", "is not TOML");
}

#[test]
fn two_places_of_a_long_line_are_shown_with_a_gap_between_them() {
    let long = "y".repeat(FAR);
    let toml = format!("task = {{ group_size = 1, split = \"{long}\", tasks_per_step = 0 }}\n");
    let found = of_file("run.toml", &toml);
    has_place(&found, "[run.toml:1:70055]", "tasks_per_step = 0 }\n");
    let source = crate::config::source::SourceText::new("run.toml".into(), toml.clone());
    let zero = toml.rfind('0').unwrap();
    let marks = [(9..10, Some("this".to_owned())), (zero..zero + 1, None)];
    let excerpt = crate::config::source::Excerpt::new(&source, &marks);
    let shown = format!("{excerpt:?}");
    assert!(shown.contains("yyy…yyy") && shown.contains("tasks_per_step = 0 }"), "{shown}");
}

#[test]
fn a_value_of_many_lines_is_shown_with_its_first_ones() {
    let lines = "\n  \"y\",".repeat(10_000);
    let found = of_file("run.toml", &format!("seed = 3\nsteps = [{lines}\n]\n"));
    assert!(found.contains("[run.toml:2:9]") && found.lines().count() < 20, "{found:.2000}");
    let found = of_file("run.toml", &format!("steps = \"\"\"\n{}\"\"\"\n", "y\n".repeat(10_000)));
    assert!(found.contains("[run.toml:1:9]") && found.lines().count() < 20, "{found:.2000}");
}

#[test]
fn hidden_characters_of_a_configuration_are_marks_above_which_the_rest_stays_aligned() {
    let found = of_file("run.toml", "steps = \"\u{202e}x\u{200b}\" # \u{9b}2J\n");
    let expected = "
  x `steps` is \"\\u{202e}x\\u{200b}\"; expected a whole number from 0
   ,-[run.toml:1:9]
 1 | steps = \"<U+202E>x<U+200B>\" # <U+009B>2J
   :         ^^^^^^^^^^^^^^^^^^^
   `----";
    same(&found, expected);
    let hostile = "\u{1b}[2J\u{1b}]0;title\u{7}\u{202e}\r";
    let of_set = problems(&text("").with(format!("{hostile}steps=3")), &search());
    let env = vec![("MAVERL_STEPS".to_owned(), hostile.to_owned())];
    let of_env = problems(&Sources { env, ..text("") }, &search());
    for found in [
        of_file("run.toml", &format!("steps = {hostile}\n")),
        of_file("run.yaml", &format!("steps: \"{hostile}\n")),
        of_file(&format!("{hostile}.toml"), "stpes = 3\n"),
        of_file("run.toml", "\"\\u001b[2J\" = 3\n"),
        of_file("run.toml", "[models.\"\\u001b[2J\"]\npath = \"\\u009b\"\n"),
        of_set,
        of_env,
    ] {
        assert!(!found.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}', '\r']), "{found:?}");
    }
}

#[test]
fn line_ends_of_windows_are_no_part_of_an_excerpt() {
    let found = of_file("run.toml", "seed = 1\r\nstpes = 3\r\n");
    assert!(found.contains("[run.toml:2:1]") && found.contains("| stpes = 3\n"), "{found:?}");
    assert!(!found.contains("<U+000D>") && !found.contains('\r'), "{found:?}");
}

#[test]
fn the_first_20_of_many_mistakes_are_shown_and_the_others_are_counted() {
    let many = |count: usize, line: fn(usize) -> String| (0..count).map(line).collect::<String>();
    let agents = |n| format!("[agents.\"a/{n}\"]\nfrozen = true\n");
    let keys = |n| format!("key{n} = 3\n");
    let models = |n| format!("[models.m{n}]\npath = \"\"\n");
    for toml in [many(300, agents), many(300, keys), many(300, models)] {
        let found = of_file("run.toml", &toml);
        assert_eq!(found.matches("[run.toml:").count(), 20, "{found:.2000}");
        let more = found.lines().last().unwrap_or_default();
        assert!(more.starts_with("and 2") && more.ends_with(" more"), "{more}");
    }
}

#[test]
fn a_list_of_very_many_names_ends_with_the_number_of_the_others() {
    let models: String =
        (0..300).map(|n| format!("[models.m{n}]\npath = \"builtin:tiny\"\n")).collect();
    let toml = format!("{models}[agents.\"search/searcher\"]\nmodel = \"other\"\n");
    let found = of_file("run.toml", &toml);
    assert!(found.contains("200 more") && found.len() < 10_000, "{found:.3000}");
}

#[test]
fn the_search_for_wrong_values_ends() {
    let agents: String =
        (0..1500).map(|n| format!("[agents.\"a/{n}\"]\nfrozen = \"x\"\n")).collect();
    let found = super::super::check(&text(&agents), &search(), Purpose::Train).unwrap_err();
    let told: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(
        told.iter().any(|told| told.starts_with("1000 keys and values are wrong")),
        "{}",
        told.len()
    );
}

#[test]
fn mistakes_share_the_text_of_their_source() {
    let toml: String = (0..50).map(|n| format!("key{n} = 3\n")).collect();
    let found = super::super::check(&text(&toml), &search(), Purpose::Train).unwrap_err();
    let source = |problem: &Diagnostic| std::sync::Arc::as_ptr(problem.source.as_ref().unwrap());
    assert!(found.len() >= 50 && found.iter().all(|problem| source(problem) == source(&found[0])));
}
