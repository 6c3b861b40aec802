//! The home of a store's streams: part of where every record of them lies, and the same for ever.

use super::checked_name;
use crate::services::drawn::found_or_drawn;
use crate::services::pull_stream::PullStreamError;
use crate::store::{Key, Keyspace, Life, Store, StoreError, Value, Write};

/// Where the streams of a store lie: under the name of the region whose node asked first.
///
/// All nodes find the same, whatever their own region is, so that one of them finds what another has
/// written; and a node that gets another region later goes on with what it had.
pub async fn home_region<S: Store>(store: &S, region: &str) -> Result<String, PullStreamError> {
    checked_name("region", region)?;
    let key = Key::new(Keyspace::Settings.partition(b"pull_stream")?.as_bytes(), b"home")?;
    let own = || Ok(Write::new(Value::copy_from_slice(region.as_bytes())?, Life::Permanent));
    let found = found_or_drawn(store, &key, own).await?.ok_or(PullStreamError::Contended)?;
    let home = String::from_utf8(found.to_vec()).ok();
    let home = home.filter(|home| checked_name("region", home).is_ok());
    home.ok_or_else(|| {
        let reason = "it is not the name of a region".into();
        StoreError::Corrupt { key, reason }.into()
    })
}
