//! A tree compared with an ordered map, walked beside writes, and weighed.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::*;

/// A generator of numbers, seeded.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Every third one does not fit its row.
fn name(number: u64) -> Vec<u8> {
    let tail: &[u8] = if number.is_multiple_of(3) { &[b'x'; 40] } else { &[] };
    [&number.to_be_bytes()[..], tail].concat()
}

fn number(name: &Name) -> u64 {
    u64::from_be_bytes(*name.as_slice().first_chunk().unwrap())
}

fn insert(tree: &Tree<u32>, name: &[u8], to: u32) {
    tree.insert(Row { name: name.into(), to });
}

fn rows(tree: &Tree<u32>, start: &[u8]) -> Vec<(Vec<u8>, u32)> {
    let mut found = Vec::new();
    tree.walk(start, |row| {
        found.push((row.name.as_slice().to_vec(), row.to));
        ControlFlow::Continue(())
    });
    found
}

/// A tree, and the map that it must be like.
#[derive(Default)]
struct Compared {
    tree: Tree<u32>,
    map: BTreeMap<Vec<u8>, u32>,
}

impl Compared {
    fn change(&mut self, name: &[u8], to: Option<u32>) {
        match to {
            Some(to) => {
                insert(&self.tree, name, to);
                self.map.insert(name.to_vec(), to);
            }
            None => {
                self.tree.remove(name);
                self.map.remove(name);
            }
        }
        assert_eq!(self.tree.get(name), to);
        assert_eq!(self.tree.is_empty(), self.map.is_empty());
    }

    fn compare(&self, start: &[u8]) {
        let expected = self.map.range(start.to_vec()..).map(|(name, to)| (name.clone(), *to));
        assert_eq!(rows(&self.tree, start), expected.collect::<Vec<_>>());
    }

    /// Nothing is left of a tree whose rows have gone.
    fn empty(self) {
        for name in self.map.keys() {
            self.tree.remove(name);
        }
        assert!(self.tree.is_empty());
        assert_eq!(self.tree.allocated_bytes(), Tree::<u32>::default().allocated_bytes());
    }
}

/// Adds and removes rows among so many names: one here and one there, mostly adding or mostly
/// removing, or one after the other, which empties leaves beside full ones.
fn holds_what_a_map_holds(seed: u64, names: u64) {
    let (mut chance, mut compared) = (Chance(seed), Compared::default());
    let mut step = 0;
    while step < 12_000 {
        let (way, first) = (chance.below(4), chance.below(names));
        for next in 0..chance.below(names / 4 + 1).max(1) {
            let (number, adds) = match way {
                0 => (chance.below(names), chance.below(3) > 0),
                1 => (chance.below(names), chance.below(3) == 0),
                _ => ((first + next) % names, way == 2),
            };
            compared.change(&name(number), adds.then_some(step));
            step += 1;
        }
        compared.compare(&name(chance.below(names)));
    }
    compared.empty();
}

#[test]
fn holds_what_an_ordered_map_holds() {
    (0..40).for_each(|seed| holds_what_a_map_holds(seed, 600));
}

/// Names about as many as one list has room for: it becomes a tree and a list again, often.
#[test]
fn rows_that_are_few_and_many_by_turns_stay_the_same_rows() {
    for names in [1, FEW as u64, MOST as u64, MOST as u64 + 3] {
        holds_what_a_map_holds(names, names);
    }
}

/// Rows that stay are seen, whatever is added and removed between two of them, and none is seen
/// twice.
fn a_walk_is_in_order_beside_writes(seed: u64, every: u64) {
    const NAMES: u64 = 1_500;
    let (tree, chance) = (Tree::default(), RefCell::new(Chance(seed)));
    let draw = |bound| chance.borrow_mut().below(bound);
    (0..NAMES).step_by(every as usize).for_each(|stays| insert(&tree, &name(stays), 0));
    let write = |most| {
        let (first, adds) = (draw(NAMES), draw(2) == 0);
        for number in (first..first + draw(most)).map(|number| number % NAMES) {
            match adds {
                _ if number % every == 0 => {}
                true => insert(&tree, &name(number), 1),
                false => tree.remove(&name(number)),
            }
        }
    };
    for _ in 0..20 {
        (0..5).for_each(|_| write(NAMES / 2));
        let (from, mut seen) = (draw(NAMES), Vec::new());
        tree.walk(&name(from), |row| {
            seen.push(number(&row.name));
            if draw(64) == 0 {
                (0..draw(8)).for_each(|_| write(NAMES / 4));
            }
            ControlFlow::Continue(())
        });
        assert!(seen.is_sorted_by(|one, next| one < next), "seed {seed}: {seen:?}");
        let stay = seen.into_iter().filter(|number| number % every == 0);
        let expected = (0..NAMES).step_by(every as usize).filter(|number| *number >= from);
        assert!(stay.eq(expected), "seed {seed}: a row that stayed was not seen");
    }
}

#[test]
fn a_reader_sees_what_stays_in_order_and_nothing_twice() {
    for seed in 0..10 {
        [7, 50, 300].into_iter().for_each(|every| a_walk_is_in_order_beside_writes(seed, every));
    }
}

#[test]
fn a_few_rows_take_what_they_take() {
    let tree = Tree::default();
    insert(&tree, b"alone", 1);
    let most = 3 * size_of::<Row<u32>>();
    assert!(tree.allocated_bytes() <= most, "{} bytes", tree.allocated_bytes());
}

/// Removing one row after the other leaves no trail of leaves with a row each.
#[test]
fn rows_that_are_left_take_little() {
    let tree = Tree::default();
    // Every other one first: leaves that are full, where in order they would be half full.
    let fill = (0..8_000).step_by(2).chain((1..8_000).step_by(2));
    fill.for_each(|number: u64| insert(&tree, &number.to_be_bytes(), 0));
    let whole = tree.allocated_bytes();
    for number in (0..8_000_u64).filter(|number| number % MOST as u64 != 0) {
        tree.remove(&number.to_be_bytes());
    }
    let left = tree.allocated_bytes();
    assert!(left * MOST as u64 as usize <= whole * 4, "{left} bytes of {whole}");
}
