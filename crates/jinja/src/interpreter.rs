//! Execution of the statements of a template.

mod calls;
mod evaluation;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::civil::DateTime;

use crate::ast::{Block, For, Kind, Macro, Statement, Target};
use crate::meter::{Meter, Outcome, refused};
use crate::print;
use crate::value::{Closure, List, Loop, Value};

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
    /// The name `loop`, by which the state of a loop is found.
    loop_name: Arc<str>,
    /// Line of the current statement or call.
    pub(crate) line: u32,
    nesting: u32,
    scopes: Vec<Scope>,
    /// Scope of the current statement.
    scope: usize,
    /// Number of scopes that stay, because a macro may return to them.
    pinned: usize,
    namespaces: Vec<BTreeMap<Arc<str>, Value>>,
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
            return refused(format!(
                "recursion: more than {NESTING} blocks and calls within each other"
            ));
        }
        self.nesting += 1;
        let outcome = run(self);
        self.nesting -= 1;
        outcome
    }

    fn print(&mut self, value: &Value) -> Outcome<()> {
        match value {
            Value::Str(text) => self.print_text(text),
            value => self.print_text(&print::text(value, self.meter)?),
        }
    }

    fn print_text(&mut self, text: &str) -> Outcome<()> {
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
            Kind::Text(text) => self.print_text(text)?,
            Kind::Print(value) => {
                let value = self.evaluate(value)?;
                self.print(&value)?;
            }
            Kind::Set(target, value) => {
                let value = self.evaluate(value)?;
                self.assign(target, value)?;
            }
            Kind::SetBlock(target, block) => {
                let captured = self.captured(|this| this.scoped_block(block))?;
                self.assign(target, Value::str(captured))?;
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
                return self.nested(|this| this.loop_over(code, &items));
            }
            Kind::Macro(code) => {
                let value = self.closure(code)?;
                self.set(&code.name, value)?;
            }
            Kind::Call(call, code) => {
                let caller = self.closure(code)?;
                let value = self.nested(|this| this.call_with(call, caller))?;
                self.print(&value)?;
            }
            Kind::Generation(block) => return self.scoped_block(block),
            Kind::Break => return Ok(Flow::Break),
            Kind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    /// Runs a block in a scope of its own.
    fn scoped_block(&mut self, block: &Block) -> Outcome<Flow> {
        self.nested(|this| this.within(this.scope, |this| this.block(block)))
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

    /// Creates a macro over the current scope, which stays from now on.
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

    /// Runs a loop over the items of a value.
    fn loop_over(&mut self, code: &For, items: &Value) -> Outcome<Flow> {
        let items = self.chosen_items(code, items)?;
        if items.items.is_empty() {
            return self.scoped_block(&code.otherwise);
        }
        for (index, item) in items.items.iter().enumerate() {
            self.meter.step()?;
            let flow = self.within(self.scope, |this| {
                this.meter.bytes(size_of::<Loop>())?;
                let state = Loop { items: Arc::clone(&items), index };
                let name = Arc::clone(&this.loop_name);
                this.set(&name, Value::Loop(Arc::new(state)))?;
                this.assign(&code.target, item.clone())?;
                this.block(&code.body)
            })?;
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::Next)
    }

    /// Returns the items that satisfy the condition of a loop.
    fn chosen_items(&mut self, code: &For, items: &Value) -> Outcome<Arc<List>> {
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
        List::new(chosen, false)
    }
}
