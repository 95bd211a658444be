//! Execution of the statements of a template.

mod calls;
mod expressions;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::civil::DateTime;

use super::ast::{Block, For, Kind, Macro, Postfix, Statement, Target};
use super::meter::{Failure, Meter, Outcome, refused};
use super::print;
use super::value::{Closure, List, Loop, Value};

/// Maximum nesting of statements, brackets and calls.
const NESTING: u32 = 400;

/// Variables of a block, and its enclosing scope.
struct Scope {
    variables: BTreeMap<Arc<str>, Value>,
    around: usize,
}

/// Control flow after a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

/// State of a rendering. Objects that can refer to themselves are stored here and referenced by index.
pub(crate) struct Interpreter<'m> {
    meter: &'m Meter,
    now: DateTime,
    /// Output of the template.
    out: String,
    /// The name `loop`, under which the state of a loop is stored.
    loop_name: Arc<str>,
    /// Line of the current statement or call.
    pub(crate) line: u32,
    nesting: u32,
    scopes: Vec<Scope>,
    /// Scope of the current statement.
    scope: usize,
    /// Number of scopes that are kept, because a macro may return to them.
    pinned: usize,
    namespaces: Vec<BTreeMap<Arc<str>, Value>>,
    cyclers: Vec<(Arc<List>, usize)>,
    joiners: Vec<(Value, bool)>,
    /// Last arguments of `loop.changed`, by run of a loop.
    changed: Vec<Option<Value>>,
}

