//! Exact numbers and expressions: quotients of polynomials over the rationals, with roots, `i`, constants and variables.
//!
//! A polynomial is a sum of monomials with rational factors. A monomial is a product of `i`, roots of primes with
//! exponents between 0 and 1, and powers of atoms. Products of such roots are linearly independent over the rationals
//! (Besicovitch 1940). A sum that is not empty is therefore not zero if its atoms are independent: variables and `π`
//! are, function calls need not be.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use num_bigint::{BigInt, BigUint};
use num_rational::BigRational;
use num_traits::{One, Pow, Signed, ToPrimitive, Zero};

use crate::rational::{add_rationals, bit_length, multiply_rationals, operation_cost};
use crate::work::{Stop, WorkBudget};

/// Longest number in bits.
const MAX_BITS: u64 = 4096;
/// Largest exponent that is expanded.
const MAX_POWER: u32 = 1000;
/// Largest degree of a root that is computed exactly.
const MAX_ROOT: u32 = 24;
/// Largest factor that is searched for in a number under a root.
const MAX_FACTOR: u64 = 20_000;

/// Part of an expression other than a number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Atom {
    /// A variable, or a constant: `π`, `e`, `∞`.
    Name(char),
    /// A function of expressions.
    Call(&'static str, Vec<ExactExpr>),
}

/// A product of `i`, roots of primes, and powers of atoms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Monomial {
    pub(crate) imaginary: bool,
    /// Prime to an exponent `(n, d)` in lowest terms, `0 < n < d`.
    pub(crate) roots: BTreeMap<u64, (u32, u32)>,
    pub(crate) atoms: BTreeMap<Atom, u32>,
}

/// A sum of monomials with factors that are not zero.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Polynomial(pub(crate) BTreeMap<Monomial, BigRational>);

/// A quotient of polynomials.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExactExpr {
    pub(crate) above: Polynomial,
    /// Denominator; not zero.
    pub(crate) below: Polynomial,
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Monomial {
    /// Returns the product, and the rational factor that it produces.
    fn times(&self, other: &Self) -> (Self, BigRational) {
        let (mut product, mut factor) = (self.clone(), BigRational::one());
        if product.imaginary && other.imaginary {
            factor = -factor;
        }
        product.imaginary ^= other.imaginary;
        for (&prime, &(n, d)) in &other.roots {
            let (m, e) = product.roots.remove(&prime).unwrap_or((0, 1));
            let (mut n, d) = (n * e + m * d, d * e);
            if n >= d {
                factor *= BigRational::from_integer(prime.into());
                n -= d;
            }
            if n > 0 {
                let common = gcd(n, d);
                product.roots.insert(prime, (n / common, d / common));
            }
        }
        for (atom, power) in &other.atoms {
            let sum = product.atoms.entry(atom.clone()).or_default();
            *sum = sum.saturating_add(*power);
        }
        (product, factor)
    }

    fn size(&self) -> u64 {
        1 + (self.roots.len() + self.atoms.len()) as u64
    }
}

impl Polynomial {
    fn add(&mut self, monomial: Monomial, factor: BigRational) {
        match self.0.entry(monomial) {
            Entry::Vacant(entry) if !factor.is_zero() => drop(entry.insert(factor)),
            Entry::Vacant(_) => {}
            Entry::Occupied(mut entry) => match add_rationals(entry.get(), &factor) {
                sum if sum.is_zero() => drop(entry.remove()),
                sum => *entry.get_mut() = sum,
            },
        }
    }

    fn plus(&self, other: &Self, work: &mut WorkBudget) -> Result<Self, Stop> {
        let mut sum = self.clone();
        for (monomial, factor) in &other.0 {
            work.spend(operation_cost(factor) + monomial.size())?;
            sum.add(monomial.clone(), factor.clone());
        }
        Ok(sum)
    }

    fn times(&self, other: &Self, work: &mut WorkBudget) -> Result<Self, Stop> {
        let mut product = Self::default();
        for (a, x) in &self.0 {
            for (b, y) in &other.0 {
                work.spend((operation_cost(x) + a.size()) * (operation_cost(y) + b.size()))?;
                let (monomial, factor) = a.times(b);
                product.add(monomial, multiply_rationals(&factor, &multiply_rationals(x, y)));
            }
        }
        Ok(product)
    }

    /// Returns the only monomial and its factor.
    fn single_term(&self) -> Option<(&Monomial, &BigRational)> {
        let mut terms = self.0.iter();
        terms.next().filter(|_| terms.next().is_none())
    }

    pub(crate) fn rational(&self) -> Option<BigRational> {
        if self.0.is_empty() {
            return Some(BigRational::zero());
        }
        self.single_term()
            .filter(|(m, _)| **m == Monomial::default())
            .map(|(_, factor)| factor.clone())
    }

