#![allow(clippy::unwrap_used)]

mod kinds;

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;
use crate::draw::RandomNumbers;
use crate::judge::compare_counted;
use crate::work::WorkBudget;

/// Returns the CPU time of this thread in milliseconds, as Linux counts it. Time of other processes is excluded. 0 on
/// other systems.
fn milliseconds() -> f64 {
    // The count is of the last time that the scheduler ran.
    std::thread::yield_now();
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    counted.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e6
}

/// Upper bound on the cost of a comparison, in units of [`Cost`].
const MOST: f64 = 50.0;

/// Costs of comparisons, in units of the CPU time of 10^5 draws, which take a millisecond. The quotient is that of
/// the code: a slow or a busy machine takes longer for both.
struct Cost {
    /// The unit in milliseconds.
    unit: f64,
}

impl Cost {
    fn new() -> Self {
        let draws = || {
            let mut draw = RandomNumbers::new(1);
            let start = milliseconds();
            std::hint::black_box((0..100_000).fold(0, |sum, _| sum ^ draw.next_bits()));
            milliseconds() - start
        };
        Self { unit: (0..5).map(|_| draws()).fold(f64::INFINITY, f64::min) }
    }

    /// Returns the cost of a calculation. One that seems to cost too much is repeated, and its least cost is returned.
    /// The unit is measured again for it, because the processor may be slower by then.
    fn of<T>(&self, calculate: impl Fn() -> T) -> f64 {
        let (mut least, mut unit) = (f64::INFINITY, self.unit);
        for _ in 0..5 {
            let start = milliseconds();
            std::hint::black_box(calculate());
            least = least.min((milliseconds() - start) / unit.max(1e-3));
            if least < MOST {
                break;
            }
            unit = Self::new().unit;
        }
        least
    }
}

fn all(cases: &[(&str, &str)], verdict: AnswerVerdict) {
    let wrong: Vec<_> =
        cases.iter().filter(|(answer, truth)| compare_answers(answer, truth) != verdict).collect();
    assert!(wrong.is_empty(), "not {verdict:?}: {wrong:#?}");
    let turned: Vec<_> =
        cases.iter().filter(|(answer, truth)| compare_answers(truth, answer) != verdict).collect();
    assert!(turned.is_empty(), "not {verdict:?} the other way round: {turned:#?}");
}

/// Samples of Dr. MAS's checker that it judges correctly.
#[test]
fn the_samples_of_dr_mas_are_judged_as_there() {
    let right = [
        ("0.5", "\\frac12"),
        (".25", "1/4"),
        ("x^2+1", "1+x^2"),
        ("10,000", "10000"),
        ("1,2", "1,2"),
        ("5 cm", "5"),
        ("\\text{Yes}", "yes"),
        ("\\sqrt8", "2\\sqrt2"),
        ("x=5", "5"),
        ("7 3/4", "31/4"),
        ("(A)", "A"),
        ("1e3", "1000"),
    ];
    all(&right, AnswerVerdict::Equal);
    let wrong = [("[1,2]", "(1,2)"), ("abc=5", "5"), ("3.14159", "\\pi"), ("1.0000001", "1")];
    for (answer, truth) in wrong {
        assert_ne!(compare_answers(answer, truth), AnswerVerdict::Equal, "{answer} {truth}");
    }
    println!("{} of {} samples as there", right.len() + wrong.len(), right.len() + wrong.len());
}

/// Correct answers that Dr. MAS's checker rejects: it compares fractions and integers as strings, reads no magnitude
/// words, gives up at three letters, and treats an unordered list as an ordered one.
#[test]
fn right_answers_that_dr_mas_rejects_are_right() {
    let right = [
        ("2/4", "1/2"),
        ("6/2", "3"),
        ("2+3", "5"),
        ("1 million", "1000000"),
        ("a+b+c", "c+b+a"),
        ("1,2", "2,1"),
        ("5 and 6", "6 and 5"),
    ];
    all(&right, AnswerVerdict::Equal);
    println!("{} samples right that are rejected there", right.len());
}

