#![allow(clippy::unwrap_used)]

use std::time::Instant;

use jiff::civil::date;
use serde_json::{Value as Json, json};

use super::*;

/// Templates with their rendering by `jinja2`; see `testdata/make.py`.
const EXPRESSIONS: &str = include_str!("testdata/expressions.json");

fn rendered(source: &str, variables: &Json) -> Result<String, String> {
    let template = Template::parse(source).map_err(|error| error.to_string())?;
    let now = date(2024, 7, 26).at(0, 0, 0, 0);
    let rendered = template.render(variables.as_object().unwrap(), now, Limits::default());
    rendered.map_err(|error| error.to_string())
}

#[test]
fn expressions_have_the_values_that_jinja2_gives_them() {
    let file: Json = serde_json::from_str(EXPRESSIONS).unwrap();
    let cases = file["cases"].as_array().unwrap();
    let mut wrong = Vec::new();
    for case in cases {
        let source = case["template"].as_str().unwrap();
        let got = rendered(source, &file["variables"]);
        let same = match case["text"].as_str() {
            Some(text) => got.as_deref() == Ok(text),
            None => got.is_err(),
        };
        if !same {
            wrong.push(format!("{source}\n  got      {got:?}\n  expected {}", case["text"]));
        }
    }
    println!("{} of {} templates as with jinja2", cases.len() - wrong.len(), cases.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Expected end of a hostile template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// A syntax error: too large, or nested too deeply.
    Parse,
    /// A limit of bytes, steps or nesting.
    Limit,
    /// Successful rendering: the template only looks dangerous.
    Renders,
}

/// Returns templates that try to exhaust memory, time or the stack.
fn hostile() -> Vec<(&'static str, String, End)> {
    use End::{Limit, Parse, Renders};
    let repeat = |text: &str, times: usize| text.repeat(times);
    let around = |open: &str, close: &str, n| format!("{}1{}", repeat(open, n), repeat(close, n));
    let doubling = |operation: &str| {
        let assignment = format!("{{% set x = {operation} %}}");
        format!("{{% set x = 'abcdefgh' %}}{}", repeat(&assignment, 40))
    };
    let looped = |start: &str, operation: &str| {
        format!(
            "{{% set n = namespace(x={start}) %}}{{% for i in range(99999) %}}{{% set n.x = {operation} %}}{{% endfor %}}{{{{ n.x }}}}"
        )
    };
    vec![
        ("minus signs", format!("{{{{ {}1 }}}}", repeat("-", 100_000)), Renders),
        ("not not", format!("{{{{ {}1 }}}}", repeat("not ", 50_000)), Renders),
        ("a long sum", format!("{{{{ 1{} }}}}", repeat("+1", 100_000)), Renders),
        ("a long concatenation", format!("{{{{ 1{} }}}}", repeat("~1", 100_000)), Renders),
        ("a long and", format!("{{{{ 1{} }}}}", repeat(" and 1", 40_000)), Renders),
        ("long powers", format!("{{{{ 1{} }}}}", repeat("**1", 80_000)), Renders),
        ("long comparisons", format!("{{{{ 1{} }}}}", repeat("<2", 100_000)), Renders),
        ("brackets", format!("{{{{ {} }}}}", around("(", ")", 100_000)), Parse),
        ("lists", format!("{{{{ {} }}}}", around("[", "]", 100_000)), Parse),
        ("dictionaries", format!("{{{{ {} }}}}", around("{1:", "}", 60_000)), Parse),
        ("conditions", format!("{{{{ {}1 }}}}", repeat("1 if 0 else ", 20_000)), Parse),
        ("conditions without else", format!("{{{{ 1{} }}}}", repeat(" if 1", 40_000)), Parse),
        ("calls", format!("{{{{ {} }}}}", around("f(", ")", 80_000)), Parse),
        ("items", format!("{{{{ {} }}}}", around("x[", "]", 80_000)), Parse),
        ("filters", format!("{{{{ 'a'{} }}}}", repeat("|upper", 40_000)), Renders),
        ("filters of arguments", format!("{{{{ {} }}}}", around("x|d(", ")", 50_000)), Parse),
        ("attributes", format!("{{{{ messages{} }}}}", repeat("[0:]", 50_000)), Renders),
        (
            "elif",
            format!("{{% if 0 %}}{}{{% endif %}}", repeat("{% elif 0 %}", 10_000)),
            Renders,
        ),
        ("ifs", format!("{}{}", repeat("{% if 1 %}", 9_000), repeat("{% endif %}", 9_000)), Parse),
        (
            "fors",
            format!("{}{}", repeat("{% for a in b %}", 8_000), repeat("{% endfor %}", 8_000)),
            Parse,
        ),
        ("too large", repeat("x", 300_000), Parse),
        ("doubling with ~", doubling("x ~ x"), Limit),
        ("doubling with +", doubling("x + x"), Limit),
        ("doubling with *", doubling("x * 1000"), Limit),
        ("doubling with replace", doubling("x | replace('a', x)"), Limit),
        ("doubling with .replace", doubling("x.replace('', x)"), Limit),
        ("doubling with join", doubling("[x, x, x] | join(x)"), Limit),
        ("doubling with .join", doubling("x.join([x, x])"), Limit),
        ("doubling with format", doubling("'%s%s' | format(x, x)"), Limit),
        ("doubling with .format", doubling("'{0}{0}'.format(x)"), Limit),
        ("doubling with %", doubling("'%s%s' % (x, x)"), Limit),
        ("doubling with blocks", repeat("{% set x %}a{{ x }}{{ x }}{% endset %}", 40), Limit),
        ("doubling lists", doubling("[x, x] + [x, x]") + "{{ x | string }}", Limit),
        (
            "doubling sums of lists",
            format!("{{% set x = [1] %}}{}", repeat("{% set x = x + x %}", 40)),
            Limit,
        ),
        (
            "doubling printed lists",
            format!("{{% set x = [1] %}}{}", repeat("{% set x = [x, x] | string | list %}", 40)),
            Limit,
        ),
        ("a wide format", "{{ '%1000000000d' | format(1) }}".to_owned(), Limit),
        ("a wide .format", "{{ '{:>1000000000}'.format(1) }}".to_owned(), Limit),
        ("a wide center", "{{ 'x'.center(10 ** 12) }}{{ 'x' | center(10 ** 12) }}".to_owned(), Limit),
        ("a wide indent", "{{ 'x\ny' | indent(10 ** 12) }}".to_owned(), Limit),
        ("a long repetition", "{{ 'x' * 10 ** 12 }}".to_owned(), Limit),
        ("a long list", "{{ [0] * 10 ** 12 }}".to_owned(), Limit),
        ("a long range", "{{ range(10 ** 12) | length }}".to_owned(), Limit),
        ("batches", "{{ [1] | batch(10 ** 12, 0) }}".to_owned(), Limit),
        ("slices", "{{ [1] | slice(10 ** 12) }}".to_owned(), Limit),
        ("expanded tabs", "{{ ('\t' * 1000).expandtabs(10 ** 9) }}".to_owned(), Limit),
        ("zeros", "{{ '1'.zfill(10 ** 12) }}{{ '%.999999999f' % 1.5 }}".to_owned(), Limit),
        ("a deep list", looped("[]", "[n.x]"), Limit),
        ("a deep dictionary", looped("0", "{'a': n.x}"), Limit),
        ("a deep tuple", looped("0", "(n.x,)"), Limit),
        ("deep methods", looped("'a'", "[n.x.upper]"), Renders),
        ("deep reversals", looped("[1, 2]", "n.x | reverse"), Renders),
        ("deep slices", looped("[1, 2]", "n.x[::1]"), Renders),
        ("deep maps", looped("[1, 2]", "n.x | map('string')"), Renders),
        ("deep namespaces", looped("0", "namespace(a=n.x)"), Renders),
        ("a namespace in itself", "{% set n = namespace() %}{% set n.x = n %}{{ n }}".to_owned(), Renders),
        ("a growing list", looped("[]", "n.x + [i]"), Limit),
        (
            "loops without end",
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}".to_owned(),
            Limit,
        ),
        ("a macro that calls itself", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".to_owned(), Limit),
        (
            "macros that call each other twice",
            "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}".to_owned(),
            Limit,
        ),
        (
            "a caller that calls itself",
            "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}".to_owned(),
            Limit,
        ),
        (
            "a recursive loop",
            "{% for a in [1] recursive %}{{ loop([a]) }}{% endfor %}".to_owned(),
            Limit,
        ),
        (
            "comparisons of large lists",
            "{% set x = range(99999) | list %}{% for i in range(99999) %}{% if x == x %}{% endif %}{% endfor %}".to_owned(),
            Limit,
        ),
        (
            "searches in large texts",
            "{% set x = 'a' * 10000000 %}{% for i in range(99999) %}{% if 'b' in x %}{% endif %}{% endfor %}".to_owned(),
            Limit,
        ),
        ("unique items", "{{ range(99999) | unique | length }}".to_owned(), Limit),
        (
            "sorting again and again",
            "{% set x = range(99999) | list %}{% for i in range(999) %}{% set y = x | sort(reverse=true) %}{% endfor %}".to_owned(),
            Limit,
        ),
        ("a wide JSON", "{{ [1] | tojson(indent=10 ** 12) }}".to_owned(), Limit),
        (
            "JSON with indents",
            "{% set x = [range(99999) | list] * 20 %}{{ x | tojson(indent=100) }}".to_owned(),
            Limit,
        ),
        ("a large power", "{{ 10 ** 10 ** 10 }}".to_owned(), Limit),
        ("arguments", "{{ dict(*[[1, 2]] * 10 ** 9) }}".to_owned(), Limit),
        ("dates", "{{ strftime_now('%Y' * 10 ** 9) }}".to_owned(), Limit),
    ]
}

/// Stack of a rendering here: half of a thread's default.
const STACK: usize = 1 << 20;

#[test]
fn hostile_templates_end_soon_in_bounded_memory_on_a_small_stack() {
    let variables = json!({"messages": [{"role": "user", "content": "hi"}], "x": "abc"});
    let all = hostile();
    let (mut most, mut longest) = (0, 0.0_f64);
    for (name, source, expected) in &all {
        let (variables, source) = (variables.clone(), source.clone());
        let work = move || {
            let started = Instant::now();
            let template = match Template::parse(&source) {
                Ok(template) => template,
                Err(error) => return (End::Parse, error.to_string(), 0, started.elapsed()),
            };
            let meter = Meter::new(Limits::default());
            let now = date(2024, 7, 26).at(0, 0, 0, 0);
            let rendered = template.metered(variables.as_object().unwrap(), now, &meter);
            let (end, told) = match rendered {
                Ok(text) => (End::Renders, format!("{} bytes", text.len())),
                Err(error) => (End::Limit, error.to_string()),
            };
            (end, told, meter.made(), started.elapsed())
        };
        let thread = std::thread::Builder::new().stack_size(STACK).spawn(work).unwrap();
        let (end, told, made, took) = thread.join().unwrap();
        let seconds = took.as_secs_f64();
        println!("{name}: {told:.90}; made {:.1} MiB in {seconds:.2} s", made as f64 / 1048576.0);
        assert_eq!(end, *expected, "{name}: {told}");
        most = most.max(made);
        longest = longest.max(seconds);
    }
    let resident = peak_memory().map_or_else(String::new, |peak| format!("; peak memory {peak}"));
    println!(
        "{} hostile templates: at most {} MiB made, {longest:.1} s{resident}",
        all.len(),
        most >> 20
    );
    assert!(most <= Limits::default().bytes && longest < 60.0);
}

/// Returns the peak memory of this process, if the system reports it.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().to_owned())
}

