//! Watches: changes and expiries as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Serialize;
use wane::services::app_ttl::{AppTtlEvent, AppTtlEventKind, AppTtlNotice, AppTtlWatch};

use super::bodies::{CurrentBody, key_text};
use crate::http::caller::Caller;
use crate::http::problem::{Problem, ProblemBody};
use crate::http::query::Parameters;
use crate::wiring::Services;

/// How often a silent watch says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The data of an event.
#[derive(Debug, Serialize)]
struct EventBody {
    key: String,
    #[serde(flatten)]
    entry: CurrentBody,
}

/// Streams `inserted`, `swapped`, `deleted` and `expired`, each with key, value and expiry, and
/// `gap` where some may have been missed.
#[utoipa::path(get, path = "/api/v2/apps/{owner}/{app}/ttl:watch", tag = "app_ttl",
    params(("owner" = String, Path), ("app" = String, Path),
        ("prefix" = Option<String>, Query, description = "the beginning of the keys"),
        ("Last-Event-ID" = Option<u64>, Header, description = "the event to go on after")),
    responses((status = 200, content_type = "text/event-stream", body = String),
        (status = "4XX", body = ProblemBody)))]
pub(crate) async fn watch(
    State(services): State<Services>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let query = Parameters::of(&uri, &["prefix"])?;
    let from = last_event_id(&headers)?;
    let watch =
        services.storage(&caller).watch(query.get("prefix").unwrap_or_default(), from).await?;
    Ok(Sse::new(events(watch, services)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(given) = headers.get("last-event-id") else { return Ok(None) };
    let id = given.to_str().ok().and_then(|id| id.parse().ok());
    let invalid = || Problem::invalid("Last-Event-ID", "give the id of an event, a whole number");
    id.map(Some).ok_or_else(invalid)
}

/// The events of a watch, until the store or the server ends.
fn events(watch: AppTtlWatch, services: Services) -> impl Stream<Item = Result<Event, Infallible>> {
    unfold((watch, services), |(mut watch, services)| async move {
        let notice = tokio::select! {
            notice = watch.next() => notice?,
            () = services.closing.wait() => return None,
        };
        Some((Ok(event(&notice)), (watch, services)))
    })
}

fn event(notice: &AppTtlNotice) -> Event {
    match notice {
        AppTtlNotice::Gap { id } => Event::default().event("gap").id(id.to_string()).data("{}"),
        AppTtlNotice::Event(change) => {
            let named = Event::default().event(name(change)).id(change.id.to_string());
            let entry = CurrentBody::new(&change.value, change.expires_at);
            let body = EventBody { key: key_text(&change.key), entry };
            named.data(serde_json::to_string(&body).unwrap_or_default())
        }
    }
}

fn name(change: &AppTtlEvent) -> &'static str {
    match change.kind {
        AppTtlEventKind::Inserted => "inserted",
        AppTtlEventKind::Swapped => "swapped",
        AppTtlEventKind::Deleted => "deleted",
        AppTtlEventKind::Expired => "expired",
    }
}
