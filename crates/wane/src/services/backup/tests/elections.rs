//! Elections that come back: with higher tokens than any that were given out since.

use std::time::Duration;

use super::*;
use crate::services::ClusterAppId;
use crate::services::elections::{
    AppElections, Campaigned, Elections, Guard, Lease, LeaseRules, Renewed, Token,
};
use crate::store::WatchedStore;

fn elections(store: &MemoryStore, clock: &Arc<ManualClock>) -> AppElections<MemoryStore> {
    let watched = WatchedStore::new(store.clone(), clock.clone());
    Elections::new(watched, clock.clone(), LeaseRules::ONE_PROCESS).of(ClusterAppId(1))
}

async fn won(elections: &AppElections<MemoryStore>) -> Lease {
    match elections.campaign("e", "one", Duration::from_secs(60)).await.unwrap() {
        Campaigned::Won(lease) => lease,
        Campaigned::Held(by) => panic!("{by:?}"),
    }
}

/// A leader elected after the backup was made may still write: its token must stay below.
#[tokio::test]
async fn restored_elections_are_vacant_and_skip_tokens() {
    let it = Fixture::new(1);
    it.put("other", Life::Permanent, 7).await;
    let before = elections(&it.store, &it.clock);
    let lease = won(&before).await;
    let (store, restored) = it.restore(&it.bytes().await).await;
    assert_eq!(restored.unwrap().records, 2);
    let after = elections(&store, &it.clock);
    let standing = after.observe("e").await.unwrap().unwrap();
    assert_eq!((standing.holder, standing.token.get()), (None, 1 + (1 << 32)));
    let renewed = after.renew("e", lease.id, lease.token).await.unwrap();
    assert!(matches!(renewed, Renewed::Lost(Some(_))), "{renewed:?}");
    let guard = Guard { election: "e".into(), token: lease.token };
    assert!(after.fence(&guard).await.is_err(), "the old leader is fenced off");
    assert_eq!(won(&after).await.token, Token::new(2 + (1 << 32)).unwrap());
    let other = store.get(&key("other")).await.unwrap().unwrap();
    assert_eq!((&*other.value, other.fence), (&b"other"[..], Fence(7)));
}
