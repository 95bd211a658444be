//! Texts as a forest: a radix tree over their longest common prefixes, so that a common token is computed once.
//!
//! A *node* is a run of tokens, and the path from a root to a node spells the beginning of one or more texts. A hidden state
//! depends only on the tokens of its path, so texts that share a node share its states, to the bit (K-1).

use std::collections::BTreeMap;

use maverl_kernels::attention::Packing;

use crate::net::rows::Rows;

/// Number of tokens with which two texts must begin to share any: a tile of queries. Shorter runs cost more than they save.
pub(crate) const MIN_SHARED: usize = 16;

/// Radix tree over texts.
#[derive(Debug, Clone)]
pub(crate) struct Forest<'a> {
    min_shared: usize,
    nodes: Vec<Node<'a>>,
    /// Root of each tree.
    roots: Vec<usize>,
    /// Trees by the first `min_shared` tokens of their root.
    trees: BTreeMap<&'a [u32], usize>,
    /// Texts in the order in which they were added, with their trees.
    texts: Vec<(&'a [u32], usize)>,
    tokens: usize,
}

/// Run of tokens of a forest.
#[derive(Debug, Clone)]
struct Node<'a> {
    tokens: &'a [u32],
    /// Position of the first token.
    start: usize,
    /// Children in the order of their first texts, which differ in their first tokens.
    children: Vec<usize>,
}

impl Node<'_> {
    fn end(&self) -> usize {
        self.start + self.tokens.len()
    }
}

impl Default for Forest<'_> {
    fn default() -> Self {
        Self::new(MIN_SHARED)
    }
}

impl<'a> Forest<'a> {
    /// Creates a forest whose texts share what they begin with if it has at least so many tokens.
    pub(crate) fn new(min_shared: usize) -> Self {
        let (nodes, roots, texts) = (Vec::new(), Vec::new(), Vec::new());
        Self { min_shared, nodes, roots, trees: BTreeMap::new(), texts, tokens: 0 }
    }

    /// Creates the forest of texts. Without `share`, each text is a root of its own.
    pub(crate) fn of_texts(texts: impl IntoIterator<Item = &'a [u32]>, share: bool) -> Self {
        let mut forest = Self::new(if share { MIN_SHARED } else { usize::MAX });
        texts.into_iter().for_each(|text| forest.add_text(text));
        forest
    }

    /// Returns the number of tokens of all nodes.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    /// Returns the number of tokens that a text would add.
    pub(crate) fn missing_tokens(&self, text: &[u32]) -> usize {
        let Some(tree) = self.tree_of(text) else { return text.len() };
        let (node, same) = self.walk_down(self.roots[tree], text);
        text.len() - self.nodes[node].start - same
    }

    /// Adds a text.
    pub(crate) fn add_text(&mut self, text: &'a [u32]) {
        let Some(tree) = self.tree_of(text) else { return self.add_root(text) };
        self.texts.push((text, tree));
        let (node, same) = self.walk_down(self.roots[tree], text);
        let Node { tokens, start, children } = &mut self.nodes[node];
        let end = *start + same;
        self.tokens += text.len() - end;
        if end == text.len() {
            return;
        }
        if same == tokens.len() && children.is_empty() {
            *tokens = &text[*start..];
            return;
        }
        if same < tokens.len() {
            self.split_node(node, same);
        }
        let child = self.push_node(&text[end..], end);
        self.nodes[node].children.push(child);
    }

    fn add_root(&mut self, text: &'a [u32]) {
        let (root, tree) = (self.push_node(text, 0), self.roots.len());
        self.roots.push(root);
        self.texts.push((text, tree));
        self.tokens += text.len();
        if let Some(head) = text.get(..self.min_shared) {
            self.trees.insert(head, tree);
        }
    }

    fn push_node(&mut self, tokens: &'a [u32], start: usize) -> usize {
        self.nodes.push(Node { tokens, start, children: Vec::new() });
        self.nodes.len() - 1
    }

    /// Splits a node after its first `same` tokens.
    fn split_node(&mut self, node: usize, same: usize) {
        let Node { tokens, start, children } = &mut self.nodes[node];
        let (head, rest) = tokens.split_at(same);
        *tokens = head;
        let (rest, start, children) = (rest, *start + same, std::mem::take(children));
        let lower = self.push_node(rest, start);
        self.nodes[lower].children = children;
        self.nodes[node].children = vec![lower];
    }

    /// Returns the tree that begins with enough tokens of a text.
    fn tree_of(&self, text: &[u32]) -> Option<usize> {
        self.trees.get(text.get(..self.min_shared)?).copied()
    }