#[test]
fn smaller_limits_end_a_rendering_sooner() {
    let template =
        Template::parse("{% for i in range(1000) %}{{ 'x' * 100 }}{% endfor %}").unwrap();
    let now = date(2024, 7, 26).at(0, 0, 0, 0);
    let render = |steps, bytes| template.render(&Map::new(), now, Limits { steps, bytes });
    assert_eq!(render(20_000, 1 << 20).unwrap().len(), 100_000);
    let told = render(1000, 1 << 20).unwrap_err().message;
    assert_eq!(told, "it did not come to an end within 1000 steps");
    let told = render(20_000, 10_000).unwrap_err().message;
    assert_eq!(told, "it makes more than 10000 bytes of text and lists");
}

#[test]
fn what_does_not_parse_is_said_with_what_was_expected() {
    for (source, told) in [
        ("{{ 1", "line 1: a tag is not closed: `}}` is missing"),
        ("\n{% if 1 %}", "line 2: `{% elif %}` or `{% else %}` or `{% endif %}` is missing"),
        ("{% endif %}", "line 1: there is no tag `endif`"),
        (
            "{% for a in b %}{% endif %}",
            "line 1: there is no tag `endif`, or `else`, `endfor` is missing",
        ),
        ("{{ (1 }}", "line 1: found '}', expected ')'"),
        ("{{ 'a }}", "line 1: a text is not closed: ' is missing"),
        ("{# a", "line 1: a comment is not closed: `#}` is missing"),
        ("{{ a b }}", "line 1: found `b`, expected `}}`"),
        ("{{ 1 ? 2 }}", "line 1: the character '?' has no meaning here"),
        ("{% break %}", "line 1: `break` is outside of a loop"),
        ("{% set true = 1 %}", "line 1: `true` cannot be assigned to"),
        ("{% do x %}", "line 1: there is no tag `do`"),
        ("{% raw %}", "line 1: `{% raw %}` is not closed: `{% endraw %}` is missing"),
    ] {
        assert_eq!(rendered(source, &json!({})).unwrap_err(), told, "{source}");
    }
}

#[test]
fn what_fails_is_said_in_its_line() {
    let variables = json!({"messages": [{"role": "user"}], "n": null});
    for (source, told) in [
        ("\n{{ x.y }}", "line 2: 'x' is undefined"),
        ("{{ messages[0].content.strip() }}", "line 1: 'dict' has no 'content'"),
        ("{{ 'a' + n }}", "line 1: unsupported operand types for +: 'str' and 'None'"),
        ("{{ 1 | nothing }}", "line 1: there is no filter `nothing`"),
        ("{{ 1 is nothing }}", "line 1: there is no test `nothing`"),
        ("{% include 'x' %}", "line 1: `include` needs another template, and there is none"),
        (
            "{% set y = messages.append(1) %}",
            "line 1: a template may not change a value: `append` of 'list'",
        ),
        ("{{ 1 // 0 }}", "line 1: division by zero"),
        ("{{ [1] < [n] }}", "line 1: '<' not supported between instances of 'int' and 'None'"),
    ] {
        assert_eq!(rendered(source, &variables).unwrap_err(), told, "{source}");
    }
}
