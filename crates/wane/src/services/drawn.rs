//! What a store keeps once for all its nodes: drawn at random by whoever asks first.

use crate::store::{Key, Outcome, Store, StoreError, Value, Write};

/// What stands under the key, or what is drawn now if nobody was faster. `None` where somebody was,
/// and it is gone again.
pub(super) async fn found_or_drawn<S: Store>(
    store: &S,
    key: &Key,
    draw: impl FnOnce() -> Result<Write, StoreError>,
) -> Result<Option<Value>, StoreError> {
    if let Some(record) = store.get(key).await? {
        return Ok(Some(record.value));
    }
    let write = draw()?;
    let drawn = write.value.clone();
    match store.insert_if_not_exists(key, write).await {
        Ok(Outcome::Applied { .. }) => Ok(Some(drawn)),
        Ok(Outcome::Refused { current }) => Ok(current.map(|record| record.value)),
        // Drawn at random: whatever stands there in the end is as good as ours.
        Err(unknown @ StoreError::Unknown { .. }) => match store.get(key).await {
            Ok(Some(record)) => Ok(Some(record.value)),
            Ok(None) | Err(_) => Err(unknown),
        },
        Err(error) => Err(error),
    }
}
