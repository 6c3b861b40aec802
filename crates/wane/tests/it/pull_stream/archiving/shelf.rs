//! An archive in memory that fails, forgets and hangs when it is told to.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use wane::services::pull_stream::{Archive, ArchiveError, ArchiveFuture, Ispb, SegmentName};

/// What goes wrong with a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mishap {
    #[default]
    None,
    /// Nothing is kept, and it says so.
    Fails,
    /// It is kept, and the answer is lost.
    LosesAnswer,
    /// Nothing is kept, and it says that all went well. No archive may do that.
    Forgets,
    /// It never answers, before it keeps anything or after.
    Hangs { after: bool },
}

#[derive(Debug, Clone, Default)]
pub(super) struct Shelf(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    segments: BTreeMap<String, Bytes>,
    mishap: Mishap,
    puts: usize,
    gets: usize,
    /// How many names each listing had.
    listed: Vec<usize>,
}

fn unavailable() -> ArchiveError {
    ArchiveError::Unavailable { source: "nobody is there".into() }
}

impl Shelf {
    pub(super) fn set(&self, mishap: Mishap) {
        self.0.lock().mishap = mishap;
    }

    pub(super) fn puts(&self) -> usize {
        self.0.lock().puts
    }

    /// How often a segment was asked for, since the last time that this was asked.
    pub(super) fn gets(&self) -> usize {
        std::mem::take(&mut self.0.lock().gets)
    }

    /// How many names each listing had, since the last time that this was asked.
    pub(super) fn listed(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().listed)
    }

    /// Changes what is kept under a name, behind its back.
    pub(super) fn change(&self, name: &SegmentName, change: impl FnOnce(&mut Vec<u8>)) {
        let segments = &mut self.0.lock().segments;
        let kept = segments.get_mut(&name.to_string()).expect("it is kept");
        let mut bytes = kept.to_vec();
        change(&mut bytes);
        *kept = bytes.into();
    }

    pub(super) fn bytes(&self, name: &SegmentName) -> Bytes {
        self.0.lock().segments[&name.to_string()].clone()
    }

    /// Takes segments away, behind its back.
    pub(super) fn remove(&self, is_gone: impl Fn(&SegmentName) -> bool) {
        let is_gone = |name: &str| is_gone(&name.parse().expect("it was a name"));
        self.0.lock().segments.retain(|name, _| !is_gone(name));
    }

    /// Puts what another one has beside what it has, behind its back.
    pub(super) fn take_over(&self, other: &Self) {
        let others = other.0.lock().segments.clone();
        for (name, segment) in others {
            let before = self.0.lock().segments.insert(name.clone(), segment);
            assert!(before.is_none(), "both have {name}");
        }
    }

    pub(super) fn rename(&self, from: &SegmentName, to: &SegmentName) {
        let segments = &mut self.0.lock().segments;
        let bytes = segments.remove(&from.to_string()).expect("it is kept");
        segments.insert(to.to_string(), bytes);
    }
}

impl Archive for Shelf {
    fn put(&self, name: &SegmentName, segment: Bytes) -> ArchiveFuture<'_, ()> {
        let name = name.to_string();
        Box::pin(async move {
            // Others run while it is on its way.
            tokio::task::yield_now().await;
            let mishap = {
                let mut state = self.0.lock();
                state.puts += 1;
                let keeps = matches!(
                    state.mishap,
                    Mishap::None | Mishap::LosesAnswer | Mishap::Hangs { after: true }
                );
                if keeps {
                    let before = state.segments.insert(name, segment.clone());
                    let is_same = before.is_none_or(|before| before == segment);
                    assert!(is_same, "a segment was replaced by another one");
                }
                state.mishap
            };
            match mishap {
                Mishap::None | Mishap::Forgets => Ok(()),
                Mishap::Fails | Mishap::LosesAnswer => Err(unavailable()),
                Mishap::Hangs { .. } => std::future::pending().await,
            }
        })
    }

    fn get(&self, name: &SegmentName) -> ArchiveFuture<'_, Option<Bytes>> {
        let name = name.to_string();
        Box::pin(async move {
            self.0.lock().gets += 1;
            // Others ask meanwhile.
            tokio::task::yield_now().await;
            Ok(self.0.lock().segments.get(&name).cloned())
        })
    }

    fn list(
        &self,
        region: &str,
        ispb: Ispb,
        from_row: u64,
        most: usize,
    ) -> ArchiveFuture<'_, Vec<SegmentName>> {
        let prefix = format!("{region}/{ispb}/");
        Box::pin(async move {
            let mut state = self.0.lock();
            let from = format!("{prefix}{from_row:020}");
            let names = state.segments.range(from..).map(|(name, _)| name);
            let names = names.take_while(|name| name.starts_with(&prefix)).take(most);
            let names: Vec<SegmentName> =
                names.map(|name| name.parse().expect("it was a name")).collect();
            state.listed.push(names.len());
            Ok(names)
        })
    }
}
