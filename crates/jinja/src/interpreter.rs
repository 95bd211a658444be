//! Execution of the statements of a template.

mod calls;
mod evaluation;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::civil::DateTime;

use crate::ast::{AssignTarget, For, Macro, Statement, StatementKind, TemplateBlock};
use crate::meter::{RenderMeter, RenderResult, refuse_operation};
use crate::print;
use crate::value::{Closure, List, Loop, TemplateValue};

/// Maximum nesting of statements, brackets and calls.
const NESTING: u32 = 400;

/// Variables of a block, and its enclosing scope.
struct Scope {
    variables: BTreeMap<Arc<str>, TemplateValue>,
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
    meter: &'m RenderMeter,
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
    namespaces: Vec<BTreeMap<Arc<str>, TemplateValue>>,
}

impl<'m> Interpreter<'m> {
    pub(crate) fn new(
        variables: BTreeMap<Arc<str>, TemplateValue>,
        now: DateTime,
        meter: &'m RenderMeter,
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
    pub(crate) fn run(&mut self, template: &TemplateBlock) -> RenderResult<String> {
        self.run_block(template)?;
        Ok(std::mem::take(&mut self.out))
    }

    /// Runs `run` one nesting level deeper.
    fn run_nested<T>(&mut self, run: impl FnOnce(&mut Self) -> RenderResult<T>) -> RenderResult<T> {
        if self.nesting >= NESTING {
            return refuse_operation(format!(
                "recursion: more than {NESTING} blocks and calls within each other"
            ));
        }
        self.nesting += 1;
        let outcome = run(self);
        self.nesting -= 1;
        outcome
    }

    fn print_value(&mut self, value: &TemplateValue) -> RenderResult<()> {
        match value {
            TemplateValue::Str(text) => self.print_text(text),
            value => self.print_text(&print::str_text(value, self.meter)?),
        }
    }

    fn print_text(&mut self, text: &str) -> RenderResult<()> {
        self.meter.charge_bytes(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    fn run_block(&mut self, block: &TemplateBlock) -> RenderResult<Flow> {
        for statement in block {
            let flow = self.run_statement(statement)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn run_statement(&mut self, statement: &Statement) -> RenderResult<Flow> {
        self.meter.charge_step()?;
        self.line = statement.line;
        match &statement.kind {
            StatementKind::Text(text) => self.print_text(text)?,
            StatementKind::Print(value) => {
                let value = self.evaluate(value)?;
                self.print_value(&value)?;
            }
            StatementKind::Set(target, value) => {
                let value = self.evaluate(value)?;
                self.assign_target(target, value)?;
            }
            StatementKind::SetBlock(target, block) => {
                let captured = self.capture_output(|this| this.scoped_block(block))?;
                self.assign_target(target, TemplateValue::str(captured))?;
            }
            StatementKind::If(branches, otherwise) => {
                for (condition, block) in branches {
                    if self.evaluate(condition)?.is_true() {
                        return self.run_nested(|this| this.run_block(block));
                    }
                }
                return self.run_nested(|this| this.run_block(otherwise));
            }
            StatementKind::For(code) => {
                let items = self.evaluate(&code.items)?;
                return self.run_nested(|this| this.loop_over(code, &items));
            }
            StatementKind::Macro(code) => {
                let value = self.create_macro(code)?;
                self.set_variable(&code.name, value)?;
            }
            StatementKind::Call(call, code) => {
                let caller = self.create_macro(code)?;
                let value = self.run_nested(|this| this.call_with(call, caller))?;
                self.print_value(&value)?;
            }
            StatementKind::Generation(block) => return self.scoped_block(block),
            StatementKind::Break => return Ok(Flow::Break),
            StatementKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    /// Runs a block in a scope of its own.
    fn scoped_block(&mut self, block: &TemplateBlock) -> RenderResult<Flow> {
        self.run_nested(|this| this.run_in_scope(this.scope, |this| this.run_block(block)))
    }

    /// Captures the output while `run` runs.
    fn capture_output<T>(
        &mut self,
        run: impl FnOnce(&mut Self) -> RenderResult<T>,
    ) -> RenderResult<String> {
        let outside = std::mem::take(&mut self.out);
        let outcome = run(self);
        let inside = std::mem::replace(&mut self.out, outside);
        outcome.map(|_| inside)
    }

    /// Runs `run` in a new scope inside another.
    fn run_in_scope<T>(
        &mut self,
        around: usize,
        run: impl FnOnce(&mut Self) -> RenderResult<T>,
    ) -> RenderResult<T> {
        self.meter.charge_bytes(size_of::<Scope>())?;
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
    fn create_macro(&mut self, code: &Arc<Macro>) -> RenderResult<TemplateValue> {
        self.meter.charge_bytes(size_of::<Closure>())?;
        self.pinned = self.scopes.len();
        Ok(TemplateValue::Macro(Arc::new(Closure { code: Arc::clone(code), scope: self.scope })))
    }

    fn set_variable(&mut self, name: &Arc<str>, value: TemplateValue) -> RenderResult<()> {
        self.meter.charge_bytes(2 * size_of::<TemplateValue>())?;
        self.scopes[self.scope].variables.insert(Arc::clone(name), value);
        Ok(())
    }

    fn assign_target(&mut self, target: &AssignTarget, value: TemplateValue) -> RenderResult<()> {
        match target {
            AssignTarget::Name(name) => self.set_variable(name, value),
            AssignTarget::Tuple(targets) => {
                let items = value.items(self.meter)?;
                let (expected, found) = (targets.len(), items.items.len());
                if found != expected {
                    return refuse_operation(format!("{found} values for {expected} names"));
                }
                for (target, item) in targets.iter().zip(&items.items) {
                    self.assign_target(target, item.clone())?;
                }
                Ok(())
            }
            AssignTarget::Attribute(name, attribute) => {
                let TemplateValue::Namespace(at) = self.read_variable(name)? else {
                    return refuse_operation(format!(
                        "`{name}` is no namespace, so it has no `.{attribute}`"
                    ));
                };
                self.meter.charge_bytes(2 * size_of::<TemplateValue>())?;
                self.namespaces[at].insert(Arc::clone(attribute), value);
                Ok(())
            }
        }
    }

    /// Runs a loop over the items of a value.
    fn loop_over(&mut self, code: &For, items: &TemplateValue) -> RenderResult<Flow> {
        let items = self.chosen_items(code, items)?;
        if items.items.is_empty() {
            return self.scoped_block(&code.otherwise);
        }
        for (index, item) in items.items.iter().enumerate() {
            self.meter.charge_step()?;
            let flow = self.run_in_scope(self.scope, |this| {
                this.meter.charge_bytes(size_of::<Loop>())?;
                let state = Loop { items: Arc::clone(&items), index };
                let name = Arc::clone(&this.loop_name);
                this.set_variable(&name, TemplateValue::Loop(Arc::new(state)))?;
                this.assign_target(&code.target, item.clone())?;
                this.run_block(&code.body)
            })?;
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::Next)
    }

    /// Returns the items that satisfy the condition of a loop.
    fn chosen_items(&mut self, code: &For, items: &TemplateValue) -> RenderResult<Arc<List>> {
        let items = items.items(self.meter)?;
        let Some(condition) = &code.condition else { return Ok(items) };
        let mut chosen = Vec::new();
        for item in &items.items {
            let holds = self.run_in_scope(self.scope, |this| {
                this.assign_target(&code.target, item.clone())?;
                this.evaluate(condition)
            })?;
            if holds.is_true() {
                self.meter.charge_bytes(size_of::<TemplateValue>())?;
                chosen.push(item.clone());
            }
        }
        List::new(chosen, false)
    }
}
