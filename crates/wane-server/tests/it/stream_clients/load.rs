//! Producers at work: each sends batch after batch, and notes what it was told and what it was not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::ledger::{Sent, digest};
use crate::http::pull_stream::wire::connected;
use crate::http::pull_stream::{ids_in, message, pushing};
use crate::wait;

/// Producers under way.
pub(super) struct Load {
    over: Arc<AtomicBool>,
    producers: Vec<JoinHandle<Sent>>,
}

impl Load {
    /// Starts producers, which turn to another server when one does not answer.
    pub(super) fn start(servers: &[SocketAddr], key: &str, producers: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let producers = (0..producers).map(|number| {
            let (over, servers, key) = (Arc::clone(&over), servers.to_vec(), key.to_owned());
            std::thread::spawn(move || {
                let producer = Producer { servers, key, number, written: 0 };
                producer.work(&over)
            })
        });
        let producers = producers.collect();
        Self { over, producers }
    }

    /// Lets the producers finish what they are at, and returns what they know.
    pub(super) fn end(self) -> Sent {
        self.over.store(true, Ordering::Relaxed);
        Sent::merge(self.producers.into_iter().map(|producer| producer.join().unwrap()))
    }
}

struct Producer {
    servers: Vec<SocketAddr>,
    key: String,
    number: usize,
    written: usize,
}

impl Producer {
    fn work(mut self, over: &AtomicBool) -> Sent {
        let (mut sent, mut place) = (Sent::default(), self.number);
        while !over.load(Ordering::Relaxed) {
            let batch: Vec<_> = (0..1 + self.written * 7 % 10).map(|_| self.next()).collect();
            let messages: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
            let sums: Vec<_> = batch.iter().map(|message| digest(message)).collect();
            let server = self.servers[place % self.servers.len()];
            let Some(connection) = connected(server) else {
                // Nothing was sent: none of these may ever be delivered.
                wait(Duration::from_millis(25));
                place += 1;
                continue;
            };
            match pushing(&self.key, &messages).over(connection) {
                Some(reply) if reply.status == 201 => {
                    let ids = ids_in(&reply);
                    assert_eq!(ids.len(), sums.len());
                    sent.told.extend(ids.into_iter().zip(sums));
                }
                Some(reply) => {
                    // The store failed, or too many wait: some may be in.
                    assert!(matches!(reply.status, 503 | 504), "{}", reply.text());
                    sent.untold.extend(sums);
                    place += 1;
                }
                None => {
                    sent.untold.extend(sums);
                    place += 1;
                }
            }
            wait(Duration::from_millis(25));
        }
        sent
    }

    /// A message that no other is like.
    fn next(&mut self) -> Vec<u8> {
        self.written += 1;
        let name = format!("<!-- {} of {} -->\r\n", self.written, self.number);
        [name.into_bytes(), message(self.written)].concat()
    }
}
