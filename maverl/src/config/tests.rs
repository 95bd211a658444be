#![allow(clippy::unwrap_used)]

use super::*;

/// The reference, as readers see it.
fn reference() -> String {
    let page = include_str!("../../../docs/src/keys.md");
    let (_, block) = page.split_once("```toml\n").unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

/// Text with its examples: a `#` at the start of a line that no space follows is taken away.
fn uncommented(text: &str) -> String {
    let uncomment = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(uncomment).collect()
}

/// The reference with its examples. Tables with a `kind` are of the default kind.
fn with_examples() -> String {
    let reference = reference();
    let tagged = |block: &str| tables::TAGGED.iter().any(|table| table.header == header(block));
    let other = |block: &&str| block.starts_with("#[") && tagged(block);
    let blocks = reference.trim_end().split("\n\n").filter(|block| !other(block));
    uncommented(&blocks.collect::<Vec<_>>().join("\n\n"))
}

/// Name of the table that a block describes; empty for keys before any table.
fn header(block: &str) -> &str {
    let inside = block.trim_start_matches('#').strip_prefix('[');
    inside.map_or("", |inside| inside.split(']').next().unwrap_or_default())
}

/// True if a block of the reference describes a table.
fn describes(block: &str, table: &tables::DeclaredTable) -> bool {
    let kind = table.kind.map(|kind| format!("kind = {kind:?}"));
    table.header == header(block) && kind.is_none_or(|kind| block.contains(&kind))
}

fn defaults() -> Config {
    let algorithm = AlgorithmPlan::from(&AlgorithmConfig::default());
    let tiny = ModelConfig {
        optim: OptimConfig::from(&OptimOptions::default()),
        ..ModelConfig::default()
    };
    Config {
        sampling: SamplingConfig::from(&Sampling::default()),
        models: BTreeMap::from([("tiny".to_owned(), tiny)]),
        algorithm: AlgorithmConfig::from(&algorithm),
        ..Config::default()
    }
}

#[test]
fn the_reference_is_exactly_the_defaults() {
    assert_eq!(toml::from_str::<Config>(&reference()).unwrap(), defaults());
}

#[test]
fn the_reference_with_its_examples_has_every_key_and_no_other() {
    toml::from_str::<Config>(&with_examples()).unwrap();
    let reference = reference();
    for declared in &tables::TABLES {
        let of_kind = |block: &&str| declared.kind.is_some() && describes(block, declared);
        let text = reference.trim_end().split("\n\n").find(of_kind).map(uncommented);
        let all: toml::Table = text.unwrap_or_else(with_examples).parse().unwrap();
        let mut path = reference::parts(declared.header);
        path.retain(|part| !part.is_empty());
        let table = path.iter().fold(&all, |table, key| table[key].as_table().unwrap());
        let mut found: Vec<&str> = table.keys().map(String::as_str).collect();
        let mut keys: Vec<&str> = declared.keys.iter().map(|key| key.name).collect();
        keys.extend(declared.kind.map(|_| "kind"));
        found.sort_unstable();
        keys.sort_unstable();
        assert_eq!(found, keys, "{}", declared.title());
    }
    let all: toml::Table = with_examples().parse().unwrap();
    for named in ["orchestra", "environment"] {
        assert!(all[named].as_table().unwrap().contains_key("name"));
    }
}

#[test]
fn every_key_of_the_reference_has_a_level() {
    for line in reference().lines().filter(|line| line.contains(" = ")) {
        let (_, comment) = line.trim_start_matches('#').split_once('#').unwrap();
        let level = comment.trim_start().split(':').next().unwrap();
        assert!(["agent", "policy", "team", "run"].contains(&level), "{line}");
    }
}

#[test]
fn sections_of_the_reference_are_in_the_order_of_a_run() {
    let order = [
        "task",
        "orchestra",
        "environment",
        "environments",
        "sampling",
        "models",
        "endpoints",
        "rollout_servers",
        "teachers",
        "agents",
        "algorithm",
        "rewards",
        "rollout",
        "eval",
        "checkpoint",
        "record",
        "track",
        "runtime",
        "worker_groups",
        "dist",
    ];
    let mut sections: Vec<String> = with_examples()
        .lines()
        .filter_map(|line| line.strip_prefix('[')?.split(['.', ']']).next().map(str::to_owned))
        .collect();
    sections.dedup();
    assert_eq!(sections, order);
}

#[test]
fn what_is_left_out_is_inherited() {
    let base = SamplingConfig { temperature: Some(0.5), top_k: Some(3), ..Default::default() };
    let over = SamplingConfig { top_k: Some(0), ..Default::default() };
    let expected = SamplingConfig { temperature: Some(0.5), top_k: Some(0), ..Default::default() };
    assert_eq!(over.over(&base), expected);
}

/// Rows of a table of declared settings, each with a mark before it.
fn rows(mark: &str, table: &tables::DeclaredTable, schema: &serde_json::Value) -> String {
    let mut text = String::new();
    if let Some(kind) = table.kind {
        let place = table.place();
        let (tagged, key) = (tables::tagged_table(&place).unwrap(), tables::key(&place).unwrap());
        let code = format!("{mark}kind = {kind:?}");
        text += &format!("{code:<35} # {}: kind: {}\n", key.level, kinds(tagged));
    }
    let properties = schema.pointer(&(schema::definition(table.name) + "/properties")).unwrap();
    for key in table.descriptions() {
        let place = [table.place().as_slice(), std::slice::from_ref(&key.name)].concat();
        let names = names(&schema["$defs"], &properties[&key.name]);
        let names = match (tables::tagged_table(&place), names.len()) {
            (Some(tagged), _) => format!(": {}", kinds(tagged)),
            (None, 1..=6) => format!(": {}", names.join(", ")),
            (None, _) => String::new(),
        };
        text.extend(key.reference_line(mark, &names).map(|line| line + "\n"));
    }
    text
}

/// Kinds of a table.
fn kinds(table: &tables::TaggedTable) -> String {
    let declared = if table.open { ", or a declared one" } else { "" };
    format!("{}{declared}", table.names().join(", "))
}

/// Names that a key of a few names can have.
fn names(definitions: &serde_json::Value, property: &serde_json::Value) -> Vec<String> {
    let name = property["$ref"].as_str().and_then(|at| at.strip_prefix("#/$defs/"));
    let Some(definition) = name.map(|name| &definitions[name]) else { return Vec::new() };
    let one = definition["oneOf"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["const"].as_str().or_else(|| one["enum"][0].as_str()));
    let several =
        definition["enum"].as_array().into_iter().flatten().filter_map(|one| one.as_str());
    one.chain(several).map(str::to_owned).collect()
}

/// The reference with the rows of every table of declared settings made anew.
fn declared_reference() -> String {
    let schema = schema::schema();
    let mut text = String::new();
    for block in reference::TEXT.trim_end().split("\n\n") {
        let (first, _) = block.split_once('\n').unwrap_or((block, ""));
        let Some(table) = tables::TABLES.iter().find(|table| describes(block, table)) else {
            text += &format!("{block}\n\n");
            continue;
        };
        if !header(block).is_empty() {
            text += &format!("{first}\n");
        }
        let mark = if first.starts_with("#[") { "#" } else { "" };
        text += &format!("{}\n", rows(mark, table, &schema));
    }
    text.trim_end().to_owned() + "\n"
}

#[test]
fn rows_of_declared_settings_are_what_their_declarations_say() {
    let text = declared_reference();
    if std::env::var_os("WRITE_BOOK").is_some() {
        let home = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        std::fs::write(home.join("src/config/reference.toml"), &text).unwrap();
        let page = home.join("../docs/src/keys.md");
        let old = std::fs::read_to_string(&page).unwrap();
        let (before, rest) = old.split_once("```toml\n").unwrap();
        let (_, after) = rest.split_once("```").unwrap();
        std::fs::write(page, format!("{before}```toml\n{text}```{after}")).unwrap();
        return;
    }
    let differs = reference::TEXT.lines().zip(text.lines()).find(|(ours, made)| ours != made);
    assert!(
        text == reference::TEXT,
        "{differs:?}; `WRITE_BOOK=1 cargo test -p maverl --lib config::tests` writes the rows anew"
    );
}