#[test]
fn what_says_the_same_is_equal() {
    let right = [
        ("\\dfrac{17}{50}", "0.34"),
        ("-\\frac{1}{3}", "\\frac{-1}{3}"),
        ("\\frac{1}{\\sqrt{2}}", "\\frac{\\sqrt{2}}{2}"),
        ("\\frac{3}{1+\\sqrt2}", "3\\sqrt{2}-3"),
        ("16\\sqrt[4]{2}", "16 \\cdot 2^{1/4}"),
        ("\\sqrt{5+2\\sqrt6}", "\\sqrt2+\\sqrt3"),
        ("\\sqrt{-4}", "2i"),
        ("(1+i)^2", "2i"),
        ("\\sqrt[3]{-8}", "-2"),
        ("\\sin 30^\\circ", "1/2"),
        ("2\\sin x\\cos x", "\\sin(2x)"),
        ("\\log_2 8", "3"),
        ("\\ln(e^2)", "2"),
        ("\\cot x", "\\frac{\\cos x}{\\sin x}"),
        ("(a+5)(b+2)", "ab+2a+5b+10"),
        ("\\frac{x^2-1}{x-1}", "x+1"),
        ("1\\frac{4}{5}", "9/5"),
        ("137 \\frac{1}{2}", "137.5"),
        ("2007 + \\frac\\pi 2", "2007+\\pi/2"),
        ("20\\%", "0.2"),
        ("20", "20\\%"),
        ("\\$18.90", "18.9"),
        ("\\$32,\\!348", "32348"),
        ("2{,}016{,}532", "2,016,532"),
        ("11,\\! 111,\\! 111,\\! 100", "11111111100"),
        ("864 \\mbox{ inches}^2", "864"),
        ("864 \\mbox{ inches}^2", "864\\text{ in}^2"),
        ("\\frac{270}7\\text{ degrees}", "\\frac{270}{7}^\\circ"),
        ("90^{\\circ}", "90"),
        ("5 centimeters", "5 cm"),
        ("52_8", "52_{8}"),
        ("3:2", "6 : 4"),
        ("3:2", "\\frac32"),
        ("\\{1\\pm\\sqrt{5},-2\\}", "\\{-2, 1-\\sqrt5, 1+\\sqrt5\\}"),
        ("3 \\pm 2 \\sqrt{2}", "3-2\\sqrt2, 3+2\\sqrt2"),
        ("\\{1,2\\}", "2,1"),
        ("\\left( 3, \\frac{\\pi}{2} \\right)", "(3, \\pi/2)"),
        ("x \\in [-2,7]", "[-2, 7]"),
        ("-2 \\le x \\le 7", "[-2,7]"),
        ("x > 5", "(5, \\infty)"),
        ("5 < x", "x > 5"),
        ("(0,9) \\cup (9,36)", "(9, 36) \\cup (0, 9)"),
        ("y = 2x + 3", "2x+3"),
        ("5x - 7y + 11z + 4 = 0", "10x-14y+22z=-8"),
        ("y = 2x + 3", "y - 2x = 3"),
        (
            "\\begin{pmatrix} 1/5 \\\\ -18/5 \\end{pmatrix}",
            "\\begin{bmatrix} 0.2 \\\\ -3.6 \\end{bmatrix}",
        ),
        ("\\text{(B)}", "B."),
        ("\\mbox{four}", "4"),
        ("\\text{East}", "east"),
        ("\\binom{5}{2}", "10"),
        ("5!", "120"),
        ("\\lfloor 2.7 \\rfloor", "2"),
        ("|-3|", "3"),
        ("1.5 \\times 10^3", "1500"),
        ("2**3", "8"),
        ("5, 6, and 7", "7, 6, 5"),
        ("10\\pi", "π*10"),
    ];
    all(&right, AnswerVerdict::Equal);
}

