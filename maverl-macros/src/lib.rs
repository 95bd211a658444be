//! The attributes and derives of maverl. Use them through `maverl`, which re-exports them next to the traits they
//! implement.
//!
//! They add and never rewrite: the item stands as it was written, followed by impls and one registration. An item with
//! mistakes gets one message for each of them, at the smallest token, saying what to write instead.

mod agent;
mod args;
mod environment;
mod errors;
mod input;
mod item;
mod name;
mod orchestra;
mod reply;
mod reward;
mod tool;

use proc_macro::TokenStream;

/// Declares an agent: a role with a typed input, a prompt made of it, and a typed reply.
///
/// # Grammar
///
/// ```text
/// #[agent(name = "team/role", input = Type, output = Type, prompt = "file.md")]
/// #[agent(name = "team/role", input = Type, output = Type, prompt_text = "...")]
/// #[agent(name = "team/role")]                      // with an `impl Agent` written by hand
/// ```
///
/// All forms take `crate = path` where `maverl` is known under another name. The item is a struct without generics:
/// a unit struct, or one with named fields, which are the agent's options and need a `Default`. Fields marked
/// `#[serde(skip)]` are no options.
///
/// The file is relative to the source file. In it, and in `prompt_text`:
///
/// ```text
/// # system                     optional; then text up to
/// # user                       this line, and from here on what the user says
/// {{ field }}                  a field of the input
/// {{ agent.option }}           an option of the agent
/// {{ reply_format }}           the sentence that tells the model how to reply
/// ```
///
/// Nothing else is replaced; more logic means a hand-written `impl Agent`.
///
/// # What it adds
///
/// `impl Agent` (if there is a prompt), `impl AgentName`, the serde derives the options need, `impl Build`, and the
/// registration. `SUMMARY` is the first line of the documentation.
///
/// ```
/// use maverl::prelude::*;
///
/// #[derive(Input)]
/// struct Draft {
///     problem: String,
///     solution: Option<String>,
/// }
///
/// #[derive(Reply, Debug, PartialEq)]
/// #[reply(tag = "verify")]
/// enum Verdict {
///     Approve,
///     Reject,
/// }
///
/// /// Approves or rejects the current draft.
/// #[agent(
///     name = "math/verifier",
///     input = Draft,
///     output = Verdict,
///     prompt_text = "Problem: {{ problem }}\nSolution: {{ solution }}\n{{ reply_format }}"
/// )]
/// struct Verifier;
///
/// let draft = Draft { problem: "1 + 1".into(), solution: None };
/// assert!(Verifier.prompt(&draft).user.starts_with("Problem: 1 + 1\nSolution: (none)\n"));
/// assert_eq!(Verifier.parse("<verify>approve</verify>").unwrap(), Verdict::Approve);
/// ```
///
/// # Errors
///
/// Names that are not `snake_case` parts joined by `/`, unknown or missing arguments, generics, a missing file, a
/// placeholder that is no field, and a typed output whose prompt lacks `{{ reply_format }}`, all at compile time.
#[proc_macro_attribute]
pub fn agent(args: TokenStream, item: TokenStream) -> TokenStream {
    agent::agent(&args.into(), &item.into()).into()
}

/// Declares an orchestra: the control flow of a team, and who is in it.
///
/// # Grammar
///
/// ```text
/// #[orchestra(name = "team/flow", agents(Solver, judges::Verifier, Debater[3], Voter[n_voters]))]
/// #[orchestra(name = "team/flow", agents(..), needs("search"), crate = path)]
/// ```
///
/// `Debater[3]` sits three times, `Voter[n_voters]` as often as the orchestra's own field `n_voters` says (an unsigned
/// integer). `needs` are words of the actions it sends; the environment must offer each. The item is a struct without
/// generics whose named fields are its options.
///
/// # What it adds
///
/// `impl OrchestraName`, one `impl Includes<A>` a member (what makes `team.ask::<A>` compile), the serde derives the
/// options need, `impl Build`, and the registration.
///
/// ```
/// use maverl::orchestra::OrchestraName;
/// use maverl::prelude::*;
///
/// #[derive(Input)]
/// struct Motion {
///     text: String,
/// }
///
/// #[agent(name = "debate/debater", input = Motion, output = String, prompt_text = "Argue about {{ text }}.")]
/// struct Debater;
///
/// /// Everybody speaks once.
/// #[orchestra(name = "debate/round", agents(Debater[n_debaters]))]
/// struct Round {
///     /// How many take part.
///     n_debaters: u32,
/// }
///
/// impl Default for Round {
///     fn default() -> Self {
///         Self { n_debaters: 3 }
///     }
/// }
///
/// impl Orchestra for Round {
///     async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
///         let motion = Motion { text: task.question.clone() };
///         let mut last = None;
///         for i in 0..self.n_debaters as usize {
///             last = Some(team.seat::<Debater>(i).ask(&motion).await?);
///         }
///         Ok(last)
///     }
/// }
///
/// assert_eq!(Round::default().members().len(), 3);
/// ```
///
/// # Errors
///
/// Bad names and arguments, generics, an agent listed twice, a seat count that is no field, a member without
/// `#[agent]`.
#[proc_macro_attribute]
pub fn orchestra(args: TokenStream, item: TokenStream) -> TokenStream {
    orchestra::orchestra(&args.into(), &item.into()).into()
}

