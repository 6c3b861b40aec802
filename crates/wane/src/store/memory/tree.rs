//! The ordered rows of one partition: a tree of three levels that readers walk without a lock.
//!
//! Every node publishes its content as one immutable list. One writer at a time replaces the list
//! of a leaf to add or remove a row. A node that overflows or runs low is replaced by new nodes
//! in its parent's list, and the old one stays as it was for whoever still reads it. So a reader
//! finds every row that was there when it began, in order and once.
//!
//! Rows carry their own clustering: a slot may be reused while an old leaf still names it.

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::points::SlotId;
use crate::store::inline::InlineBytes;

/// The most rows or children of a node, but for the root's.
const MOST: usize = 64;

/// A node with fewer is joined to its neighbour, where the two make a node that is not full.
const FEW: usize = MOST / 4;

pub(super) type Clustering = InlineBytes<30>;

/// A row: its clustering and where its record is.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) clustering: Clustering,
    pub(super) id: SlotId,
}

/// A level of the tree.
pub(super) trait Node: Debug + Sized {
    /// Adds a row in place, or returns the two nodes that must take this one's place.
    fn insert(&self, row: Row) -> Option<[Child<Self>; 2]>;

    /// Removes a row in place.
    fn remove(&self, clustering: &[u8]);

    /// Hands the rows from `start` on to `visit`.
    fn walk(
        &self,
        start: &[u8],
        visit: &mut impl FnMut(&Row) -> ControlFlow<()>,
    ) -> ControlFlow<()>;

    /// Rows or children.
    fn len(&self) -> usize;

    /// A node with what is in this one and in its right neighbour.
    fn joined(&self, right: &Self) -> Self;
}

/// A node in its parent's list, with the least clustering that belongs there.
#[derive(Debug)]
pub(super) struct Child<N> {
    first: Clustering,
    node: Arc<N>,
}

impl<N> Clone for Child<N> {
    fn clone(&self) -> Self {
        Self { first: self.first.clone(), node: Arc::clone(&self.node) }
    }
}

/// The lowest level.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    rows: ArcSwap<Vec<Row>>,
}

impl Leaf {
    fn with(rows: Vec<Row>) -> Self {
        Self { rows: ArcSwap::from_pointee(rows) }
    }

    fn child(rows: &[Row]) -> Child<Self> {
        let first = rows.first().map_or(Clustering::EMPTY, |row| row.clustering.clone());
        Child { first, node: Arc::new(Self::with(rows.to_vec())) }
    }
}

fn position(rows: &[Row], clustering: &[u8]) -> Result<usize, usize> {
    rows.binary_search_by(|row| row.clustering.as_slice().cmp(clustering))
}

impl Node for Leaf {
    fn insert(&self, row: Row) -> Option<[Child<Self>; 2]> {
        let rows = self.rows.load();
        let mut next = Vec::with_capacity(rows.len() + 1);
        match position(&rows, row.clustering.as_slice()) {
            Ok(at) => {
                next.extend_from_slice(&rows);
                next[at] = row;
            }
            Err(at) => {
                next.extend_from_slice(&rows[..at]);
                next.push(row);
                next.extend_from_slice(&rows[at..]);
            }
        }
        if next.len() > MOST {
            let (left, right) = next.split_at(next.len() / 2);
            return Some([Self::child(left), Self::child(right)]);
        }
        self.rows.store(Arc::new(next));
        None
    }

    fn remove(&self, clustering: &[u8]) {
        let rows = self.rows.load();
        if let Ok(at) = position(&rows, clustering) {
            self.rows.store(Arc::new([&rows[..at], &rows[at + 1..]].concat()));
        }
    }

    fn walk(
        &self,
        start: &[u8],
        visit: &mut impl FnMut(&Row) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let rows = self.rows.load();
        let (Ok(from) | Err(from)) = position(&rows, start);
        rows[from..].iter().try_for_each(visit)
    }

    fn len(&self) -> usize {
        self.rows.load().len()
    }

    fn joined(&self, right: &Self) -> Self {
        Self::with([&self.rows.load()[..], &right.rows.load()[..]].concat())
    }
}

/// A level above another.
#[derive(Debug)]
pub(super) struct Branch<N> {
    children: ArcSwap<Vec<Child<N>>>,
}

impl<N> Default for Branch<N> {
    fn default() -> Self {
        Self::with(Vec::new())
    }
}

impl<N> Branch<N> {
    fn with(children: Vec<Child<N>>) -> Self {
        Self { children: ArcSwap::from_pointee(children) }
    }

    fn child(children: &[Child<N>]) -> Child<Self> {
        let first = children.first().map_or(Clustering::EMPTY, |child| child.first.clone());
        Child { first, node: Arc::new(Self::with(children.to_vec())) }
    }
}

