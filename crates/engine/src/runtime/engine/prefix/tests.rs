use super::*;

/// Returns the content of a tree of one root, in order.
fn keys(prefixes: &PrefixTree, node: NodeId) -> Vec<(Vec<u32>, u32)> {
    let children = prefixes.nodes[node].children.iter();
    let nested = children.flat_map(|(key, &child)| {
        assert_eq!(prefixes.nodes[child].parent, node);
        let here = (key.to_vec(), prefixes.nodes[child].block);
        std::iter::once(here).chain(keys(prefixes, child))
    });
    nested.collect()
}

#[test]
fn a_start_of_what_is_there_is_not_kept_and_a_longer_one_takes_its_place() {
    let mut prefixes = PrefixTree::new(1);
    assert_eq!(prefixes.insert(0, &[1, 2], 7), Inserted::New { node: 1, replaced: None });
    assert_eq!(prefixes.insert(0, &[1], 8), Inserted::There { node: 1, block: 7 });
    assert_eq!(prefixes.insert(0, &[1, 3], 9), Inserted::New { node: 2, replaced: None });
    let longer = prefixes.insert(0, &[1, 2, 3], 10);
    assert_eq!(longer, Inserted::New { node: 1, replaced: Some(7) });
    assert_eq!(prefixes.nearest(0, &[1, 2, 4]), Some((10, 2)));
    assert_eq!(prefixes.nearest(0, &[1, 3, 4]), Some((9, 2)));
    assert_eq!(prefixes.nearest(0, &[2]), None);
    assert_eq!(keys(&prefixes, 0), [(vec![1, 2, 3], 10), (vec![1, 3], 9)]);
}

#[test]
fn an_evicted_chain_goes_leaf_by_leaf_and_what_is_in_use_stays() {
    let mut prefixes = PrefixTree::new(2);
    let mut at = 0;
    for block in 0..4 {
        let Inserted::New { node, .. } = prefixes.insert(at, &[block], block) else {
            panic!("it is new")
        };
        at = node;
    }
    prefixes.insert(1, &[0], 9);
    let mut freed = Vec::new();
    prefixes.evict(3, |block| block != 1, |_, block| freed.push(block));
    assert_eq!(freed, [3, 2, 9], "block 1 is in use, and holds block 0");
    prefixes.evict(9, |_| true, |_, block| freed.push(block));
    assert_eq!(freed, [3, 2, 9, 1, 0]);
    assert!(keys(&prefixes, 0).is_empty() && keys(&prefixes, 1).is_empty());
}

#[test]
fn a_cleared_root_leaves_the_others_alone() {
    let mut prefixes = PrefixTree::new(2);
    for root in 0..2 {
        let Inserted::New { node, .. } = prefixes.insert(root, &[1], root as u32) else {
            panic!("it is new")
        };
        prefixes.insert(node, &[2], 10 + root as u32);
    }
    let mut freed = Vec::new();
    prefixes.clear(0, |_, block| freed.push(block));
    assert_eq!(freed, [0, 10]);
    assert!(keys(&prefixes, 0).is_empty());
    assert_eq!(keys(&prefixes, 1), [(vec![1], 1), (vec![2], 11)]);
}
