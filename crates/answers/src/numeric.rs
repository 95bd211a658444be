//! Numeric comparison: expressions as complex numbers, at sampled values of their variables.

use num_bigint::BigInt;
use num_complex::Complex64;
use num_rational::BigRational;
use num_traits::ToPrimitive;

use crate::draw::RandomNumbers;
use crate::exact::{Atom, ExactExpr, Monomial, Polynomial};
use crate::verdict::AnswerVerdict;
use crate::work::{Stop, WorkBudget};

/// Number of points at which two expressions must agree. All their coordinates are positive.
const POINTS: usize = 7;
/// Minimum number of points at which both expressions must have a value.
const NEEDED: usize = 5;
/// Number of points of every sign and size. They can only prove that two expressions differ.
const DOUBTS: usize = 40;
/// Largest coordinates of those points.
const SIZES: [f64; 6] = [2.0, 2.0, 20.0, 200.0, 1e4, 1e8];
/// Relative difference below which values agree and above which they differ. Between the two thresholds there is no
/// verdict.
const SAME: f64 = 1e-10;
const OTHER: f64 = 1e-7;
/// Factor by which a difference must exceed its estimated error to count.
const SURE: f64 = 1000.0;
/// Relative error of an operation.
const ROUNDING: f64 = 1e-15;
/// Denominator from which a rational may be a rounded value instead of an exact one.
const ROUNDED: u32 = 100_000;

/// Compares two expressions as functions, by their values at points.
///
/// Variables are real, of any sign. A point at which one side has no real value, such as `\log x` for negative `x`, is
/// skipped.
pub(crate) fn compare_functions(
    a: &ExactExpr,
    b: &ExactExpr,
    work: &mut WorkBudget,
) -> Result<AnswerVerdict, Stop> {
    let mut names = [a.atom_names(), b.atom_names()].concat();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !matches!(name, 'π' | 'e'));
    if names.contains(&'∞') {
        return Ok(AnswerVerdict::Undecided);
    }
    let points = if names.is_empty() { 1 } else { POINTS };
    let doubts = if names.is_empty() { 0 } else { DOUBTS };
    let mut draw = RandomNumbers::new(0x6d61_7468);
    let (mut agreed, mut unclear) = (0, false);
    for i in 0..points + doubts {
        let real = i >= points;
        let values = (0..names.len()).map(|j| {
            if real { sample_coordinate(i, j, &mut draw) } else { sample_positive(&mut draw) }
        });
        let values: Vec<f64> = values.collect();
        let point = Point { names: &names, values: &values, real };
        match compare_roughly(&point.value_of_expr(a, work)?, &point.value_of_expr(b, work)?) {
            Numeral::Other => return Ok(AnswerVerdict::Unequal),
            Numeral::Same => agreed += usize::from(!real),
            Numeral::Unclear => unclear = true,
            Numeral::Nothing => {}
        }
    }
    let enough = agreed >= NEEDED.min(points) && !unclear;
    let rounded =
        [a, b].into_iter().filter_map(ExactExpr::rational).any(|value| is_rounded(&value));
    Ok(if enough && !rounded { AnswerVerdict::Equal } else { AnswerVerdict::Undecided })
}

/// Returns the value of a constant.
///
/// # Errors
///
/// If the expression has no real value, or has variables.
pub(crate) fn real_value(expr: &ExactExpr, work: &mut WorkBudget) -> Result<f64, Stop> {
    let value = Point { names: &[], values: &[], real: true }.value_of_expr(expr, work)?.value;
    if value.re.is_finite() && (value.im == 0.0 || is_real(value)) {
        Ok(value.re)
    } else {
        Err(Stop::Meaningless)
    }
}

/// Returns coordinate `j` of point `i` of every sign and size. 32 consecutive points cover all signs of five variables.
fn sample_coordinate(i: usize, j: usize, draw: &mut RandomNumbers) -> f64 {
    let size =
        draw.sample_item(&SIZES) * (1 + draw.sample_index(1 << 20)) as f64 / f64::from(1 << 20);
    let negative = if j < 5 { i >> j & 1 == 1 } else { draw.sample_index(2) == 1 };
    if negative { -size } else { size }
}

