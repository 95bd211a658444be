//! Lists of tasks in about as much memory as their texts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};

use super::Task;
use super::packed::{read_map, write_map};

/// Tasks in their order, packed into one array of bytes and an index of it. A [`Task`] is made when it is read.
///
/// A million tasks with texts of 100 bytes take about 150 MB; as values of [`Task`], they would take five times as much.
#[derive(Debug, Clone, Default)]
pub struct TaskList {
    /// Id, question and data of each task, one task after the other.
    bytes: Vec<u8>,
    index: Vec<PackedTask>,
    /// Sources of tasks, and the number of each.
    sources: Vec<String>,
    numbers: BTreeMap<String, usize>,
    /// Keys of the data of tasks.
    keys: BTreeSet<String>,
}

/// Parts of a task in the bytes of its list. The id begins where the task before it ends.
#[derive(Debug, Clone, Copy)]
struct PackedTask {
    /// Start of the question.
    question: usize,
    /// Start of the data.
    data: usize,
    end: usize,
    /// Number of the source.
    source: usize,
}

impl TaskList {
    /// Appends a task.
    pub fn push(&mut self, task: &Task) {
        let source = self.source_number(&task.source);
        self.bytes.extend_from_slice(task.id.as_bytes());
        let question = self.bytes.len();
        self.bytes.extend_from_slice(task.question.as_bytes());
        let data = self.bytes.len();
        write_map(&task.data, &mut self.bytes);
        self.index.push(PackedTask { question, data, end: self.bytes.len(), source });
        for key in task.data.keys() {
            if !self.keys.contains(key) {
                self.keys.insert(key.clone());
            }
        }
    }

    fn source_number(&mut self, source: &str) -> usize {
        if let Some(number) = self.numbers.get(source) {
            return *number;
        }
        let number = self.sources.len();
        self.sources.push(source.to_owned());
        self.numbers.insert(source.to_owned(), number);
        number
    }

    /// Returns the number of tasks.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns true if there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Returns the task at a position.
    ///
    /// # Panics
    ///
    /// If there are fewer tasks.
    pub fn task(&self, position: usize) -> Task {
        let (id, source) = self.name(position);
        Task {
            id: id.to_owned(),
            source: source.to_owned(),
            question: self.question(position).to_owned(),
            data: read_map(&self.bytes[self.index[position].data..]),
        }
    }

    /// Iterates over the tasks. Each is made anew, which takes less than a microsecond for a task of some hundred bytes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Task> {
        (0..self.len()).map(|position| self.task(position))
    }

    /// Iterates over the questions, in the order of the tasks.
    pub fn questions(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|position| self.question(position))
    }

    /// Iterates over the ids and the sources, in the order of the tasks.
    pub fn names(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        (0..self.len()).map(|position| self.name(position))
    }

    /// Returns the different sources of the tasks, in the order in which they occur first.
    pub fn sources(&self) -> &[String] {
        &self.sources
    }

    /// Returns the keys that the data of at least one task have.
    pub fn keys(&self) -> &BTreeSet<String> {
        &self.keys
    }

    /// Returns the tasks of a component.
    pub(crate) fn of_component(&self, component: &str) -> Self {
        let own = |&position: &usize| Task::component_of(self.name(position).1) == component;
        (0..self.len()).filter(own).map(|position| self.task(position)).collect()
    }

    fn question(&self, position: usize) -> &str {
        let PackedTask { question, data, .. } = self.index[position];
        text(&self.bytes[question..data])
    }

    /// Returns the id and the source of a task.
    fn name(&self, position: usize) -> (&str, &str) {
        let start = position.checked_sub(1).map_or(0, |before| self.index[before].end);
        let PackedTask { question, source, .. } = self.index[position];
        (text(&self.bytes[start..question]), &self.sources[source])
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("ids and questions were texts")
}

impl<'t> Extend<&'t Task> for TaskList {
    fn extend<I: IntoIterator<Item = &'t Task>>(&mut self, tasks: I) {
        tasks.into_iter().for_each(|task| self.push(task));
    }
}

impl<'t> FromIterator<&'t Task> for TaskList {
    fn from_iter<I: IntoIterator<Item = &'t Task>>(tasks: I) -> Self {
        let mut list = Self::default();
        list.extend(tasks);
        list
    }
}

