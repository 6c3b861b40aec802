//! An ordered index that readers walk without a lock: the rows of a partition, or the partitions of
//! a shard.
//!
//! A few rows are one list, which takes what they take: most partitions have a row or two. More are
//! a tree of three levels. A node is one immutable list, published by the cell in its parent's list.
//! One writer at a time replaces the list of a leaf to add or remove a row.
//!
//! Invariant: a cell stands for the same names for ever. Where a leaf overflows or runs low, names move
//! to new cells in a new list of the parent, and nobody writes through the old ones any more. So a reader
//! finds every row that stays, in order, and none twice, from whichever root it began.
//!
//! Rows carry their own names: a slot may be reused while an old leaf still leads to it. Lists
//! are stored in place, so that a step down costs one cache miss and not three.

use std::fmt::Debug;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use arc_swap::ArcSwap;
use arrayvec::ArrayVec;

use crate::store::inline::InlineBytes;

/// The most rows or cells of a node, but for the root's. With it a node takes 2.5 KB, just below a
/// size that allocators round up from.
///
/// With a few, the tests of this file meet every shape that a tree can have.
const MOST: usize = if cfg!(test) { 8 } else { 62 };

/// A node with fewer is joined to a neighbour, where the two make a node that is not full.
const FEW: usize = MOST / 4;

/// What rows are ordered by.
pub(super) type Name = InlineBytes<30>;

/// A row: its name, and what it leads to.
#[derive(Debug, Clone)]
pub(super) struct Row<V> {
    pub(super) name: Name,
    pub(super) to: V,
}

/// The lowest level.
type Leaf<V> = ArrayVec<Row<V>, MOST>;

/// A level above another.
type Branch<N> = ArrayVec<Cell<N>, MOST>;

/// Where a node is published, with the least name that belongs there.
#[derive(Debug)]
struct Cell<N> {
    first: Name,
    node: ArcSwap<N>,
}

impl<N> Cell<N> {
    fn new(first: Name, node: N) -> Self {
        Self { first, node: ArcSwap::from_pointee(node) }
    }
}

impl<N> Clone for Cell<N> {
    fn clone(&self) -> Self {
        Self { first: self.first.clone(), node: ArcSwap::new(self.node.load_full()) }
    }
}

/// What becomes of a node that a row is added to.
enum Grown<N> {
    /// Nothing: a node below it has changed.
    Below,
    /// It is replaced.
    Whole(N),
    /// It is replaced by two, the second of which begins with the name.
    Split(N, Name, N),
}

/// A level of the tree.
trait Node: Debug + Sized {
    /// What its rows lead to.
    type To;

    /// Adds a row to this node, or below it.
    fn insert(&self, row: Row<Self::To>) -> Grown<Self>;

    /// Removes a row below this node, or returns the node without it.
    fn remove(&self, name: &[u8]) -> Option<Self>;

    /// Hands the rows from `start` on to `visit`.
    fn walk(
        &self,
        start: &[u8],
        visit: &mut impl FnMut(&Row<Self::To>) -> ControlFlow<()>,
    ) -> ControlFlow<()>;

    /// Rows or cells.
    fn size(&self) -> usize;

    /// A node with what is in this one and in its right neighbour, which begins at `first`.
    fn joined(&self, right: &Self, first: &Name) -> Self;

    /// Bytes allocated for it and all below it.
    fn allocated_bytes(&self) -> usize;
}

fn position<V>(rows: &[Row<V>], name: &[u8]) -> Result<usize, usize> {
    rows.binary_search_by(|row| row.name.as_slice().cmp(name))
}

/// Where a row of this name is, or would be.
fn place_of<V>(rows: &[Row<V>], name: &[u8]) -> Range<usize> {
    match position(rows, name) {
        Ok(at) => at..at + 1,
        Err(at) => at..at,
    }
}

impl<V: Clone + Debug> Node for Leaf<V> {
    type To = V;

    fn insert(&self, row: Row<V>) -> Grown<Self> {
        let place = place_of(self, row.name.as_slice());
        grown(self, place, [row], |row| row.name.clone())
    }

    fn remove(&self, name: &[u8]) -> Option<Self> {
        let at = position(self, name).ok()?;
        Some(spliced(Self::new(), self, at..at + 1, []))
    }