/// Returns a coordinate between 0.2 and 2.2.
fn sample_positive(draw: &mut RandomNumbers) -> f64 {
    0.2 + draw.sample_index(1 << 20) as f64 / f64::from(1 << 19)
}

fn is_rounded(value: &BigRational) -> bool {
    *value.denom() >= BigInt::from(ROUNDED)
}

/// A value with an error bound.
struct Rough {
    value: Complex64,
    error: f64,
}

/// Result of the comparison of two values.
enum Numeral {
    Same,
    Other,
    Unclear,
    Nothing,
}

fn compare_roughly(a: &Rough, b: &Rough) -> Numeral {
    let scale = a.value.norm().max(b.value.norm());
    let (difference, error) = ((a.value - b.value).norm(), a.error + b.error);
    // Next to zero a relative difference is meaningless.
    if !(1e-12..f64::INFINITY).contains(&scale) || !difference.is_finite() || !error.is_finite() {
        Numeral::Nothing
    } else if difference > OTHER * scale && difference > SURE * error {
        Numeral::Other
    } else if error > SAME * scale {
        // Cancellation to nearly zero leaves no significant digits.
        Numeral::Nothing
    } else if difference <= SAME * scale {
        Numeral::Same
    } else {
        Numeral::Unclear
    }
}

/// Values of the variables.
struct Point<'a> {
    names: &'a [char],
    values: &'a [f64],
    /// True if a function of variables has a value only where it is real.
    real: bool,
}

impl Point<'_> {
    fn value_of_name(&self, name: char) -> f64 {
        match name {
            'π' => std::f64::consts::PI,
            'e' => std::f64::consts::E,
            _ => self.names.iter().position(|n| *n == name).map_or(f64::NAN, |i| self.values[i]),
        }
    }

    fn value_of_expr(&self, expr: &ExactExpr, work: &mut WorkBudget) -> Result<Rough, Stop> {
        let (above, below) =
            (self.value_of_sum(&expr.above, work)?, self.value_of_sum(&expr.below, work)?);
        let value = above.value / below.value;
        let error = (above.error + value.norm() * below.error) / below.value.norm();
        let known = below.error < below.value.norm();
        Ok(Rough { value, error: if known { error } else { f64::NAN } })
    }

    fn value_of_sum(&self, polynomial: &Polynomial, work: &mut WorkBudget) -> Result<Rough, Stop> {
        let mut sum = Rough { value: Complex64::ZERO, error: 0.0 };
        let only = polynomial.0.len() == 1;
        for (monomial, factor) in &polynomial.0 {
            work.spend(4)?;
            let mut term = Complex64::from(factor.to_f64().unwrap_or(f64::NAN));
            let mut error = 0.0;
            if monomial.imaginary {
                term *= Complex64::I;
            }
            for (&prime, &(n, d)) in &monomial.roots {
                term *= (prime as f64).powf(f64::from(n) / f64::from(d));
            }
            for (atom, &power) in &monomial.atoms {
                let base = match atom {
                    Atom::Name(name) => {
                        Rough { value: self.value_of_name(*name).into(), error: 0.0 }
                    }
                    Atom::Call(name, arguments) => self.value_of_call(name, arguments, work)?,
                };
                let (size, most) = (base.value.norm(), base.value.norm() + base.error);
                let exponent = f64::from(power);
                error =
                    (term.norm() + error) * most.powf(exponent) - term.norm() * size.powf(exponent);
                term *= base.value.powu(power);
            }
            sum.value += term;
            let exact = only && *monomial == Monomial::default() && factor.is_integer();
            sum.error += if exact { 0.0 } else { error + ROUNDING * term.norm() };
        }
        Ok(sum)
    }

    fn value_of_call(
        &self,
        name: &str,
        arguments: &[ExactExpr],
        work: &mut WorkBudget,
    ) -> Result<Rough, Stop> {
        let first = arguments.first().ok_or(Stop::Meaningless)?;
        let x = self.value_of_expr(first, work)?;
        let y = match arguments.get(1) {
            Some(argument) => self.value_of_expr(argument, work)?,
            None => Rough { value: Complex64::ONE, error: 0.0 },
        };
        let outside = self.real
            && (has_variables(first) && !is_defined(name, x.value, y.value)
                || name == "log"
                    && arguments.get(1).is_some_and(has_variables)
                    && !is_defined(name, y.value, x.value));
        if outside {
            return Ok(Rough { value: f64::NAN.into(), error: f64::NAN });
        }
        let value = evaluate_function(name, x.value, y.value);
        let moved =
            |dx: f64, dy: f64| (evaluate_function(name, x.value + dx, y.value + dy) - value).norm();
        let error = [moved(x.error, 0.0), moved(-x.error, 0.0)].into_iter().fold(0.0, larger)
            + [moved(0.0, y.error), moved(0.0, -y.error)].into_iter().fold(0.0, larger);
        Ok(Rough { value, error: error + ROUNDING * value.norm() })
    }
}

