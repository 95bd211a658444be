//! Fuzzing of templates: a damaged one gives an error or a text, and no panic. `MAVERL_FUZZ_CASES` sets the number of
//! cases.

use super::*;

fn cases() -> u64 {
    std::env::var("MAVERL_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

/// Random numbers of one case.
struct Lots(u64);

impl Lots {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// Changes the template, mostly within `{{ }}`, where a changed template still parses more often.
fn disturb(source: &mut String, texts: &[String], lots: &mut Lots) {
    let extras = [
        "{% for x in range(99999) %}",
        "{% endfor %}",
        "{{ loop }}",
        "{{ x",
        "%}",
        "{#",
        "| tojson",
        "(",
        ")",
        "[",
        "-1",
        "99999999999999999999",
        "{% set messages = messages[1:] %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% generation %}",
        "{% endgeneration %}",
        "| join",
        ".split('')",
        ".split('a', 3)",
        "* 99999999",
        "🙂",
        "~ messages",
    ];
    let printed: Vec<(usize, &str)> = source.match_indices("{{").collect();
    let at = if printed.is_empty() || lots.below(3) == 0 {
        lots.below(source.chars().count())
    } else {
        source[..lots.of(&printed).0].chars().count() + 3 + lots.below(20)
    };
    let mut chars: Vec<char> = source.chars().collect();
    let at = at.min(chars.len());
    let end = (at + lots.below(12)).min(chars.len());
    let piece: Vec<char> = match lots.below(4) {
        0 => Vec::new(),
        1 => lots.of(&extras).chars().collect(),
        2 => chars[at..end].repeat(2),
        _ => {
            let other: Vec<char> = lots.of(texts).chars().collect();
            let from = lots.below(other.len());
            other[from..(from + 30).min(other.len())].to_vec()
        }
    };
    chars.splice(at..end, piece);
    *source = chars.into_iter().collect();
}

#[test]
fn damaged_templates_are_errors_or_render() {
    let file: Json = serde_json::from_str(CASES).unwrap();
    let texts: Vec<String> = file["cases"].as_array().unwrap().iter().map(source_of).collect();
    let now = date(2024, 7, 26).at(0, 0, 0, 0);
    let (mut parsed, mut rendered) = (0, 0);
    for case in 0..cases() {
        let mut lots = Lots(case);
        // Every second one is a chat template.
        let mut source = texts[lots.below(if case % 2 == 0 { 3 } else { texts.len() })].clone();
        for _ in 0..=lots.below(5).saturating_sub(3) {
            disturb(&mut source, &texts, &mut lots);
        }
        let Ok(template) = Template::parse(&source) else { continue };
        parsed += 1;
        let outcome =
            template.render(file["variables"].as_object().unwrap(), now, RenderLimits::default());
        rendered += usize::from(outcome.is_ok());
    }
    println!("{} damaged templates: {parsed} parse, {rendered} render", cases());
}