    fn walk(
        &self,
        start: &[u8],
        visit: &mut impl FnMut(&Row<Self::To>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (Ok(from) | Err(from)) = position(self, start);
        self[from..].iter().try_for_each(visit)
    }

    fn size(&self) -> usize {
        self.len()
    }

    fn joined(&self, right: &Self, _: &Name) -> Self {
        self.iter().chain(right).cloned().collect()
    }

    fn allocated_bytes(&self) -> usize {
        size_of::<Self>() + names_outside(self)
    }
}

/// Bytes of the names that do not fit their rows.
fn names_outside<V>(rows: &[Row<V>]) -> usize {
    rows.iter().map(|row| row.name.bytes_outside()).sum()
}

/// The elements of `list` with those in `range` replaced, in `next`, which is empty.
fn spliced<T: Clone, L: Extend<T>, const N: usize>(
    mut next: L,
    list: &[T],
    range: Range<usize>,
    with: [T; N],
) -> L {
    // Piece by piece: one chained iterator took 3.6 us an insert instead of 2.8.
    next.extend(list[..range.start].iter().cloned());
    next.extend(with);
    next.extend(list[range.end..].iter().cloned());
    next
}

/// A node with one element more than `list` had, or two where that is too many for one.
fn grown<T: Clone, const N: usize>(
    list: &ArrayVec<T, MOST>,
    range: Range<usize>,
    with: [T; N],
    first: impl Fn(&T) -> Name,
) -> Grown<ArrayVec<T, MOST>> {
    if list.len() - range.len() + N <= MOST {
        return Grown::Whole(spliced(ArrayVec::new(), list, range, with));
    }
    let all = spliced(Vec::with_capacity(MOST + 1), list, range, with);
    let (left, right) = all.split_at(all.len() / 2);
    let first = first(&right[0]);
    Grown::Split(left.iter().cloned().collect(), first, right.iter().cloned().collect())
}

/// The cell that `name` belongs to; everything before the second one belongs to the first.
fn place<N>(cells: &[Cell<N>], name: &[u8]) -> usize {
    let after_first = cells.get(1..).unwrap_or_default();
    after_first.partition_point(|cell| cell.first.as_slice() <= name)
}

/// Adds a row below one of `cells`; a cell that must be replaced is returned with its successors.
fn insert_below<N: Node>(cells: &[Cell<N>], row: Row<N::To>) -> Option<(usize, [Cell<N>; 2])> {
    let at = place(cells, row.name.as_slice());
    let cell = &cells[at];
    match cell.node.load().insert(row) {
        Grown::Below => None,
        Grown::Whole(node) => {
            cell.node.store(Arc::new(node));
            None
        }
        // The first half keeps its bound: the first cell takes everything before it.
        Grown::Split(left, first, right) => {
            Some((at, [Cell::new(cell.first.clone(), left), Cell::new(first, right)]))
        }
    }
}

/// What is left to do in a list of cells once a row below was removed.
enum Shrunk<N> {
    Nothing,
    /// Take the cell out, which is empty and the only one.
    Drop(usize),
    /// Put this one in the place of two.
    Join(usize, Cell<N>),
}

fn remove_below<N: Node>(cells: &[Cell<N>], name: &[u8]) -> Shrunk<N> {
    let at = place(cells, name);
    let node = &cells[at].node;
    if let Some(next) = node.load().remove(name) {
        node.store(Arc::new(next));
    }
    let size = node.load().size();
    if size >= FEW {
        return Shrunk::Nothing;
    }
    // With its right neighbour or, where those two are too many, with its left. An empty one always
    // joins: its names go to a cell that is new.
    let most = if size == 0 { MOST } else { MOST - FEW };
    let joined = |at: usize| {
        let [left, right] = cells.get(at..at + 2)? else { return None };
        let (left_node, right_node) = (left.node.load(), right.node.load());
        let whole = || left_node.joined(&right_node, &right.first);
        let fits = left_node.size() + right_node.size() <= most;
        fits.then(|| Shrunk::Join(at, Cell::new(left.first.clone(), whole())))
    };
    let joined = joined(at).or_else(|| joined(at.checked_sub(1)?));
    joined.unwrap_or(if size == 0 { Shrunk::Drop(at) } else { Shrunk::Nothing })
}

impl<N: Node> Node for Branch<N> {
    type To = N::To;

    fn insert(&self, row: Row<N::To>) -> Grown<Self> {
        match insert_below(self, row) {
            None => Grown::Below,
            Some((at, halves)) => grown(self, at..at + 1, halves, |cell| cell.first.clone()),
        }
    }

    fn remove(&self, name: &[u8]) -> Option<Self> {
        match remove_below(self, name) {
            Shrunk::Nothing => None,
            Shrunk::Drop(at) => Some(spliced(Self::new(), self, at..at + 1, [])),
            Shrunk::Join(at, cell) => Some(spliced(Self::new(), self, at..at + 2, [cell])),
        }
    }

