//! Syntax tree of a template.

use std::sync::Arc;

use super::value::Value;

/// A statement and its line.
pub(crate) struct Statement {
    pub(crate) line: u32,
    pub(crate) kind: Kind,
}

pub(crate) type Block = Vec<Statement>;

pub(crate) enum Kind {
    Text(Arc<str>),
    Print(Expr),
    Set(Target, Expr),
    /// A block assigned through filters.
    SetBlock(Target, Vec<Postfix>, Block),
    If(Vec<(Expr, Block)>, Block),
    For(Arc<For>),
    Macro(Arc<Macro>),
    /// A call that gets the block as `caller`.
    Call(Expr, Arc<Macro>),
    Filter(Vec<Postfix>, Block),
    With(Vec<(Target, Expr)>, Block),
    Break,
    Continue,
    /// A statement that needs other templates.
    Other(&'static str),
}

pub(crate) struct For {
    pub(crate) target: Target,
    pub(crate) items: Expr,
    pub(crate) condition: Option<Expr>,
    pub(crate) recursive: bool,
    /// True if the body uses `loop`.
    pub(crate) uses_loop: bool,
    pub(crate) body: Block,
    pub(crate) otherwise: Block,
}

pub(crate) struct Macro {
    pub(crate) name: Arc<str>,
    pub(crate) parameters: Vec<(Arc<str>, Option<Expr>)>,
    pub(crate) body: Block,
}

pub(crate) enum Target {
    Name(Arc<str>),
    Tuple(Vec<Target>),
    /// Attribute of a namespace.
    Attribute(Arc<str>, Arc<str>),
}

/// An expression. Chains of operators are lists, so that only brackets nest.
pub(crate) enum Expr {
    Constant(Value),
    Name(Arc<str>),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    /// Signs before an operand, the last one first.
    Signs(Vec<Sign>, Box<Expr>),
    /// Operators of one precedence, from left to right.
    Chain(Box<Expr>, Vec<(Operator, Expr)>),
    /// Comparison chain: `a < b < c`.
    Compare(Box<Expr>, Vec<(Comparison, Expr)>),
    /// Concatenation: `a ~ b ~ c`.
    Concat(Vec<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    /// Conditional: the value, the condition, and the other value.
    If(Box<(Expr, Expr, Option<Expr>)>),
    Postfix(Box<Expr>, Vec<Postfix>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    Plus,
    Minus,
    Not,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
    Power,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}

/// Suffix of an operand.
pub(crate) enum Postfix {
    Attribute(Arc<str>),
    Item(Expr),
    Slice(Box<[Option<Expr>; 3]>),
    Call(u32, Arguments),
    Filter(Arc<str>, Arguments),
    /// A test, and true if it is negated.
    Test(Arc<str>, Arguments, bool),
}

/// Arguments of a call, a filter or a test.
#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) positional: Vec<Expr>,
    pub(crate) named: Vec<(Arc<str>, Expr)>,
    /// Unpacked list: `*items`.
    pub(crate) items: Option<Box<Expr>>,
    /// Unpacked dictionary: `**entries`.
    pub(crate) entries: Option<Box<Expr>>,
}