/// Declares an environment: a world that answers actions and judges answers.
///
/// # Grammar
///
/// ```text
/// #[environment(name = "search", offers("search"), crate = path)]
/// ```
///
/// `offers` (words of the actions it understands) and `crate` may be left out. The item is a struct without generics
/// whose named fields are its options; state that is made in `Environment::start` is marked `#[serde(skip)]`.
///
/// # What it adds
///
/// `impl EnvironmentName`, the serde derives the options need, `impl Build`, and the registration.
///
/// ```
/// use maverl::prelude::*;
///
/// /// Counts actions and wants the number back.
/// #[environment(name = "counting", offers("count"))]
/// struct Counting;
///
/// impl Environment for Counting {
///     async fn act(&self, session: &mut Session, _: Action) -> Result<Observation, EnvError> {
///         Ok(Observation::new(session.actions.to_string()))
///     }
///
///     fn score(&self, session: &Session, answer: Option<&str>) -> Score {
///         Score::binary(answer == Some(session.actions.to_string().as_str()))
///     }
/// }
/// ```
///
/// # Errors
///
/// Bad names and arguments, generics, an item that is no struct.
#[proc_macro_attribute]
pub fn environment(args: TokenStream, item: TokenStream) -> TokenStream {
    environment::environment(&args.into(), &item.into()).into()
}

/// Declares a reward function: a named part of the reward beside the environment's score.
///
/// # Grammar
///
/// ```text
/// #[reward]
/// #[reward(name = "brevity", crate = path)]
/// fn brevity(episode: &Episode) -> Rewards
/// ```
///
/// The name is the function's unless given.
///
/// # What it adds
///
/// The registration.
///
/// ```
/// use maverl::prelude::*;
///
/// /// Pays for short replies.
/// #[reward]
/// fn brevity(episode: &Episode) -> Rewards {
///     let words: usize = episode.turns.iter().map(|turn| turn.reply.split_whitespace().count()).sum();
///     Rewards::episode(-0.001 * words as f64)
/// }
/// ```
///
/// # Errors
///
/// A function that is async, unsafe or generic, or takes or returns something else.
#[proc_macro_attribute]
pub fn reward(args: TokenStream, item: TokenStream) -> TokenStream {
    reward::reward(&args.into(), &item.into()).into()
}

/// Declares a tool: a function, async or not, that agents may call.
///
/// # Grammar
///
/// ```text
/// #[tool]
/// #[tool(name = "word", crate = path)]
/// fn word(arguments: Struct) -> Output
/// ```
///
/// The name is the function's unless given. What the model is told of it is the whole documentation of the function. It
/// takes one struct with named fields, or nothing; the struct has `serde::Deserialize` and `schemars::JsonSchema`, and its
/// schema, with the documentation of the fields, is what calls are held to. It gives whatever has `Show`, or a `Result` of
/// that whose error is told to the model. A function that is not async runs on a thread that may block.
///
/// # What it adds
///
/// The registration.
///
/// ```
/// use maverl::prelude::*;
/// use maverl::tools::{declared, schemars, serde};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// #[serde(crate = "maverl::tools::serde")] // not where the crate itself depends on them
/// #[schemars(crate = "maverl::tools::schemars")]
/// struct Numbers {
///     /// What is added up.
///     numbers: Vec<i64>,
/// }
///
/// /// The sum of whole numbers.
/// #[tool]
/// fn sum(of: Numbers) -> Result<i64, String> {
///     of.numbers.iter().try_fold(0_i64, |sum, n| sum.checked_add(*n)).ok_or("it is too large".to_owned())
/// }
///
/// let tool = declared()["sum"].tool().unwrap();
/// assert_eq!(tool.description, "The sum of whole numbers.");
/// assert_eq!(tool.parameters.json()["required"][0], "numbers");
/// ```
///
/// # Errors
///
/// A function that is unsafe or generic, takes more than one argument or a borrowed one, gives nothing, or has no
/// documentation; an argument without a schema.
#[proc_macro_attribute]
pub fn tool(args: TokenStream, item: TokenStream) -> TokenStream {
    tool::tool(&args.into(), &item.into()).into()
}

