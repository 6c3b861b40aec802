//! What only time shows: intervals, growth, expiry and the window of a repeat. All devices live
//! through the same minute, side by side; each test looks at one of them.

use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use super::*;

/// How long codes live that are to expire: the shortest that a client may have.
const CODE_LIFE: u64 = 60;

/// A poll: when it was sent, in seconds from the start of the device, and what came.
#[derive(Debug, Clone)]
struct Polled {
    at: f64,
    status: u16,
    error: String,
    description: String,
}

impl Polled {
    /// What the server says that the interval is now.
    fn interval(&self) -> u64 {
        let number = self.description.split(' ').find_map(|word| word.parse().ok());
        number.unwrap_or_else(|| panic!("no seconds in {:?}", self.description))
    }
}

/// One device of the minute.
struct Device<'a> {
    login: &'a Login,
    codes: Codes,
    clock: Box<dyn Fn() -> Duration>,
    polls: Vec<Polled>,
}

impl<'a> Device<'a> {
    fn start(login: &'a Login, client: &Client) -> Self {
        let codes = login.start(client, None);
        Self { login, codes, clock: Box::new(crate::stopwatch()), polls: Vec::new() }
    }

    fn poll(&mut self) -> &Polled {
        let at = (self.clock)().as_secs_f64();
        let answer = self.login.poll(&self.codes);
        let told = answer.json();
        let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
        let (error, description) = (text("error"), text("error_description"));
        self.polls.push(Polled { at, status: answer.status, error, description });
        self.polls.last().unwrap()
    }

    /// A poll this long after the last answer: however slow the machine is, never earlier.
    fn poll_after(&mut self, seconds: f64) -> &Polled {
        crate::wait(Duration::from_secs_f64(seconds));
        self.poll()
    }

    /// A poll this long after it was given its codes.
    fn poll_at(&mut self, seconds: f64) -> &Polled {
        crate::wait(Duration::from_secs_f64(seconds).saturating_sub((self.clock)()));
        self.poll()
    }
}

/// What each device was told.
struct Minute {
    impatient: Vec<Polled>,
    fast: Vec<Polled>,
    twice: Vec<Polled>,
    obedient: Vec<Polled>,
    redeemed: Vec<Polled>,
    pending: Vec<Polled>,
    denied: Vec<Polled>,
    approved: Vec<Polled>,
    /// Statuses of approving and denying what has expired.
    decided_late: [u16; 2],
}

/// Polls about every second, until a poll is accepted again.
fn impatient(mut device: Device) -> Vec<Polled> {
    device.poll();
    while device.poll_after(1.1).error == "slow_down" && device.polls.len() < 60 {}
    device.polls
}

/// A clock that is a fifth fast: five of its seconds are four and a sixth.
fn fast(mut device: Device) -> Vec<Polled> {
    device.poll();
    for _ in 0..5 {
        device.poll_after(4.05);
    }
    device.polls
}

/// Each poll is sent again at once: in time, and then too early.
fn twice(mut device: Device) -> Vec<Polled> {
    for pause in [0.0, 5.0, 5.0, 1.8] {
        device.poll_after(pause);
        device.poll_after(0.3);
    }
    device.polls
}

/// Too early once; from then on it waits as it was told.
fn obedient(mut device: Device) -> Vec<Polled> {
    for pause in [0.0, 2.0, 10.0, 10.0] {
        device.poll_after(pause);
    }
    device.polls
}

/// Redeems, repeats within ten seconds, and after that.
fn redeemed(mut device: Device) -> Vec<Polled> {
    device.login.approve(&device.codes.user_code);
    device.poll();
    device.poll_after(5.0);
    device.poll_after(5.5);
    let late = device.login.approval(&device.codes.user_code);
    assert_eq!(late.status, 409, "{}", late.body);
    device.poll_after(1.5);
    device.polls
}

/// Shortly before the expiry of the code, and shortly after.
fn around_the_expiry(mut device: Device) -> (Codes, Vec<Polled>) {
    device.poll_at(CODE_LIFE as f64 - 5.0);
    device.poll_at(CODE_LIFE as f64 + 0.5);
    (device.codes, device.polls)
}

