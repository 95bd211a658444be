//! Packed sequences that share what they begin with: a forest of nodes in pre-order.

use std::ops::Range;

/// Sequences packed one after the other, without padding. What several sequences begin with is stored once: a *node* is
/// a run of tokens, and a sequence consists of the nodes on the path from a root to one of the nodes.
///
/// Nodes are in pre-order, each followed by its descendants: the parent of a node is the node before it, or an ancestor of
/// that one.
#[derive(Debug, Clone, Copy)]
pub struct Packing<'a> {
    /// Bounds of the nodes: node `n` has the tokens `offsets[n]..offsets[n + 1]`.
    pub offsets: &'a [usize],
    /// Parent of each node; `None` of a root. Nodes past the end of this list are roots.
    pub parents: &'a [Option<usize>],
}

/// Node of a packing, with the tokens that its queries see.
#[derive(Debug, Clone)]
pub(crate) struct PathNode {
    /// Own tokens.
    pub(crate) own: Range<usize>,
    /// Number of tokens of its ancestors, the position of its first token.
    pub(crate) past: usize,
    /// Tokens from the root on, own ones included. Nodes of the path that follow each other form one range.
    pub(crate) path: Vec<Range<usize>>,
}

impl<'a> Packing<'a> {
    /// Packs sequences that share nothing.
    pub fn from_offsets(offsets: &'a [usize]) -> Self {
        Self { offsets, parents: &[] }
    }

    /// Returns the parent of node `n`.
    pub fn parent_of_node(&self, n: usize) -> Option<usize> {
        self.parents.get(n).copied().flatten()
    }

    /// Returns the nodes in their order.
    pub(crate) fn path_nodes(&self) -> Vec<PathNode> {
        let mut nodes: Vec<PathNode> = Vec::with_capacity(self.offsets.len());
        for (n, bounds) in self.offsets.windows(2).enumerate() {
            let parent = self.parent_of_node(n).map(|parent| &nodes[parent]);
            nodes.push(PathNode::under(parent, bounds[0]..bounds[1]));
        }
        nodes
    }

    /// Iterates over the trees: the range of their nodes.
    pub(crate) fn trees(self) -> impl Iterator<Item = Range<usize>> + 'a {
        let nodes = self.offsets.len() - 1;
        let roots = (0..nodes).filter(move |&n| self.parent_of_node(n).is_none());
        roots.map(move |root| root..self.subtree_end(root))
    }

    /// Returns the end of the nodes that begin with `n` and its descendants.
    pub(crate) fn subtree_end(&self, n: usize) -> usize {
        let later = (n + 1..self.offsets.len() - 1)
            .take_while(|&later| self.parent_of_node(later) >= Some(n));
        n + 1 + later.count()
    }

    /// Asserts that offsets rise from 0 and that nodes are in pre-order. Returns the number of tokens.
    #[track_caller]
    pub(crate) fn assert_valid(self, name: &str) -> usize {
        let Self { offsets, parents } = self;
        assert_eq!(offsets.first(), Some(&0), "{name}: offsets begin at 0");
        assert!(offsets.is_sorted(), "{name}: offsets rise");
        assert!(parents.len() < offsets.len(), "{name}: a parent for each node");
        for (n, parent) in parents.iter().enumerate() {
            let mut before = n.checked_sub(1);
            while before > *parent {
                before = before.and_then(|before| self.parent_of_node(before));
            }
            assert_eq!(
                before, *parent,
                "{name}: the parent of node {n} is the node before it or an ancestor of that"
            );
        }
        offsets.last().copied().unwrap_or(0)
    }
}

impl PathNode {
    fn under(parent: Option<&Self>, own: Range<usize>) -> Self {
        let mut path = parent.map_or_else(Vec::new, |parent| parent.path.clone());
        match path.last_mut() {
            Some(last) if last.end == own.start => last.end = own.end,
            _ => path.push(own.clone()),
        }
        let past = parent.map_or(0, |parent| parent.past + parent.own.len());
        Self { own, past, path }
    }

    /// Iterates over the tokens of the path before the own ones.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let last = self.path.len() - 1;
        let ranges = self.path.iter().enumerate();
        ranges.map(move |(i, tokens)| {
            tokens.start..if i == last { self.own.start } else { tokens.end }
        })
    }

    /// Returns the part of `x [n, width]` with the tokens of the path, if they follow each other.
    pub(crate) fn contiguous<'x>(&self, x: &'x [f32], width: usize) -> Option<&'x [f32]> {
        match self.path.as_slice() {
            [tokens] => Some(token_rows(x, tokens, width)),
            _ => None,
        }
    }
}

/// Returns the part of `x [n, width]` that belongs to some tokens.
pub(super) fn token_rows<'a>(x: &'a [f32], tokens: &Range<usize>, width: usize) -> &'a [f32] {
    &x[tokens.start * width..tokens.end * width]
}

#[cfg(test)]
mod tests;
