//! Expressions as complex numbers, at points drawn for their variables.

use num_bigint::BigInt;
use num_complex::Complex64;
use num_rational::BigRational;
use num_traits::ToPrimitive;

use super::Verdict;
use super::exact::{Atom, Expr, Polynomial, Stop, Work};
use crate::draw::Draw;

/// Points at which two expressions are compared.
const POINTS: usize = 7;
/// Points that must have a value.
const NEEDED: usize = 5;
/// Relative difference below which values agree, and above which they differ. Between the two nothing is said.
const SAME: f64 = 1e-10;
const OTHER: f64 = 1e-7;
/// Denominator from which a rational may be a rounded value rather than a value.
const ROUNDED: u32 = 100_000;

/// Whether two expressions are the same function, by their values.
pub(super) fn identity(a: &Expr, b: &Expr, work: &mut Work) -> Result<Verdict, Stop> {
    let mut names = [a.names(), b.names()].concat();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !matches!(name, 'π' | 'e'));
    if names.contains(&'∞') {
        return Ok(Verdict::Undecided);
    }
    let points = if names.is_empty() { 1 } else { POINTS };
    let mut draw = Draw::new(0x6d61_7468);
    let (mut agreed, mut unclear) = (0, false);
    for _ in 0..points {
        let values: Vec<f64> =
            names.iter().map(|_| 0.2 + draw.below(1 << 20) as f64 / f64::from(1 << 19)).collect();
        let at = |name: char| match name {
            'π' => std::f64::consts::PI,
            'e' => std::f64::consts::E,
            _ => names.iter().position(|n| *n == name).map_or(f64::NAN, |i| values[i]),
        };
        let (x, y) = (value(a, &at, work)?, value(b, &at, work)?);
        let scale = x.norm().max(y.norm());
        let difference = (x - y).norm();
        // Next to zero a relative difference says nothing.
        if !(1e-12..f64::INFINITY).contains(&scale) || !difference.is_finite() {
            continue;
        }
        if difference > OTHER * scale {
            return Ok(Verdict::Unequal);
        }
        match difference <= SAME * scale {
            true => agreed += 1,
            false => unclear = true,
        }
    }
    let enough = agreed >= NEEDED.min(points) && !unclear;
    let rounded = [a, b].into_iter().filter_map(Expr::rational).any(|value| rounded(&value));
    Ok(if enough && !rounded { Verdict::Equal } else { Verdict::Undecided })
}

fn rounded(value: &BigRational) -> bool {
    *value.denom() >= BigInt::from(ROUNDED)
}

type At<'a> = &'a dyn Fn(char) -> f64;

fn value(expr: &Expr, at: At<'_>, work: &mut Work) -> Result<Complex64, Stop> {
    Ok(sum(&expr.above, at, work)? / sum(&expr.below, at, work)?)
}

fn sum(polynomial: &Polynomial, at: At<'_>, work: &mut Work) -> Result<Complex64, Stop> {
    let mut sum = Complex64::ZERO;
    let mut largest = 0.0_f64;
    for (monomial, factor) in &polynomial.0 {
        work.spend(4)?;
        let mut term = Complex64::from(factor.to_f64().unwrap_or(f64::NAN));
        if monomial.imaginary {
            term *= Complex64::I;
        }
        for (&prime, &(n, d)) in &monomial.roots {
            term *= (prime as f64).powf(f64::from(n) / f64::from(d));
        }
        for (atom, &power) in &monomial.atoms {
            let base = match atom {
                Atom::Name(name) => Complex64::from(at(*name)),
                Atom::Call(name, arguments) => call(name, arguments, at, work)?,
            };
            term *= base.powu(power);
        }
        largest = largest.max(term.norm());
        sum += term;
    }
    // What cancels to nearly nothing says nothing.
    let cancelled = sum.norm() < 1e-5 * largest;
    Ok(if cancelled { Complex64::new(f64::NAN, 0.0) } else { sum })
}

fn call(name: &str, arguments: &[Expr], at: At<'_>, work: &mut Work) -> Result<Complex64, Stop> {
    let argument = |i: usize, work: &mut Work| match arguments.get(i) {
        Some(argument) => value(argument, at, work),
        None => Err(Stop::Meaningless),
    };
    let x = argument(0, work)?;
    Ok(match name {
        "power" => x.powc(argument(1, work)?),
        "root" => x.powc(argument(1, work)?.inv()),
        "log" => x.ln() / argument(1, work)?.ln(),
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
        "abs" => x.norm().into(),
        "floor" if x.im == 0.0 => x.re.floor().into(),
        "ceil" if x.im == 0.0 => x.re.ceil().into(),
        _ => Complex64::new(f64::NAN, 0.0),
    })
}