/// The child that `clustering` belongs to; everything before the second one belongs to the first.
fn place<N>(children: &[Child<N>], clustering: &[u8]) -> usize {
    children.partition_point(|child| child.first.as_slice() <= clustering).saturating_sub(1)
}

impl<N: Node + Default> Branch<N> {
    /// Adds a row, with as many children as that takes.
    fn grow(&self, row: Row) -> Option<Vec<Child<N>>> {
        let children = self.children.load();
        if children.is_empty() {
            let first = row.clustering.clone();
            let node = Arc::new(N::default());
            node.insert(row);
            return Some(vec![Child { first, node }]);
        }
        let at = place(&children, row.clustering.as_slice());
        let [mut left, right] = children[at].node.insert(row)?;
        // The first child takes everything before it, so its bound stays as it was.
        left.first = children[at].first.clone();
        Some([&children[..at], &[left, right], &children[at + 1..]].concat())
    }
}

impl<N: Node + Default> Node for Branch<N> {
    fn insert(&self, row: Row) -> Option<[Child<Self>; 2]> {
        let next = self.grow(row)?;
        if next.len() > MOST {
            let (left, right) = next.split_at(next.len() / 2);
            return Some([Self::child(left), Self::child(right)]);
        }
        self.children.store(Arc::new(next));
        None
    }

    fn remove(&self, clustering: &[u8]) {
        let children = self.children.load();
        if children.is_empty() {
            return;
        }
        let at = place(&children, clustering);
        let child = &children[at];
        child.node.remove(clustering);
        let len = child.node.len();
        if len == 0 {
            self.children.store(Arc::new([&children[..at], &children[at + 1..]].concat()));
        } else if len < FEW {
            // With its right neighbour or, for the last one, with its left.
            let at = at.min(children.len().saturating_sub(2));
            if let [left, right, ..] = &children[at..]
                && left.node.len() + right.node.len() <= MOST - FEW
            {
                let node = Arc::new(left.node.joined(&right.node));
                let joined = Child { first: left.first.clone(), node };
                let next = [&children[..at], &[joined], &children[at + 2..]].concat();
                self.children.store(Arc::new(next));
            }
        }
    }

    fn walk(
        &self,
        start: &[u8],
        visit: &mut impl FnMut(&Row) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let children = self.children.load();
        let from = place(&children, start);
        children[from..].iter().try_for_each(|child| child.node.walk(start, visit))
    }

    fn len(&self) -> usize {
        self.children.load().len()
    }

    fn joined(&self, right: &Self) -> Self {
        Self::with([&self.children.load()[..], &right.children.load()[..]].concat())
    }
}

/// The whole tree. Writers take turns; see `ranges`.
#[derive(Debug, Default)]
pub(super) struct Tree {
    root: Branch<Branch<Leaf>>,
}

impl Tree {
    pub(super) fn insert(&self, row: Row) {
        // Only the root may have more than the most children.
        if let Some(next) = self.root.grow(row) {
            self.root.children.store(Arc::new(next));
        }
    }

    pub(super) fn remove(&self, clustering: &[u8]) {
        self.root.remove(clustering);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.root.len() == 0
    }

    /// Hands the rows from `start` on to `visit`, in order, until it breaks.
    pub(super) fn walk(&self, start: &[u8], mut visit: impl FnMut(&Row) -> ControlFlow<()>) {
        // Breaking is how a visitor says that it has enough.
        let (ControlFlow::Continue(()) | ControlFlow::Break(())) =
            self.root.walk(start, &mut visit);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn rows(tree: &Tree, start: &[u8]) -> Vec<(Vec<u8>, SlotId)> {
        let mut found = Vec::new();
        tree.walk(start, |row| {
            found.push((row.clustering.as_slice().to_vec(), row.id));
            ControlFlow::Continue(())
        });
        found
    }

    /// Adds and removes rows at random and compares with an ordered map at every step's end.
    #[test]
    fn holds_what_an_ordered_map_holds() {
        let tree = Tree::default();
        let mut map = BTreeMap::new();
        let mut chance = 7_u64;
        for step in 0..60_000_u32 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (chance >> 40) % 8_000;
            let clustering = number.to_be_bytes();
            // Grows for the first half, shrinks to nothing in the second.
            let grows = step < 30_000;
            if (chance >> 33) % 4 < if grows { 3 } else { 1 } {
                let id = SlotId::numbered(step);
                tree.insert(Row { clustering: clustering.as_slice().into(), id });
                map.insert(clustering.to_vec(), id);
            } else {
                tree.remove(&clustering);
                map.remove(clustering.as_slice());
            }
            if step % 3_000 == 0 {
                let start = (number / 2).to_be_bytes();
                let expected = map.range(start.to_vec()..).map(|(k, id)| (k.clone(), *id));
                assert_eq!(rows(&tree, &start), expected.collect::<Vec<_>>());
            }
        }
        for clustering in map.keys() {
            tree.remove(clustering);
        }
        assert!(tree.is_empty());
    }
}
