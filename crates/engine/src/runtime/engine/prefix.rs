//! Prefix tree: a radix tree over token ids with one block per edge.
//!
//! Each policy has one. A request starts with the longest prefix of its prompt that is in the tree: whole blocks are
//! shared, and the tokens that match of one more block are copied. A block enters the tree when it is full. So the
//! prompt of a group and the history of a conversation are computed once. While a request computes a block, others that
//! need it wait.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Bound;
use std::sync::Arc;

/// Index of a node, which stands for the tokens on the path to it.
pub(super) type NodeId = usize;

/// One tree for each root, with all nodes in one arena. Only leaves may hold less than a whole block.
pub(super) struct PrefixTree {
    nodes: Vec<PrefixNode>,
    roots: usize,
    /// Unused nodes.
    spare: Vec<NodeId>,
    clock: u64,
}

struct PrefixNode {
    parent: NodeId,
    key: Arc<[u32]>,
    block: u32,
    children: BTreeMap<Arc<[u32]>, NodeId>,
    /// Time of the last access.
    used: u64,
}

/// Result of an insertion.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    /// The tree already has these tokens, in this block.
    There { node: NodeId, block: u32 },
    /// The tree now has the block. `replaced` is the block with fewer of the same tokens that it replaces.
    New { node: NodeId, replaced: Option<u32> },
}

impl PrefixNode {
    /// Creates the root of a tree, which is its own parent.
    fn root(node: NodeId) -> Self {
        let (key, children) = (Arc::default(), BTreeMap::new());
        Self { parent: node, key, block: u32::MAX, children, used: 0 }
    }

    /// Returns true if it has a key and no children.
    fn is_leaf(&self) -> bool {
        self.children.is_empty() && !self.key.is_empty()
    }
}

impl PrefixTree {
    /// Creates empty trees, whose roots are the nodes `0..roots`.
    pub(super) fn new(roots: usize) -> Self {
        Self {
            nodes: (0..roots).map(PrefixNode::root).collect(),
            roots,
            spare: Vec::new(),
            clock: 0,
        }
    }

    /// Returns the child node for these tokens, and its block.
    pub(super) fn child(&mut self, node: NodeId, key: &[u32]) -> Option<(NodeId, u32)> {
        let &child = self.nodes[node].children.get(key)?;
        Some((child, self.touch(child)))
    }

    /// Returns the block that shares the longest prefix with these tokens, and the length of that prefix; at least one.
    pub(super) fn nearest(&mut self, node: NodeId, key: &[u32]) -> Option<(u32, usize)> {
        // In sorted order, the neighbors of a key share the longest prefixes with it.
        let children = &self.nodes[node].children;
        let mut before = children.range::<[u32], _>((Bound::Unbounded, Bound::Included(key)));
        let mut after = children.range::<[u32], _>((Bound::Excluded(key), Bound::Unbounded));
        let neighbours = before.next_back().into_iter().chain(after.next());
        let (agree, child) =
            neighbours.map(|(other, &child)| (agreeing(key, other), child)).max()?;
        (agree > 0).then(|| (self.touch(child), agree))
    }

    /// Iterates over the nodes after a node, each with the length of the prefix that its tokens share with `key`.
    pub(super) fn children_like(
        &self,
        node: NodeId,
        key: &[u32],
    ) -> impl Iterator<Item = (NodeId, usize)> {
        let children = self.nodes[node].children.iter();
        children.map(move |(other, &child)| (child, agreeing(key, other)))
    }

    /// Returns the node before a node.
    pub(super) fn parent(&self, node: NodeId) -> NodeId {
        self.nodes[node].parent
    }

    /// Returns the block of a node.
    pub(super) fn block(&self, node: NodeId) -> u32 {
        self.nodes[node].block
    }

    /// Inserts `block` with the tokens `key` after `parent`. A node that is replaced by one with more tokens keeps its number.
    pub(super) fn insert(&mut self, parent: NodeId, key: &[u32], block: u32) -> Inserted {
        let children = &self.nodes[parent].children;
        let after = children.range::<[u32], _>((Bound::Included(key), Bound::Unbounded)).next();
        if let Some((_, &node)) = after.filter(|(other, _)| other.starts_with(key)) {
            return Inserted::There { node, block: self.touch(node) };
        }
        let mut before = children.range::<[u32], _>((Bound::Unbounded, Bound::Excluded(key)));
        let start = before.next_back().filter(|(other, _)| key.starts_with(other)).map(|(_, &n)| n);
        let replaced = start.map(|node| self.remove(node));
        let key: Arc<[u32]> = key.into();
        let node =
            PrefixNode { parent, key: Arc::clone(&key), block, children: BTreeMap::new(), used: 0 };
        let id = match self.spare.pop() {
            Some(id) => {
                self.nodes[id] = node;
                id
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        self.touch(id);
        self.nodes[parent].children.insert(key, id);
        Inserted::New { node: id, replaced }
    }

    /// Removes up to `many` leaves that are `idle`, in LRU order, and passes them with their blocks to `freed`. A node that loses
    /// its last child becomes a leaf.
    pub(super) fn evict(
        &mut self,
        many: usize,
        idle: impl Fn(u32) -> bool,
        mut freed: impl FnMut(NodeId, u32),
    ) {
        let leaves = self.nodes.iter().enumerate();
        let leaves = leaves.filter(|(_, node)| node.is_leaf() && idle(node.block));
        let mut oldest: BinaryHeap<Reverse<(u64, NodeId)>> =
            leaves.map(|(id, node)| Reverse((node.used, id))).collect();
        for _ in 0..many {
            let Some(Reverse((_, id))) = oldest.pop() else { return };
            let above = self.nodes[id].parent;
            freed(id, self.remove(id));
            let parent = &self.nodes[above];
            if parent.is_leaf() && idle(parent.block) {
                oldest.push(Reverse((parent.used, above)));
            }
        }
    }

    /// Empties the tree of one root.
    pub(super) fn clear(&mut self, root: NodeId, mut freed: impl FnMut(NodeId, u32)) {
        let mut below: Vec<NodeId> = self.nodes[root].children.values().copied().collect();
        self.nodes[root].children.clear();
        while let Some(id) = below.pop() {
            let children = std::mem::take(&mut self.nodes[id].children);
            below.extend(children.into_values());
            freed(id, self.vacate(id));
        }
    }

    /// Removes a leaf and returns its block.
    fn remove(&mut self, id: NodeId) -> u32 {
        let PrefixNode { parent, key, children, .. } = &self.nodes[id];
        debug_assert!(children.is_empty() && id >= self.roots, "only leaves are removed");
        let (parent, key) = (*parent, Arc::clone(key));
        self.nodes[parent].children.remove(&key);
        self.vacate(id)
    }

    fn vacate(&mut self, id: NodeId) -> u32 {
        self.nodes[id].key = Arc::default();
        self.spare.push(id);
        self.nodes[id].block
    }

    fn touch(&mut self, id: NodeId) -> u32 {
        self.clock += 1;
        self.nodes[id].used = self.clock;
        self.nodes[id].block
    }
}

/// Returns the length of the common prefix.
fn agreeing(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests;