    /// Returns true if no monomial has function calls, or constants that could depend on each other.
    fn is_independent(&self) -> bool {
        let mut atoms = self.0.keys().flat_map(|monomial| monomial.atoms.keys());
        let [pi, e, infinity] =
            ['π', 'e', '∞'].map(|name| atoms.clone().any(|atom| *atom == Atom::Name(name)));
        atoms.all(|atom| matches!(atom, Atom::Name(_))) && !(pi && e) && !infinity
    }
}

impl From<BigRational> for ExactExpr {
    fn from(value: BigRational) -> Self {
        let mut above = Polynomial::default();
        above.add(Monomial::default(), value);
        Self { above, below: one() }
    }
}

impl Polynomial {
    /// Returns a monomial with the factor 1.
    fn of(monomial: Monomial) -> Self {
        Self(BTreeMap::from([(monomial, BigRational::one())]))
    }
}

fn one() -> Polynomial {
    Polynomial::of(Monomial::default())
}

impl ExactExpr {
    pub(crate) fn integer(value: i64) -> Self {
        BigRational::from_integer(value.into()).into()
    }

    pub(crate) fn atom(atom: Atom) -> Self {
        let monomial = Monomial { atoms: BTreeMap::from([(atom, 1)]), ..Monomial::default() };
        Self { above: Polynomial::of(monomial), below: one() }
    }

    pub(crate) fn imaginary_unit() -> Self {
        let monomial = Monomial { imaginary: true, ..Monomial::default() };
        Self { above: Polynomial::of(monomial), below: one() }
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.above.0.is_empty()
    }

    pub(crate) fn rational(&self) -> Option<BigRational> {
        Some(self.above.rational()? / self.below.rational()?)
    }

    /// Returns the variable or constant that the expression consists of.
    pub(crate) fn as_name(&self) -> Option<char> {
        let (monomial, factor) = self.above.single_term()?;
        let plain = factor.is_one() && !monomial.imaginary && monomial.roots.is_empty();
        match monomial.atoms.iter().next() {
            Some((Atom::Name(name), 1)) if plain && monomial.atoms.len() == 1 => {
                (self.below == one()).then_some(*name)
            }
            _ => None,
        }
    }

    /// Returns every atom of the expression, including those in arguments of functions.
    pub(crate) fn atom_names(&self) -> Vec<char> {
        let monomials = self.above.0.keys().chain(self.below.0.keys());
        let atoms = monomials.flat_map(|monomial| monomial.atoms.keys());
        atoms
            .flat_map(|atom| match atom {
                Atom::Name(name) => vec![*name],
                Atom::Call(_, arguments) => arguments.iter().flat_map(Self::atom_names).collect(),
            })
            .collect()
    }

    /// Returns true if different normal forms imply different values: no part of the expression could depend on
    /// another.
    pub(crate) fn is_independent(&self) -> bool {
        self.above.is_independent() && self.below.is_independent()
    }

    pub(crate) fn plus(&self, other: &Self, work: &mut WorkBudget) -> Result<Self, Stop> {
        if self.below == other.below {
            return Self::normalize_quotient(
                self.above.plus(&other.above, work)?,
                self.below.clone(),
                work,
            );
        }
        let left = self.above.times(&other.below, work)?;
        let right = other.above.times(&self.below, work)?;
        Self::normalize_quotient(
            left.plus(&right, work)?,
            self.below.times(&other.below, work)?,
            work,
        )
    }

    pub(crate) fn negate(&self) -> Self {
        let above = self.above.0.iter().map(|(monomial, factor)| (monomial.clone(), -factor));
        Self { above: Polynomial(above.collect()), below: self.below.clone() }
    }

    pub(crate) fn minus(&self, other: &Self, work: &mut WorkBudget) -> Result<Self, Stop> {
        self.plus(&other.negate(), work)
    }

    pub(crate) fn times(&self, other: &Self, work: &mut WorkBudget) -> Result<Self, Stop> {
        let above = self.above.times(&other.above, work)?;
        Self::normalize_quotient(above, self.below.times(&other.below, work)?, work)
    }

    pub(crate) fn over(&self, other: &Self, work: &mut WorkBudget) -> Result<Self, Stop> {
        let above = self.above.times(&other.below, work)?;
        Self::normalize_quotient(above, self.below.times(&other.above, work)?, work)
    }

    fn normalize_quotient(
        above: Polynomial,
        below: Polynomial,
        work: &mut WorkBudget,
    ) -> Result<Self, Stop> {
        let largest = above.0.values().chain(below.0.values()).map(bit_length).max();
        if largest.is_some_and(|bits| bits > MAX_BITS) {
            return Err(Stop::Budget);
        }
        match below.rational() {
            Some(divisor) if divisor.is_zero() => Err(Stop::Meaningless),
            Some(divisor) if divisor.is_one() => Ok(Self { above, below }),
            Some(divisor) => {
                let factor = Self::from(divisor.recip()).above;
                Ok(Self { above: above.times(&factor, work)?, below: one() })
            }
            None => Ok(Self { above, below }),
        }
    }

