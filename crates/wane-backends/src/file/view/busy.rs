//! Whether the tree is being written, and waiting for that to be over.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct Busy {
    goes_on: AtomicBool,
    ended: Notify,
}

impl Busy {
    /// Does `work`. However that ends, it is over then.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.goes_on.store(true, Ordering::SeqCst);
        let _ends = Ends(self);
        work()
    }

    /// Completes when nothing is being written.
    pub(super) async fn over(&self) {
        loop {
            let ended = self.ended.notified();
            if !self.goes_on.load(Ordering::SeqCst) {
                return;
            }
            ended.await;
        }
    }
}

struct Ends<'a>(&'a Busy);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.goes_on.store(false, Ordering::SeqCst);
        self.0.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn it_is_over_when_the_work_is_also_where_that_panics() {
        let busy = Busy::default();
        assert!(busy.over().now_or_never().is_some());
        busy.during(|| assert!(busy.over().now_or_never().is_none()));
        assert!(busy.over().now_or_never().is_some());
        let panicked = catch_unwind(AssertUnwindSafe(|| busy.during(|| panic!("of the test"))));
        assert!(panicked.is_err() && busy.over().now_or_never().is_some());
    }
}
