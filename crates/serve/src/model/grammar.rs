//! Grammars of replies: JSON of a schema, and calls of tools.

mod forms;
mod multiples;
mod narrowed;
mod source;
mod style;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use lru::LruCache;

use super::catalog::Entry;
use crate::body::count_values;
use crate::openai::{StructuredForm, Tools};
use crate::refusal::Refusal;
use maverl::runtime::{Grammar, GrammarState};
use maverl::text::Tokenizer;
pub(super) use style::Style;

/// Longest token in bytes that a grammar may use.
const LONGEST: usize = 256;
/// Number of grammars that are kept for a tokenizer: programs ask for the same forms again.
const RECENT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(31);
/// Maximum size in bytes of the source of a grammar, and number of values in it. A grammar takes much more memory and time than
/// its text, and is read by recursion.
const LARGEST: usize = 128 << 10;
const MOST_VALUES: usize = 4096;
/// Maximum number of states of the lexer of a grammar, each of 1 or 2 KiB.
const MOST_STATES: usize = 20_000;
/// Work that the lexer may do at its beginning, and for the mask of a token.
const FUEL: [u64; 2] = [500_000, 100_000];
/// Number of items that the parser may create for the mask of a token.
const MOST_ITEMS: usize = 20_000;
/// Stack of the thread that reads a grammar.
const STACK: usize = 64 << 20;
/// Maximum length of the reason in an error.
const SHOWN: usize = 300;

/// Grammars of recent requests for each tokenizer.
#[derive(Default)]
pub(super) struct Grammars {
    known: Mutex<Vec<(Arc<Tokenizer>, Arc<GrammarTokens>)>>,
}

/// Tokens of a tokenizer, and the grammars over them that were used last.
struct GrammarTokens {
    factory: ParserFactory,
    stops: Arc<[u32]>,
    compiled: Mutex<LruCache<String, Arc<CompiledGrammar>>>,
    /// Held while a grammar is read: one at a time, whose memory is bounded.
    compiling: Mutex<()>,
}

impl Grammars {
    /// Returns the grammar of a form.
    pub(super) fn compile(
        &self,
        entry: &Entry,
        form: &StructuredForm,
        tools: &Tools,
        style: &Style,
    ) -> Result<Arc<dyn Grammar>, Refusal> {
        let tokens = self.tokens(entry)?;
        let source = source::source(form, tools, style);
        let compiled =
            source.and_then(|source| tokens.compile_source(source)).map_err(|error| {
                let (name, what) = match form {
                    StructuredForm::Json(_) => {
                        ("response_format", "has a schema that cannot be enforced")
                    }
                    StructuredForm::Call(_) => ("tools", "have a schema that cannot be enforced"),
                };
                Refusal::invalid(name, format!("`{name}` {what}: {error}"))
            })?;
        Ok(compiled)
    }

    fn tokens(&self, entry: &Entry) -> Result<Arc<GrammarTokens>, Refusal> {
        let tokenizer = entry.tokenizer();
        let mut known = lock(&self.known);
        if let Some((_, tokens)) = known.iter().find(|(known, _)| Arc::ptr_eq(known, tokenizer)) {
            return Ok(Arc::clone(tokens));
        }
        let tokens = GrammarTokens::read(tokenizer, entry.vocabulary())
            .map_err(|error| Refusal::internal(format!("grammars of `{}`: {error}", entry.name)))?;
        let tokens = Arc::new(tokens);
        known.push((Arc::clone(tokenizer), Arc::clone(&tokens)));
        Ok(tokens)
    }
}