/// A base may be left out like a unit. A reference without one is decimal.
#[test]
fn an_answer_may_leave_out_the_base_and_not_add_one() {
    assert_eq!(compare_answers("4210", "4210_{5}"), AnswerVerdict::Equal);
    assert_eq!(compare_answers("4210_{5}", "4210"), AnswerVerdict::Unequal);
    assert_eq!(compare_answers("105_8", "105"), AnswerVerdict::Unequal);
    assert_eq!(compare_answers("105_{10}", "105"), AnswerVerdict::Equal);
}

#[test]
fn what_only_looks_alike_is_not() {
    let wrong = [
        ("1 2", "12"),
        ("\\frac{1}{2}", "\\frac{2}{1}"),
        ("0.33", "1/3"),
        ("0.333333333333333", "1/3"),
        ("5 cm", "5 m"),
        ("(1,2)", "(2,1)"),
        ("(1,2)", "[1,2)"),
        ("(1,2)", "\\{1,2\\}"),
        ("1,2", "1,2,3"),
        ("75^\\circ, 75^\\circ", "75^\\circ"),
        ("52_8", "42"),
        ("x > 5", "x \\ge 5"),
        ("x > 5", "-x > -5"),
        ("y = 2x+3", "y = 2x-3"),
        ("\\sqrt{2}", "1.41421356"),
        ("e^\\pi", "23.1406926328"),
        ("x+y", "x-y"),
        ("A", "B"),
        ("east", "west"),
        ("yes", "1"),
        ("3 \\pm \\sqrt2", "3 + \\sqrt2"),
        ("10", "1,0"),
        ("2x", "2y"),
        ("i", "-i"),
        ("\\sin x", "\\cos x"),
        ("1{,}000", "1"),
        ("\\begin{pmatrix}1&2\\end{pmatrix}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}"),
        ("200", "20\\%"),
    ];
    for (answer, truth) in wrong {
        assert_ne!(compare_answers(answer, truth), AnswerVerdict::Equal, "{answer} {truth}");
        assert_ne!(compare_answers(truth, answer), AnswerVerdict::Equal, "{truth} {answer}");
    }
}

#[test]
fn a_variable_may_be_negative_or_large() {
    let wrong = [
        ("|x|", "x"),
        ("\\boxed{|x|}", "\\boxed{x}"),
        ("\\sqrt{x^2}", "x"),
        ("\\sqrt{x^2}", "-x"),
        ("\\sqrt{x^2y^2}", "xy"),
        ("\\sqrt{x^2y^2}", "x|y|"),
        ("x\\sqrt{x^2}", "x^2"),
        ("\\sqrt{x^6}", "x^3"),
        ("\\sqrt[4]{x^4}", "x"),
        ("(x^2)^{1/2}", "x"),
        ("\\sqrt{(x-1)^2}", "x-1"),
        ("\\sqrt{(x-3)^2}", "3-x"),
        ("\\sqrt{x^2+2x+1}", "x+1"),
        ("|x-500|", "500-x"),
        ("x+|x|", "2x"),
        ("e^{|x|}", "e^x"),
        ("\\sqrt{(x+i)^2}", "x+i"),
        ("|abc|", "abc"),
        ("\\frac{|x|}{x}", "1"),
        ("x^2+\\sqrt{x^2}", "x^2+x"),
        ("y=|x|", "y=x"),
        ("(|x|, 1)", "(x, 1)"),
    ];
    for (answer, truth) in wrong {
        let unbox = reference_answer;
        assert_eq!(
            compare_answers(unbox(answer), unbox(truth)),
            AnswerVerdict::Unequal,
            "{answer} {truth}"
        );
        assert_eq!(
            compare_answers(unbox(truth), unbox(answer)),
            AnswerVerdict::Unequal,
            "{truth} {answer}"
        );
    }
    let right = [
        ("\\sqrt{x^2}", "|x|"),
        ("\\sqrt{x^2y^2}", "|xy|"),
        ("\\sqrt{x^4}", "x^2"),
        ("\\sqrt{x}", "x^{1/2}"),
        ("\\sqrt{x^3}", "x\\sqrt{x}"),
        ("\\sqrt{x^2+2x+1}", "|x+1|"),
        ("\\sqrt[3]{x^3}", "x"),
        ("\\sqrt[3]{8x}", "2\\sqrt[3]{x}"),
        ("\\sqrt[3]{x^2}", "x^{2/3}"),
        ("\\log(x^3)", "3\\log x"),
        ("\\sqrt{x-3}\\sqrt{x-3}", "x-3"),
        ("\\sqrt{x^2+1}-x", "\\frac{1}{\\sqrt{x^2+1}+x}"),
        ("\\sin^2 x", "1-\\cos^2 x"),
        ("\\sin(x^3)", "2\\sin(x^3/2)\\cos(x^3/2)"),
        ("\\frac{e^x-e^{-x}}{2}", "\\sinh x"),
        ("\\arcsin x", "\\frac{\\pi}{2}-\\arccos x"),
        ("\\sqrt{1-x^2}", "\\frac{1-x^2}{\\sqrt{1-x^2}}"),
        ("(-1)^{n+1}", "-(-1)^n"),
        ("2^{n+1}", "2 \\cdot 2^n"),
    ];
    all(&right, AnswerVerdict::Equal);
}

