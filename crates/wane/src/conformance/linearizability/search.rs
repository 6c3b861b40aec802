//! The search for an order: depth first, nothing tried twice.
//!
//! A node is the set of operations that took effect and the state they led to. Next may go any
//! operation that was invoked before all others that wait had returned. What keeps the tree small:
//!
//! - An operation whose answer says that it changed nothing, and fits the state with no time
//!   passing, goes first, alone: all that could go before it can go after it.
//! - Unclear operations go only where nothing else leads on, of equal ones the oldest, and only
//!   if the next operation would not have gone the same way without.
//! - A node is left alone when one with the same clear operations done and the same record was
//!   tried with no more unclear ones used up and at no later time: that one could do no less.

use foldhash::{HashMap, HashMapExt};

use super::register::{Held, Op, State};

/// How a search ended.
#[derive(Debug)]
pub(super) enum Finding {
    /// With an order of all operations.
    Ordered,
    /// With the step budget.
    GaveUp,
    /// With nothing left to try.
    Stuck(Deepest),
}

/// The longest order that was found, and where it ended.
#[derive(Debug, Default)]
pub(super) struct Deepest {
    /// The operations in the order of their effects, by place in the history.
    pub(super) order: Vec<usize>,
    /// The state they led to.
    pub(super) state: Option<State>,
    /// The operations that could have gone next, had their answers fitted.
    pub(super) waiting: Vec<usize>,
}

/// How many unclear operations may go in a row, round by round: explanations are short as a rule,
/// and long ones are many.
const ROWS: [usize; 4] = [1, 2, 3, usize::MAX];

/// Looks for an order of `ops`, which are sorted by invocation, in at most `budget` steps a round.
pub(super) fn search(ops: &[Op], budget: usize) -> Finding {
    let mut last = Finding::GaveUp;
    for row in ROWS {
        let mut search = Search::new(ops, row);
        last = search.run(budget);
        let exhausted = matches!(last, Finding::Stuck(_)) && !search.held_back;
        if exhausted || matches!(last, Finding::Ordered) {
            break;
        }
    }
    last
}

/// A step of the order under trial.
#[derive(Debug)]
struct Node {
    state: State,
    /// How many clear operations from the first on are all done.
    settled: usize,
    /// How many unclear operations went in a row up to here.
    row: usize,
    /// What may come next and has not been tried; the best is last.
    choices: Vec<(usize, State)>,
    /// What was tried last.
    taken: Option<usize>,
}

impl Node {
    fn start() -> Self {
        Self { state: State::START, settled: 0, row: 0, choices: Vec::new(), taken: None }
    }
}

#[derive(Debug)]
struct Search {
    /// The clear operations, then the unclear ones; each sorted by invocation.
    ops: Vec<Op>,
    clear: usize,
    /// For each unclear operation the one before it that does the same.
    twins: Vec<Option<usize>>,
    /// The clear operations that are done, and how many they are.
    done: Set,
    done_count: usize,
    /// The unclear operations that are used up, counted from the first unclear one.
    used: Set,
    tried: HashMap<(Set, Option<Held>), Vec<Tried>>,
    longest_row: usize,
    /// Whether an unclear operation was not tried because of the longest row.
    held_back: bool,
    deepest: Deepest,
    deepest_count: usize,
}

/// What a node had left: the less was used up, the more.
#[derive(Debug)]
struct Tried {
    used: Set,
    now: u64,
    row: usize,
}

impl Search {
    fn new(ops: &[Op], longest_row: usize) -> Self {
        let (unclear, mut ops): (Vec<Op>, Vec<Op>) = ops.iter().partition(|op| op.is_unclear());
        let clear = ops.len();
        let twin = |(index, op): (usize, &Op)| {
            let before = unclear[..index].iter();
            before.rev().position(|other| op.can_wait_for(other)).map(|by| index - 1 - by)
        };
        let twins = unclear.iter().enumerate().map(twin).map(|at| Some(clear + at?)).collect();
        ops.extend(unclear);
        Self {
            clear,
            twins,
            done: Set::none(clear),
            done_count: 0,
            used: Set::none(ops.len() - clear),
            ops,
            tried: HashMap::new(),
            longest_row,
            held_back: false,
            deepest: Deepest::default(),
            deepest_count: 0,
        }
    }

    fn run(&mut self, budget: usize) -> Finding {
        let mut path = vec![Node::start()];
        if self.enter(&mut path) {
            return Finding::Ordered;
        }
        let mut steps = 0;
        while let Some(node) = path.last_mut() {
            let Some((op, state)) = node.choices.pop() else {
                path.pop();
                path.last().and_then(|node| node.taken).inspect(|op| self.undo(*op));
                continue;
            };
            node.taken = Some(op);
            let row = if op < self.clear { 0 } else { node.row + 1 };
            let next = Node { settled: node.settled, state, row, ..Node::start() };
            self.take(op);
            if !self.is_worth_a_try(state, row) {
                self.undo(op);
                continue;
            }
            steps += 1;
            if steps > budget {
                return Finding::GaveUp;
            }
            path.push(next);
            if self.enter(&mut path) {
                return Finding::Ordered;
            }
        }
        Finding::Stuck(std::mem::take(&mut self.deepest))
    }

