//! The commented reference of every key, read from the text that `docs/src/keys.md` shows.

/// The block of the page; a test holds the two together.
pub const TEXT: &str = include_str!("reference.toml");

/// A table or a key of the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The parts of its name; those that a user chooses are `NAME`, `TEAM/ROLE` and `N`.
    pub path: Vec<String>,
    /// The comment beside it.
    pub meaning: String,
    /// The value and the level of a key; `None` for a table.
    pub entry: Option<Entry>,
}

/// Value and level of a key in the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value, as TOML.
    pub value: String,
    /// The value is an example: the key has no default, or its table is there only where it is written.
    pub example: bool,
    /// `agent`, `policy`, `team` or `run`.
    pub level: String,
}

impl Item {
    /// Its name in a configuration.
    pub fn name(&self) -> String {
        quoted_name(&self.path)
    }
}

fn quoted_name(path: &[String]) -> String {
    let parts = path.iter();
    let parts = parts.map(|it| if it.contains('/') { format!("{it:?}") } else { it.clone() });
    parts.collect::<Vec<_>>().join(".")
}

/// Tables whose keys a user names, and how the reference writes such a name.
const NAMED: [(&str, &str); 10] = [
    ("models", "NAME"),
    ("rollout_servers", "NAME"),
    ("endpoints", "NAME"),
    ("teachers", "NAME"),
    ("rewards", "NAME"),
    ("environments", "NAME"),
    ("mixture", "NAME"),
    ("worker_groups", "NAME"),
    ("agents", "TEAM/ROLE"),
    ("seats", "N"),
];

/// Returns true for a part of a key that stands for a name that a user chooses.
pub fn is_chosen(part: &str) -> bool {
    NAMED.iter().any(|(_, chosen)| *chosen == part)
}

/// Tables of an agent or an estimator, and where their keys are described.
const SAME: [(&str, &[&str]); 4] = [
    ("sampling", &["sampling"]),
    ("loss", &["algorithm", "loss"]),
    ("optim", &["models", "NAME", "optim"]),
    ("lora", &["models", "NAME", "lora"]),
];

/// Every table and key, in the order of the page.
pub fn items() -> Vec<Item> {
    let mut table = Vec::new();
    TEXT.lines().filter_map(|line| item(line, &mut table)).collect()
}

/// Table or key that a line describes. A header changes the table that later lines belong to.
fn item(line: &str, table: &mut Vec<String>) -> Option<Item> {
    let example = line.starts_with('#');
    let line = line.strip_prefix('#').unwrap_or(line);
    let (code, comment) = line.split_once(" # ").unwrap_or((line, ""));
    let (code, comment) = (code.trim(), comment.trim());
    if let Some(header) = code.strip_prefix('[') {
        *table = generic(&parts(header.strip_suffix(']')?));
        return Some(Item { path: table.clone(), meaning: comment.to_owned(), entry: None });
    }
    let (key, value) = code.split_once(" = ")?;
    let (level, meaning) = comment.split_once(": ")?;
    let path = [table.as_slice(), &[key.to_owned()]].concat();
    let entry = Entry { value: value.to_owned(), example, level: level.to_owned() };
    Some(Item { path, meaning: meaning.to_owned(), entry: Some(entry) })
}

/// The parts of a key: what dots divide, unless they are quoted.
pub fn parts(key: &str) -> Vec<String> {
    let (mut parts, mut quote) = (vec![String::new()], None);
    for c in key.trim().chars() {
        let last = parts.last_mut();
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '.') => parts.push(String::new()),
            _ => last.map_or((), |last| last.push(c)),
        }
    }
    parts
}

/// A path in which names that a user chooses are replaced.
pub fn generic(path: &[String]) -> Vec<String> {
    let mut generic = path.to_vec();
    for i in 1..path.len() {
        if let Some((_, name)) = NAMED.iter().find(|(table, _)| *table == path[i - 1]) {
            generic[i] = (*name).to_owned();
        }
    }
    generic
}

/// Keys whose value is a table or a list of tables.
const LISTS: [&str; 1] = ["correction"];