    /// Walks from a node as far as it spells a text. Returns the last node, and the number of its tokens that the text has.
    fn walk_down(&self, mut node: usize, text: &[u32]) -> (usize, usize) {
        loop {
            let Node { tokens, start, children } = &self.nodes[node];
            let pairs = tokens.iter().zip(&text[*start..]);
            let same = pairs.take_while(|(a, b)| a == b).count();
            let next = text.get(start + same).filter(|_| same == tokens.len());
            let child = next.and_then(|next| {
                children.iter().find(|&&child| self.nodes[child].tokens.first() == Some(next))
            });
            match child {
                Some(&child) => node = child,
                None => return (node, same),
            }
        }
    }

    /// Returns the nodes in pre-order, each with its parent's index in this order.
    fn pre_order(&self) -> Vec<(usize, Option<usize>)> {
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut stack: Vec<(usize, Option<usize>)> =
            self.roots.iter().rev().map(|&root| (root, None)).collect();
        while let Some((node, parent)) = stack.pop() {
            let index = Some(order.len());
            order.push((node, parent));
            stack.extend(self.nodes[node].children.iter().rev().map(|&child| (child, index)));
        }
        order
    }

    /// Returns the order of the texts in which those that share most are neighbors: by the pre-order of the node in which a
    /// text ends, then as they were added.
    pub(crate) fn text_order(&self) -> Vec<usize> {
        let mut ranks = vec![0; self.nodes.len()];
        self.pre_order().iter().enumerate().for_each(|(rank, (node, _))| ranks[*node] = rank);
        let mut order: Vec<usize> = (0..self.texts.len()).collect();
        order.sort_by_key(|&text| {
            let (ids, tree) = self.texts[text];
            ranks[self.walk_down(self.roots[tree], ids).0]
        });
        order
    }

    /// Returns the number of the tree of the text that was added last.
    pub(crate) fn last_tree(&self) -> usize {
        self.texts.last().map_or(0, |&(_, tree)| tree)
    }

    /// Packs the nodes in pre-order.
    pub(crate) fn pack(&self) -> PackedForest {
        let mut packed = PackedForest { offsets: vec![0], ..PackedForest::default() };
        let mut begins = vec![0; self.nodes.len()];
        for (node, parent) in self.pre_order() {
            let Node { tokens, start, .. } = &self.nodes[node];
            begins[node] = packed.ids.len();
            packed.ids.extend_from_slice(tokens);
            packed.positions.extend((*start as u32..).take(tokens.len()));
            packed.offsets.push(packed.ids.len());
            packed.parents.push(parent);
        }
        for &(text, tree) in &self.texts {
            packed.runs.push(self.text_runs(text, tree, &begins));
            packed.lengths.push(text.len());
        }
        packed
    }

    /// Returns where the runs of a text begin: position in the text, and index in the packing. `begins` has the index of each node.
    fn text_runs(&self, text: &[u32], tree: usize, begins: &[usize]) -> Vec<[usize; 2]> {
        let mut node = self.roots[tree];
        let mut runs = vec![[0, begins[node]]];
        while let Some(next) = text.get(self.nodes[node].end()) {
            let children = self.nodes[node].children.iter();
            let mut children = children.filter(|&&child| self.nodes[child].tokens[0] == *next);
            let Some(&child) = children.next() else { break };
            node = child;
            runs.push([self.nodes[node].start, begins[node]]);
        }
        runs
    }
}

/// Nodes of a forest one after the other, without padding.
#[derive(Debug, Clone, Default)]
pub(crate) struct PackedForest {
    /// Token ids `[N]`.
    pub(crate) ids: Vec<u32>,
    /// Position of each token in its texts, `[N]`.
    pub(crate) positions: Vec<u32>,
    offsets: Vec<usize>,
    parents: Vec<Option<usize>>,
    /// For each text, where its runs begin: position in the text, and index in `ids`.
    runs: Vec<Vec<[usize; 2]>>,
    /// Number of tokens of each text.
    lengths: Vec<usize>,
}

impl PackedForest {
    /// Returns the input of the decoder.
    pub(crate) fn rows(&self) -> Rows<'_> {
        let packing = Packing { offsets: &self.offsets, parents: &self.parents };
        Rows { ids: &self.ids, positions: &self.positions, packing }
    }

    /// Returns the sum of the weights of the texts with each token, `[N]`, from a weight of each text.
    pub(crate) fn count_texts(&self, weights: impl Iterator<Item = f32>) -> Vec<f32> {
        let mut counts = vec![0.0; self.ids.len()];
        for ((runs, &length), weight) in self.runs.iter().zip(&self.lengths).zip(weights) {
            let ends = runs.iter().skip(1).map(|[start, _]| *start).chain([length]);
            for ([start, index], end) in runs.iter().zip(ends) {
                counts[*index..index + end - start].iter_mut().for_each(|sum| *sum += weight);
            }
        }
        counts
    }

    /// Returns the index in `ids` of the token at a position of a text.
    pub(crate) fn token_index(&self, text: usize, position: usize) -> usize {
        let runs = &self.runs[text];
        let run = runs.partition_point(|[start, _]| *start <= position) - 1;
        runs[run][1] + position - runs[run][0]
    }
}

#[cfg(test)]
mod tests;
