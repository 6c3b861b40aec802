//! Damage to the audit: whatever was done to whichever row, the check names the chain and the row.

use super::*;
use wane::services::pull_stream::{AuditCheck, Chain};
use wane::store::{ClusteringRange, Fence, Keyspace, Life, PageLimit, Row, Value, Write};

/// Rows of the chains that are damaged here.
const ROWS: usize = 6;

/// A chain of six rows of one entry each that everything is known of, and its rows.
struct Chained {
    setup: Setup,
    node: PullStream<InnerStore>,
    chain: Chain,
    rows: Vec<Row>,
}

impl Chained {
    async fn new(chain: Chain) -> Self {
        let setup = setup();
        let node = setup.node();
        match chain {
            Chain::Transitions => transitions(&node).await,
            Chain::Remarks => remarks(&node).await,
        }
        true_sleep(SECOND).await;
        let mut chained = Self { setup, node, chain, rows: Vec::new() };
        chained.rows = chained.read().await;
        assert_eq!(chained.rows.len(), ROWS, "one for each call");
        chained
    }

    async fn read(&self) -> Vec<Row> {
        let letter = match self.chain {
            Chain::Transitions => b't',
            Chain::Remarks => b'r',
        };
        let rest = [&[5][..], b"local", b"00000208", &[letter], &[0; 8]].concat();
        let partition = Keyspace::Audit.partition(&rest).expect("within the limits");
        let page = self.setup.store.read(&partition, &ClusteringRange::ALL, PageLimit::MAX).await;
        page.expect("nothing fails here").rows
    }

    fn text(&self, row: usize) -> String {
        String::from_utf8(self.rows[row].record.value.to_vec()).expect("JSON")
    }

    /// Puts something in the place of a row.
    async fn put(&self, row: usize, text: String) {
        assert_ne!(text, self.text(row), "it is changed");
        let write = Write::new(Value::new(text).expect("within the limits"), Life::Permanent);
        let put = self.setup.store.put(&self.rows[row].key, write).await;
        assert!(put.expect("nothing fails here").is_applied());
    }

    async fn remove(&self, row: usize) {
        let Row { key, record } = &self.rows[row];
        let gone = self.setup.store.compare_and_delete(key, &record.value, Fence::NONE).await;
        assert!(gone.expect("nothing fails here").is_applied());
    }

    /// The same damage to whichever row.
    async fn damage(&self, damage: Damage, row: usize) {
        match damage {
            Damage::Edited => {
                let text = self.text(row).replace("\"who\":\"tests\"", "\"who\":\"other\"");
                self.put(row, text).await;
            }
            Damage::Relinked => {
                let mut text = self.text(row);
                let at = text.find("\"prev\":\"").expect("a hash") + 8;
                let other = if text[at..].starts_with('A') { "B" } else { "A" };
                text.replace_range(at..=at, other);
                self.put(row, text).await;
            }
            Damage::Garbled => self.put(row, "{\"row\":".into()).await,
            Damage::Emptied => {
                let text = self.text(row);
                let begin = text.find("\"entries\":").expect("its entries");
                self.put(row, format!("{}\"entries\":[]}}", &text[..begin])).await;
            }
            Damage::TakenOut => self.remove(row).await,
            Damage::CutOff => {
                for row in row..ROWS {
                    self.remove(row).await;
                }
            }
            Damage::Swapped => {
                let other = (row + 1) % ROWS;
                self.put(row, self.text(other)).await;
                self.put(other, self.text(row)).await;
            }
            Damage::Doubled => {
                let other = (row + ROWS - 1) % ROWS;
                self.put(row, self.text(other)).await;
            }
        }
    }

    /// The row that the check names, at once and in parts.
    async fn named(&self) -> Result<u64, AuditCheck> {
        let named = self.told_by(self.setup.node().verify_audit(ispb(), self.chain).await);
        for most_rows in 1..=ROWS as u64 {
            let checked = self.checked_in_parts(most_rows).await;
            assert_eq!(self.told_by(checked), named, "{most_rows} rows at a time");
        }
        named
    }

    /// The same, so many rows at a time.
    async fn checked_in_parts(&self, most_rows: u64) -> Result<AuditCheck, PullStreamError> {
        let (node, mut after) = (self.setup.node(), None);
        loop {
            let checked = node.verify_audit_on(ispb(), after.as_deref(), most_rows).await?;
            let Some(next) = checked.next else {
                let ours = checked.chains.into_iter().find(|(chain, _)| *chain == self.chain);
                return Ok(ours.expect("both chains are told of").1);
            };
            assert_ne!(after.as_ref(), Some(&next), "it goes on");
            after = Some(next);
        }
    }

