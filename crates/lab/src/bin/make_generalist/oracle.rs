//! Replies of the agents of every example team, from an oracle that knows the answer and errs at a given rate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use maverl::Sources;
use maverl::builtin::{Document, facts, invent};
use maverl::data;
use maverl::orchestra::{Ask, ChatBackend, Response};
use maverl::plan::Plan;
use maverl::registry::Registry;
use maverl::rng::SplitMix64;
use maverl::rollout::{EpisodeRequest, Rollout, Script, episode_seed};
use maverl::task::Task;
use maverl::trajectory::{Message, Role, Turn};
use maverl_lab::measure::resolve_plan;

/// Maximum number of lines of a question.
const LINES: usize = 8;

/// An oracle that knows the tasks of an environment, and errs at each decision with a given probability.
struct TaskOracle {
    tasks: BTreeMap<String, Task>,
    documents: BTreeMap<String, Document>,
    noise: f64,
}

/// Returns at least `n` turns of the team of an example, on training tasks, in the order of the conversations.
pub(crate) async fn team_demonstrations(
    example: &Path,
    n: usize,
    noise: f64,
    seed: u64,
    registry: &Registry,
) -> Result<Vec<Turn>> {
    let plan = resolve_plan(&Sources::file(example), registry)?;
    let tasks = draw_tasks(&plan, n, seed)?;
    let oracle = TaskOracle {
        tasks: tasks.iter().map(|task| (task.question.clone(), task.clone())).collect(),
        documents: facts::corpus().into_iter().map(|doc| (doc.key.clone(), doc)).collect(),
        noise,
    };
    let respond = move |ask: &Ask, messages: &[Message]| oracle.respond(ask, messages);
    let oracle: Arc<dyn ChatBackend> = Arc::new(Script::responding("oracle", respond));
    let rollout = Rollout::start_with(&plan, registry, |_| Arc::clone(&oracle))?;
    let (mut draw, mut turns) = (SplitMix64::new(seed), Vec::new());
    for step in 0.. {
        let requests = (0..16).map(|index| {
            let task = tasks[draw.index(tasks.len())].clone();
            let seed = episode_seed(seed, "demonstrations", step, &task, index);
            EpisodeRequest { task, index, seed }
        });
        let episodes = rollout.collect(requests.collect(), |_| {}).await;
        turns.extend(episodes.into_iter().flat_map(|episode| episode.turns));
        if turns.len() >= n {
            break;
        }
    }
    Ok(turns)
}

/// Returns at least `n` generated tasks that are not among the plan's own, if its environments generate tasks; else
/// training tasks.
fn draw_tasks(plan: &Plan, n: usize, seed: u64) -> Result<Vec<Task>> {
    let shipped = data::load(&plan.config.task, data::ALL, &plan.base)?;
    let shipped: BTreeSet<&str> = shipped.iter().map(|task| task.question.as_str()).collect();
    let components = plan.config.task.mixture.iter();
    let mut components: Vec<(String, &str)> =
        components.map(|(name, component)| (format!("{name}/"), component.data.as_str())).collect();
    if components.is_empty() {
        components.push((String::new(), &plan.config.task.data));
    }
    let most = plan.config.task.max_level.unwrap_or(u64::MAX);
    let mut tasks = Vec::new();
    for seed in seed.. {
        let before = tasks.len();
        for (prefix, name) in &components {
            let splits = invent(name, seed).unwrap_or_default();
            let of_world = splits.into_iter().flat_map(|(_, tasks)| tasks);
            let new = of_world.filter(|task| {
                task.level().is_none_or(|level| level <= most)
                    && !shipped.contains(task.question.as_str())
            });
            tasks.extend(new.map(|task| Task {
                id: format!("{seed}/{}", task.id),
                source: format!("{prefix}{}", task.source),
                ..task
            }));
        }
        if tasks.len() == before || tasks.len() >= n {
            break;
        }
    }
    if tasks.is_empty() {
        tasks = data::load(&plan.config.task, &plan.config.task.split, &plan.base)?;
    }
    Ok(tasks)
}

impl TaskOracle {
    /// Replies to a conversation that ends with the prompt of a request.
    fn respond(&self, ask: &Ask, messages: &[Message]) -> Response {
        let [mut users, assistants] = [Role::User, Role::Assistant]
            .map(|role| messages.iter().filter(move |message| message.role == role));
        let seen: Vec<&str> = messages.iter().map(|message| message.content.as_str()).collect();
        let asked = users.next_back().map_or("", |message| message.content.as_str());
        let (seen, mut draw) = (seen.join("\n"), SplitMix64::new(ask.seed));
        let reply = self.next_call(&seen, assistants.count(), &mut draw);
        Response::text(reply.unwrap_or_else(|| self.write_reply(&seen, asked, &mut draw)))
    }