/// Makes a struct with named fields something an agent is asked with.
///
/// # Grammar
///
/// ```text
/// #[derive(Input)]
/// #[input(crate = path)]                  // on the struct, optional
/// struct Evidence {
///     question: String,
///     #[input(observation)]               // text of the world, which may be shortened to fit the context
///     passages: Vec<String>,
/// }
/// ```
///
/// # What it adds
///
/// `impl Input`: the names a prompt may mention, and how each is shown (through `Show`). A type parameter `T` gets the
/// bounds `T: Show + Send + Sync`.
///
/// ```
/// use maverl::prelude::*;
///
/// #[derive(Input)]
/// struct Evidence {
///     question: String,
///     #[input(observation)]
///     passages: Vec<String>,
/// }
///
/// assert_eq!(Evidence::FIELDS, ["question", "passages"]);
/// assert_eq!(Evidence::OBSERVATIONS, ["passages"]);
/// ```
///
/// # Errors
///
/// Enums, tuple and unit structs, and a field called `reply_format`, which prompts use for something else.
#[proc_macro_derive(Input, attributes(input))]
pub fn derive_input(item: TokenStream) -> TokenStream {
    input::input(item.into()).into()
}

/// Makes the parser of a reply *and* the sentence that tells the model its format, so that they cannot disagree.
///
/// # Grammar
///
/// ```text
/// #[derive(Reply)]
/// #[reply(tag = "verify")]                // one block that holds one of these words
/// enum Verdict {
///     #[reply("approve")] Approve,        // left out, the word is the variant's name in snake_case
///     #[reply("reject")]  Reject,
/// }
///
/// #[derive(Reply)]
/// #[reply(tag = "search")]                // one block, read by `FromStr`
/// struct Query(String);
///
/// #[derive(Reply)]                        // a block a field, each read by `FromStr`
/// struct Step {
///     /// what to do next                 // goes into the sentence
///     plan: String,
///     #[reply(tag = "score", example = "7")]
///     confidence: u8,
///     note: Option<String>,               // may be left out
/// }
/// ```
///
/// On the type, `format = ".."` replaces the sentence (it must show every tag), and `crate = path` names a renamed
/// `maverl`.
///
/// # What it adds
///
/// `impl Reply`. A block is there exactly once, its content trimmed and not empty; tags and words are read without
/// regard to case. A type parameter `T` gets the bounds `T: FromStr<Err: Display> + Send + 'static`.
///
/// ```
/// use maverl::prelude::*;
///
/// #[derive(Reply, Debug, PartialEq)]
/// #[reply(tag = "search")]
/// struct Query(String);
///
/// assert_eq!(Query::format(), "Reply with exactly one <search>...</search> block.");
/// assert_eq!(Query::parse("<search> rust </search>").unwrap(), Query("rust".into()));
/// assert!(Query::parse("rust").is_err());
/// ```
///
/// # Errors
///
/// A missing or repeated tag, a repeated word, an enum that is empty or carries data, a struct without fields.
#[proc_macro_derive(Reply, attributes(reply))]
pub fn derive_reply(item: TokenStream) -> TokenStream {
    reply::reply(item.into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    #[test]
    fn generated_code_finds_everything_through_the_crate_argument() {
        let prompt =
            "# system\n{{ x }}{{ agent.y }}\n# user\n{{ x }}{{ agent.y }}{{ reply_format }}";
        let asking = quote!(name = "a/b", input = I, output = R, prompt_text = #prompt);
        let unit = quote!(
            struct Name;
        );
        let options = quote!(
            struct Name {
                n: u32,
                y: u32,
            }
        );
        let agents = quote!(name = "a/b", agents(A, B[2], C[n]));
        let function = quote!(
            fn name(_: &Episode) -> Rewards {}
        );
        let called = quote!(
            /// Words.
            async fn name(_: Arguments) -> String {}
        );
        let expansions = [
            agent::agent(&quote!(#asking, crate = other), &options),
            agent::agent(&quote!(crate = other::name, name = "a/b"), &unit),
            orchestra::orchestra(&quote!(#agents, crate = other), &options),
            environment::environment(&quote!(name = "a", crate = other), &unit),
            reward::reward(&quote!(crate = other), &function),
            tool::tool(&quote!(crate = other), &called),
            input::input(quote!(
                #[input(crate = other)]
                struct I<T> {
                    x: T,
                }
            )),
            reply::reply(quote!(
                #[reply(tag = "x", crate = other)]
                enum R {
                    A,
                }
            )),
            reply::reply(quote!(
                #[reply(crate = other)]
                struct R<T> {
                    a: T,
                    b: Option<T>,
                }
            )),
        ];
        for expansion in expansions {
            let text = expansion.to_string();
            assert!(!text.contains("maverl") && !text.contains("compile_error"), "{text}");
        }
    }

    #[test]
    fn the_item_stands_as_it_was_written() {
        let item = quote! {
            /// Words.
            #[derive(Clone)]
            pub(crate) struct A;
        };
        let text = agent::agent(&quote!(name = "a/b"), &item).to_string();
        assert!(text.starts_with(&item.to_string()), "{text}");
        let text = agent::agent(&quote!(nmae = "a/b"), &item).to_string();
        assert!(text.starts_with(&item.to_string()) && text.contains("compile_error"), "{text}");
    }
}
