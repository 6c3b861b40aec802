//! Scans: partition by partition, on one master after the other.
//!
//! `SCAN` names every key that is there from its beginning to its end at least once, and a record
//! that lives throughout keeps the key of its partition. That holds for one life of the server
//! process, so a scan that a restart ran into fails instead of leaving something out.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::join_all;
use redis::{Value as Reply, cmd};
use wane::store::{ClusteringRange, Page, PageFill, PageLimit, Partition, ScanPage, StoreError};

use super::Inner;
use super::link::Link;
use super::servers::text_of;

/// Keys that the server walks per step.
const WALK: usize = 500;

/// Steps that one page makes at most, whether or not they find rows.
const STEPS: usize = 100;

/// Partitions that are read at once, while all of them are small.
const SIDE_BY_SIDE: usize = 16;

/// Where a scan goes on.
#[derive(Debug)]
pub struct RedisScanCursor {
    /// The servers still to be walked; the first one is being walked.
    masters: VecDeque<Arc<Link>>,
    /// Which life of the server process is being walked, and how far.
    walk: Option<Walk>,
    /// Partitions that were found and not yet read; of the first, a part may have been.
    found: VecDeque<(Partition, ClusteringRange)>,
    /// How many to read at once.
    width: usize,
}

#[derive(Debug)]
struct Walk {
    life: Option<String>,
    cursor: u64,
}

impl Inner {
    pub(super) async fn scan(
        &self,
        after: Option<RedisScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<RedisScanCursor>, StoreError> {
        let mut cursor = after.unwrap_or_else(|| RedisScanCursor {
            masters: self.servers.masters().into(),
            walk: None,
            found: VecDeque::new(),
            width: 1,
        });
        let mut fill = PageFill::new(limit);
        for _ in 0..STEPS {
            if fill.is_full() {
                break;
            }
            if !cursor.found.is_empty() {
                self.read_found(&mut cursor, &mut fill).await?;
            } else if !cursor.masters.is_empty() {
                self.find(&mut cursor).await?;
            } else {
                return Ok(ScanPage { rows: fill.into_rows(), next: None });
            }
        }
        Ok(ScanPage { rows: fill.into_rows(), next: Some(cursor) })
    }

    /// Reads some of the partitions that were found.
    async fn read_found(
        &self,
        cursor: &mut RedisScanCursor,
        fill: &mut PageFill,
    ) -> Result<(), StoreError> {
        let room = PageLimit::new(fill.room())?;
        let reading = cursor.found.iter().take(cursor.width);
        let reading =
            reading.map(|(partition, range)| self.page(partition.as_bytes(), range, room));
        let pages: Vec<Result<Page, StoreError>> = join_all(reading).await;
        let mut all_small = true;
        for page in pages {
            if fill.is_full() {
                break;
            }
            let Page { rows, mut rest } = page?;
            let Some((partition, range)) = cursor.found.pop_front() else { break };
            for row in rows {
                if fill.is_full() {
                    rest = Some(range.starting_at(row.key.clustering().to_vec()));
                    break;
                }
                fill.push(row.key, row.record);
            }
            if let Some(rest) = rest {
                cursor.found.push_front((partition, rest));
                all_small = false;
                break;
            }
        }
        cursor.width = if all_small { (cursor.width * 2).min(SIDE_BY_SIDE) } else { 1 };
        Ok(())
    }

    /// Walks one step further, and on to the next server at the end of one.
    async fn find(&self, cursor: &mut RedisScanCursor) -> Result<(), StoreError> {
        let Some(master) = cursor.masters.front().cloned() else { return Ok(()) };
        let walk = match cursor.walk.take() {
            Some(walk) => walk,
            None => Walk { life: self.life_of(&master).await?, cursor: 0 },
        };
        let mut step = cmd("SCAN");
        step.arg(walk.cursor).arg("MATCH").arg(self.layout.pattern());
        step.arg("COUNT").arg(WALK).arg("TYPE").arg("hash");
        let reply = master.request(&step).await;
        let reply = reply.map_err(|fault| self.unavailable(fault.into()))?;
        let (next, keys): (u64, Vec<Vec<u8>>) =
            redis::from_redis_value(reply).map_err(|_| self.unreadable())?;
        let partitions = keys.iter().filter_map(|key| self.layout.partition_of(key));
        cursor.found.extend(partitions.map(|partition| (partition, ClusteringRange::ALL)));
        if next != 0 {
            cursor.walk = Some(Walk { cursor: next, ..walk });
            return Ok(());
        }
        if self.life_of(&master).await? != walk.life {
            let reason = "the server was restarted, which ended the scan; begin a new one";
            return Err(self.unavailable(reason.into()));
        }
        cursor.masters.pop_front();
        Ok(())
    }

    /// A name that the server process has until it ends, where it may be asked.
    async fn life_of(&self, master: &Link) -> Result<Option<String>, StoreError> {
        let info = match master.request(cmd("INFO").arg("server")).await {
            Ok(Reply::ServerError(_)) => return Ok(None),
            Ok(info) => text_of(info),
            Err(fault) => Err(fault),
        };
        let info = info.map_err(|fault| self.unavailable(fault.into()))?;
        let life = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        Ok(life.map(|life| life.trim_end().to_owned()))
    }
}
