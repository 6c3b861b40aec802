//! How long a connection may keep us waiting, judged by what it is doing.
//!
//! The parts of a connection report here: the socket when bytes move or stop moving, each request
//! when it begins, when our side works on it and when its answer is out. From that follows whose
//! turn it is. While it is ours there is no limit; while it is the peer's, one of these applies:
//!
//! | the peer | limit | then |
//! |---|---|---|
//! | takes nothing although we have bytes for it | `stalled` | cut |
//! | (HTTP/2) leaves no window for any answer | `stalled` | cut |
//! | has not finished its first request head | `header` from the start | cut |
//! | has begun another head and not finished it | `header` from its first byte | cut |
//! | asks nothing | `idle` | finish: HTTP/1 closes, HTTP/2 says GOAWAY |
//! | does not leave when told to finish | `stalled` | cut |
//!
//! HTTP/2 bytes between requests may be PINGs, so only `idle` applies there; bytes of such frames
//! that we send are too few to count as an answer. Nothing here owns a timer: the connection asks
//! for a verdict and comes back when told to, at the latest after the shortest limit, so that
//! each limit is exact whatever happened in between.
//!
//! Not here: request bodies. Each has a limit of its own, see `exchange`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use wane::clock::SharedClock;

use super::ListenLimits;

/// Writes up to this size are PINGs and acknowledgements of HTTP/2, in TLS or not.
const FRAME_NOISE: usize = 64;

/// What is to be done with a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Ask again after this long.
    Wait(Duration),
    /// Answer what was asked, take no more.
    Finish,
    /// End it as it stands.
    Cut(&'static str),
}

/// What a connection of HTTP/1 waits for that it can wait for without a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Another request.
    Idle,
    /// Our answer.
    Held,
}

/// The watch over one connection, shared by its parts.
#[derive(Debug)]
pub(super) struct Patience {
    pub(super) clock: SharedClock,
    pub(super) limits: Arc<ListenLimits>,
    state: Mutex<State>,
}

/// Times are those of the clock's monotonic reading.
#[derive(Debug, Default)]
struct State {
    /// Requests that wait for us: being worked on, or their answer not produced yet.
    working: u32,
    /// Requests whose answer is not handed over completely.
    unanswered: u32,
    served: bool,
    multiplexed: bool,
    /// When the connection began, or our last work ended.
    rested: Duration,
    /// When the last request came: with the first byte of its head, or later.
    asked: Duration,
    /// When bytes of an answer last went out.
    moved: Duration,
    head_since: Option<Duration>,
    blocked_since: Option<Duration>,
    finishing_since: Option<Duration>,
    body_left: bool,
}

impl Patience {
    pub(super) fn new(clock: SharedClock, limits: Arc<ListenLimits>) -> Arc<Self> {
        let state = Mutex::new(State { rested: clock.monotonic(), ..State::default() });
        Arc::new(Self { clock, limits, state })
    }

    /// The handshake is over: the first request may come.
    pub(super) fn begin(&self) {
        let rested = self.clock.monotonic();
        *self.state.lock() = State { rested, ..State::default() };
    }

    pub(super) fn verdict(&self) -> Verdict {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        let verdict = state.verdict(now, &self.limits);
        if verdict == Verdict::Finish {
            state.finishing_since = Some(now);
        }
        verdict
    }

    /// Completes when nothing has moved for `long`, with what the connection waits for. While
    /// something does, it is looked at less and less often, at last every `latest`.
    pub(super) async fn rests(&self, long: Duration, latest: Duration) -> Rest {
        let mut pause = long;
        loop {
            self.clock.sleep(pause).await;
            let now = self.clock.monotonic();
            if let Some(rest) = self.state.lock().rest(now, long) {
                return rest;
            }
            pause = (2 * pause).min(latest);
        }
    }

    /// Bytes came in.
    pub(super) fn received(&self) {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        if state.unanswered == 0 {
            state.head_since.get_or_insert(now);
        }
    }

