//! Making a failing input small enough to read.

/// How many smaller inputs are tried before the best so far must do.
const ATTEMPTS: usize = 20_000;

/// The smallest input found that still fails: shorter first, then with smaller bytes.
///
/// `fails` must hold of `input`.
pub fn shrink(input: &[u8], fails: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut search = Search { best: input.to_vec(), fails, attempts_left: ATTEMPTS };
    while search.cut() | search.lower() {}
    search.best
}

struct Search<F> {
    best: Vec<u8>,
    fails: F,
    attempts_left: usize,
}

impl<F: Fn(&[u8]) -> bool> Search<F> {
    /// Leaves out runs of bytes, long ones first. Whether anything came of it.
    fn cut(&mut self) -> bool {
        let mut improved = false;
        let mut run = self.best.len();
        while run > 0 {
            let mut at = 0;
            while at + run <= self.best.len() {
                let shorter = [&self.best[..at], &self.best[at + run..]].concat();
                if self.accept(shorter) {
                    improved = true;
                } else {
                    at += run;
                }
            }
            run /= 2;
        }
        improved
    }

    /// Makes bytes smaller. Whether anything came of it.
    fn lower(&mut self) -> bool {
        let mut improved = false;
        for at in 0..self.best.len() {
            let byte = self.best[at];
            for smaller in [0, 1, byte / 2, byte.saturating_sub(1)] {
                let mut lower = self.best.clone();
                lower[at] = smaller;
                if smaller < self.best[at] && self.accept(lower) {
                    improved = true;
                    break;
                }
            }
        }
        improved
    }

    fn accept(&mut self, candidate: Vec<u8>) -> bool {
        if self.attempts_left == 0 {
            return false;
        }
        self.attempts_left -= 1;
        let fails = (self.fails)(&candidate);
        if fails {
            self.best = candidate;
        }
        fails
    }
}
