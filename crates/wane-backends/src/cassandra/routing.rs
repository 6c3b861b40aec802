//! Routing: all processes send the statements of a partition to the same replica while it lives.
//!
//! Proposals that come through one node wait for each other there. Through two they supersede each
//! other, and a write that is superseded half-way ends without an answer. The driver orders replicas
//! like this for conditional statements that ScyllaDB marks as such; Cassandra marks none, and all of
//! ours are.

use std::sync::Arc;

use scylla::cluster::{ClusterState, NodeRef};
use scylla::policies::load_balancing::{FallbackPlan, LoadBalancingPolicy, RoutingInfo};
use scylla::routing::Shard;

/// The plan that `below` makes for conditional statements, for every statement.
#[derive(Debug)]
pub(super) struct SameReplica {
    pub(super) below: Arc<dyn LoadBalancingPolicy>,
}

fn conditional<'r>(request: &RoutingInfo<'r>) -> RoutingInfo<'r> {
    let mut request = request.clone();
    request.is_confirmed_lwt = true;
    request
}

impl LoadBalancingPolicy for SameReplica {
    fn pick<'a>(
        &'a self,
        request: &'a RoutingInfo<'_>,
        cluster: &'a ClusterState,
    ) -> Option<(NodeRef<'a>, Option<Shard>)> {
        let request = conditional(request);
        let (node, shard) = self.below.pick(&request, cluster)?;
        // The node found lives as long as the request that was made up; the cluster's lives on.
        Some((cluster.get_node_by_host_id(node.host_id)?, shard))
    }

    fn fallback<'a>(
        &'a self,
        request: &'a RoutingInfo<'_>,
        cluster: &'a ClusterState,
    ) -> FallbackPlan<'a> {
        let request = conditional(request);
        let plan = self.below.fallback(&request, cluster);
        let plan: Vec<_> = plan.map(|(node, shard)| (node.host_id, shard)).collect();
        Box::new(plan.into_iter().filter_map(move |(id, shard)| {
            let node = cluster.get_node_by_host_id(id)?;
            Some((node, shard))
        }))
    }

    fn name(&self) -> String {
        "SameReplica".to_owned()
    }
}
