//! Matrices of f64 with reverse-mode differentiation: plain operations, written for clarity, as reference for fused
//! ones.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Function from the gradient of the result to the gradient of an operand.
type Pullback = Box<dyn Fn(&[f64]) -> Vec<f64>>;

/// A matrix `[rows, columns]` and the operation that produced it. Clones share it.
#[derive(Clone)]
pub(super) struct Matrix(Rc<Node>);

struct Node {
    /// Topological order: larger than that of every operand.
    order: usize,
    rows: usize,
    columns: usize,
    values: Vec<f64>,
    operands: Vec<(Matrix, Pullback)>,
}

impl Matrix {
    /// Creates a constant or a parameter.
    pub(super) fn new(values: Vec<f64>, [rows, columns]: [usize; 2]) -> Self {
        Self::of(values, [rows, columns], Vec::new())
    }

    fn of(values: Vec<f64>, [rows, columns]: [usize; 2], operands: Vec<(Self, Pullback)>) -> Self {
        assert_eq!(values.len(), rows * columns);
        let order = operands.iter().map(|(operand, _)| operand.0.order + 1).max().unwrap_or(0);
        Self(Rc::new(Node { order, rows, columns, values, operands }))
    }

    pub(super) fn rows(&self) -> usize {
        self.0.rows
    }

    pub(super) fn columns(&self) -> usize {
        self.0.columns
    }

    pub(super) fn values(&self) -> &[f64] {
        &self.0.values
    }

    fn shape(&self) -> [usize; 2] {
        [self.rows(), self.columns()]
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.0.values[row * self.columns() + column]
    }

    /// Applies `f(x)` to each element; `grad(x, y)` is its derivative.
    fn map(&self, f: impl Fn(f64) -> f64, grad: impl Fn(f64, f64) -> f64) -> Self {
        let values: Vec<f64> = self.values().iter().map(|x| f(*x)).collect();
        let grads: Vec<f64> =
            self.values().iter().zip(&values).map(|(x, y)| grad(*x, *y)).collect();
        let back = move |g: &[f64]| g.iter().zip(&grads).map(|(g, grad)| g * grad).collect();
        Self::of(values, self.shape(), vec![(self.clone(), Box::new(back))])
    }

    pub(super) fn exp(&self) -> Self {
        self.map(f64::exp, |_, y| y)
    }

    pub(super) fn ln(&self) -> Self {
        self.map(f64::ln, |x, _| x.recip())
    }

    pub(super) fn recip(&self) -> Self {
        self.map(f64::recip, |_, y| -y * y)
    }

    pub(super) fn sqrt(&self) -> Self {
        self.map(f64::sqrt, |_, y| 0.5 / y)
    }

    /// Computes `a x + b` of each element.
    pub(super) fn affine(&self, a: f64, b: f64) -> Self {
        self.map(|x| a * x + b, move |_, _| a)
    }

    /// Applies an elementwise operation with a matrix, a row `[1, columns]` or a column `[rows, 1]`; `grads` are the
    /// derivatives by both operands.
    fn zip(
        &self,
        other: &Self,
        f: impl Fn(f64, f64) -> f64,
        grads: impl Fn(f64, f64) -> (f64, f64),
    ) -> Self {
        let [rows, columns] = self.shape();
        let one = |size: usize, full: usize| size == full || size == 1;
        assert!(one(other.rows(), rows) && one(other.columns(), columns));
        let (down, right) = (other.rows() == rows, other.columns() == columns);
        let width = other.columns();
        let place = move |i: usize| {
            let (row, column) = (i / columns, i % columns);
            (if down { row * width } else { 0 }) + if right { column } else { 0 }
        };
        let pairs: Vec<(f64, f64)> =
            self.values().iter().enumerate().map(|(i, x)| (*x, other.values()[place(i)])).collect();
        let (own, others): (Vec<f64>, Vec<f64>) = pairs.iter().map(|(x, y)| grads(*x, *y)).unzip();
        let elements = other.values().len();
        let back = move |g: &[f64]| g.iter().zip(&own).map(|(g, grad)| g * grad).collect();
        let back_other = move |g: &[f64]| {
            let mut sums = vec![0.0; elements];
            g.iter().zip(&others).enumerate().for_each(|(i, (g, grad))| sums[place(i)] += g * grad);
            sums
        };
        let operands: Vec<(Self, Pullback)> =
            vec![(self.clone(), Box::new(back)), (other.clone(), Box::new(back_other))];
        Self::of(pairs.iter().map(|(x, y)| f(*x, *y)).collect(), [rows, columns], operands)
    }

