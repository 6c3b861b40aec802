//! Callers at work: several threads that write, each to keys of its own, and note every answer.

use std::thread::JoinHandle;

use super::ledger::{Held, Ledger};
use crate::connection::{Connection, Ended};
use crate::server::{Answer, PATIENCE, Server};
use crate::wall_clock;

/// Keys of each caller that it writes to again and again.
const KEYS: u64 = 24;

const TTL: &str = "/api/v2/apps/demo/app/ttl";

/// Lives, in milliseconds: longer than a test, and about as long as a restart.
const LONG: u64 = 900_000;
const BRIEF: u64 = 400;

/// Callers under way.
pub(super) struct Load {
    callers: Vec<JoinHandle<(Ledger, Ended)>>,
}

impl Load {
    /// Starts a caller for each ledger, which goes on with what it knows.
    pub(super) fn start(server: &Server, ledgers: Vec<Ledger>, seed: u64) -> Self {
        let callers = ledgers.into_iter().zip(0..).map(|(ledger, number)| {
            let connection = Connection::open(server);
            let chance = seed.wrapping_mul(1_000_003).wrapping_add(number);
            let caller = Caller { connection, ledger, number, chance, written: 0 };
            std::thread::spawn(move || caller.work())
        });
        Self { callers: callers.collect() }
    }

    /// Waits until the server has left every caller, and returns what they know and how they were
    /// left.
    pub(super) fn end(self) -> (Vec<Ledger>, Vec<Ended>) {
        self.callers.into_iter().map(|caller| caller.join().unwrap()).unzip()
    }
}

struct Caller {
    connection: Connection,
    ledger: Ledger,
    number: u64,
    chance: u64,
    written: u64,
}

/// A write on its way: what it asks for, and what the key has if it is applied.
struct Attempt {
    method: &'static str,
    body: String,
    /// The life that it gives, in milliseconds.
    life: u64,
    /// The expiry stays as it is.
    keeps: Option<u64>,
    value: Option<String>,
}

impl Caller {
    fn work(mut self) -> (Ledger, Ended) {
        loop {
            if let Err(ended) = self.step() {
                return (self.ledger, ended);
            }
        }
    }

    fn draw(&mut self, bound: u64) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.chance >> 33) % bound
    }

    fn step(&mut self) -> Result<(), Ended> {
        self.written += 1;
        let value = format!("{}-{}-{}", self.number, self.written, wall_clock());
        if self.draw(8) == 0 {
            let key = format!("load-brief-{value}");
            let life = BRIEF + self.draw(1_200);
            return self.write(&key, &insert(&value, life));
        }
        let chosen = self.draw(KEYS);
        let key = format!("load-{}-{chosen}", self.number);
        let Some(state) = self.ledger.known(&key).cloned() else { return Ok(()) };
        match (state, self.draw(10)) {
            (None, 0) => self.refused(&key, &swap("absent", &value)),
            (None, _) => self.write(&key, &insert(&value, LONG)),
            (Some(held), 0..4) => self.write(&key, &swap(&held.value, &value)),
            (Some(held), 4) => {
                let keeps = *held.expires_at.start();
                self.write(&key, &swap_keeping(&held.value, &value, keeps))
            }
            (Some(held), 5..7) => self.write(&key, &delete(&held.value)),
            (Some(_), 7) => self.refused(&key, &insert("refused", LONG)),
            (Some(_), 8) => self.refused(&key, &swap("wrong", "refused")),
            (Some(held), _) => self.read(&key, &held),
        }
    }

    /// A write that nothing stands in the way of.
    fn write(&mut self, key: &str, attempt: &Attempt) -> Result<(), Ended> {
        let sent = wall_clock();
        let answer = self.connection.ask(attempt.method, &format!("{TTL}/{key}"), &attempt.body);
        let state = |expires_at| attempt.value.clone().map(|value| Held { value, expires_at });
        match answer {
            Ok(answer) => {
                assert!((200..300).contains(&answer.status), "{key}: {}", answer.body);
                let told = told_expiry(&answer);
                assert!(attempt.keeps.is_none_or(|kept| kept == told), "{key}: {told}");
                self.ledger.told(key, state(told..=told));
                Ok(())
            }
            Err(ended) => {
                let latest = wall_clock() + PATIENCE.as_millis() as u64;
                let expires_at = match attempt.keeps {
                    Some(kept) => kept..=kept,
                    None => sent + attempt.life..=latest + attempt.life,
                };
                self.ledger.untold(key, state(expires_at));
                Err(ended)
            }
        }
    }

    fn refused(&mut self, key: &str, attempt: &Attempt) -> Result<(), Ended> {
        let path = format!("{TTL}/{key}");
        let answer = self.connection.ask(attempt.method, &path, &attempt.body)?;
        assert_eq!((answer.status, &*answer.code()), (409, "refused"), "{key}: {}", answer.body);
        Ok(())
    }

    fn read(&mut self, key: &str, held: &Held) -> Result<(), Ended> {
        let answer = self.connection.ask("GET", &format!("{TTL}/{key}"), "")?;
        assert_eq!(answer.json()["value"], *held.value, "{key}");
        Ok(())
    }
}

/// The expiry in an answer; 0 for an answer without a body.
fn told_expiry(answer: &Answer) -> u64 {
    if answer.body.is_empty() { 0 } else { answer.json()["expiresAt"].as_u64().unwrap() }
}

fn insert(value: &str, life: u64) -> Attempt {
    let body = format!(r#"{{"value":"{value}","ttlMillis":{life}}}"#);
    Attempt { method: "POST", body, life, keeps: None, value: Some(value.to_owned()) }
}

fn swap(old: &str, new: &str) -> Attempt {
    let body = format!(r#"{{"expectedValue":"{old}","newValue":"{new}","ttlMillis":{LONG}}}"#);
    Attempt { method: "PUT", body, life: LONG, keeps: None, value: Some(new.to_owned()) }
}

fn swap_keeping(old: &str, new: &str, kept: u64) -> Attempt {
    let body = format!(r#"{{"expectedValue":"{old}","newValue":"{new}","keepExpiry":true}}"#);
    Attempt { method: "PUT", body, life: 0, keeps: Some(kept), value: Some(new.to_owned()) }
}

fn delete(old: &str) -> Attempt {
    let body = format!(r#"{{"expectedValue":"{old}"}}"#);
    Attempt { method: "DELETE", body, life: 0, keeps: None, value: None }
}
