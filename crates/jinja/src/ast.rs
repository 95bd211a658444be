//! Syntax tree of a template.

use std::sync::Arc;

use crate::value::Value;

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
    SetBlock(Target, Block),
    If(Vec<(Expr, Block)>, Block),
    For(For),
    Macro(Arc<Macro>),
    /// A call that gets the block as `caller`.
    Call(Expr, Arc<Macro>),
    Generation(Block),
    Break,
    Continue,
}

pub(crate) struct For {
    pub(crate) target: Target,
    pub(crate) items: Expr,
    pub(crate) condition: Option<Expr>,
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

/// An expression. Operators of one precedence are a list, so that only brackets nest.
pub(crate) enum Expr {
    Constant(Value),
    Name(Arc<str>),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    /// A number of minus signs before an operand.
    Negative(usize, Box<Expr>),
    /// A number of `not` before an operand.
    Not(usize, Box<Expr>),
    /// Operators of one precedence, from left to right.
    Chain(Box<Expr>, Vec<(Operator, Expr)>),
    /// Conditional: the value, the condition, and the other value.
    If(Box<(Expr, Expr, Option<Expr>)>),
    Postfix(Box<Expr>, Vec<Postfix>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Or,
    And,
    Compare(Comparison),
    Add,
    Subtract,
    Concat,
    Multiply,
    Modulo,
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
}