    fn take(&mut self, op: usize) {
        if op < self.clear {
            self.done.insert(op);
            self.done_count += 1;
        } else {
            self.used.insert(op - self.clear);
        }
    }

    fn undo(&mut self, op: usize) {
        if op < self.clear {
            self.done.remove(op);
            self.done_count -= 1;
        } else {
            self.used.remove(op - self.clear);
        }
    }

    /// Whether no node tried so far could do as much as this one, which is noted as tried.
    fn is_worth_a_try(&mut self, state: State, row: usize) -> bool {
        let tried = self.tried.entry((self.done.clone(), state.held)).or_default();
        let (used, now) = (&self.used, state.now);
        let no_less =
            |other: &Tried| other.now <= now && other.row <= row && other.used.is_within(used);
        if tried.iter().any(no_less) {
            return false;
        }
        tried.push(Tried { used: used.clone(), now, row });
        true
    }

    /// Fills in the choices of the path's last node. True when no clear operation is left.
    fn enter(&mut self, path: &mut [Node]) -> bool {
        let (node, before) = path.split_last_mut().expect("the path holds the entered node");
        while node.settled < self.clear && self.done.contains(node.settled) {
            node.settled += 1;
        }
        if node.settled == self.clear {
            return true;
        }
        let waiting = self.waiting(node.settled);
        if self.done_count > self.deepest_count || self.deepest.state.is_none() {
            let order = before.iter().filter_map(|node| node.taken);
            let place = |op: usize| self.ops[op].event;
            self.deepest = Deepest {
                order: order.map(place).collect(),
                state: Some(node.state),
                waiting: waiting.iter().map(|op| place(*op)).collect(),
            };
            self.deepest_count = self.done_count;
        }
        node.choices = self.choices(&waiting, node);
        if let Some(parent) = before.last().filter(|node| node.taken >= Some(self.clear)) {
            node.choices.retain(|(op, next)| !self.goes_the_same_way(parent.state, *op, *next));
        }
        false
    }

    /// Whether `op` leads from `before` to what `next` holds as well, and no later.
    fn goes_the_same_way(&self, before: State, op: usize, next: State) -> bool {
        before.after(&self.ops[op]).any(|other| other.held == next.held && other.now <= next.now)
    }

    /// The clear operations that nothing undone has to precede.
    fn waiting(&self, settled: usize) -> Vec<usize> {
        let mut first_return = u64::MAX;
        let mut waiting = Vec::new();
        for op in (settled..self.clear).filter(|op| !self.done.contains(*op)) {
            if self.ops[op].invoked.0 > first_return {
                break;
            }
            first_return = first_return.min(self.ops[op].returned.0);
            waiting.push(op);
        }
        let may_go = |op: &usize| self.ops[*op].invoked.0 < first_return;
        waiting.retain(may_go);
        waiting
    }

    /// What may take effect next, the best last.
    fn choices(&mut self, waiting: &[usize], node: &Node) -> Vec<(usize, State)> {
        let state = node.state;
        let mut clear = Vec::new();
        for op in waiting.iter().copied() {
            for next in state.after(&self.ops[op]) {
                if next == state && self.ops[op].changes_nothing() {
                    return vec![(op, next)];
                }
                clear.push((op, next));
            }
        }
        let first_return = waiting.iter().map(|op| self.ops[*op].returned.0).min();
        let mut choices = self.unclear_choices(first_return.unwrap_or(u64::MAX), state);
        if node.row >= self.longest_row {
            self.held_back |= !choices.is_empty();
            choices.clear();
        }
        choices.extend(clear.into_iter().rev());
        choices
    }

    fn unclear_choices(&self, first_return: u64, state: State) -> Vec<(usize, State)> {
        let mut choices = Vec::new();
        for op in self.clear..self.ops.len() {
            if self.ops[op].invoked.0 > first_return {
                break;
            }
            let is_used = |op: usize| self.used.contains(op - self.clear);
            if is_used(op) || self.twins[op - self.clear].is_some_and(|twin| !is_used(twin)) {
                continue;
            }
            let changed = |next: &State| next.held != state.held;
            choices.extend(state.after(&self.ops[op]).filter(changed).map(|next| (op, next)));
        }
        choices
    }
}

/// A set of operations.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Set(Box<[u64]>);

impl Set {
    fn none(ops: usize) -> Self {
        Self(vec![0; ops.div_ceil(64)].into())
    }

    fn contains(&self, op: usize) -> bool {
        self.0[op / 64] & (1 << (op % 64)) != 0
    }

    fn insert(&mut self, op: usize) {
        self.0[op / 64] |= 1 << (op % 64);
    }

    fn is_within(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, theirs)| mine & !theirs == 0)
    }

    fn remove(&mut self, op: usize) {
        self.0[op / 64] &= !(1 << (op % 64));
    }
}