    /// Computes `self ^ exponent`: exact for integers and for roots of rationals, else a call.
    pub(crate) fn power(&self, exponent: &Self, work: &mut WorkBudget) -> Result<Self, Stop> {
        let Some(rational) = exponent.rational() else {
            return Ok(Self::call("power", vec![self.clone(), exponent.clone()]));
        };
        let (n, d) = (rational.numer().to_i64(), rational.denom().to_u32());
        match (n, d) {
            (Some(n), Some(1)) if n.unsigned_abs() <= u64::from(MAX_POWER) => {
                let power = self.natural_power(n.unsigned_abs(), work)?;
                if n < 0 { Self::integer(1).over(&power, work) } else { Ok(power) }
            }
            (Some(n), Some(d)) if (2..=MAX_ROOT).contains(&d) && n.unsigned_abs() <= 100 => {
                self.root(d, work)?.power(&Self::integer(n), work)
            }
            _ => Ok(Self::call("power", vec![self.clone(), exponent.clone()])),
        }
    }

    fn natural_power(&self, mut n: u64, work: &mut WorkBudget) -> Result<Self, Stop> {
        let (mut power, mut square) = (Self::integer(1), self.clone());
        while n > 0 {
            if n % 2 == 1 {
                power = power.times(&square, work)?;
            }
            n /= 2;
            if n > 0 {
                square = square.times(&square, work)?;
            }
        }
        Ok(power)
    }

    /// Computes a root: the real one if there is one. The square root of a negative number is imaginary.
    pub(crate) fn root(&self, degree: u32, work: &mut WorkBudget) -> Result<Self, Stop> {
        let call = Self::call("root", vec![self.clone(), Self::integer(degree.into())]);
        let Some(value) = self.rational().filter(|_| (2..=MAX_ROOT).contains(&degree)) else {
            return Ok(call);
        };
        if value.is_zero() {
            return Ok(Self::integer(0));
        }
        let sign = match (value.is_negative(), degree) {
            (false, _) => Self::integer(1),
            (true, 2) => Self::imaginary_unit(),
            (true, _) if degree % 2 == 1 => Self::integer(-1),
            (true, _) => return Ok(call),
        };
        let above = natural_root(value.numer().magnitude(), degree, work)?;
        let below = natural_root(value.denom().magnitude(), degree, work)?;
        match (above, below) {
            (Some(above), Some(below)) => sign.times(&above, work)?.over(&below, work),
            _ => Ok(call),
        }
    }

    pub(crate) fn call(name: &'static str, arguments: Vec<Self>) -> Self {
        Self::atom(Atom::Call(name, arguments))
    }
}

/// Computes the root of a natural number; `None` if it cannot be factored within the bounds.
fn natural_root(
    value: &BigUint,
    degree: u32,
    work: &mut WorkBudget,
) -> Result<Option<ExactExpr>, Stop> {
    let exact = value.nth_root(degree);
    if Pow::pow(&exact, degree) == *value {
        return Ok(Some(BigRational::from_integer(exact.into()).into()));
    }
    let Some(mut rest) = value.to_u64() else { return Ok(None) };
    let mut root = ExactExpr::integer(1);
    let mut factor = 2;
    while factor <= MAX_FACTOR && factor * factor <= rest {
        let mut times = 0;
        while rest.is_multiple_of(factor) {
            rest /= factor;
            times += 1;
        }
        root = times_root(&root, (factor, times), degree, work)?;
        factor += 1;
    }
    work.spend(factor / 64)?;
    if rest > 1 {
        if factor * factor <= rest {
            return Ok(None);
        }
        root = times_root(&root, (rest, 1), degree, work)?;
    }
    Ok(Some(root))
}

/// Multiplies a root by the root of a power of a prime.
fn times_root(
    root: &ExactExpr,
    (prime, times): (u64, u32),
    degree: u32,
    work: &mut WorkBudget,
) -> Result<ExactExpr, Stop> {
    let whole: BigInt = Pow::pow(BigInt::from(prime), times / degree);
    let root = root.times(&BigRational::from_integer(whole).into(), work)?;
    let (n, d) = (times % degree, degree);
    if n == 0 {
        return Ok(root);
    }
    let common = gcd(n, d);
    let roots = BTreeMap::from([(prime, (n / common, d / common))]);
    let above = Polynomial::of(Monomial { roots, ..Monomial::default() });
    root.times(&ExactExpr { above, below: one() }, work)
}

/// Returns the absolute value.
pub(crate) fn absolute_value(value: ExactExpr) -> ExactExpr {
    match value.rational() {
        Some(value) => value.abs().into(),
        None => ExactExpr::call("abs", vec![value]),
    }
}