#[test]
fn periods_thin_spaces_and_empty_sets_are_read() {
    let right = [
        ("12\\,345", "12345"),
        ("1\\,234\\,567.5", "1,234,567.5"),
        ("(1\\,000, 2)", "(1000, 2)"),
        ("0.\\overline{3}", "1/3"),
        ("0.\\overline{3}", "\\frac{1}{3}"),
        (".\\overline{142857}", "1/7"),
        ("0.1\\overline{6}", "1/6"),
        ("-2.\\bar{9}", "-3"),
        ("0.\\overline{36}\\text{ cm}", "4/11"),
        ("\\varnothing", "\\emptyset"),
        ("\\{\\}", "\\emptyset"),
        ("\\{ \\}", "\\varnothing"),
        ("∅", "$\\emptyset$."),
        ("x \\in \\emptyset", "\\emptyset"),
    ];
    all(&right, AnswerVerdict::Equal);
    let wrong = [
        ("12\\,34", "1234"),
        ("1\\,2", "12"),
        ("12\\,345", "12,\\, 345"),
        ("12\\,345", "(12, 345)"),
        ("0.\\overline{3}", "0.3"),
        ("0.\\overline{3}", "0.33333333"),
        ("3\\overline{3}", "33"),
        ("0.\\overline{}", "0"),
        ("\\{\\emptyset\\}", "\\emptyset"),
        ("\\emptyset, 5", "5"),
        ("\\emptyset, 5", "\\{5\\}"),
        ("\\{\\}, 5", "\\{5\\}"),
        ("\\emptyset", "0"),
        ("\\{0\\}", "\\emptyset"),
        ("()", "\\emptyset"),
        ("{}", "\\emptyset"),
    ];
    for (answer, truth) in wrong {
        assert_ne!(compare_answers(answer, truth), AnswerVerdict::Equal, "{answer} {truth}");
        assert_ne!(compare_answers(truth, answer), AnswerVerdict::Equal, "{truth} {answer}");
    }
}

/// Returns the gold answers of the real data, as far as the files are present.
fn gold() -> Option<Vec<String>> {
    let Some(root) = std::env::var_os("MAVERL_TEST_DATA") else {
        println!("skipped: MAVERL_TEST_DATA is not set");
        return None;
    };
    let root = PathBuf::from(root).join("data");
    let mut gold = Vec::new();
    for (file, rows) in [
        ("gsm8k.train.jsonl", 7473),
        ("gsm8k.test.jsonl", 1000),
        ("math500.jsonl", 500),
        ("aime24.jsonl", 30),
        ("deepscaler.sample.jsonl", 300),
    ] {
        let answers = answers(&root.join(file));
        assert_eq!(answers.len(), rows, "{file}");
        gold.extend(answers);
    }
    Some(gold)
}