/// Returns the larger of both; NaN stays NaN.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

fn has_variables(expr: &ExactExpr) -> bool {
    expr.atom_names().iter().any(|name| !matches!(name, 'π' | 'e'))
}

fn is_real(x: Complex64) -> bool {
    x.im.abs() <= 1e-12 * x.re.abs()
}

/// Returns true if a whole number is odd; `None` if the value is not a whole number.
fn is_odd(x: Complex64) -> Option<bool> {
    (is_real(x) && x.re.fract() == 0.0).then(|| x.re.rem_euclid(2.0) == 1.0)
}

/// Returns true if a function of a real number is real there. Returns true for every number that is not real.
fn is_defined(name: &str, x: Complex64, y: Complex64) -> bool {
    let negative = is_real(x) && x.re < 0.0;
    match name {
        "log" => !negative,
        "root" => !negative || is_odd(y) == Some(true),
        "power" => !negative || is_odd(y).is_some(),
        "arcsin" | "arccos" => !is_real(x) || x.re.abs() <= 1.0,
        "arccosh" => !is_real(x) || x.re >= 1.0,
        "arctanh" => !is_real(x) || x.re.abs() < 1.0,
        "factorial" => is_real(x) && x.re > -1.0,
        _ => true,
    }
}

/// Evaluates a function. `y` is the base of a logarithm, the degree of a root, the exponent of a power.
fn evaluate_function(name: &str, x: Complex64, y: Complex64) -> Complex64 {
    match name {
        "power" => x.powc(y),
        "root" if is_real(x) && x.re < 0.0 && is_odd(y) == Some(true) => {
            (-(-x.re).powf(y.re.recip())).into()
        }
        "root" => x.powc(y.inv()),
        "log" => x.ln() / y.ln(),
        "sin" => x.sin(),
        "cos" => x.cos(),
        "tan" => x.tan(),
        "cot" => x.tan().inv(),
        "sec" => x.cos().inv(),
        "csc" => x.sin().inv(),
        "arcsin" => x.asin(),
        "arccos" => x.acos(),
        "arctan" => x.atan(),
        "sinh" => x.sinh(),
        "cosh" => x.cosh(),
        "tanh" => x.tanh(),
        "arcsinh" => x.asinh(),
        "arccosh" => x.acosh(),
        "arctanh" => x.atanh(),
        "factorial" if is_real(x) && x.re > -1.0 => gamma(x.re + 1.0).into(),
        "abs" => x.norm().into(),
        "floor" if x.im == 0.0 => x.re.floor().into(),
        "ceil" if x.im == 0.0 => x.re.ceil().into(),
        _ => Complex64::new(f64::NAN, 0.0),
    }
}

/// Computes the gamma function of a positive number (Lanczos 1964; coefficients for g = 7 and nine terms).
fn gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let sum = TERMS
        .iter()
        .zip(1..)
        .fold(0.999_999_999_999_809_9, |sum, (term, i)| sum + term / (x + f64::from(i)));
    let t = x + 7.5;
    (2.0 * std::f64::consts::PI).sqrt() * t.powf(x + 0.5) * (-t).exp() * sum
}