    /// Returns the call of a task's solution after this many replies; an error is to answer at once.
    fn next_call(&self, seen: &str, replies: usize, draw: &mut SplitMix64) -> Option<String> {
        let calls = self.find_task(seen)?.data.get("solution")?.get("calls")?;
        let call = calls.get(replies)?;
        (!draw.gen_bool(self.noise)).then(|| format!("<tool_call>{call}</tool_call>"))
    }

    /// Replies to the last part of a conversation.
    fn write_reply(&self, seen: &str, asked: &str, draw: &mut SplitMix64) -> String {
        let Some(task) = self.find_task(seen) else { return String::new() };
        let right = !draw.gen_bool(self.noise);
        let answer = if right { true_answer(task) } else { self.wrong_answer(task, draw) };
        let wanted = asked.lines().last().unwrap_or_default();
        let has = |tag: &str| wanted.contains(&format!("<{tag}>"));
        // The candidate to be judged is a reply after the question.
        let shown = seen.split_once(task.question.as_str()).map_or("", |(_, rest)| rest);
        let good = shown.contains(&format!("<answer>{}</answer>", true_answer(task)));
        let (tag, content) = if has("verify") {
            ("verify", if good == right { "yes" } else { "no" }.to_owned())
        } else if has("score") {
            ("score", if good == right { 7 + draw.index(4) } else { draw.index(4) }.to_string())
        } else if has("next") {
            let next = if shown.contains("<answer>") { "stop" } else { "solver" };
            ("next", if right { next } else { draw.pick(&["solver", "critic", "stop"]) }.to_owned())
        } else if has("better") {
            let first = shown.lines().find(|line| line.starts_with("First:")).unwrap_or_default();
            let first = first.contains(&format!("<answer>{}</answer>", true_answer(task)));
            ("better", if first == right { "first" } else { "second" }.to_owned())
        } else if let Some(title) =
            self.next_unseen_title(task, shown).filter(|_| has("act") || has("search"))
        {
            (if has("act") { "act" } else { "search" }, title)
        } else if has("answer") {
            ("answer", answer)
        } else if has("act") || has("search") {
            ("search", answer)
        } else {
            return answer;
        };
        // One error in eight is a malformed reply.
        if right || !draw.gen_bool(0.125) { format!("<{tag}>{content}</{tag}>") } else { content }
    }

    /// Returns the task whose question is in a conversation.
    fn find_task(&self, seen: &str) -> Option<&Task> {
        let rest = seen.split_once("Question: ")?.1;
        let ends = rest.match_indices('\n').map(|(at, _)| at).chain([rest.len()]);
        ends.take(LINES).find_map(|end| self.tasks.get(&rest[..end]))
    }

    /// Returns the title of the first document on the path to the answer that was not retrieved yet.
    fn next_unseen_title(&self, task: &Task, shown: &str) -> Option<String> {
        let path = task.texts("support").into_iter();
        let mut documents = path.filter_map(|key| self.documents.get(&key));
        Some(documents.find(|document| !shown.contains(&document.line()))?.title.clone())
    }

    /// Returns a plausible wrong answer: another choice, a near number, or the answer of another task.
    fn wrong_answer(&self, task: &Task, draw: &mut SplitMix64) -> String {
        let truth = true_answer(task);
        let choices = task.texts("choices");
        let others: Vec<&str> =
            choices.iter().filter(|c| **c != truth).map(String::as_str).collect();
        if !others.is_empty() {
            return draw.pick(&others).to_owned();
        }
        if let Ok(number) = truth.parse::<i64>() {
            return (number + draw.pick(&[-10, -2, -1, 1, 2, 10])).to_string();
        }
        let tasks: Vec<&Task> = self.tasks.values().collect();
        self::true_answer(draw.pick(&tasks))
    }
}

/// Returns the answer of a task: a program, the end of its solution, or the first of its answers.
fn true_answer(task: &Task) -> String {
    let solution = task.data.get("solution");
    let program = solution.filter(|_| task.data.contains_key("entry_point"));
    let said = program.or_else(|| solution?.get("answer")).and_then(|said| said.as_str());
    match said {
        Some(said) => said.to_owned(),
        None => task.texts("answers").into_iter().next().unwrap_or_default(),
    }
}