fn answers(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let answer = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let answer = row["answer"].as_str().unwrap();
        if answer.contains("####") {
            marked_answer(answer).unwrap().to_owned()
        } else {
            answer.to_owned()
        }
    };
    text.lines().map(answer).collect()
}

/// Ways to write the same answer.
fn rewritings(gold: &str) -> Vec<String> {
    let bare = gold.trim_end_matches('.');
    let mut all = vec![
        format!("${bare}$"),
        format!("{bare}."),
        format!("\\displaystyle {bare}"),
        bare.replace(' ', "")
            .replace("\\cup", "\\cup ")
            .replace("\\pm", "\\pm ")
            .replace("\\cotx", "\\cot x"),
        bare.replace('(', " ( ").replace('+', " + ").replace('=', " = "),
        format!("  {bare}  "),
        bare.replace("\\frac", "\\dfrac"),
        if bare.contains("\\text{") {
            bare.replace("\\text{", "\\textbf{")
        } else {
            bare.replace('(', "\\left(").replace(')', "\\right)")
        },
    ];
    let number = bare.replace(",\\!", "").replace([' ', ','], "");
    let listed = bare.contains(", ") || bare == "-2,1" || bare == "1,-2";
    if let Ok(number) = number.parse::<i64>()
        && !listed
    {
        all.extend([
            format!("{number}.0"),
            format!("\\frac{{{}}}{{3}}", number * 3),
            format!("{number} \\text{{ units}}"),
            format!("x = {number}"),
            format!("{} - 7", number + 7),
            format!("\\${number}"),
            format!("{number} apples"),
            thousands(number),
            thousands(number).replace(',', "{,}"),
            thousands(number).replace(',', ",\\!"),
        ]);
    }
    let worded = ["\\text{", "\\mbox{"].iter().find_map(|start| bare.strip_prefix(start));
    if let Some(word) = worded.and_then(|rest| rest.strip_suffix('}')) {
        all.extend([word.to_lowercase(), word.to_uppercase()]);
        all.extend([format!("\\mbox{{{word}}}"), format!("\\text{{{word}}}")]);
    }
    if let Some(degrees) = bare.strip_suffix("^\\circ").filter(|rest| !rest.contains(',')) {
        let ways = ["", "^{\\circ}", "°", " degrees", "\\text{ degrees}", "\\degree"];
        all.extend(ways.map(|unit| format!("{degrees}{unit}")));
    }
    if !bare.contains("text") && !bare.contains("mbox") {
        all.push(format!("\\,{bare}"));
        all.extend([bare.replace("\\pi", "π"), bare.replace("\\sqrt", "\\sqrt ")]);
    }
    let list = !bare.contains(['(', '[', '{', '!', '\\']) && bare.contains(", ");
    if list {
        all.push(bare.rsplit(", ").collect::<Vec<_>>().join(", "));
    }
    all
}