impl FromIterator<Task> for TaskList {
    fn from_iter<I: IntoIterator<Item = Task>>(tasks: I) -> Self {
        let mut list = Self::default();
        tasks.into_iter().for_each(|task| list.push(&task));
        list
    }
}

/// Serializes the tasks as a list of them.
impl Serialize for TaskList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    fn tasks() -> Vec<Task> {
        let data = [
            json!({"answers": ["4", "four"], "level": 3, "x": {"y": [null, true, false, -7, 0.1]}}),
            json!({}),
            json!({"answers": [u64::MAX, i64::MIN, 1e300, 2.0, ""], "ä": "\u{0}\n\"é"}),
        ];
        let data = data.into_iter().map(|data| data.as_object().unwrap().clone());
        let named = [("a", "s/one", "2 + 2?"), ("", "s/two", ""), ("ü", "s/one", "?")].into_iter();
        let all = named.zip(data).map(|((id, source, question), data)| Task {
            id: id.to_owned(),
            source: source.to_owned(),
            question: question.to_owned(),
            data,
        });
        all.collect()
    }

    #[test]
    fn a_list_returns_the_tasks_that_were_added_in_their_order() {
        let tasks = tasks();
        let list: TaskList = tasks.iter().collect();
        assert_eq!(list.iter().collect::<Vec<Task>>(), tasks);
        assert_eq!((list.len(), list.is_empty()), (3, false));
        assert_eq!(list.questions().collect::<Vec<_>>(), ["2 + 2?", "", "?"]);
        assert_eq!(list.names().nth(2).unwrap(), ("ü", "s/one"));
        assert_eq!(list.sources(), ["s/one", "s/two"]);
        assert_eq!(list.keys().iter().collect::<Vec<_>>(), ["answers", "level", "x", "ä"]);
        let written = serde_json::to_string(&list).unwrap();
        assert_eq!(written, serde_json::to_string(&tasks).unwrap());
        // Keys keep their order, too.
        assert_eq!(
            serde_json::to_string(&list.task(0).data).unwrap(),
            serde_json::to_string(&tasks[0].data).unwrap()
        );
        assert!(TaskList::default().is_empty());
    }

    #[test]
    fn the_tasks_of_a_component_are_those_whose_sources_begin_with_it() {
        let mut tasks = tasks();
        tasks[1].source = "other/two".to_owned();
        let list: TaskList = tasks.iter().collect();
        let own = list.of_component("s");
        assert_eq!(own.iter().collect::<Vec<_>>(), [tasks[0].clone(), tasks[2].clone()]);
        assert!(list.of_component("none").is_empty());
    }

    #[test]
    fn a_list_takes_little_more_memory_than_the_texts_of_its_tasks() {
        let one = |i: usize| {
            let question = format!("What is {i} plus {}?", i + 1);
            let data = Map::from_iter([("answers".to_owned(), json!([(2 * i + 1).to_string()]))]);
            Task { id: format!("sum-{i}"), source: "sums".to_owned(), question, data }
        };
        let list: TaskList = (0..1000).map(one).collect();
        let texts: usize = (0..1000).map(|i| one(i).question.len() + one(i).id.len()).sum();
        // The key `answers`, the answer, and lengths.
        assert!(list.bytes.len() < texts + 1000 * 20, "{} of {texts}", list.bytes.len());
        assert!(size_of::<PackedTask>() <= 32);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((".*", inner), 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_data_are_read_as_they_were_written(fields in prop::collection::vec((".*", any_value()), 0..6)) {
            let mut task = tasks().swap_remove(0);
            task.data = fields.into_iter().collect();
            let list: TaskList = [&task, &task].into_iter().collect();
            let read = list.task(1);
            prop_assert_eq!(serde_json::to_string(&read).unwrap(), serde_json::to_string(&task).unwrap());
            prop_assert_eq!(read, task);
        }
    }

    #[test]
    fn data_of_any_depth_are_read() {
        let mut value = json!(1);
        for _ in 0..500 {
            value = json!([value]);
        }
        let task = Task { data: Map::from_iter([("deep".to_owned(), value)]), ..tasks().remove(0) };
        assert_eq!([&task].into_iter().collect::<TaskList>().task(0), task);
    }
}