fn minute() -> &'static Minute {
    static MINUTE: OnceLock<Minute> = OnceLock::new();
    MINUTE.get_or_init(|| {
        let login = Login::new();
        let client = login.register(json!({ "scopes": ["read"] }));
        let short = login.register(json!({ "scopes": ["read"], "codeLifeSeconds": CODE_LIFE }));
        thread::scope(|scope| {
            let run = |work: fn(Device) -> Vec<Polled>| {
                let (login, client) = (&login, &client);
                scope.spawn(move || work(Device::start(login, client)))
            };
            let (impatient, fast, twice) = (run(impatient), run(fast), run(twice));
            let (obedient, redeemed) = (run(obedient), run(redeemed));
            let expiring = |decide: fn(&Login, &Codes)| {
                let (login, short) = (&login, &short);
                scope.spawn(move || {
                    let device = Device::start(login, short);
                    decide(login, &device.codes);
                    around_the_expiry(device)
                })
            };
            let pending = expiring(|_, _| ());
            let denied = expiring(|login, codes| login.deny(&codes.user_code));
            // Approved in its last seconds, when it has polled already.
            let approved = scope.spawn(|| {
                let mut device = Device::start(&login, &short);
                device.poll_at(CODE_LIFE as f64 - 5.0);
                login.approve(&device.codes.user_code);
                device.poll_at(CODE_LIFE as f64 + 0.5);
                device.polls
            });
            let (codes, pending) = pending.join().unwrap();
            let denial = login.decide("deny", &json!({ "userCode": codes.user_code })).status;
            Minute {
                decided_late: [login.approval(&codes.user_code).status, denial],
                impatient: impatient.join().unwrap(),
                fast: fast.join().unwrap(),
                twice: twice.join().unwrap(),
                obedient: obedient.join().unwrap(),
                redeemed: redeemed.join().unwrap(),
                pending,
                denied: denied.join().unwrap().1,
                approved: approved.join().unwrap(),
            }
        })
    })
}

fn errors(polls: &[Polled]) -> Vec<&str> {
    polls.iter().map(|polled| &*polled.error).collect()
}

/// Trap: growth is capped at 60 s.
#[test]
fn slow_down_grows_by_five_seconds_and_no_further_than_sixty() {
    let polls = &minute().impatient;
    let slowed = polls.iter().filter(|polled| polled.error == "slow_down");
    let intervals: Vec<u64> = slowed.map(Polled::interval).collect();
    assert_eq!(intervals[..11], [10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60], "{polls:?}");
    assert!(intervals.len() > 11 && intervals[11..].iter().all(|seconds| *seconds == 60));
}

/// Trap: `slow_down` that also moves the last-accepted time starves a steady poller.
#[test]
fn slow_down_does_not_starve_a_steady_poller() {
    let polls = &minute().impatient;
    let last = polls.last().unwrap();
    assert_eq!(last.error, "authorization_pending", "{polls:?}");
    assert!((44.0..60.0).contains(&last.at), "four fifths of 60 s after the first: {last:?}");
}

/// Trap: fast client clocks.
#[test]
fn a_device_whose_clock_is_a_fifth_fast_is_never_told_to_slow_down() {
    let polls = &minute().fast;
    assert_eq!(errors(polls), ["authorization_pending"; 6], "{polls:?}");
}

/// Trap: Go's x/oauth2 sends each failing poll twice within a second: same poll, same answer, no
/// penalty.
#[test]
fn a_failing_poll_sent_twice_within_a_second_is_one_poll_with_one_answer() {
    let polls = &minute().twice;
    let expected = [&["authorization_pending"; 6][..], &["slow_down"; 2]].concat();
    assert_eq!(errors(polls), expected, "{polls:?}");
    assert_eq!((polls[6].interval(), polls[7].interval()), (10, 10), "one penalty: {polls:?}");
}

/// Trap: `gh`'s library gives up at the second `slow_down`.
#[test]
fn a_device_that_obeys_slow_down_is_not_told_a_second_time() {
    let polls = &minute().obedient;
    let pending = "authorization_pending";
    assert_eq!(errors(polls), [pending, "slow_down", pending, pending], "{polls:?}");
}

/// Trap: a late approval revived a redeemed code. A repeat within ten seconds is for a lost answer.
#[test]
fn a_redeemed_code_is_used_up_and_a_late_approval_does_not_revive_it() {
    let polls = &minute().redeemed;
    let statuses: Vec<u16> = polls.iter().map(|polled| polled.status).collect();
    assert_eq!(statuses, [200, 200, 400, 400], "{polls:?}");
    assert_eq!(errors(polls)[2..], ["invalid_grant", "invalid_grant"], "{polls:?}");
}

/// Trap: denied and expired mixed up.
#[test]
fn denied_and_expired_are_not_mixed_up() {
    let minute = minute();
    assert_eq!(errors(&minute.pending), ["authorization_pending", "expired_token"]);
    assert_eq!(errors(&minute.denied), ["access_denied", "expired_token"]);
    assert_eq!(errors(&minute.approved), ["authorization_pending", "expired_token"]);
    for polled in [&minute.pending, &minute.denied, &minute.approved].map(|polls| &polls[1]) {
        assert_eq!(polled.status, 400);
        let body = json!({ "error": polled.error, "error_description": polled.description });
        super::curl::assert_refusal(&body.to_string(), "expired_token");
    }
}

#[test]
fn nobody_decides_about_a_code_that_has_expired() {
    assert_eq!(minute().decided_late, [404, 404]);
}
