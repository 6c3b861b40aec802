//! Many machines in one thread: each with clocks of its own, over a network that loses, delays and
//! repeats, on a simulated time that stands still while anything can run.
//!
//! A world is built from a seed and from nothing else, so that a failing seed fails again. `machine`
//! is a machine: its clocks, and its pauses. What is simulated lives beside it.

mod elections;
pub(crate) mod machine;
mod sequences;

use std::sync::atomic::{AtomicU64, Ordering};

/// How many worlds a run looks at: `WANE_TEST_SEEDS`, or so many.
pub(crate) fn seeds(usual: u64) -> u64 {
    let given = std::env::var("WANE_TEST_SEEDS").ok();
    given.map_or(usual, |given| given.parse().expect("WANE_TEST_SEEDS is a number"))
}

/// Runs `world` for each seed, on all cores; the first failure of the lowest seed, if any.
pub(crate) fn first_failure(
    seeds: impl IntoIterator<Item = u64>,
    world: impl AsyncFn(u64) -> Result<(), String> + Sync,
) -> Option<(u64, String)> {
    let seeds: Vec<u64> = seeds.into_iter().collect();
    let next = AtomicU64::new(0);
    let worker = || -> Option<(u64, String)> {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed) as usize;
            let seed = *seeds.get(place)?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .expect("a runtime");
            if let Err(failure) = runtime.block_on(world(seed)) {
                next.store(seeds.len() as u64, Ordering::Relaxed);
                return Some((seed, failure));
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let found = workers.into_iter().filter_map(|worker| worker.join().expect("no panic"));
        found.min_by_key(|(seed, _)| *seed)
    })
}

/// Draws that follow from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xD134_2543_DE82_EF95) ^ 0x5851_F42D_4C95_7F2D)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in `from..to`.
    pub(crate) fn between(&mut self, from: f64, to: f64) -> f64 {
        const STEPS: f64 = (1_u64 << 53) as f64;
        from + (to - from) * ((self.draw() >> 11) as f64 / STEPS)
    }

    /// Uniform, in whole milliseconds.
    pub(crate) fn millis(&mut self, from: u64, to: u64) -> std::time::Duration {
        std::time::Duration::from_millis(from + self.draw() % (to - from))
    }

    pub(crate) fn hits(&mut self, probability: f64) -> bool {
        self.between(0.0, 1.0) < probability
    }
}
