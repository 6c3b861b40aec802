//! Watches: changes and expiries as server-sent events.

use std::convert::Infallible;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::sse::{Event, Sse};
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Serialize;
use wane::services::app_ttl::{AppTtlEvent, AppTtlEventKind, AppTtlNotice, AppTtlWatch};

use super::bodies::{CurrentBody, key_text};
use crate::http::caller::Caller;
use crate::http::described::{OfApp, ServerSentBody};
use crate::http::lasting::{Lasted, kept_alive};
use crate::http::problem::{Code, Problem};
use crate::http::query::Parameters;
use crate::http::taken::Lasting;
use crate::wiring::Services;

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
        ("prefix" = Option<String>, Query, max_length = 1024, nullable = false,
            description = "the beginning of the keys"),
        ("Last-Event-ID" = Option<u64>, Header, nullable = false,
            description = "the event to go on after")),
    responses((status = 200, description = "events as they happen",
        content_type = "text/event-stream", body = ServerSentBody), OfApp))]
pub(crate) async fn watch(
    State(services): State<Services>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
) -> Result<(Lasting, Sse<impl Stream<Item = Result<Event, Infallible>>>), Problem> {
    let query = Parameters::of(&uri, &["prefix"])?;
    let from = last_event_id(&headers)?;
    if services.is_shared {
        let detail = "this server's store is shared with other processes, whose changes it does \
                      not see; read the keys in question, or watch on storage mem or file";
        return Err(Problem::new(Code::InvalidRequest, detail));
    }
    let lasted = Lasted::begin(&services, &caller)?;
    let watch =
        services.storage(&caller).watch(query.get("prefix").unwrap_or_default(), from).await?;
    Ok((Lasting, kept_alive(events(watch, lasted))))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(given) = headers.get("last-event-id") else { return Ok(None) };
    let id = given.to_str().ok().and_then(|id| id.parse().ok());
    let invalid = || Problem::invalid("Last-Event-ID", "give the id of an event, a whole number");
    id.map(Some).ok_or_else(invalid)
}

/// The events of a watch, until something ends it.
fn events(watch: AppTtlWatch, lasted: Lasted) -> impl Stream<Item = Result<Event, Infallible>> {
    unfold((watch, lasted), |(mut watch, mut lasted)| async move {
        let notice = tokio::select! {
            biased;
            () = lasted.ended() => return None,
            notice = watch.next() => notice?,
        };
        Some((Ok(event(&notice)), (watch, lasted)))
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