    pub(super) fn add(&self, other: &Self) -> Self {
        self.zip(other, |x, y| x + y, |_, _| (1.0, 1.0))
    }

    pub(super) fn sub(&self, other: &Self) -> Self {
        self.zip(other, |x, y| x - y, |_, _| (1.0, -1.0))
    }

    pub(super) fn mul(&self, other: &Self) -> Self {
        self.zip(other, |x, y| x * y, |x, y| (y, x))
    }

    pub(super) fn transpose(&self) -> Self {
        let flip = |values: &[f64], [rows, columns]: [usize; 2]| -> Vec<f64> {
            (0..rows * columns).map(|i| values[i % rows * columns + i / rows]).collect()
        };
        let [rows, columns] = self.shape();
        let values = flip(self.values(), self.shape());
        let back = move |g: &[f64]| flip(g, [columns, rows]);
        Self::of(values, [columns, rows], vec![(self.clone(), Box::new(back))])
    }

    pub(super) fn matmul(&self, other: &Self) -> Self {
        let (n, k, m) = (self.rows(), self.columns(), other.columns());
        assert_eq!(k, other.rows());
        let values =
            (0..n * m).map(|i| (0..k).map(|p| self.at(i / m, p) * other.at(p, i % m)).sum());
        let (a, b) = (self.clone(), other.clone());
        let da = move |g: &[f64]| -> Vec<f64> {
            (0..n * k).map(|i| (0..m).map(|j| g[i / k * m + j] * b.at(i % k, j)).sum()).collect()
        };
        let db = move |g: &[f64]| -> Vec<f64> {
            (0..k * m).map(|i| (0..n).map(|j| a.at(j, i / m) * g[j * m + i % m]).sum()).collect()
        };
        let operands: Vec<(Self, Pullback)> =
            vec![(self.clone(), Box::new(da)), (other.clone(), Box::new(db))];
        Self::of(values.collect(), [n, m], operands)
    }

    /// Gathers elements of this matrix by index.
    fn gather(&self, indices: Vec<usize>, shape: [usize; 2]) -> Self {
        let (values, n) =
            (indices.iter().map(|i| self.values()[*i]).collect(), self.values().len());
        let back = move |g: &[f64]| {
            let mut sums = vec![0.0; n];
            indices.iter().zip(g).for_each(|(i, g)| sums[*i] += g);
            sums
        };
        Self::of(values, shape, vec![(self.clone(), Box::new(back))])
    }

    /// Selects rows by index.
    pub(super) fn select(&self, rows: &[u32]) -> Self {
        let columns = self.columns();
        let indices =
            rows.iter().flat_map(|r| (0..columns).map(move |c| *r as usize * columns + c));
        self.gather(indices.collect(), [rows.len(), columns])
    }

    /// Picks one element of each row by its column: `[rows, 1]`.
    pub(super) fn pick(&self, columns: &[u32]) -> Self {
        let indices = columns.iter().enumerate().map(|(row, c)| row * self.columns() + *c as usize);
        self.gather(indices.collect(), [self.rows(), 1])
    }

    /// Returns a range of columns.
    pub(super) fn narrow(&self, columns: Range<usize>) -> Self {
        let (width, taken) = (self.columns(), columns.len());
        let indices = (0..self.rows()).flat_map(|r| columns.clone().map(move |c| r * width + c));
        self.gather(indices.collect(), [self.rows(), taken])
    }

