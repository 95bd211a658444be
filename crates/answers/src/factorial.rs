//! Factorials, binomial coefficients and divisors, of numbers and of variables.
//!
//! The factorial of a variable is an atom. Its argument has no whole number beside the variables, so that factorials
//! that differ by a whole number are rational multiples of the same atom:
//!
//! ```text
//! (m + c)! = m! · (m + 1) ⋯ (m + c)         (m - c)! = m! / (m · (m - 1) ⋯ (m - c + 1))
//! C(n, k)  = n! / (k! · (n - k)!)
//! ```

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use crate::exact::{ExactExpr, Monomial};
use crate::work::{Stop, WorkBudget};

/// Largest number whose factorial is computed. It is one less than a multiple of [`BLOCK`].
const MAX_FACTORIAL: u32 = 319;
/// Larger factorials are multiples of that of the next smaller multiple of this.
const BLOCK: u32 = 64;
/// Largest number whose factorial is such a multiple.
const MAX_MULTIPLE: u32 = 1_000_000;
/// Largest number beside the variables, and largest number of factors of a binomial coefficient of a variable.
const MAX_SHIFT: i64 = 40;

/// Returns the factorial.
pub(crate) fn compute_factorial(
    value: &ExactExpr,
    work: &mut WorkBudget,
) -> Result<ExactExpr, Stop> {
    match natural_number(value)? {
        Some(n) if n <= MAX_FACTORIAL => stepped_product(1, n, 1, work),
        Some(n) if n <= MAX_MULTIPLE => {
            let base = n - n % BLOCK;
            let atom = ExactExpr::call("factorial", vec![ExactExpr::integer(base.into())]);
            stepped_product(base + 1, n, 1, work)?.times(&atom, work)
        }
        Some(_) => Err(Stop::Budget),
        None => shifted_factorial(value, work),
    }
}

/// Returns the double factorial of a number: `7!! = 7 · 5 · 3 · 1`.
pub(crate) fn double_factorial(
    value: &ExactExpr,
    work: &mut WorkBudget,
) -> Result<ExactExpr, Stop> {
    match natural_number(value)? {
        Some(n) if n <= MAX_FACTORIAL => stepped_product(2 - n % 2, n, 2, work),
        _ => Err(Stop::Budget),
    }
}

/// Returns the binomial coefficient.
pub(crate) fn compute_binomial(
    n: &ExactExpr,
    k: &ExactExpr,
    work: &mut WorkBudget,
) -> Result<ExactExpr, Stop> {
    let rest = n.minus(k, work)?;
    match (natural_number(n)?, natural_number(k)?) {
        (Some(n), Some(k)) if k > n => return Ok(ExactExpr::integer(0)),
        (Some(n), Some(k)) if k.min(n - k) <= MAX_FACTORIAL => {
            let few = k.min(n - k);
            return stepped_product(n - few + 1, n, 1, work)?
                .over(&stepped_product(1, few, 1, work)?, work);
        }
        _ => {}
    }
    // A polynomial of `n`, if `k` or `n - k` is a small number.
    for few in [k, &rest] {
        let few = few
            .rational()
            .filter(BigRational::is_integer)
            .and_then(|few| few.to_integer().to_i64());
        if let Some(few) = few.filter(|few| (0..=MAX_SHIFT).contains(few)) {
            let above = ascending_product(&n.minus(&ExactExpr::integer(few), work)?, few, work)?;
            return above.over(&compute_factorial(&ExactExpr::integer(few), work)?, work);
        }
    }
    let below = compute_factorial(k, work)?.times(&compute_factorial(&rest, work)?, work)?;
    compute_factorial(n, work)?.over(&below, work)
}

/// Returns the greatest common divisor or the least common multiple. That of variables is an atom, whatever their order.
pub(crate) fn common_divisor(
    name: &'static str,
    mut arguments: Vec<ExactExpr>,
    work: &mut WorkBudget,
) -> Result<ExactExpr, Stop> {
    arguments.sort();
    let mut arguments = arguments.into_iter();
    let mut result = arguments.next().ok_or(Stop::Meaningless)?;
    for argument in arguments {
        work.spend(64)?;
        result = match (result.rational(), argument.rational()) {
            (Some(a), Some(b)) if a.is_integer() && b.is_integer() => {
                let (a, b) = (a.to_integer(), b.to_integer());
                let common = common(a.clone(), b.clone());
                let value = match name {
                    "gcd" => common,
                    _ if common.is_zero() => common,
                    _ => (a * b).abs() / common,
                };
                BigRational::from_integer(value).into()
            }
            (Some(_), Some(_)) => return Err(Stop::Meaningless),
            _ => ExactExpr::call(name, vec![result, argument]),
        };
    }
    Ok(result)
}

/// Returns the greatest common divisor (Euclid).
fn common(mut a: BigInt, mut b: BigInt) -> BigInt {
    while !b.is_zero() {
        (a, b) = (b.clone(), a % b);
    }
    a.abs()
}

/// Returns the natural number that an expression is; `None` if it has variables.
///
/// # Errors
///
/// If it is another number.
fn natural_number(value: &ExactExpr) -> Result<Option<u32>, Stop> {
    if let Some(number) = value.rational() {
        if number.is_integer() && !number.is_negative() {
            return number.to_integer().to_u32().map(Some).ok_or(Stop::Budget);
        }
        return Err(Stop::Meaningless);
    }
    let names = value.atom_names();
    if names.iter().any(|name| !matches!(name, 'π' | 'e' | '∞')) && !names.contains(&'∞') {
        Ok(None)
    } else {
        Err(Stop::Meaningless)
    }
}

/// Returns the product of the numbers from `first` to `last`, in steps; 1 if there are none.
fn stepped_product(
    first: u32,
    last: u32,
    step: usize,
    work: &mut WorkBudget,
) -> Result<ExactExpr, Stop> {
    let factors = (first..=last).step_by(step);
    work.spend(factors.clone().count() as u64 * 8)?;
    Ok(BigRational::from_integer(factors.map(BigInt::from).product()).into())
}

/// Returns the factorial of variables plus a number as a multiple of the factorial of the variables.
fn shifted_factorial(value: &ExactExpr, work: &mut WorkBudget) -> Result<ExactExpr, Stop> {
    let constant =
        value.above.0.get(&Monomial::default()).filter(|_| value.below.rational().is_some());
    let shift = constant.and_then(|constant| constant.floor().to_integer().to_i64());
    let shift = shift.filter(|shift| shift.abs() <= MAX_SHIFT).unwrap_or(0);
    let rest = value.minus(&ExactExpr::integer(shift), work)?;
    let atom = ExactExpr::call("factorial", vec![rest.clone()]);
    match shift {
        0.. => atom.times(&ascending_product(&rest, shift, work)?, work),
        _ => atom.over(&ascending_product(value, -shift, work)?, work),
    }
}

/// Returns `(m + 1) (m + 2) ⋯ (m + count)`.
fn ascending_product(m: &ExactExpr, count: i64, work: &mut WorkBudget) -> Result<ExactExpr, Stop> {
    let mut product: ExactExpr = BigRational::one().into();
    for i in 1..=count {
        product = product.times(&m.plus(&ExactExpr::integer(i), work)?, work)?;
    }
    Ok(product)
}
