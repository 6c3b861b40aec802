//! What must hold in a world, looked at by one who sees everything.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use wane::services::elections::Token;
use wane::store::{ClusteringRange, Notice, Partition, Store};

use super::node::Node;
use super::world::{World, election};
use crate::simulation::machine::true_sleep;

/// Completes when two machines believe to lead at once, or one without the newest token.
pub(super) async fn one_leads(nodes: &[Arc<Node>], world: &World) -> String {
    loop {
        tokio::select! {
            biased;
            () = world.news.begun.notified() => {}
            () = true_sleep(Duration::from_millis(25)) => {}
        }
        let posts: Vec<_> = nodes.iter().map(|node| node.post.lock().clone()).collect();
        let leaders = posts.iter().flatten().filter(|holding| holding.is_leader());
        let tokens: Vec<_> = leaders.map(|holding| holding.token()).collect();
        if !world.kind.one_leader {
            continue;
        }
        if tokens.len() > 1 {
            return format!("leaders at once, with tokens {tokens:?}");
        }
        if let [token] = &*tokens
            && let Some(wrong) = unfounded(world, *token).await
        {
            return wrong;
        }
    }
}

/// What is wrong with a leader of this token, by the record of the election.
pub(super) async fn unfounded(world: &World, token: Token) -> Option<String> {
    let record = world.bottom.get(&election()).await.expect("the bottom does not fail");
    let stored: serde_json::Value =
        serde_json::from_slice(&record.expect("there is a leader").value).expect("JSON");
    let is_founded = stored["token"] == token.get() && stored["endsAt"] != 0;
    (!is_founded).then(|| format!("leaders at once with the record: {token} leads, {stored}"))
}

/// Completes when a record is written with a lower token than before, by another lease with the same
/// one, or by a write that should have been refused.
pub(super) async fn tokens_grow(world: &World, partition: &Partition, row: &str) -> String {
    let range = ClusteringRange::only(row.to_owned()).expect("short enough");
    let mut watch = world.bottom.watch(partition, range).await.expect("the bottom does not fail");
    let mut newest: Option<(u64, String)> = None;
    loop {
        let Some(Notice::Event(event)) = watch.next().await else {
            return format!("{row}: changes were missed");
        };
        let written: serde_json::Value = serde_json::from_slice(&event.value).expect("JSON");
        let token = written["token"].as_u64().expect("a token");
        let lease = written["leaseId"].to_string();
        if let Some((before, holder)) = &newest
            && (token < *before || (token == *before && lease != *holder))
        {
            return format!("{row}: token {token} was written after {before}");
        }
        match written["attempt"].as_u64() {
            Some(attempt) if world.news.doomed.lock().contains(&attempt) => {
                return format!("{row}: a write of token {token} got through that came too late");
            }
            Some(_) => {}
            None => world.news.newest_token.store(token, Ordering::Relaxed),
        }
        newest = Some((token, lease));
    }
}
