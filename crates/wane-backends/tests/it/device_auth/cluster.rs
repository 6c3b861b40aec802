//! The same on a cluster of Redis, where the codes of all applications and the grants of one may lie
//! on different masters.

use wane_backends::MAX_SKEW;

use super::deciding::{one_of_approving_and_denying_wins, one_of_many_approvals_wins};
use super::expiring::what_is_told_is_what_became_of_it;
use super::redeeming::{a_revocation_has_the_last_word, many_polls_get_one_token};
use super::stage::Stage;
use crate::harness::urls::Address;
use crate::redis_cluster::cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_links_once_whatever_races() {
    let Some((servers, settings)) = cluster().await else { return };
    let url = format!("{}?prefix={}", servers[0].url(), settings.prefix);
    let it = Stage::shared(Address { backend: "redis cluster", url, max_skew: MAX_SKEW }).await;
    one_of_approving_and_denying_wins(&it).await;
    one_of_many_approvals_wins(&it).await;
    many_polls_get_one_token(&it).await;
    a_revocation_has_the_last_word(&it).await;
    what_is_told_is_what_became_of_it(&it, it.node(1)).await;
}