    /// Bytes went out.
    pub(super) fn sent(&self, bytes: usize) {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        state.blocked_since = None;
        if bytes > FRAME_NOISE {
            state.moved = now;
        }
    }

    /// Bytes could not go out, as the peer has not taken those before.
    pub(super) fn blocked(&self) {
        let now = self.clock.monotonic();
        self.state.lock().blocked_since.get_or_insert(now);
    }

    /// A request head is complete. The turn lasts until its answer is handed over.
    pub(super) fn request(self: &Arc<Self>, multiplexed: bool) -> Turn {
        let mut state = self.state.lock();
        state.asked = state.head_since.take().unwrap_or_else(|| self.clock.monotonic());
        state.served = true;
        state.multiplexed = multiplexed;
        state.body_left = false;
        state.unanswered += 1;
        state.working += 1;
        Turn { patience: Arc::clone(self), working: true }
    }

    /// A request body was given up before its end.
    pub(super) fn body_left(&self) {
        self.state.lock().body_left = true;
    }

    /// Whether bytes are waiting for the peer to take those before.
    pub(super) fn is_blocked(&self) -> bool {
        self.state.lock().blocked_since.is_some()
    }

    /// Whether the peer may still be sending what nobody reads: closing at once could then destroy
    /// the answer on its way.
    pub(super) fn unread(&self) -> bool {
        let state = self.state.lock();
        !state.multiplexed && (state.body_left || state.head_since.is_some())
    }
}

impl State {
    fn rest(&self, now: Duration, long: Duration) -> Option<Rest> {
        if self.multiplexed || !self.served || self.blocked_since.is_some() {
            return None;
        }
        let (since, rest) = match (self.unanswered, self.working) {
            (0, _) if self.head_since.is_none() && !self.body_left => {
                (self.rested.max(self.moved), Rest::Idle)
            }
            (1, 1) => (self.asked, Rest::Held),
            _ => return None,
        };
        (now.saturating_sub(since) >= long).then_some(rest)
    }

    fn verdict(&self, now: Duration, limits: &ListenLimits) -> Verdict {
        let shortest = limits.header.min(limits.idle).min(limits.stalled);
        let calm = self.rested.max(self.moved);
        let (deadline, then) = if let Some(since) = self.blocked_since {
            (since + limits.stalled, Verdict::Cut("the peer takes no bytes"))
        } else if self.working > 0 {
            return Verdict::Wait(shortest);
        } else if self.unanswered > 0 {
            (calm + limits.stalled, Verdict::Cut("the peer takes no answer"))
        } else if let Some(since) = self.finishing_since {
            (since.max(calm) + limits.stalled, Verdict::Cut("the peer does not leave"))
        } else if !self.served {
            (self.rested + limits.header, Verdict::Cut("no request came"))
        } else if let (Some(since), false) = (self.head_since, self.multiplexed) {
            (since + limits.header, Verdict::Cut("a request head did not end"))
        } else {
            (calm + limits.idle, Verdict::Finish)
        };
        match deadline.checked_sub(now) {
            Some(left) if !left.is_zero() => Verdict::Wait(left.min(shortest)),
            _ => then,
        }
    }
}

/// One request, from its head to the end of its answer. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Turn {
    patience: Arc<Patience>,
    working: bool,
}

impl Turn {
    /// It is for us to go on.
    pub(super) fn ours(&mut self) {
        if !self.working {
            self.working = true;
            self.patience.state.lock().working += 1;
        }
    }

    /// It is for the peer to take what there is, as it has taken what was there before.
    pub(super) fn theirs(&mut self) {
        self.rest(|_| {});
    }