fn thousands(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = if number < 0 { "-" } else { "" }.to_owned();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[test]
fn gold_answers_equal_themselves_and_their_rewritings() {
    let Some(gold) = gold() else { return };
    let (mut pairs, mut wrong, mut most) = (0, Vec::new(), 0);
    let mut few = Vec::new();
    for truth in &gold {
        let rewritings = rewritings(truth);
        let different = rewritings.iter().filter(|text| *text != truth).count();
        if different < 5 {
            few.push(truth);
        }
        for answer in rewritings.iter().chain([truth]) {
            let (verdict, work) = compare_counted(answer, truth);
            most = most.max(work);
            pairs += 1;
            if verdict != AnswerVerdict::Equal {
                wrong.push((answer.clone(), truth.clone(), verdict));
            }
        }
    }
    println!(
        "{} gold answers, {pairs} pairs, {} not equal; most work {most}",
        gold.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(few.is_empty(), "fewer than five rewritings: {few:?}");
}

/// Answers that are wrong by construction: a changed digit, an extra term, a changed sign or another magnitude.
fn mutations(gold: &str, draw: &mut RandomNumbers) -> Vec<String> {
    let plain = gold.replace(",\\!", "").replace("{,}", "").replace(',', "");
    let number = plain.chars().all(|c| c.is_ascii_digit() || ".-".contains(c));
    if !number || plain.parse::<f64>().is_err() {
        let expression = !gold.contains([',', '=', ':', '_', '%', '$'])
            && !["text", "mbox", "textnormal", "matrix", "circ", "in ", "cup", "pm"]
                .iter()
                .any(|w| gold.contains(w));
        return if expression {
            vec![
                format!("{gold} + 1"),
                format!("{gold} - \\frac{{1}}{{1000}}"),
                format!("-1 - ({gold})^2"),
                format!("({gold}) + \\sqrt{{2}}"),
            ]
            .into_iter()
            .filter(|text| !text.starts_with("-1") || !gold.contains('i'))
            .collect()
        } else {
            Vec::new()
        };
    }
    let digits: Vec<usize> =
        plain.char_indices().filter(|(_, c)| c.is_ascii_digit()).map(|(at, _)| at).collect();
    let mut all = Vec::new();
    let at = draw.sample_item(&digits);
    let digit = plain.as_bytes()[at];
    let other = b'0' + (digit - b'0' + 1 + draw.sample_index(9) as u8) % 10;
    let mut changed = plain.clone().into_bytes();
    changed[at] = other;
    all.push(String::from_utf8(changed).unwrap());
    if !plain.trim_matches(['0', '.']).is_empty() {
        all.extend([format!("{plain}0").replace(".0", ".9"), format!("-({plain})")]);
        all.retain(|text| !text.ends_with('0') || !plain.contains('.'));
    }
    all.extend([format!("{plain} + 1"), format!("x > {plain}"), format!("({plain}, {plain})")]);
    all
}

#[test]
fn mutated_answers_are_rejected_without_exception() {
    let Some(gold) = gold() else { return };
    let mut draw = RandomNumbers::new(11);
    let (mut tried, mut passed) = (0, Vec::new());
    for truth in &gold {
        for answer in mutations(truth, &mut draw) {
            tried += 1;
            if compare_answers(&answer, truth) == AnswerVerdict::Equal {
                passed.push((answer, truth.clone()));
            }
        }
    }
    println!("{tried} mutations, {} taken for right", passed.len());
    assert!(tried >= 5000);
    assert!(passed.is_empty(), "{passed:#?}");
}

/// Returns answers that could cost a lot.
fn hostile_answers() -> Vec<String> {
    let deep =
        |open: &str, close: &str, n: usize| format!("{}1{}", open.repeat(n), close.repeat(n));
    vec![
        deep("(", ")", 900),
        deep("{", "}", 900),
        deep("\\frac{1}{", "}", 200),
        deep("\\sqrt{", "}", 280),
        deep("2^{", "}", 480),
        deep("-", "", 1900),
        deep("\\sin ", "", 380),
        "(".repeat(1900),
        "}".repeat(1900),
        "\\".repeat(1900),
        "\\frac".repeat(380),
        "9^{9^9}".to_owned(),
        "10^{10^{10}}-10^{10^{10}}".to_owned(),
        "(a+b+c+d+x+y+z)^{1000}".to_owned(),
        "(1+\\sqrt2+\\sqrt3+\\sqrt5+\\sqrt7)^{999}".to_owned(),
        "9".repeat(1990),
        format!("\\sqrt{{{}}}", "9".repeat(1900)),
        "\\sqrt{18446744073709551557}".to_owned(),
        "(1.000000001)^{1000}".to_owned(),
        "300!!!".to_owned(),
        "1,".repeat(990),
        "x+".repeat(990) + "x",
        "(x+1)".repeat(390),
        "1/".repeat(990) + "1",
        "1/x+1/y+1/z+1/a+1/b+1/c+1/d+1/k+1/m+1/n".to_owned(),
        "1e999".to_owned(),
        "\u{1}\u{0}é√∞°°^^__".to_owned(),
        "x_1".to_owned(),
        "1/0".to_owned(),
        "\\begin{pmatrix}".to_owned(),
    ]
}

/// References that each hostile answer is compared with, besides itself.
const HOSTILE_TRUTHS: [&str; 3] = ["\\sqrt{2}+x", "(1, 2)", "\\sin(x)"];

/// Calls `check` with each hostile answer of all kinds, as it is extracted from a reply, and each of its references.
fn for_each_hostile_pair(mut check: impl FnMut(&str, &str)) {
    let deep = hostile_answers().into_iter().map(|answer| (answer.clone(), answer));
    let kinds = kinds::hostile_answers().into_iter();
    let kinds = kinds.map(|answer| (marked_answer(&answer).unwrap_or(&answer).to_owned(), answer));
    for (extracted, answer) in deep.chain(kinds) {
        let extracted = format!("{extracted} ");
        let truths = HOSTILE_TRUTHS.into_iter().chain(kinds::HOSTILE_TRUTHS);
        for truth in truths.chain([answer.as_str()]) {
            check(extracted.trim_start(), truth);
        }
    }
}

#[test]
fn hostile_answers_cost_no_more_than_the_budget() {
    for_each_hostile_pair(|answer, truth| {
        let work = compare_counted(answer, truth).1;
        assert!(work <= WorkBudget::BUDGET, "{answer} and {truth}: {work}");
    });
}

#[test]
fn texts_within_texts_are_read_as_mathematics_up_to_a_depth() {
    let nested = |depth: usize| format!("{}7{}", "\\text{".repeat(depth), "}".repeat(depth));
    assert_eq!(compare_answers(&nested(16), "7"), AnswerVerdict::Equal);
    assert_ne!(compare_answers(&nested(18), "7"), AnswerVerdict::Equal);
}

#[test]
#[ignore = "a guard of speed"]
fn hostile_answers_cost_no_more_than_fifty_units_of_processor_time() {
    let cost = Cost::new();
    let mut slowest = (0.0, String::new());
    for_each_hostile_pair(|answer, truth| {
        let took = cost.of(|| compare_counted(answer, truth));
        if took > slowest.0 {
            slowest = (took, answer.chars().take(40).collect());
        }
    });
    println!("slowest hostile answer: {:.1} units of {} ms: {}", slowest.0, cost.unit, slowest.1);
    assert!(slowest.0 < MOST, "{}", slowest.1);
}

#[test]
fn drawn_characters_never_panic() {
    let pieces = [
        "\\frac",
        "\\sqrt",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "1",
        "23",
        ".",
        ",",
        "x",
        "i",
        "\\pi",
        "^",
        "_",
        "+",
        "-",
        "*",
        "/",
        "=",
        "<",
        "\\le",
        "\\cup",
        "\\pm",
        "\\text{",
        "cm",
        "\\{",
        "\\}",
        "\\begin{pmatrix}",
        "\\end{pmatrix}",
        "&",
        "\\\\",
        "%",
        "!",
        "|",
        "\\circ",
        ":",
        "é",
        "\\in",
        " ",
        "\\log",
        "sin",
        "\\binom",
        "million",
        "0",
    ];
    let mut draw = RandomNumbers::new(5);
    for _ in 0..20_000 {
        let mut text =
            || (0..draw.sample_index(14)).map(|_| draw.sample_item(&pieces)).collect::<String>();
        let (a, b) = (text(), text());
        let (verdict, work) = compare_counted(&a, &b);
        assert!(work <= WorkBudget::BUDGET);
        if verdict != AnswerVerdict::Undecided {
            assert_eq!(
                verdict == AnswerVerdict::Equal,
                compare_answers(&b, &a) == AnswerVerdict::Equal,
                "{a} {b}"
            );
        }
        let _ = (marked_answer(&a), last_number(&b));
    }
}

#[test]
fn answers_are_found_where_they_are_marked() {
    let cases = [
        ("so \\boxed{42}.", Some("42")),
        ("\\boxed{1} and \\boxed{\\frac{1}{2}}", Some("\\frac{1}{2}")),
        ("\\boxed{7} then \\boxed{broken", Some("7")),
        ("\\fbox{3}", Some("3")),
        ("\\boxed{\\{1,2\\}}", Some("\\{1,2\\}")),
        ("\\boxed{\\}}", Some("\\}")),
        ("<think>\\boxed{1}</think> \\boxed{2}", Some("2")),
        ("<think>\\boxed{1}</think> no", None),
        ("16-3\n#### 1,200", Some("1,200")),
        ("The answer is $5$. Good.", Some("5")),
        ("**Answer:** 3.5", Some("3.5")),
        ("The final answer is: 12.\nBye", Some("12")),
        ("The answer is **42**.", Some("42")),
        ("The answer is **42.** Good", Some("42")),
        ("The answer is `42`", Some("42")),
        ("The answer is: **$42$**.", Some("42")),
        ("\\boxed{**42**}", Some("42")),
        ("#### **42**", Some("42")),
        ("\\boxed{2**3}", Some("2**3")),
        ("The answer is:\n\n42", Some("42")),
        ("The answer is\n\\[\n42.\n\\]\n", Some("42")),
        ("**Final Answer:**\n$42$", Some("42")),
        ("**Final Answer:**\n$42$\n\nI hope that it is correct.", Some("42")),
        // Two answers count as no answer.
        ("The answer is:\n42\n43", Some("42\n43")),
        ("The answer is:\n\n42\n\nor 43", Some("42\n\nor 43")),
        ("The answer is:\n", None),
        ("The answer is: **", None),
        ("\\boxed{}", None),
        ("about 12", None),
        ("", None),
    ];
    for (reply, answer) in cases {
        assert_eq!(marked_answer(reply), answer, "{reply}");
    }
    for (reply, number) in [
        ("it is -1,234.50 dollars", Some("-1,234.50")),
        ("8-3", Some("3")),
        ("none", None),
        ("in 1999, 7.", Some("7")),
        ("(2)-5", Some("5")),
    ] {
        assert_eq!(last_number(reply), number, "{reply}");
    }
}

#[test]
fn a_judgment_is_the_best_verdict_with_its_reason() {
    use AnswerVerdict::{Equal, Undecided, Unequal};
    let cases: [(&str, &[&str], AnswerVerdict, &str); 9] = [
        ("2/4", &["3", "0.5"], Equal, "it says what a reference says"),
        ("18", &["9 * 2 = 18\n#### 18"], Equal, "it says what a reference says"),
        ("1 2 3", &["1 2 3"], Equal, "it says what a reference says"),
        ("7", &["3", "0.5"], Unequal, "it says something else than every reference"),
        ("", &["3"], Unequal, "there is no answer"),
        ("7", &["\\frac{1}{"], Undecided, "the reference cannot be read"),
        ("7", &[], Undecided, "the reference cannot be read"),
        ("\\sqrt{x}", &["\\frac{1}{", "x^{"], Undecided, "the reference cannot be read"),
        ("5 \\text{ cm}", &["\\frac{1}{", "5 \\text{ apples}"], Undecided, "it cannot be told"),
    ];
    for (answer, references, verdict, reason) in cases {
        let judgment = judge_answer(answer, references);
        assert_eq!(judgment.verdict, verdict, "{answer} {references:?}");
        assert!(judgment.reason.starts_with(reason), "{answer}: {}", judgment.reason);
    }
}