impl GrammarTokens {
    /// Reads the tokens of a tokenizer.
    fn read(tokenizer: &Tokenizer, vocabulary: usize) -> Result<Self, String> {
        let stops = tokenizer.stop_ids().iter().copied();
        let stops: Vec<u32> = stops.filter(|id| (*id as usize) < vocabulary).collect();
        let [first, ..] = stops[..] else {
            return Err("the tokenizer has no token that ends a reply".to_owned());
        };
        let words: Vec<Vec<u8>> = (0..vocabulary as u32).map(|id| word(tokenizer, id)).collect();
        let trie = TokTrie::from(&TokRxInfo::new(vocabulary as u32, first), &words);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie.with_eos_tokens(&stops)));
        let mut factory = ParserFactory::new_simple(&env).map_err(|error| error.to_string())?;
        let limits = factory.quiet().limits_mut();
        limits.verbose_errors = false;
        limits.max_lexer_states = MOST_STATES;
        [limits.initial_lexer_fuel, limits.step_lexer_fuel] = FUEL;
        limits.step_max_items = MOST_ITEMS;
        let (compiled, compiling) = (Mutex::new(LruCache::new(RECENT)), Mutex::default());
        Ok(Self { factory, stops: stops.into(), compiled, compiling })
    }

    /// Reads the source of a grammar, on a thread with a large stack.
    fn matcher(&self, source: &str) -> Result<Matcher, String> {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("grammar".to_owned()).stack_size(STACK);
            let reading = thread
                .spawn_scoped(scope, || self.read_matcher(source))
                .map_err(|error| format!("there is no thread to read it: {error}"))?;
            reading.join().unwrap_or_else(|_| Err("the parser of grammars panicked".to_owned()))
        })
    }

    fn read_matcher(&self, source: &str) -> Result<Matcher, String> {
        let grammar = TopLevelGrammar::from_lark(source.to_owned());
        let parser = self.factory.create_parser(grammar).map_err(|e| brief(&e.to_string()))?;
        let mut matcher = Matcher::new(Ok(parser));
        // The first mask tells a form that nothing has, and its work is in every copy.
        matcher.compute_mask().map_err(|error| brief(&error.to_string()))?;
        Ok(matcher)
    }

    /// Returns a grammar from its source.
    fn compile_source(&self, source: String) -> Result<Arc<CompiledGrammar>, String> {
        if let Some(compiled) = lock(&self.compiled).get(&source) {
            return Ok(Arc::clone(compiled));
        }
        check_size(&source)?;
        let matcher = {
            let _one = lock(&self.compiling);
            self.matcher(&source)?
        };
        let stops = Arc::clone(&self.stops);
        let compiled = Arc::new(CompiledGrammar { matcher: Mutex::new(matcher), stops });
        lock(&self.compiled).put(source, Arc::clone(&compiled));
        Ok(compiled)
    }
}

/// Fails for a source that is too large.
fn check_size(source: &str) -> Result<(), String> {
    let values = count_values(source.as_bytes());
    if source.len() <= LARGEST && values <= MOST_VALUES {
        return Ok(());
    }
    let size = source.len();
    Err(format!("it has {size} bytes and {values} values; {LARGEST} and {MOST_VALUES} are allowed"))
}

/// Locks what a panic leaves valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the bytes that a token adds to a text. Special tokens are marked, so that no text contains them.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id);
    if bytes.len() > LONGEST {
        return Vec::new();
    }
    if tokenizer.is_special(id) || tokenizer.stop_ids().contains(&id) {
        return [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes.as_slice()].concat();
    }
    bytes
}

/// Returns the first line of a message, without its place in the grammar, and shortened. A panic of the parser, which it catches
/// itself, is a number beyond its range.
fn brief(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    if line.starts_with("panic: ") {
        return "the parser of grammars cannot count with its numbers".to_owned();
    }
    let what = line.split_once("failed to compile JSON schema: ").map_or(line, |(_, what)| what);
    what.chars().take(SHOWN).collect()
}

/// A grammar for one tokenizer.
struct CompiledGrammar {
    matcher: Mutex<Matcher>,
    stops: Arc<[u32]>,
}

impl fmt::Debug for CompiledGrammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compiled")
    }
}

impl Grammar for CompiledGrammar {
    fn begin(&self) -> Box<dyn GrammarState> {
        // Replies run on several threads, and caches that they share would be locked by one at a time.
        let matcher = lock(&self.matcher).deep_clone();
        Box::new(GrammarPosition { matcher, stops: Arc::clone(&self.stops) })
    }
}

/// Place of a reply in a grammar.
struct GrammarPosition {
    matcher: Matcher,
    stops: Arc<[u32]>,
}

impl GrammarState for GrammarPosition {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), String> {
        let allowed = self.matcher.compute_mask_or_eos().map_err(|e| brief(&e.to_string()))?;
        for (word, logits) in allowed.as_slice().iter().zip(logits.chunks_mut(u32::BITS as usize)) {
            match *word {
                0 => logits.fill(f32::NEG_INFINITY),
                u32::MAX => {}
                bits => {
                    let logits = logits.iter_mut().enumerate();
                    for (_, logit) in logits.filter(|(i, _)| bits & (1 << i) == 0) {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, id: u32) -> Result<(), String> {
        if self.stops.contains(&id) {
            return Ok(());
        }
        self.matcher.consume_token(id).map_err(|error| brief(&error.to_string()))
    }
}

#[cfg(test)]
mod tests;
