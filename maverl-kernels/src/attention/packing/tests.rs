use super::*;

#[test]
fn a_path_that_is_stored_in_one_piece_is_one_range() {
    let packing = Packing {
        offsets: &[0, 3, 5, 7, 8, 10],
        parents: &[None, Some(0), Some(1), Some(0), None],
    };
    assert_eq!(packing.assert_valid("attention"), 10);
    let nodes = packing.path_nodes();
    let paths: Vec<String> = nodes.iter().map(|node| format!("{:?}", node.path)).collect();
    assert_eq!(paths, ["[0..3]", "[0..5]", "[0..7]", "[0..3, 7..8]", "[8..10]"]);
    let pasts: Vec<usize> = nodes.iter().map(|node| node.past).collect();
    assert_eq!(pasts, [0, 3, 5, 3, 0]);
    let ancestors: Vec<usize> =
        nodes.iter().map(|node| node.ancestors().map(|tokens| tokens.len()).sum()).collect();
    assert_eq!(ancestors, pasts);
    assert_eq!(packing.trees().collect::<Vec<_>>(), [0..4, 4..5]);
    assert_eq!((packing.subtree_end(0), packing.subtree_end(1)), (4, 3));
}