    fn told_by(&self, answer: Result<AuditCheck, PullStreamError>) -> Result<u64, AuditCheck> {
        match answer {
            Ok(check) => Err(check),
            Err(PullStreamError::BrokenChain { chain, row, reason }) => {
                assert_eq!(chain, self.chain, "{reason}");
                assert!(reason.len() > 10, "{reason}");
                Ok(row)
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    /// Somebody else is said to have done it.
    Edited,
    /// It follows another row.
    Relinked,
    /// It is no row any more.
    Garbled,
    /// Nothing is said to have happened.
    Emptied,
    TakenOut,
    /// It and all behind it are gone.
    CutOff,
    /// It and the next one stand in each other's place.
    Swapped,
    /// The one before stands here, too.
    Doubled,
}

const DAMAGES: [Damage; 8] = [
    Damage::Edited,
    Damage::Relinked,
    Damage::Garbled,
    Damage::Emptied,
    Damage::TakenOut,
    Damage::CutOff,
    Damage::Swapped,
    Damage::Doubled,
];

/// Six changes of state.
async fn transitions(node: &PullStream<InnerStore>) {
    ingest(node, 50).await;
    let mut pulled = node.start(ispb(), &many()).await.expect("nothing fails here");
    // Long enough for each to be a row, too short for the task that knows of it to end.
    let pause = SECOND / 5;
    for _ in 0..4 {
        true_sleep(pause).await;
        pulled = node.next(ispb(), &pulled.next, &many()).await.expect("nothing fails here");
    }
    true_sleep(pause).await;
    let client = Client::new("tests").expect("within the limits");
    node.end(ispb(), &pulled.next, &client).await.expect("nothing fails here");
}

/// Six calls that are refused.
async fn remarks(node: &PullStream<InnerStore>) {
    for _ in 0..ROWS {
        refusal(node.next(ispb(), "none of ours", &many()).await);
        true_sleep(SECOND).await;
    }
}

/// The control of what follows: nothing is found where nothing was done.
#[tokio::test(start_paused = true)]
async fn a_whole_chain_is_verified() {
    for chain in Chain::ALL {
        let chained = Chained::new(chain).await;
        assert_eq!(chained.named().await, Err(AuditCheck { rows: 6, entries: 6 }));
        let other = if chain == Chain::Remarks { Chain::Transitions } else { Chain::Remarks };
        let empty = chained.node.verify_audit(ispb(), other).await.unwrap();
        assert_eq!(empty, AuditCheck { rows: 0, entries: 0 });
    }
}

#[tokio::test(start_paused = true)]
async fn every_damage_is_found_and_named_with_its_chain_and_row() {
    for chain in Chain::ALL {
        for damage in DAMAGES {
            for row in 0..ROWS {
                let is_last = row == ROWS - 1;
                // Entries of the last row still ride in the state, and are carried there again.
                let is_harmless = chain == Chain::Transitions
                    && is_last
                    && matches!(damage, Damage::TakenOut | Damage::CutOff);
                if is_harmless {
                    continue;
                }
                let chained = Chained::new(chain).await;
                chained.damage(damage, row).await;
                // The last row is swapped with the first one.
                let expected = if damage == Damage::Swapped && is_last { 0 } else { row as u64 };
                let named = chained.named().await;
                assert_eq!(named, Ok(expected), "{damage:?}, row {row} of {chain}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_lost_while_its_entries_ride_is_written_again() {
    let chained = Chained::new(Chain::Transitions).await;
    chained.remove(ROWS - 1).await;
    assert_eq!(chained.named().await, Err(AuditCheck { rows: 5, entries: 5 }));
    let other = chained.setup.node();
    other.start(ispb(), &many()).await.unwrap();
    true_sleep(SECOND).await;
    let check = other.verify_audit(ispb(), Chain::Transitions).await.unwrap();
    assert_eq!(check.entries, 7, "what was lost, and the start");
}

/// Rows that nobody wrote, behind the last one.
#[tokio::test(start_paused = true)]
async fn a_row_that_never_rode_is_found() {
    let chained = Chained::new(Chain::Transitions).await;
    let forged = chained.text(5).replace("\"verdict\":\"done\"", "\"verdict\":\"gone\"");
    chained.put(5, forged).await;
    assert_eq!(chained.named().await, Ok(5));
}

/// A call reads about as many rows as it may: what is left is for the next ones.
#[tokio::test(start_paused = true)]
async fn a_check_in_parts_goes_on_where_it_was() {
    let chained = Chained::new(Chain::Remarks).await;
    let node = chained.setup.node();
    let first = node.verify_audit_on(ispb(), None, 2).await.unwrap();
    let empty = (Chain::Transitions, AuditCheck { rows: 0, entries: 0 });
    let seen = |rows| [empty, (Chain::Remarks, AuditCheck { rows, entries: rows })];
    assert_eq!(first.chains, seen(2));
    let next = first.next.unwrap();
    let second = node.verify_audit_on(ispb(), Some(&next), 3).await.unwrap();
    assert_eq!(second.chains, seen(5));
    let last = node.verify_audit_on(ispb(), second.next.as_deref(), 3).await.unwrap();
    assert_eq!((&last.chains[..], last.next), (&seen(6)[..], None));
    let other = "00000209".parse().unwrap();
    let refused = node.verify_audit_on(other, Some(&next), 3).await;
    assert!(matches!(refused, Err(PullStreamError::Invalid { field: "after", .. })), "{refused:?}");

    // Cut off between two calls, also what was seen before is missed.
    for row in 1..ROWS {
        chained.remove(row).await;
    }
    let cut = node.verify_audit_on(ispb(), Some(&next), 3).await;
    assert!(matches!(cut, Err(PullStreamError::BrokenChain { .. })), "{cut:?}");
}

/// The error is what operators see of it.
#[tokio::test(start_paused = true)]
async fn damage_is_told_in_words() {
    let chained = Chained::new(Chain::Remarks).await;
    chained.damage(Damage::TakenOut, 2).await;
    let told = chained.node.verify_audit(ispb(), Chain::Remarks).await.unwrap_err().to_string();
    assert_eq!(told, "audit, row 2 of the remarks: it is missing");
}
