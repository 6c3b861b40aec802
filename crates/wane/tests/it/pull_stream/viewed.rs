//! Views are told what stands in the record, after each write and in order.

use parking_lot::Mutex;
use wane::services::pull_stream::{SlotView, TokenView};

use super::*;

#[derive(Debug, Default)]
struct Wall(Mutex<Vec<(u64, Vec<SlotView>)>>);

impl TokenView for Wall {
    fn show(&self, _: Ispb, version: u64, slots: &[SlotView]) {
        self.0.lock().push((version, slots.to_vec()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_view_is_shown_the_slots_after_each_write() {
    let setup = setup();
    let wall = Arc::new(Wall::default());
    let settings = PullStreamSettings { view: Some(wall.clone()), ..PullStreamSettings::default() };
    let node = setup.node_over(setup.store.clone(), settings);
    ingest(&node, 20).await;
    let first = node.start(ispb(), &many()).await.unwrap();
    let second = node.next(ispb(), &first.next, &many()).await.unwrap();
    node.next(ispb(), &first.next, &many()).await.unwrap();
    node.end(ispb(), &second.next, &Client::default()).await.unwrap();

    let shown = wall.0.lock();
    let told: Vec<_> = shown
        .iter()
        .map(|(version, slots)| (*version, slots.iter().map(|slot| slot.cursor_seq).collect()))
        .collect();
    assert_eq!(told, [(1, vec![1]), (2, vec![2]), (3, vec![])], "a retry writes nothing");
    let slot = &shown[1].1[0];
    assert_eq!((slot.thread, slot.client.as_str()), (0, "tests"));
    let hash = &Sha256::digest(&second.next)[..16];
    assert_eq!(slot.token.as_deref(), Some(&*URL_SAFE_NO_PAD.encode(hash)));
    assert!(slot.lease_until < slot.expires_at);
}