/// Path under which a key is described: those of agents, seats and critics are described with the run's and the model's, and
/// those of a list of tables without the index.
pub fn described_path(path: &[String]) -> Vec<String> {
    let mut path = generic(path);
    let index = |at: &usize| LISTS.contains(&path[at - 1].as_str()) && is_index(&path[*at]);
    if let Some(index) = (1..path.len()).find(index) {
        path.remove(index);
    }
    if path.len() > 4 && path[0] == "agents" && path[2] == "seats" {
        path.drain(2..4);
    }
    let inherited = match path.as_slice() {
        [agents, _, table, _, ..] if agents == "agents" => Some((table, 3)),
        [_, advantage, table, _] if advantage == "advantage" => Some((table, 3)),
        _ => None,
    };
    let found = inherited.and_then(|(table, rest)| {
        let (_, home) = SAME.iter().find(|(name, _)| name == table)?;
        let home = home.iter().map(|part| (*part).to_owned());
        Some(home.chain(path[rest..].iter().cloned()).collect())
    });
    found.unwrap_or(path)
}

fn is_index(part: &str) -> bool {
    part.parse::<usize>().is_ok()
}

/// The tables that a key can be written in, as their headers.
pub fn written_in(item: &Item) -> Vec<String> {
    let own = &item.path[..item.path.len().saturating_sub(1)];
    if own.is_empty() {
        return vec!["the file itself, before any table".to_owned()];
    }
    let mut tables = vec![format!("[{}]", quoted_name(own))];
    let same = SAME.iter().find(|(_, home)| {
        own.len() >= home.len() && home.iter().zip(own).all(|(home, own)| home == own)
    });
    if let Some((name, home)) = same {
        let inner: String = own[home.len()..].iter().map(|part| format!(".{part}")).collect();
        tables.push(format!("[agents.\"TEAM/ROLE\".{name}{inner}]"));
        tables.push(format!("[agents.\"TEAM/ROLE\".seats.N.{name}{inner}]"));
        if ["optim", "lora"].contains(name) {
            tables.push(format!("[algorithm.advantage.{name}]"));
        }
    }
    tables
}

/// The table or key of a whole name, whatever its models, agents and so on are called.
pub fn find(key: &str) -> Option<Item> {
    let path = described_path(&parts(key));
    items().into_iter().find(|item| item.path == path)
}

/// The tables and keys whose names end so: `lr` and `optim.lr` are enough.
pub fn ending(key: &str) -> Vec<Item> {
    let end = described_path(&parts(key));
    let mut found: Vec<Item> = Vec::new();
    for item in items().into_iter().filter(|item| item.path.ends_with(&end)) {
        // Kinds of one table may have keys of one name.
        if found.iter().all(|other| other.path != item.path) {
            found.push(item);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_page_shows_exactly_this_text() {
        let page = include_str!("../../../docs/src/keys.md");
        let (_, block) = page.split_once("```toml\n").unwrap();
        let (block, _) = block.split_once("```").unwrap();
        let differs = TEXT.lines().zip(block.lines()).find(|(text, block)| text != block);
        assert!(
            TEXT == block,
            "maverl/src/config/reference.toml is not the block of docs/src/keys.md: {differs:?}; copy the changed one over \
             the other"
        );
    }

    #[test]
    fn a_key_is_found_under_every_name_it_has() {
        for key in ["models.NAME.optim.lr", "models.small.optim.lr", "agents.\"a/b\".optim.lr"] {
            assert_eq!(find(key).unwrap().name(), "models.NAME.optim.lr", "{key}");
        }
        let seat = find("agents.\"a/b\".seats.1.sampling.temperature").unwrap();
        assert_eq!(seat.name(), "sampling.temperature");
        assert_eq!(find("agents.a/b.frozen").unwrap().name(), "agents.\"TEAM/ROLE\".frozen");
        assert_eq!(find("algorithm.advantage.optim.lr").unwrap().name(), "models.NAME.optim.lr");
        assert_eq!(find("task.mixture.quiz.weight").unwrap().name(), "task.mixture.NAME.weight");
        assert!(find("models.small").unwrap().entry.is_none());
        assert_eq!(find("lr"), None);
        assert_eq!(ending("optim.lr").len(), 1);
        assert!(ending("temperature").len() == 2 && ending("nothing").is_empty());
    }

    #[test]
    fn every_line_of_the_reference_is_understood() {
        let lines = TEXT.lines().filter(|line| !line.trim().is_empty()).count();
        let items = items();
        assert_eq!(items.len(), lines);
        for item in items {
            assert!(!item.meaning.is_empty(), "{}", item.name());
            let toml =
                item.entry.map(|entry| format!("x = {}", entry.value).parse::<toml::Table>());
            assert!(toml.is_none_or(|toml| toml.is_ok()), "{:?}", item.path);
        }
    }
}
