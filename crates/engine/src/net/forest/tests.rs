#![allow(clippy::unwrap_used)]

use serde_json::Value;

use super::*;

fn golden() -> Value {
    serde_json::from_str(include_str!("../../../../../tests/fixtures/packing_tree.json")).unwrap()
}

fn whole_numbers(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as usize).collect()
}

/// Prompt and completion of each row of a case.
fn rows_of(case: &Value) -> Vec<[Vec<u32>; 2]> {
    let ids = |list: &Value| whole_numbers(list).into_iter().map(|id| id as u32).collect();
    let rows = case["rows"].as_array().unwrap().iter();
    rows.map(|row| ["prompt", "completion"].map(|part| ids(&row[part]))).collect()
}

/// Text of each row: all but its last token.
fn texts_of(rows: &[[Vec<u32>; 2]]) -> Vec<Vec<u32>> {
    rows.iter().map(|[prompt, reply]| [prompt, &reply[..reply.len() - 1]].concat()).collect()
}

fn forest_of<'a>(texts: impl IntoIterator<Item = &'a Vec<u32>>, min_shared: usize) -> Forest<'a> {
    let mut forest = Forest::new(min_shared);
    texts.into_iter().for_each(|text| forest.add_text(text));
    forest
}

#[test]
fn a_token_counts_for_each_text_that_has_it() {
    let texts = [vec![1, 2, 3, 4], vec![1, 2, 9], vec![1, 2], vec![7], vec![1, 2, 3, 4]];
    let packed = forest_of(&texts, 1).pack();
    let counts = packed.count_texts([1.0, 1.0, 1.0, 1.0, 0.5].into_iter());
    let of = |text: usize, position| counts[packed.token_index(text, position)];
    assert_eq!(
        [of(0, 0), of(0, 1), of(0, 2), of(0, 3), of(1, 2), of(3, 0)],
        [3.5, 3.5, 1.5, 1.5, 1.0, 1.0]
    );
    assert_eq!(counts.iter().sum::<f32>(), 4.0 + 3.0 + 2.0 + 1.0 + 2.0);
}

#[test]
fn forests_have_the_golden_packings() {
    for case in golden()["trees"].as_array().unwrap() {
        let (name, want, rows) = (&case["name"], &case["outputs"], rows_of(case));
        let texts = texts_of(&rows);
        let forest = forest_of(&texts, case["min_shared"].as_u64().unwrap() as usize);
        let packed = forest.pack();
        let numbers = |list: &[u32]| list.iter().map(|&x| x as usize).collect::<Vec<_>>();
        assert_eq!(numbers(&packed.ids), whole_numbers(&want["ids"]), "{name}");
        assert_eq!(numbers(&packed.positions), whole_numbers(&want["positions"]), "{name}");
        assert_eq!(packed.offsets, whole_numbers(&want["offsets"]), "{name}");
        let parents = want["parents"].as_array().unwrap().iter();
        let parents: Vec<_> = parents.map(|x| x.as_u64().map(|x| x as usize)).collect();
        assert_eq!(packed.parents, parents, "{name}");
        let places = rows.iter().enumerate().flat_map(|(row, [prompt, reply])| {
            let packed = &packed;
            (0..reply.len()).map(move |i| packed.token_index(row, prompt.len() - 1 + i))
        });
        assert_eq!(places.collect::<Vec<_>>(), whole_numbers(&want["before"]), "{name}");
        assert_eq!(Some(forest.tokens() as u64), want["computed"].as_u64(), "{name}");
    }
}

#[test]
fn forests_have_the_golden_orders_and_micro_batches() {
    for case in golden()["pieces"].as_array().unwrap() {
        let (name, want, rows) = (&case["name"], &case["outputs"], rows_of(case));
        let [min_shared, budget] =
            ["min_shared", "micro_batch_tokens"].map(|key| case[key].as_u64().unwrap() as usize);
        let texts = texts_of(&rows);
        let whole = forest_of(&texts, min_shared);
        let order = whole.text_order();
        assert_eq!(order, whole_numbers(&want["order"]), "{name}");
        let mut batches: Vec<Vec<usize>> = Vec::new();
        let mut forest = Forest::new(min_shared);
        for &text in &order {
            let fits = forest.tokens() + forest.missing_tokens(&texts[text]) <= budget;
            if !fits || batches.is_empty() {
                batches.push(Vec::new());
                forest = Forest::new(min_shared);
            }
            forest.add_text(&texts[text]);
            batches.last_mut().unwrap().push(text);
        }
        let sizes: Vec<usize> = batches.iter().map(Vec::len).collect();
        assert_eq!(sizes, whole_numbers(&want["rows"]), "{name}");
        let forests =
            batches.iter().map(|batch| forest_of(batch.iter().map(|&i| &texts[i]), min_shared));
        let tokens: Vec<usize> = forests.map(|forest| forest.tokens()).collect();
        assert_eq!(tokens, whole_numbers(&want["tokens"]), "{name}");
        let computed: usize = tokens.iter().sum();
        assert_eq!(Some(computed as u64), want["computed"].as_u64(), "{name}");
        assert_eq!(Some((computed - whole.tokens()) as u64), want["recomputed"].as_u64(), "{name}");
    }
}

/// Returns texts over few ids, many of which begin alike.
fn random_texts(seed: u64) -> Vec<Vec<u32>> {
    let mut state = seed;
    let mut draw = |end: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let count = 1 + draw(40);
    (0..count).map(|_| (0..1 + draw(24)).map(|_| draw(2) as u32).collect()).collect()
}

#[test]
fn every_text_is_spelled_by_its_places_and_no_token_is_there_twice() {
    for seed in 0..200 {
        let (texts, min_shared) = (random_texts(seed), 1 + seed as usize % 6);
        let mut forest = Forest::new(min_shared);
        let mut tokens = 0;
        for text in &texts {
            tokens += forest.missing_tokens(text);
            forest.add_text(text);
            assert_eq!(forest.tokens(), tokens);
        }
        let packed = forest.pack();
        assert_eq!(packed.ids.len(), tokens);
        let mut spelled = BTreeMap::new();
        for (index, text) in texts.iter().enumerate() {
            for (position, &id) in text.iter().enumerate() {
                let place = packed.token_index(index, position);
                assert_eq!((packed.ids[place], packed.positions[place]), (id, position as u32));
                // One place never stands for two beginnings.
                let prefix = &text[..=position];
                assert_eq!(*spelled.entry(place).or_insert(prefix), prefix);
            }
        }
        assert_eq!(spelled.len(), tokens);
        // Two places stand for one beginning only if it is in trees that share too little.
        let mut beginnings: BTreeMap<&[u32], usize> = BTreeMap::new();
        spelled.values().for_each(|prefix| *beginnings.entry(prefix).or_default() += 1);
        assert!(beginnings.iter().all(|(prefix, &count)| count == 1 || prefix.len() < min_shared));
        let mut order = forest.text_order();
        order.sort_unstable();
        assert!(order.into_iter().eq(0..texts.len()));
    }
}

#[test]
fn short_texts_and_texts_that_do_not_share_are_trees_of_their_own() {
    let texts = [vec![1; 15], vec![1; 15], vec![1; 16], vec![1; 16], vec![1; 20]];
    let texts = || texts.iter().map(Vec::as_slice);
    assert_eq!(Forest::of_texts(texts(), true).tokens(), 15 + 15 + 20);
    assert_eq!(Forest::of_texts(texts(), false).tokens(), 15 + 15 + 16 + 16 + 20);
}
