//! Syntax tree of a template.

use std::sync::Arc;

use crate::value::TemplateValue;

/// A statement and its line.
pub(crate) struct Statement {
    pub(crate) line: u32,
    pub(crate) kind: StatementKind,
}

pub(crate) type TemplateBlock = Vec<Statement>;

pub(crate) enum StatementKind {
    Text(Arc<str>),
    Print(TemplateExpr),
    Set(AssignTarget, TemplateExpr),
    SetBlock(AssignTarget, TemplateBlock),
    If(Vec<(TemplateExpr, TemplateBlock)>, TemplateBlock),
    For(For),
    Macro(Arc<Macro>),
    /// A call that gets the block as `caller`.
    Call(TemplateExpr, Arc<Macro>),
    Generation(TemplateBlock),
    Break,
    Continue,
}

pub(crate) struct For {
    pub(crate) target: AssignTarget,
    pub(crate) items: TemplateExpr,
    pub(crate) condition: Option<TemplateExpr>,
    pub(crate) body: TemplateBlock,
    pub(crate) otherwise: TemplateBlock,
}

pub(crate) struct Macro {
    pub(crate) name: Arc<str>,
    pub(crate) parameters: Vec<(Arc<str>, Option<TemplateExpr>)>,
    pub(crate) body: TemplateBlock,
}

pub(crate) enum AssignTarget {
    Name(Arc<str>),
    Tuple(Vec<AssignTarget>),
    /// Attribute of a namespace.
    Attribute(Arc<str>, Arc<str>),
}

/// An expression. Operators of one precedence are a list, so that only brackets nest.
pub(crate) enum TemplateExpr {
    Constant(TemplateValue),
    Name(Arc<str>),
    List(Vec<TemplateExpr>),
    Tuple(Vec<TemplateExpr>),
    Dict(Vec<(TemplateExpr, TemplateExpr)>),
    /// A number of minus signs before an operand.
    Negative(usize, Box<TemplateExpr>),
    /// A number of `not` before an operand.
    Not(usize, Box<TemplateExpr>),
    /// Operators of one precedence, from left to right.
    Chain(Box<TemplateExpr>, Vec<(Operator, TemplateExpr)>),
    /// Conditional: the value, the condition, and the other value.
    If(Box<(TemplateExpr, TemplateExpr, Option<TemplateExpr>)>),
    Postfix(Box<TemplateExpr>, Vec<Postfix>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Or,
    And,
    Compare(ComparisonOperator),
    Add,
    Subtract,
    Concat,
    Multiply,
    Modulo,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComparisonOperator {
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
    Item(TemplateExpr),
    Slice(Box<[Option<TemplateExpr>; 3]>),
    Call(u32, ArgumentList),
    Filter(Arc<str>, ArgumentList),
    /// A test, and true if it is negated.
    Test(Arc<str>, ArgumentList, bool),
}

/// Arguments of a call, a filter or a test.
#[derive(Default)]
pub(crate) struct ArgumentList {
    pub(crate) positional: Vec<TemplateExpr>,
    pub(crate) named: Vec<(Arc<str>, TemplateExpr)>,
    /// Unpacked list: `*items`.
    pub(crate) items: Option<Box<TemplateExpr>>,
}
