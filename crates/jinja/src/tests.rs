#![allow(clippy::unwrap_used)]

mod fuzz;

use std::time::Instant;

use jiff::civil::date;
use serde_json::{Value as Json, json};

use super::*;

/// Chat templates and single features with their rendering by `jinja2`; see `testdata/make.py`.
const CASES: &str = include_str!("testdata/cases.json");

fn rendered(source: &str, variables: &Json) -> Result<String, String> {
    let template = Template::parse(source).map_err(|error| error.to_string())?;
    let now = date(2024, 7, 26).at(0, 0, 0, 0);
    let rendered = template.render(variables.as_object().unwrap(), now, RenderLimits::default());
    rendered.map_err(|error| error.to_string())
}

/// Returns the template of a case.
fn source_of(case: &Json) -> String {
    let lines = case["template"].as_array().unwrap().iter();
    lines.map(|line| line.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn templates_render_as_jinja2_renders_them() {
    let file: Json = serde_json::from_str(CASES).unwrap();
    let mut wrong = Vec::new();
    let cases = file["cases"].as_array().unwrap();
    for case in cases {
        let source = source_of(case);
        let mut variables = file["variables"].as_object().unwrap().clone();
        variables.extend(case["variables"].as_object().cloned().unwrap_or_default());
        let same = match (rendered(&source, &variables.into()), case["text"].as_str()) {
            (Ok(text), expected) => expected == Some(text.as_str()),
            (Err(error), None) if error.contains("the template raised: ") => {
                error.ends_with(case["error"].as_str().unwrap())
            }
            (Err(error), expected) => expected.is_none() && !error.contains("there is no"),
        };
        if !same {
            wrong.push(source);
        }
    }
    println!("{} of {} templates as with jinja2", cases.len() - wrong.len(), cases.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
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
    let shared = |operation: &str| {
        let doubled = "{% set x = [x, x] %}{% set y = [y, y] %}".repeat(60);
        format!("{{% set x = [1] %}}{{% set y = [1] %}}{doubled}{{{{ {operation} }}}}")
    };
    let repeated = |operation: &str| {
        format!(
            "{{% set x = 'a' * 1000000 %}}{{% set y = x ~ '' %}}{{% for i in range(99999) %}}{{% set z = {operation} %}}{{% endfor %}}"
        )
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
        ("a wide indent", "{{ 'x\ny' | indent(1000000000000) }}".to_owned(), Limit),
        ("a long repetition", "{{ 'x' * 1000000000000 }}".to_owned(), Limit),
        ("a long list", "{{ [0] * 1000000000000 }}".to_owned(), Limit),
        ("a long range", "{{ range(1000000000000) | length }}".to_owned(), Limit),
        ("a deep list", looped("[]", "[n.x]"), Limit),
        ("a deep dictionary", looped("0", "{'a': n.x}"), Limit),
        ("a deep tuple", looped("0", "(n.x,)"), Limit),
        ("deep methods", looped("'a'", "[n.x.upper]"), Renders),
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
            "comparisons of large lists",
            "{% set x = range(99999) | list %}{% for i in range(99999) %}{% if x == x %}{% endif %}{% endfor %}".to_owned(),
            Limit,
        ),
        (
            "searches in large texts",
            "{% set x = 'a' * 10000000 %}{% for i in range(99999) %}{% if 'b' in x %}{% endif %}{% endfor %}".to_owned(),
            Limit,
        ),
        ("a wide JSON", "{{ [1] | tojson(indent=1000000000000) }}".to_owned(), Limit),
        (
            "JSON with indents",
            "{% set x = [range(99999) | list] * 20 %}{{ x | tojson(indent=100) }}".to_owned(),
            Limit,
        ),
        ("arguments", "{{ dict(*[[1, 2]] * 1000000000) }}".to_owned(), Limit),
        ("dates", "{{ strftime_now('%Y' * 1000000000) }}".to_owned(), Limit),
        ("a shared value as text", shared("x"), Limit),
        ("a shared value as JSON", shared("x | tojson"), Limit),
        ("a shared value in a text", shared("'' ~ x"), Limit),
        ("equality of shared values", shared("x == y"), Limit),
        ("order of shared values", shared("x < y"), Limit),
        ("a search for a shared value", shared("x in [y]"), Limit),
        ("the least of shared values", shared("[x, y] | min"), Limit),
        ("strips of large texts", repeated("x.strip('b')"), Limit),
        ("splits of large texts", repeated("x.split('b')"), Limit),
        ("equality of large texts", repeated("x == y"), Limit),
        ("items of large texts", repeated("x[-1]"), Limit),
        ("slices of large texts", repeated("x[999990:]"), Limit),
        ("lengths of large texts", repeated("x | length"), Limit),
        ("keys of large texts", repeated("x in {y: 1}"), Limit),
        ("ends of large texts", repeated("x.endswith(y)"), Limit),
        ("copies of lists", repeated("(1,) * 99999 | list"), Limit),
        ("deep dictionaries of dictionaries", looped("{}", "dict(n.x, a=n.x)"), Limit),
        ("a namespace in its own list", "{% set n = namespace() %}{% set n.a = [n] %}{{ n }}{{ n.a == [n] }}".to_owned(), Renders),
        ("comments that are not closed", repeat("{#", 100_000), Parse),
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
            let meter = RenderMeter::new(RenderLimits::default());
            let now = date(2024, 7, 26).at(0, 0, 0, 0);
            let rendered = template.render_metered(variables.as_object().unwrap(), now, &meter);
            let (end, shown) = match rendered {
                Ok(text) => (End::Renders, format!("{} bytes", text.len())),
                Err(error) => (End::Limit, error.to_string()),
            };
            (end, shown, meter.made(), started.elapsed())
        };
        let thread = std::thread::Builder::new().stack_size(STACK).spawn(work).unwrap();
        let (end, shown, made, took) = thread.join().unwrap();
        let seconds = took.as_secs_f64();
        println!("{name}: {shown:.90}; made {:.1} MiB in {seconds:.2} s", made as f64 / 1048576.0);
        assert_eq!(end, *expected, "{name}: {shown}");
        most = most.max(made);
        longest = longest.max(seconds);
    }
    let resident = peak_memory().map_or_else(String::new, |peak| format!("; peak memory {peak}"));
    println!(
        "{} hostile templates: at most {} MiB made, {longest:.1} s{resident}",
        all.len(),
        most >> 20
    );
    assert!(most <= RenderLimits::default().bytes);
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
    let render = |steps, bytes| template.render(&Map::new(), now, RenderLimits { steps, bytes });
    assert_eq!(render(30_000, 1 << 20).unwrap().len(), 100_000);
    let error = render(1000, 1 << 20).unwrap_err();
    assert_eq!(error.reason, "it did not come to an end within 1000 steps");
    let error = render(30_000, 10_000).unwrap_err();
    assert_eq!(error.reason, "it makes more than 10000 bytes of text and lists");
}

#[test]
fn a_syntax_error_names_the_line_and_what_was_expected() {
    for (source, reason) in [
        ("{{ 1", "line 1: syntax error: a tag is not closed: `}}` is missing"),
        (
            "\n{% if 1 %}",
            "line 2: syntax error: `{% elif %}` or `{% else %}` or `{% endif %}` is missing",
        ),
        ("{{ (1 }}", "line 1: syntax error: found '}', expected ')'"),
        ("{{ 'a }}", "line 1: syntax error: a text is not closed: ' is missing"),
        ("{# a", "line 1: syntax error: a comment is not closed: `#}` is missing"),
        ("{{ a b }}", "line 1: syntax error: found `b`, expected `}}`"),
        ("{{ 1 ? 2 }}", "line 1: syntax error: the character '?' has no meaning here"),
        ("{% break %}", "line 1: syntax error: `break` is outside of a loop"),
        ("{% set true = 1 %}", "line 1: syntax error: `true` cannot be assigned to"),
        ("{% raw %}", "line 1: syntax error: `{% raw %}` is not closed: `{% endraw %}` is missing"),
    ] {
        assert_eq!(rendered(source, &json!({})).unwrap_err(), reason, "{source}");
    }
}

#[test]
fn an_error_names_the_line_and_the_reason() {
    let variables = json!({"messages": [{"role": "user"}], "n": null});
    for (source, reason) in [
        ("\n{{ x.y }}", "line 2: 'x' is undefined"),
        ("{{ messages[0].content.strip() }}", "line 1: 'dict' has no 'content'"),
        ("{{ 'a' + n }}", "line 1: unsupported operand types for +: 'str' and 'None'"),
        ("{{ [1] < [n] }}", "line 1: '<' not supported between instances of 'int' and 'None'"),
        ("{{ ('a' if n) + 'b' }}", "line 1: 'if' has no 'else'"),
        (
            "\n{{ raise_exception('roles must alternate') }}",
            "line 2: the template raised: roles must alternate",
        ),
        ("{{ strftime_now('%Q%') }}", "line 1: strftime_now: "),
        ("{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "line 1: `m` has no parameter `b`"),
    ] {
        let error = rendered(source, &variables).unwrap_err();
        assert!(error.starts_with(reason), "{source}: {error}");
    }
}

#[test]
fn a_part_of_jinja_that_chat_templates_do_not_use_is_named_with_what_there_is() {
    for (source, reason, there) in [
        ("{{ [1] | unique }}", "there is no filter `unique`; there are `capitalize`", "`tojson`"),
        ("{{ '%s' | format(1) }}", "there is no filter `format`; there are", "`join`"),
        ("{{ 1 is odd }}", "there is no test `odd`; there are `boolean`", "`mapping`"),
        ("{{ 'a'.zfill(3) }}", "there is no method of texts `zfill`; there are", "`split`"),
        ("{{ {}.update({}) }}", "there is no method of dictionaries `update`; there are", "`get`"),
        ("{{ joiner(',') }}", "'joiner' is undefined; there are the functions `dict`", "`range`"),
        (
            "{% for a in [1] %}{{ loop.cycle(1, 2) }}{% endfor %}",
            "there is no attribute of loops `cycle`; there are `first`",
            "`previtem`",
        ),
        (
            "{% for a in [1] %}{{ loop.depth }}{% endfor %}",
            "there is no attribute of loops",
            "`last`",
        ),
        ("{{ [].append(1) }}", "'list' has no method `append`; a template changes no list", "+"),
        ("{{ '%s' % 'a' }}", "unsupported operand types for %: 'str' and 'str'; texts are", "`~`"),
        ("{{ 2 ** 3 }}", "syntax error: there is no operator `**`; there are `+`", "`~`"),
        ("{{ 2 // 3 }}", "syntax error: there is no operator `//`; there are `+`", "`%`"),
        ("{% include 'x' %}", "syntax error: there is no tag `include`; there are `set`", "`if`"),
        (
            "{% for a in b %}{% endif %}",
            "syntax error: there is no tag `endif`; there are `else`, `endfor`, `set`",
            "`macro`",
        ),
    ] {
        let error = rendered(source, &json!({})).unwrap_err();
        assert!(error.starts_with(&format!("line 1: {reason}")), "{source}: {error}");
        assert!(error.contains(there), "{source}: {error}");
    }
}