    fn rest(&mut self, change: impl FnOnce(&mut State)) {
        let now = self.patience.clock.monotonic();
        let mut state = self.patience.state.lock();
        state.working -= u32::from(std::mem::take(&mut self.working));
        state.rested = now;
        change(&mut state);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.rest(|state| state.unanswered -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1_000);
    const HEADER: Duration = Duration::from_secs(10);
    const STALLED: Duration = Duration::from_secs(30);
    const IDLE: Duration = Duration::from_secs(60);
    const INSTANT: Duration = Duration::from_millis(1);

    fn begun() -> State {
        State { rested: START, ..State::default() }
    }

    /// The state holds until just before `limit` from the start, and at the limit is ended so.
    #[track_caller]
    fn ends(state: &State, limit: Duration, then: &Verdict) {
        let verdict = |now| state.verdict(now, &ListenLimits::default());
        assert_eq!(verdict(START + limit - INSTANT), Verdict::Wait(INSTANT));
        assert_eq!(&verdict(START + limit), then);
        assert_eq!(&verdict(START + limit + IDLE), then);
    }

    #[test]
    fn a_silent_connection_gets_the_time_of_a_head() {
        ends(&begun(), HEADER, &Verdict::Cut("no request came"));
    }

    #[test]
    fn drips_of_the_first_head_do_not_buy_time() {
        let state = State { head_since: Some(START + HEADER / 2), ..begun() };
        ends(&state, HEADER, &Verdict::Cut("no request came"));
    }

    #[test]
    fn between_requests_a_connection_finishes_when_idle() {
        ends(&State { served: true, ..begun() }, IDLE, &Verdict::Finish);
    }

    #[test]
    fn a_later_head_has_its_time_from_its_first_byte() {
        let state = State { served: true, head_since: Some(START), ..begun() };
        ends(&state, HEADER, &Verdict::Cut("a request head did not end"));
    }

    /// A PING or a window update is no request head.
    #[test]
    fn bytes_between_http2_requests_are_no_head() {
        let state = State { served: true, multiplexed: true, head_since: Some(START), ..begun() };
        ends(&state, IDLE, &Verdict::Finish);
    }

    #[test]
    fn an_answer_that_nobody_takes_is_cut_even_while_we_work() {
        let state = State { served: true, working: 1, blocked_since: Some(START), ..begun() };
        ends(&state, STALLED, &Verdict::Cut("the peer takes no bytes"));
        let state = State { served: true, unanswered: 1, ..begun() };
        ends(&state, STALLED, &Verdict::Cut("the peer takes no answer"));
    }

    #[test]
    fn our_own_work_has_no_limit() {
        let state = State { served: true, working: 1, unanswered: 1, ..begun() };
        assert_eq!(
            state.verdict(START + 100 * IDLE, &ListenLimits::default()),
            Verdict::Wait(HEADER)
        );
    }

    #[test]
    fn who_is_told_to_finish_and_stays_is_cut() {
        let state = State { served: true, finishing_since: Some(START), ..begun() };
        ends(&state, STALLED, &Verdict::Cut("the peer does not leave"));
    }

    #[test]
    fn a_connection_rests_where_nothing_moves() {
        let rest = |state: State, after| state.rest(START + after, INSTANT);
        let idle = || State { served: true, ..begun() };
        assert_eq!(rest(idle(), INSTANT), Some(Rest::Idle));
        let held = || State { working: 1, unanswered: 1, asked: START, ..idle() };
        assert_eq!(rest(held(), INSTANT), Some(Rest::Held));
        for awake in [
            begun(),
            State { moved: START + INSTANT, ..idle() },
            State { asked: START + INSTANT, ..held() },
            State { head_since: Some(START), ..idle() },
            State { blocked_since: Some(START), ..idle() },
            State { blocked_since: Some(START), ..held() },
            State { body_left: true, ..idle() },
            State { working: 0, ..held() },
            State { multiplexed: true, ..idle() },
            State { multiplexed: true, ..held() },
        ] {
            let text = format!("{awake:?}");
            assert_eq!(rest(awake, INSTANT), None, "{text}");
        }
    }

    /// However long the limit that applies now, another may apply before it ends.
    #[test]
    fn no_wait_is_longer_than_the_shortest_limit() {
        let state = State { served: true, ..begun() };
        assert_eq!(state.verdict(START, &ListenLimits::default()), Verdict::Wait(HEADER));
    }
}
