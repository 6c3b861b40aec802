//! Comfort above the contract: a whole range, page by page.

use std::ops::ControlFlow;

use super::{ClusteringRange, PageLimit, Partition, Row, Store, StoreError};

/// Hands every live row of `range` to `visit`, in order, one page in memory at a time.
///
/// The read ends at once when `visit` breaks or fails; its error comes back as it is. Dropping
/// the future cancels the read.
pub async fn for_each_row<S, E>(
    store: &S,
    partition: &Partition,
    range: ClusteringRange,
    mut visit: impl FnMut(Row) -> Result<ControlFlow<()>, E> + Send,
) -> Result<(), E>
where
    S: Store,
    E: From<StoreError>,
{
    let mut rest = Some(range);
    while let Some(range) = rest {
        let page = store.read(partition, &range, PageLimit::MAX).await?;
        for row in page.rows {
            if visit(row)?.is_break() {
                return Ok(());
            }
        }
        rest = page.rest;
    }
    Ok(())
}