    fn walk(
        &self,
        start: &[u8],
        visit: &mut impl FnMut(&Row<Self::To>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        walk_below(self, start, visit)
    }

    fn size(&self) -> usize {
        self.len()
    }

    fn joined(&self, right: &Self, first: &Name) -> Self {
        let mut cells: Self = self.iter().chain(right).cloned().collect();
        // Its own bound did not matter while there was no cell before it, and may be too high.
        if let Some(cell) = cells.get_mut(self.len()) {
            cell.first = first.clone();
        }
        cells
    }

    fn allocated_bytes(&self) -> usize {
        size_of::<Self>() + bytes_below(self)
    }
}

/// Bytes allocated below `cells`.
fn bytes_below<N: Node>(cells: &[Cell<N>]) -> usize {
    let below = cells.iter().map(|cell| cell.node.load().allocated_bytes());
    below.sum::<usize>() + cells.iter().map(|cell| cell.first.bytes_outside()).sum::<usize>()
}

fn walk_below<N: Node>(
    cells: &[Cell<N>],
    start: &[u8],
    visit: &mut impl FnMut(&Row<N::To>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let from = place(cells, start);
    cells[from..].iter().try_for_each(|cell| cell.node.load().walk(start, visit))
}

/// The rows, few or many.
#[derive(Debug)]
enum Root<V> {
    /// In a list of just their size.
    Few(Vec<Row<V>>),
    /// The only list of cells that may have any length. It is never empty.
    Many(Vec<Cell<Branch<Leaf<V>>>>),
}

/// The whole index. Writers take turns; see `ranges`.
#[derive(Debug)]
pub(super) struct Tree<V> {
    root: ArcSwap<Root<V>>,
}

impl<V> Default for Tree<V> {
    fn default() -> Self {
        Self { root: ArcSwap::from_pointee(Root::Few(Vec::new())) }
    }
}

impl<V: Clone + Debug> Tree<V> {
    pub(super) fn insert(&self, row: Row<V>) {
        let next = match &**self.root.load() {
            Root::Few(rows) => Root::with(rows, row),
            Root::Many(cells) => match insert_below(cells, row) {
                None => return,
                Some((at, halves)) => Root::Many(replaced(cells, at..at + 1, halves)),
            },
        };
        self.root.store(Arc::new(next));
    }

    pub(super) fn remove(&self, name: &[u8]) {
        let next = match &**self.root.load() {
            Root::Few(rows) => match position(rows, name) {
                Ok(at) => Some(Root::Few(replaced(rows, at..at + 1, []))),
                Err(_) => None,
            },
            Root::Many(cells) => {
                let next = match remove_below(cells, name) {
                    Shrunk::Nothing => None,
                    Shrunk::Drop(at) => Some(replaced(cells, at..at + 1, [])),
                    Shrunk::Join(at, cell) => Some(replaced(cells, at..at + 2, [cell])),
                };
                let few = few_again(next.as_ref().unwrap_or(cells));
                few.map(Root::Few).or(next.map(Root::Many))
            }
        };
        if let Some(next) = next {
            self.root.store(Arc::new(next));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(&**self.root.load(), Root::Few(rows) if rows.is_empty())
    }

    /// What the row of this name leads to.
    pub(super) fn get(&self, name: &[u8]) -> Option<V> {
        let mut found = None;
        self.walk(name, |row| {
            found = (row.name.as_slice() == name).then(|| row.to.clone());
            ControlFlow::Break(())
        });
        found
    }

    /// Hands the rows from `start` on to `visit`, in order, until it breaks.
    pub(super) fn walk(&self, start: &[u8], mut visit: impl FnMut(&Row<V>) -> ControlFlow<()>) {
        // Breaking is how a visitor says that it has enough.
        let (ControlFlow::Continue(()) | ControlFlow::Break(())) = match &**self.root.load() {
            Root::Few(rows) => rows[place_of(rows, start).start..].iter().try_for_each(visit),
            Root::Many(cells) => walk_below(cells, start, &mut visit),
        };
    }

    /// Bytes allocated for rows and what leads to them.
    pub(super) fn allocated_bytes(&self) -> usize {
        let lists = match &**self.root.load() {
            Root::Few(rows) => size_of_val(&rows[..]) + names_outside(rows),
            Root::Many(cells) => size_of_val(&cells[..]) + bytes_below(cells),
        };
        size_of::<Root<V>>() + lists
    }
}

impl<V: Clone + Debug> Root<V> {
    /// `rows` and one more, in a list or, where they are too many for one, in a tree.
    fn with(rows: &[Row<V>], row: Row<V>) -> Self {
        let place = place_of(rows, row.name.as_slice());
        let all = replaced(rows, place, [row]);
        if all.len() <= MOST {
            return Self::Few(all);
        }
        let leaf =
            |rows: &[Row<V>]| Cell::new(rows[0].name.clone(), rows.iter().cloned().collect());
        let (left, right) = all.split_at(all.len() / 2);
        let branch = Branch::from_iter([leaf(left), leaf(right)]);
        Self::Many(vec![Cell::new(all[0].name.clone(), branch)])
    }
}

/// The rows below `cells`, where a list has room for them and for more.
fn few_again<V: Clone>(cells: &[Cell<Branch<Leaf<V>>>]) -> Option<Vec<Row<V>>> {
    let branch = match cells {
        [] => return Some(Vec::new()),
        [branch] => branch.node.load(),
        [_, _, ..] => return None,
    };
    let [leaf] = &branch[..] else { return None };
    let leaf = leaf.node.load();
    (leaf.len() <= FEW).then(|| leaf.to_vec())
}

/// The elements of `list` with those in `range` replaced, in a list of just their size.
fn replaced<T: Clone, const N: usize>(list: &[T], range: Range<usize>, with: [T; N]) -> Vec<T> {
    let size = list.len() - range.len() + N;
    spliced(Vec::with_capacity(size), list, range, with)
}

#[cfg(test)]
mod tests;