impl<'m> Interpreter<'m> {
    pub(crate) fn new(
        variables: BTreeMap<Arc<str>, Value>,
        now: DateTime,
        meter: &'m Meter,
    ) -> Self {
        let root = Scope { variables, around: 0 };
        Self {
            meter,
            now,
            out: String::new(),
            loop_name: "loop".into(),
            line: 1,
            nesting: 0,
            // Assignments of the template are separate from its input variables.
            scopes: vec![root, Scope { variables: BTreeMap::new(), around: 0 }],
            scope: 1,
            pinned: 2,
            namespaces: Vec::new(),
            cyclers: Vec::new(),
            joiners: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// Runs a template and returns its output.
    pub(crate) fn run(&mut self, template: &Block) -> Outcome<String> {
        self.block(template)?;
        Ok(std::mem::take(&mut self.out))
    }

    /// Runs `run` one nesting level deeper.
    fn nested<T>(&mut self, run: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<T> {
        if self.nesting >= NESTING {
            return Err(Failure::Limit(format!(
                "recursion: more than {NESTING} blocks and calls within each other"
            )));
        }
        self.nesting += 1;
        let outcome = run(self);
        self.nesting -= 1;
        outcome
    }

    fn print(&mut self, text: &str) -> Outcome<()> {
        self.meter.bytes(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    fn block(&mut self, block: &Block) -> Outcome<Flow> {
        for statement in block {
            let flow = self.statement(statement)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, statement: &Statement) -> Outcome<Flow> {
        self.meter.step()?;
        self.line = statement.line;
        match &statement.kind {
            Kind::Text(text) => self.print(text)?,
            Kind::Print(value) => {
                let value = self.evaluate(value)?;
                match &value {
                    Value::Str(text) => self.print(text)?,
                    value => {
                        let text = print::text(value, self.meter)?;
                        self.print(&text)?;
                    }
                }
            }
            Kind::Set(target, value) => {
                let value = self.evaluate(value)?;
                self.assign(target, value)?;
            }
            Kind::If(branches, otherwise) => {
                for (condition, block) in branches {
                    if self.evaluate(condition)?.is_true() {
                        return self.nested(|this| this.block(block));
                    }
                }
                return self.nested(|this| this.block(otherwise));
            }
            Kind::For(code) => {
                let items = self.evaluate(&code.items)?;
                return self.nested(|this| this.each(code, &items, 0));
            }
            Kind::Break => return Ok(Flow::Break),
            Kind::Continue => return Ok(Flow::Continue),
            other => return self.nested(|this| this.scoped_statement(other)),
        }
        Ok(Flow::Next)
    }

    /// Runs a statement that opens a scope of its own, or a rare one.
    fn scoped_statement(&mut self, kind: &Kind) -> Outcome<Flow> {
        match kind {
            Kind::With(values, block) => {
                let mut assigned = Vec::new();
                for (target, value) in values {
                    assigned.push((target, self.evaluate(value)?));
                }
                return self.within(self.scope, |this| {
                    for (target, value) in assigned {
                        this.assign(target, value)?;
                    }
                    this.block(block)
                });
            }
            Kind::SetBlock(target, filters, block) => {
                let text =
                    self.captured(|this| this.within(this.scope, |this| this.block(block)))?;
                let value = self.filtered(Value::str(text), filters)?;
                self.assign(target, value)?;
            }
            Kind::Filter(filters, block) => {
                let text =
                    self.captured(|this| this.within(this.scope, |this| this.block(block)))?;
                let value = self.filtered(Value::str(text), filters)?;
                let text = print::text(&value, self.meter)?;
                self.print(&text)?;
            }
            Kind::Macro(code) => {
                let value = self.closure(code)?;
                self.set(&code.name, value)?;
            }
            Kind::Call(call, code) => {
                let caller = self.closure(code)?;
                let value = self.call_with(call, Some(caller))?;
                let text = print::text(&value, self.meter)?;
                self.print(&text)?;
            }
            Kind::Other(name) => {
                return refused(format!("`{name}` needs another template, and there is none"));
            }
            _ => {}
        }
        Ok(Flow::Next)
    }

    fn filtered(&mut self, value: Value, filters: &[Postfix]) -> Outcome<Value> {
        filters.iter().try_fold(value, |value, filter| self.postfix(&value, filter))
    }

    /// Captures the output while `run` runs.
    fn captured<T>(&mut self, run: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<String> {
        let outside = std::mem::take(&mut self.out);
        let outcome = run(self);
        let inside = std::mem::replace(&mut self.out, outside);
        outcome.map(|_| inside)
    }

    /// Runs `run` in a new scope inside another.
    fn within<T>(
        &mut self,
        around: usize,
        run: impl FnOnce(&mut Self) -> Outcome<T>,
    ) -> Outcome<T> {
        self.meter.bytes(size_of::<Scope>())?;
        let (outside, scope) = (self.scope, self.scopes.len());
        self.scopes.push(Scope { variables: BTreeMap::new(), around });
        self.scope = scope;
        let outcome = run(self);
        self.scope = outside;
        if self.pinned <= scope {
            self.scopes.truncate(scope);
        }
        outcome
    }

    /// Creates a macro over the current scope, which is kept from now on.
    fn closure(&mut self, code: &Arc<Macro>) -> Outcome<Value> {
        self.meter.bytes(size_of::<Closure>())?;
        self.pinned = self.scopes.len();
        Ok(Value::Macro(Arc::new(Closure { code: Arc::clone(code), scope: self.scope })))
    }

    fn set(&mut self, name: &Arc<str>, value: Value) -> Outcome<()> {
        self.meter.bytes(2 * size_of::<Value>())?;
        self.scopes[self.scope].variables.insert(Arc::clone(name), value);
        Ok(())
    }

    fn assign(&mut self, target: &Target, value: Value) -> Outcome<()> {
        match target {
            Target::Name(name) => self.set(name, value),
            Target::Tuple(targets) => {
                let items = value.items(self.meter)?;
                let (expected, found) = (targets.len(), items.items.len());
                if found != expected {
                    return refused(format!("{found} values for {expected} names"));
                }
                for (target, item) in targets.iter().zip(&items.items) {
                    self.assign(target, item.clone())?;
                }
                Ok(())
            }
            Target::Attribute(name, attribute) => {
                let Value::Namespace(at) = self.variable(name)? else {
                    return refused(format!(
                        "`{name}` is no namespace, so it has no `.{attribute}`"
                    ));
                };
                self.meter.bytes(2 * size_of::<Value>())?;
                self.namespaces[at].insert(Arc::clone(attribute), value);
                Ok(())
            }
        }
    }

    /// Runs a loop over items. `level` is the depth of a recursive loop.
    fn each(&mut self, code: &Arc<For>, items: &Value, level: usize) -> Outcome<Flow> {
        let items = self.chosen(code, items)?;
        if items.items.is_empty() {
            return self.within(self.scope, |this| this.block(&code.otherwise));
        }
        let around = self.scope;
        let run = self.changed.len();
        if code.uses_loop {
            self.meter.bytes(size_of::<Value>())?;
            self.changed.push(None);
        }
        if code.recursive {
            self.pinned = self.scopes.len();
        }
        for (index, item) in items.items.iter().enumerate() {
            self.meter.step()?;
            let flow = self.within(around, |this| {
                this.assign(&code.target, item.clone())?;
                if code.uses_loop {
                    this.meter.bytes(size_of::<Loop>())?;
                    let recursive = code.recursive.then(|| (Arc::clone(code), around));
                    let items = Arc::clone(&items);
                    let state = Loop { items, index, level, run, recursive };
                    let name = Arc::clone(&this.loop_name);
                    this.set(&name, Value::Loop(Arc::new(state)))?;
                }
                this.block(&code.body)
            })?;
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::Next)
    }

    /// Returns the items that satisfy the condition of a loop.
    fn chosen(&mut self, code: &For, items: &Value) -> Outcome<Arc<List>> {
        let items = items.items(self.meter)?;
        let Some(condition) = &code.condition else { return Ok(items) };
        let mut chosen = Vec::new();
        for item in &items.items {
            let holds = self.within(self.scope, |this| {
                this.assign(&code.target, item.clone())?;
                this.evaluate(condition)
            })?;
            if holds.is_true() {
                self.meter.bytes(size_of::<Value>())?;
                chosen.push(item.clone());
            }
        }
        List::new(chosen)
    }
}
