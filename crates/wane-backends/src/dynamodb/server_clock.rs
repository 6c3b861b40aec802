//! The time of DynamoDB: the `Date` header of an answer, which is told in whole seconds.

use std::sync::Arc;

use aws_sdk_dynamodb::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use parking_lot::Mutex;
use wane::store::{StoreError, Timestamp};

use super::table::mark;
use super::{BACKEND, DynamodbStore};
use crate::{ServerClock, ServerTime};

impl ServerClock for DynamodbStore {
    async fn server_time(&self) -> Result<ServerTime, StoreError> {
        let dated = Dated::default();
        let table = &self.table;
        let answer = table.reading(|| {
            let request = table.client.get_item().table_name(&table.name).set_key(Some(mark()));
            request.customize().interceptor(dated.clone()).send()
        });
        answer.await?;
        let date = dated.header.lock().take();
        date.as_deref().and_then(second_of).ok_or_else(|| {
            let source = format!("{}: its answer has no date, but {date:?}", table.place).into();
            StoreError::Unavailable { backend: BACKEND, source }
        })
    }
}

/// The second that a date names.
fn second_of(date: &str) -> Option<ServerTime> {
    let second = DateTime::from_str(date, DateTimeFormat::HttpDate).ok()?.secs();
    let begins = u64::try_from(second).ok()?.checked_mul(1_000)?;
    let at = Timestamp::from_unix_millis;
    Some(ServerTime { not_before: at(begins), not_after: at(begins + 999) })
}

/// Keeps the `Date` header of the last answer.
#[derive(Debug, Clone, Default)]
struct Dated {
    header: Arc<Mutex<Option<String>>>,
}

impl Intercept for Dated {
    fn name(&self) -> &'static str {
        "Dated"
    }

    fn read_after_transmit(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        *self.header.lock() = context.response().headers().get("date").map(str::to_owned);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_names_a_whole_second() {
        let second = second_of("Sun, 09 Sep 2001 01:46:40 GMT").unwrap();
        assert_eq!(second.not_before.as_unix_millis(), 1_000_000_000_000);
        assert_eq!(second.not_after.as_unix_millis(), 1_000_000_000_999);
        for broken in ["", "now", "2001-09-09T01:46:40Z", "Sun, 09 Sep 1901 01:46:40 GMT"] {
            assert_eq!(second_of(broken), None, "{broken}");
        }
    }
}
