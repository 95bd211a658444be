//! Pairs of every kind that is easily misjudged, generated from a seed: correct answers in another notation, and wrong
//! answers close to them.

use crate::draw::Draw;
use crate::{AnswerVerdict, compare, reference};

/// Pairs of each kind.
const PAIRS: usize = 30;

/// An answer and a reference.
type Pair = (String, String);

/// A kind of pairs, and its generator.
type Kind = (&'static str, fn(&mut Draw) -> Pair);

#[expect(clippy::needless_pass_by_value, reason = "texts and numbers alike")]
fn pair(answer: impl ToString, truth: impl ToString) -> Pair {
    (answer.to_string(), truth.to_string())
}

/// Samples one of several texts.
fn one(texts: &[String], draw: &mut Draw) -> String {
    texts[draw.index(texts.len())].clone()
}

/// Samples a whole number.
fn whole(draw: &mut Draw) -> i64 {
    2 + draw.index(998) as i64
}

/// Samples a whole number other than a given one.
fn other(than: i64, draw: &mut Draw) -> i64 {
    let near = [than + 1, than - 1, than + 10, 10 * than, than + 2];
    draw.pick(&near)
}

/// Samples a number as references have them: whole, negative, a fraction, a root.
fn number(draw: &mut Draw) -> String {
    let (a, b) = (1 + draw.index(40), 2 + draw.index(40));
    let root = draw.pick(&[2, 3, 5, 6, 7, 10, 11, 13]);
    match draw.index(5) {
        0 => format!("-{a}"),
        1 => format!("\\frac{{{a}}}{{{b}}}"),
        2 => format!("{a}\\sqrt{{{root}}}"),
        3 => format!("{}.{}", a, 1 + draw.index(9)),
        _ => whole(draw).to_string(),
    }
}

/// Returns the digits of a number in a base that are also the digits of a decimal number.
fn digits(mut value: i64, base: i64) -> String {
    let mut digits = Vec::new();
    while value > 0 {
        digits.push((b'0' + (value % base) as u8) as char);
        value /= base;
    }
    digits.iter().rev().collect()
}

/// Units, each written in several ways; the units of different rows are different.
const UNITS: [&[&str]; 30] = [
    &["\\text{ cm}", " cm", "\\text{ centimeters}", "\\,\\mathrm{cm}"],
    &["\\text{ m}", " meters", "\\text{ metres}"],
    &["\\text{ km}", " km", " kilometers"],
    &["\\text{ in}", " inches", "\\text{ in.}"],
    &["\\text{ ft}", " feet", "\\text{ foot}"],
    &["\\text{ miles}", " mi", "\\mbox{ miles}"],
    &["\\text{ cm}^2", " cm^2", "\\text{ square centimeters}", " cm²", "\\text{ sq cm}"],
    &["\\text{ m}^2", " square meters", "\\text{ m}^{2}"],
    &["\\text{ in}^2", " square inches", "\\text{ sq. in.}"],
    &["\\text{ cm}^3", " cm^3", "\\text{ cubic centimeters}", " mL"],
    &["\\text{ in}^3", " cubic inches", "\\text{ in}^{3}"],
    &["\\text{ L}", " liters", "\\text{ litres}"],
    &["\\text{ gallons}", " gallons", "\\text{ gal}"],
    &["\\text{ acres}", " acres", "\\mbox{ acre}"],
    &["\\text{ kg}", " kg", " kilograms"],
    &["\\text{ g}", " grams", "\\text{ gram}"],
    &["\\text{ pounds}", " lb", "\\text{ lbs}"],
    &["\\text{ s}", " seconds", "\\text{ sec}"],
    &["\\text{ minutes}", " min", "\\text{ mins}"],
    &["\\text{ hours}", " hr", "\\text{ h}"],
    &["\\text{ days}", " days", "\\text{ day}"],
    &["^\\circ", " degrees", "°", "^{\\circ}", "\\text{ degrees}"],
    &[" radians", "\\text{ rad}", "\\text{ radians}"],
    &["\\text{ mph}", " mph", "\\text{ miles per hour}", " miles per hour"],
    &["\\text{ km/h}", " kph", "\\text{ kilometers per hour}", " km/hr"],
    &["\\text{ m/s}", " m/s", " meters per second", "\\frac{\\text{m}}{\\text{s}}"],
    &["\\text{ m/s}^2", " m/s^2", "\\text{ meters per second squared}"],
    &["\\text{ dollars}", " dollars", "\\text{ USD}"],
    &["\\text{ cents}", " cents", "\\text{ cent}"],
    &["\\text{ joules}", "\\text{ J}", " joules"],
];

/// Correct pairs that were judged wrong at some time.
const RIGHT: &[Kind] = &[
    ("a unit left out", |draw| {
        let (n, units) = (number(draw), draw.pick(&UNITS));
        pair(&n, format!("{n}{}", draw.pick(units)))
    }),
    ("a unit written otherwise", |draw| {
        let (n, units) = (whole(draw), draw.pick(&UNITS));
        pair(format!("{n}{}", draw.pick(units)), format!("{n}{}", draw.pick(units)))
    }),
    ("a sum of money", |draw| {
        let n = whole(draw);
        let ways =
            [format!("\\${n}"), format!("${n}"), format!("{n} dollars"), format!("\\${n}.00")];
        let more = [format!("{n}"), format!("\\text{{\\$}}{n}"), format!("{n}\\text{{ dollars}}")];
        let all = [&ways[..], &more[..]].concat();
        (one(&all, draw), one(&all, draw))
    }),
    ("a base left out", |draw| {
        let (n, base) = (whole(draw), 2 + draw.index(8) as i64);
        pair(digits(n, base), format!("{}_{base}", digits(n, base)))
    }),
    ("a base written otherwise", |draw| {
        let names = ["four", "five", "six", "seven", "eight", "nine"];
        let at = draw.index(names.len());
        let (base, name) = (at as i64 + 4, names[at]);
        let digits = digits(whole(draw), base);
        let ways = [
            format!("{digits}_{{\\text{{{name}}}}}"),
            format!("{digits}_{{{name}}}"),
            format!("{digits}_{{\\text{{base }}{base}}}"),
            format!("{digits} \\text{{ base }} {base}"),
            format!("({digits})_{{{base}}}"),
            format!("{digits}_\\text{{{name}}}"),
            format!("{digits} (base {base})"),
        ];
        (one(&ways, draw), format!("{digits}_{base}"))
    }),
    ("the value in another base", |draw| {
        let (n, base) = (whole(draw), 2 + draw.index(8) as i64);
        pair(format!("{n}_{{10}}"), format!("{}_{base}", digits(n, base)))
    }),
    ("the name of a segment or polygon", |draw| {
        let n = number(draw);
        let names = ["AB", "BC", "PQ", "[ABC]", "|AB|", "\\overline{AB}", "ABCD", "\\triangle ABC"];
        pair(format!("{} = {n}", draw.pick(&names)), n)
    }),
    ("the value of a function", |draw| {
        let (n, k) = (number(draw), 2 + draw.index(20));
        let names = ["f", "g", "h", "P", "f'", "f^{-1}"];
        pair(format!("{}({k}) = {n}", draw.pick(&names)), n)
    }),
    ("a member of a sequence", |draw| {
        let (n, k) = (number(draw), 2 + draw.index(90));
        let names = [format!("a_{{{k}}}"), format!("a_{}", k % 10), format!("S_{{{k}}}")];
        (format!("{}={n}", names[draw.index(3)]), n)
    }),
    ("the sum of variables", |draw| {
        let n = whole(draw);
        let sums = ["m+n", "a + b + c", "p + q", "m - n", "100m + n", "x + y", "a^2 + b^2", "mn"];
        pair(format!("{} = {n}", draw.pick(&sums)), n)
    }),
    ("a name in words", |draw| {
        let n = number(draw);
        let names = ["\\text{Area}", "\\text{Total cost}", "Area", "Answer", "\\text{Perimeter}"];
        let more = ["\\text{Volume of the box}", "\\text{Answer}", "\\mathrm{Area}", "\\angle A"];
        let all = [&names[..], &more[..]].concat();
        pair(format!("{} = {n}", draw.pick(&all)), n)
    }),
    ("a point with names", |draw| {
        let (a, b) = (whole(draw), -whole(draw));
        let ways = [
            format!("(x,y)=({a},{b})"),
            format!("x = {a}, y = {b}"),
            format!("x={a} \\text{{ and }} y={b}"),
            format!("y = {b}, x = {a}"),
            format!("(y, x) = ({b}, {a})"),
            format!("\\begin{{cases}} x = {a} \\\\ y = {b} \\end{{cases}}"),
        ];
        (one(&ways, draw), format!("({a}, {b})"))
    }),
    ("solutions with a name", |draw| {
        let (a, b) = (1 + draw.index(99), 100 + draw.index(900));
        let ways = [
            format!("x={a},{b}"),
            format!("x = {a} \\text{{ or }} x = {b}"),
            format!("x = {b}, {a}"),
            format!("x={b} and x={a}"),
            format!("x_1 = {a}, x_2 = {b}"),
            format!("x \\in \\{{{a}, {b}\\}}"),
        ];
        (one(&ways, draw), format!("{a}, {b}"))
    }),
    ("a chain of equal sides", |draw| {
        let (a, b) = (whole(draw), whole(draw));
        let n = a + b;
        let ways = [
            format!("{a}+{b}={n}"),
            format!("x = {a} + {b} = {n}"),
            format!("m+n = {a}+{b} = {n}"),
            format!("f(2) = {a} + {b} = {n}"),
            format!("\\frac{{{}}}{{2}} = {n}", 2 * n),
        ];
        (one(&ways, draw), n.to_string())
    }),
    ("a wrapper", |draw| {
        let n = number(draw);
        let wrappers = [
            "\\textbf{#}",
            "\\mathbf{#}",
            "\\underline{#}",
            "\\color{blue}{#}",
            "\\color{red} #",
            "\\textcolor{red}{#}",
            "{\\color{red} #}",
            "\\boxed{=#}",
            "\\fbox{#}",
            "\\boldsymbol{#}",
            "{\\bf #}",
            "\\bm{#}",
            "\\mathrm{#}",
            "\\large #",
            "\\ensuremath{#}",
            "\\text{$#$}",
            "\\underline{\\underline{#}}",
            "= #",
            "Answer = #",
            "\\text{Answer: } #",
            "\\(#\\)",
        ];
        (draw.pick(&wrappers).replace('#', &n), n)
    }),
    ("a text that is a number", |draw| {
        let n = whole(draw);
        let wrappers = ["\\text{#}", "\\textbf{#}", "\\mbox{#}", "\\text{-#}", "\\text{#/7}"];
        let wrapper = draw.pick(&wrappers);
        let inside = wrapper.split_once('{').map_or("", |(_, rest)| rest).trim_end_matches('}');
        (wrapper.replace('#', &n.to_string()), inside.replace('#', &n.to_string()))
    }),
    ("TeX's fraction", |draw| {
        let (a, b) = (whole(draw), whole(draw));
        let ways =
            [format!("{{{a} \\over {b}}}"), format!("{a} \\over {b}"), format!("{{{a}\\over{b}}}")];
        (one(&ways, draw), format!("\\frac{{{a}}}{{{b}}}"))
    }),
    ("a box without braces", |draw| {
        let n = draw.pick(&["2", "42", "-3", "\\frac{1}{2}", "\\pi", "1,234", "(1, 2)", "x^2"]);
        let ways =
            [format!("\\boxed {n}"), format!("so $\\boxed {n}$."), format!("\\boxed {n} is it.")];
        let boxed = one(&ways, draw);
        if draw.gen_bool(0.5) { (n.to_owned(), boxed) } else { (boxed, n.to_owned()) }
    }),
    ("a root in plain text", |draw| {
        let (k, n) = (2 + draw.index(30), 2 + draw.index(90));
        let ways = [
            format!("{k}√{n}"),
            format!("{k}sqrt{n}"),
            format!("{k}√({n})"),
            format!("{k}\\sqrt {n}"),
        ];
        (one(&ways, draw), format!("{k}\\sqrt{{{n}}}"))
    }),
    ("all real numbers", |draw| {
        let ways = ["\\mathbb{R}", "\\mathbb R", "ℝ", "x \\in \\mathbb{R}", "(-\\infty,\\infty)"];
        let more = ["\\text{all real numbers}", "-\\infty < x < \\infty", "(-∞, ∞)", "\\R"];
        let all = [&ways[..], &more[..]].concat();
        pair(draw.pick(&all), draw.pick(&all))
    }),
    ("all but some", |draw| {
        let n = whole(draw);
        let ways = [
            format!("x \\ne {n}"),
            format!("\\mathbb{{R}} \\setminus \\{{{n}\\}}"),
            format!("\\mathbb{{R}} - \\{{{n}\\}}"),
            format!("\\text{{all real numbers except }} {n}"),
            format!("x < {n} \\text{{ or }} x > {n}"),
            format!("(-\\infty,{n})\\cup({n},\\infty)"),
        ];
        (one(&ways, draw), one(&ways, draw))
    }),
    ("a union by inequalities", |draw| {
        let (a, b) = (-whole(draw), whole(draw));
        let ways = [
            format!("x<{a} \\text{{ or }} x>{b}"),
            format!("x > {b} or x < {a}"),
            format!("x < {a}, x > {b}"),
            format!("x < {a} \\cup x > {b}"),
            format!("x \\in ({b}, \\infty) \\cup (-\\infty, {a})"),
            format!("x < {a} \\text{{ or }} > {b}"),
            format!("\\{{x : x < {a} \\text{{ or }} x > {b}\\}}"),
        ];
        (one(&ways, draw), format!("(-\\infty,{a}) \\cup ({b},\\infty)"))
    }),
    ("an interval by inequalities", |draw| {
        let a = whole(draw);
        let b = a + whole(draw);
        let ways = [
            format!("{a} < x \\le {b}"),
            format!("x > {a} \\text{{ and }} x \\le {b}"),
            format!("{b} \\geq x > {a}"),
            format!("x \\in ({a}, {b}]"),
            format!("\\{{x \\mid {a} < x \\leq {b}\\}}"),
            format!("x > {a}, x <= {b}"),
        ];
        (one(&ways, draw), format!("({a},{b}]"))
    }),
    ("thousands and lists", |draw| {
        let (a, b, c) = (1 + draw.index(9), 100 + draw.index(900), 100 + draw.index(900));
        let together =
            [format!("{a},{b},{c}"), format!("x={a},{b},{c}"), format!("{a},\\!{b},\\!{c}")];
        let apart = [format!("{a},{b},{c}"), format!("x={a},{b},{c}"), format!("{c}, {a}, {b}")];
        if draw.gen_bool(0.5) {
            (one(&together, draw), format!("{a}{b}{c}"))
        } else {
            (one(&apart, draw), format!("{a}, {b}, {c}"))
        }
    }),
    ("a reference with thousands", |draw| {
        let (a, b) = (1 + draw.index(99), 100 + draw.index(900));
        let ways =
            [format!("{a}{b}"), format!("{a},{b}"), format!("{a}, {b}"), format!("{a}\\,{b}")];
        (one(&ways, draw), format!("{a},{b}"))
    }),
    ("a set of one", |draw| {
        let n = number(draw);
        let ways =
            [n.clone(), format!("x = {n}"), format!("\\{{{n}\\}}"), format!("\\{{x = {n}\\}}")];
        let way = one(&ways, draw);
        if draw.gen_bool(0.5) { (way, format!("\\{{{n}\\}}")) } else { (format!("\\{{{n}\\}}"), n) }
    }),
    ("a reason after the answer", |draw| {
        let n = number(draw);
        let reasons = [
            "because 5 and 6 are 11",
            "since x > 2",
            ", because that is what is left",
            "(because of symmetry)",
            ", which is what was asked",
            ", so 3 of them",
            "as 7 is prime",
            "because ...",
            "— because it must be",
        ];
        (format!("The answer is {n} {}", draw.pick(&reasons)), n)
    }),
];

/// Wrong pairs that are close to correct ones.
const WRONG: &[Kind] = &[
    ("a unit of another kind", |draw| {
        let n = number(draw);
        let at = draw.index(UNITS.len());
        let next = (at + 1 + draw.index(UNITS.len() - 1)) % UNITS.len();
        pair(format!("{n}{}", draw.pick(UNITS[at])), format!("{n}{}", draw.pick(UNITS[next])))
    }),
    ("a length for an area or volume", |draw| {
        let (n, unit) = (whole(draw), draw.pick(&["m", "cm", "in", "ft", "units"]));
        let powers = [
            format!("\\text{{ {unit}}}"),
            format!("\\text{{ {unit}}}^2"),
            format!("\\text{{ {unit}}}^3"),
        ];
        let at = draw.index(3);
        let next = (at + 1 + draw.index(2)) % 3;
        (format!("{n}{}", powers[at]), format!("{n}{}", powers[next]))
    }),
    ("degrees for radians", |draw| {
        let n = number(draw);
        let (degrees, radians) = (draw.pick(UNITS[21]), draw.pick(UNITS[22]));
        if draw.gen_bool(0.5) {
            pair(format!("{n}{degrees}"), format!("{n}{radians}"))
        } else {
            pair(format!("{n}{radians}"), format!("{n}{degrees}"))
        }
    }),
    ("a unit with another number", |draw| {
        let (n, units) = (whole(draw), draw.pick(&UNITS));
        let wrong = other(n, draw);
        pair(format!("{wrong}{}", draw.pick(units)), format!("{n}{}", draw.pick(units)))
    }),
    ("a percentage or a sum of money for another unit", |draw| {
        let n = whole(draw);
        let marks = [format!("{n}\\%"), format!("\\${n}"), format!("{n} percent"), format!("€{n}")];
        let kind = draw.index(27);
        let unit = draw.pick(UNITS[kind]);
        (one(&marks, draw), format!("{n}{unit}"))
    }),
    ("a magnitude that is missing", |draw| {
        let (n, words) = (whole(draw), draw.pick(&["million", "thousand", "billion"]));
        pair(format!("{n} \\text{{ {words}}}"), n)
    }),
    ("a base for a decimal number", |draw| {
        let (n, base) = (10 + whole(draw), 2 + draw.index(8) as i64);
        let written = digits(n, base);
        let ways = [
            format!("{written}_{base}"),
            format!("{written}_{{{base}}}"),
            format!("{written} base {base}"),
        ];
        let truth = if draw.gen_bool(0.5) { written } else { n.to_string() };
        (one(&ways, draw), truth)
    }),
    ("another base", |draw| {
        let (n, base) = (20 + whole(draw), 2 + draw.index(7) as i64);
        let written = digits(n, base);
        pair(format!("{written}_{}", base + 1), format!("{written}_{base}"))
    }),
    ("a decimal number for digits in a base", |draw| {
        let (n, base) = (10 + whole(draw), 2 + draw.index(8) as i64);
        pair(n, format!("{}_{base}", digits(n, base)))
    }),
    ("a named result with another value", |draw| {
        let n = whole(draw);
        let names =
            ["AB", "f(2)", "a_5", "m+n", "\\text{Area}", "x", "\\angle ABC", "P(A)", "Answer"];
        pair(format!("{} = {}", draw.pick(&names), other(n, draw)), n)
    }),
    ("a number in the name", |draw| {
        let n = whole(draw);
        let m = other(n, draw);
        let ways = [
            format!("f({n}) = {m}"),
            format!("a_{{{n}}} = {m}"),
            format!("{n}x = {m}"),
            format!("P(X > {n}) = {m}"),
            format!("{m} = AB"),
        ];
        (one(&ways, draw), n.to_string())
    }),
    ("an equation that is left to be solved", |draw| {
        let n = whole(draw);
        let left = [
            "2x",
            "x + 1",
            "x - 3",
            "\\frac{x}{2}",
            "x^2",
            "\\sqrt{x}",
            "|x|",
            "-x",
            "2AB",
            "AB^2",
            "3a_5",
            "2f(2)",
            "x(x+1)",
            "2(x-1)",
            "x!",
            "\\log_2 x",
            "2^x",
            "\\frac{1}{x}",
            "abc",
            "2\\angle A",
            "5x - 7y + 4",
        ];
        pair(format!("{} = {n}", draw.pick(&left)), n)
    }),
    ("sides that contradict each other", |draw| {
        let (a, b) = (whole(draw), whole(draw));
        let (n, m) = (a + b, a + b + 1 + draw.index(9) as i64);
        let ways = [
            format!("{a}+{b}={m}"),
            format!("{n}={m}"),
            format!("x = {n} = {m}"),
            format!("m+n = {a}+{b} = {m}"),
        ];
        let truth = if draw.gen_bool(0.5) { n } else { m };
        (one(&ways, draw), truth.to_string())
    }),
    ("coordinates in the wrong places", |draw| {
        let a = whole(draw);
        let b = other(a, draw);
        let ways = [
            format!("(x,y)=({b},{a})"),
            format!("x = {b}, y = {a}"),
            format!("y = {a}, x = {b}"),
            format!("(y,x)=({a},{b})"),
            format!("x = {a}, z = {b}, y = {a}"),
            format!("x = {a}"),
        ];
        (one(&ways, draw), format!("({a}, {b})"))
    }),
    ("solutions that are too many or too few", |draw| {
        let a = whole(draw);
        let b = other(a, draw);
        match draw.index(4) {
            0 => pair(format!("x = {a}, {b}"), a),
            1 => pair(format!("x = {a}"), format!("{a}, {b}")),
            2 => pair(format!("x = {a} \\text{{ or }} {b}"), b),
            _ => pair(format!("x = {a}, {b}, {}", a + 1000), format!("{a}, {b}")),
        }
    }),
    ("another variable", |draw| {
        let n = whole(draw);
        let (a, b) =
            draw.pick(&[("x", "y"), ("a_1", "a_2"), ("f(1)", "f(2)"), ("AB", "CD"), ("m", "n")]);
        pair(format!("{a} = {n}"), format!("{b} = {n}"))
    }),
    ("a wrapper around another number", |draw| {
        let n = whole(draw);
        let m = other(n, draw);
        let wrappers = [
            "\\text{#}",
            "\\textbf{#}",
            "\\underline{#}",
            "\\color{blue}{#}",
            "\\boxed{=#}",
            "= #",
            "\\phantom{@}#",
            "\\color{@}{#}",
            "\\tag{@} #",
            "\\text{# or @}",
            "@ \\text{ or } #",
            "@ \\text{ or #}",
            "@ \\text{ and } #",
            "\\cancel{@}",
            "\\text{not @}",
            "@ \\text{ not}",
            "\\neq @",
            "\\overline{@}",
            "@ \\text{ or maybe not}",
            "Answer = #",
        ];
        let wrapper = draw.pick(&wrappers);
        (wrapper.replace('#', &m.to_string()).replace('@', &n.to_string()), n.to_string())
    }),
    ("a fraction of other parts", |draw| {
        let a = whole(draw);
        let b = other(a, draw);
        let ways = [
            format!("{{{b} \\over {a}}}"),
            format!("1 + {{{a} \\over {b}}}"),
            format!("{{1 + {a} \\over {b}}}"),
        ];
        (one(&ways, draw), format!("\\frac{{{a}}}{{{b}}}"))
    }),
    ("a root of another number", |draw| {
        let (k, n) = (2 + draw.index(8), draw.pick(&[13, 17, 19, 23, 29, 31]));
        let ways = [
            format!("{k}√{}", n + 1),
            format!("√{}", n * k),
            format!("{}", n * k),
            format!("{k}+√{n}"),
            format!("∛{n}"),
            format!("{}√{n}", k + 1),
            format!("{k}√{n}x"),
        ];
        (one(&ways, draw), format!("{k}\\sqrt{{{n}}}"))
    }),
    ("other numbers than all", |draw| {
        let n = whole(draw);
        let sets = [
            "(0,\\infty)".to_owned(),
            format!("({n},\\infty)"),
            format!("(-\\infty,{n}]"),
            format!("x \\ne {n}"),
            "\\mathbb{Z}".to_owned(),
            "\\mathbb{Q}".to_owned(),
            "\\emptyset".to_owned(),
            format!("\\mathbb{{R}} \\setminus \\{{{n}\\}}"),
            "\\mathbb{R}^+".to_owned(),
        ];
        let all = draw.pick(&["\\mathbb{R}", "(-\\infty,\\infty)", "\\text{all real numbers}"]);
        let set = one(&sets, draw);
        if draw.gen_bool(0.5) { (set, all.to_owned()) } else { (all.to_owned(), set) }
    }),
    ("other ends of a union", |draw| {
        let (a, b) = (-whole(draw), whole(draw));
        let ways = [
            format!("x<{a} \\text{{ or }} x>{}", b + 1),
            format!("x \\le {a} \\text{{ or }} x>{b}"),
            format!("x<{a} \\text{{ and }} x>{b}"),
            format!("x>{a} \\text{{ or }} x<{b}"),
            format!("{a} < x < {b}"),
            format!("x<{a}, y>{b}"),
            format!("x<{a}"),
            format!("x<{b} \\text{{ or }} x>{a}"),
            format!("(-\\infty,{a}] \\cup ({b},\\infty)"),
        ];
        (one(&ways, draw), format!("(-\\infty,{a}) \\cup ({b},\\infty)"))
    }),
    ("other ends of an interval", |draw| {
        let a = whole(draw);
        let b = a + whole(draw);
        let ways = [
            format!("{a} \\le x \\le {b}"),
            format!("{a} < x < {b}"),
            format!("x > {a}"),
            format!("x > {a} \\text{{ or }} x \\le {b}"),
            format!("{a} < x \\le {}", b + 1),
            format!("[{a}, {b})"),
            format!("\\{{{a}, {b}\\}}"),
        ];
        (one(&ways, draw), format!("({a},{b}]"))
    }),
    ("a list for a number with thousands", |draw| {
        let (a, b) = (1 + draw.index(9), 100 + draw.index(900));
        let ways = [
            (format!("{a}, {b}"), format!("{a}{b}")),
            (format!("{a}{b}"), format!("{a}, {b}")),
            (format!("({a},{b})"), format!("{a}{b}")),
            (format!("{a},{}", b + 1), format!("{a}{b}")),
            (format!("{a},{b}"), format!("{a}, {}", b - 1)),
            (format!("{a},{b}"), format!("{a}")),
            (format!("{b}, {a}"), format!("{a},{b}")),
            (format!("{a},{b}"), format!("({a}, {b})")),
            (format!("{a}.{b}"), format!("{a},{b}")),
        ];
        ways[draw.index(ways.len())].clone()
    }),
    ("another set than that of one", |draw| {
        let n = whole(draw);
        let m = other(n, draw);
        let sets = [
            format!("\\{{{m}\\}}"),
            format!("\\{{{n}, {m}\\}}"),
            "\\{\\}".to_owned(),
            format!("\\{{-{n}\\}}"),
            format!("\\{{{n}, {n}\\}}"),
            format!("({n}, {m})"),
        ];
        let set = one(&sets, draw);
        if draw.gen_bool(0.5) { (set, n.to_string()) } else { (n.to_string(), set) }
    }),
    ("a reason that has the number", |draw| {
        let n = whole(draw);
        let m = other(n, draw);
        let ways = [
            format!("The answer is {m} because {n} is even"),
            format!("The answer is {n} or {m} because both hold"),
            format!("The answer is not {n} because it is {m}"),
            format!("because it is {n}"),
            format!("The answer is {m}, which is not {n}"),
            format!("it is {n}"),
        ];
        (one(&ways, draw), n.to_string())
    }),
];

/// Returns the verdict of `maverl grade math`.
fn verdict((answer, truth): &Pair) -> AnswerVerdict {
    crate::answer(answer, false)
        .map_or(AnswerVerdict::Undecided, |answer| compare(answer, reference(truth)))
}

/// Returns the pairs of the kinds with an unexpected verdict.
fn misjudged(kinds: &[Kind], right: bool) -> Vec<(&'static str, Pair)> {
    let mut wrong = Vec::new();
    for (at, (name, make)) in kinds.iter().enumerate() {
        let mut draw = Draw::new(at as u64);
        let pairs: Vec<Pair> = (0..PAIRS).map(|_| make(&mut draw)).collect();
        let before = wrong.len();
        for pair in pairs {
            if (verdict(&pair) == AnswerVerdict::Equal) != right {
                wrong.push((*name, pair));
            }
        }
        println!("{:3} of {PAIRS} misjudged: {name}", wrong.len() - before);
    }
    wrong
}

#[test]
fn right_answers_of_every_kind_are_accepted() {
    let wrong = misjudged(RIGHT, true);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn wrong_answers_of_every_kind_are_rejected() {
    let wrong = misjudged(WRONG, false);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_unit_agrees_with_its_own_names_alone() {
    let mut wrong = Vec::new();
    for (i, units) in UNITS.iter().enumerate() {
        for (j, others) in UNITS.iter().enumerate() {
            for (a, b) in units.iter().flat_map(|a| others.iter().map(move |b| (a, b))) {
                let pair = (format!("12{a}"), format!("12{b}"));
                let equal = verdict(&pair) == AnswerVerdict::Equal;
                wrong.extend((equal != (i == j)).then_some(pair));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the pairs of a table: an answer, a tab, a reference. `⏎` is a line end in an answer.
fn table(text: &str) -> Vec<Pair> {
    let pair = |line: &str| {
        let (answer, truth) = line.split_once('\t')?;
        Some((answer.replace('⏎', "\n"), truth.to_owned()))
    };
    text.lines().filter_map(pair).collect()
}

#[test]
fn the_table_of_right_answers_is_accepted() {
    let pairs = table(include_str!("right.tsv"));
    assert!(pairs.len() >= 470, "{}", pairs.len());
    let wrong: Vec<&Pair> =
        pairs.iter().filter(|pair| verdict(pair) != AnswerVerdict::Equal).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_table_of_wrong_answers_is_rejected() {
    let pairs = table(include_str!("wrong.tsv"));
    assert!(pairs.len() >= 630, "{}", pairs.len());
    let wrong: Vec<&Pair> =
        pairs.iter().filter(|pair| verdict(pair) == AnswerVerdict::Equal).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns sets, lists and units that could cost a lot.
pub(super) fn hostile_answers() -> Vec<String> {
    let root = |i: usize| format!("(\\sqrt{{{i}}}, \\sqrt{{{}}})", i + 1);
    vec![
        "=".repeat(1900),
        "x=".repeat(900) + "1",
        "1=".repeat(900) + "1",
        "x<".repeat(900) + "1",
        "x<1 or ".repeat(250) + "x>2",
        (2..40).map(root).collect::<Vec<_>>().join(" \\cup "),
        (2..40).map(root).collect::<Vec<_>>().join(" or "),
        "\\text{".repeat(380),
        "\\text{1 ".repeat(200) + &"}".repeat(200),
        "5 ".to_owned() + &"per cm ".repeat(250),
        "5 cm".to_owned() + &"^2".repeat(900),
        "5 cm^{999999999}".to_owned(),
        "\\{".repeat(900),
        "\\{x : ".repeat(200),
        "\\mathbb{R} \\setminus ".repeat(90) + "\\{1\\}",
        "√".repeat(600),
        "½".repeat(900),
        "1,234,".repeat(300),
        "Z".repeat(900) + "_{36}",
        "9".repeat(1900) + "_9",
        "\\boxed ".repeat(280),
        "1\\over".repeat(280) + "2",
        "1≈".repeat(600) + "1",
        "|".repeat(1900),
    ]
}

/// References that each of these is compared with, besides itself.
pub(super) const HOSTILE_TRUTHS: [&str; 2] = ["(1, 2) \\cup (3, 4)", "5 \\text{ cm}"];