    /// Concatenates matrices by columns.
    pub(super) fn concat(parts: &[Self]) -> Self {
        let (rows, columns) = (parts[0].rows(), parts.iter().map(Self::columns).sum());
        let values = (0..rows).flat_map(|row| {
            parts.iter().flat_map(move |part| (0..part.columns()).map(move |c| part.at(row, c)))
        });
        let mut start = 0;
        let operand = |part: &Self| {
            let (from, width) = (start, part.columns());
            start += width;
            let own = move |g: &[f64]| -> Vec<f64> {
                (0..rows * width).map(|i| g[i / width * columns + from + i % width]).collect()
            };
            (part.clone(), Box::new(own) as Pullback)
        };
        let operands = parts.iter().map(operand).collect();
        Self::of(values.collect(), [rows, columns], operands)
    }

    /// Sums each row: `[rows, 1]`.
    pub(super) fn sum_rows(&self) -> Self {
        self.matmul(&Self::new(vec![1.0; self.columns()], [self.columns(), 1]))
    }

    /// Sums all elements.
    pub(super) fn sum(&self) -> Self {
        self.sum_rows().transpose().sum_rows()
    }

    /// Computes the logarithm of the softmax of each row.
    pub(super) fn log_softmax(&self) -> Self {
        let largest = self.values().chunks(self.columns());
        let largest = largest.map(|row| row.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        let x = self.sub(&Self::new(largest.collect(), [self.rows(), 1]));
        x.sub(&x.exp().sum_rows().ln())
    }

    /// Computes the gradients of this scalar by some of its inputs.
    pub(super) fn gradients(&self, of: &[&Self]) -> Vec<Vec<f64>> {
        let key = |matrix: &Self| (matrix.0.order, Rc::as_ptr(&matrix.0) as usize);
        let mut waiting = BTreeMap::from([(key(self), (self.clone(), vec![1.0]))]);
        let mut found = BTreeMap::new();
        while let Some((key_of, (matrix, gradient))) = waiting.pop_last() {
            for (operand, pullback) in &matrix.0.operands {
                let more = pullback(&gradient);
                let zeros = || (operand.clone(), vec![0.0; more.len()]);
                let (_, sum) = waiting.entry(key(operand)).or_insert_with(zeros);
                sum.iter_mut().zip(&more).for_each(|(sum, more)| *sum += more);
            }
            if matrix.0.operands.is_empty() {
                found.insert(key_of, gradient);
            }
        }
        of.iter().map(|matrix| found.remove(&key(matrix)).unwrap()).collect()
    }
}

#[test]
fn gradients_equal_central_differences() {
    let at = |values: &[f64]| {
        let (a, b) = (&values[..6], &values[6..]);
        let (a, b) = (Matrix::new(a.to_vec(), [2, 3]), Matrix::new(b.to_vec(), [4, 3]));
        let y = a.matmul(&b.transpose()).log_softmax().pick(&[1, 3]);
        let z = Matrix::concat(&[b.narrow(1..3), b.narrow(0..1)]).select(&[2, 0, 2]).exp();
        let z = z.mul(&a.select(&[1])).add(&z.sum_rows()).sqrt().recip().affine(2.0, 1.0);
        (y.sum().add(&z.sum()), a, b)
    };
    let values: Vec<f64> = (0..18).map(|i| 0.3 + f64::from(i * i % 7) * 0.1).collect();
    let (loss, a, b) = at(&values);
    let gradients = loss.gradients(&[&a, &b]).concat();
    for (i, gradient) in gradients.iter().enumerate() {
        let moved = |h: f64| {
            let mut values = values.clone();
            values[i] += h;
            at(&values).0.values()[0]
        };
        let expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        assert!((gradient - expected).abs() < 1e-8, "{i}: {gradient} and {expected}");
    }
}
