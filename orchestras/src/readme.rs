//! Comparison of the README with the orchestras that are declared here.
#![allow(clippy::unwrap_used)]

use maverl::registry::Registry;

#[test]
fn the_readme_counts_the_orchestras_and_names_the_one_that_needs_a_feature() {
    let readme = include_str!("../../README.md");
    let line = readme.lines().find(|line| line.contains("ready-made [orchestras]")).unwrap();
    let count: usize = line.split(' ').find_map(|word| word.parse().ok()).unwrap();
    let registry = Registry::collect().unwrap();
    let here = registry.orchestras.values();
    let here = here.filter(|entry| entry.declaration.place.item.starts_with("orchestras::"));
    let without = usize::from(cfg!(not(feature = "serve")));
    assert_eq!(here.count() + without, count);
    assert!(line.contains("`program/run`, needs the Cargo feature `serve`"), "{line}");
    assert_eq!(registry.orchestras.contains_key("program/run"), cfg!(feature = "serve"));
}
