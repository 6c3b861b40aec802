//! Complete flows: a device starts, the app approves, the device polls and has its token.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use hdrhistogram::Histogram;
use tokio::runtime::Runtime;

use super::{CONNECTIONS, Counted, Line, Start, started, starts};
use crate::http::Kind;
use crate::report::{Report, Row};
use crate::{BoxError, timing};

/// What the store must be seen to write for a flow, or it was not this store: the two codes, the
/// approval, the token and its redemption.
const WRITES: f64 = 5.0;

pub(super) fn run(
    scratch: &Path,
    client: &Runtime,
    quick: bool,
    report: &mut Report,
) -> Result<(), BoxError> {
    let flows = if quick { 2_000 } else { 8_000 };
    let scratch = scratch.join("flows");
    let server = started(Kind::File, &scratch, client)?;
    timing::stage("device: apps and clients for the flows");
    let starts = Arc::new(starts(&server, client, flows)?);
    timing::stage(&format!("device: {flows} flows, {CONNECTIONS} callers"));
    let before = Counted::now(&server, client)?;
    let begin = timing::now();
    let callers: Vec<_> = (0..CONNECTIONS)
        .map(|caller| client.spawn(link(server.http, Arc::clone(&starts), caller)))
        .collect();
    let mut micros = Histogram::<u64>::new(3)?;
    for caller in callers {
        micros.add(client.block_on(caller)??)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let counted = Counted::now(&server, client)?.since(before);
    let quantile = |at| Some(micros.value_at_quantile(at) as f64 / 1e3);
    let linked = micros.len() as f64;
    report.row(Row {
        table: "device: complete flows (start, approve, poll), over loopback".into(),
        subject: server.kind.name().into(),
        setting: format!("{flows} flows, {CONNECTIONS} callers"),
        measures: vec![
            ("flows/s".into(), Some(linked / seconds)),
            ("p50 ms".into(), quantile(0.5)),
            ("p99 ms".into(), quantile(0.99)),
            ("writes/flow".into(), Some(counted.writes / linked)),
        ],
        note: None,
    });
    report.bar(
        "device flow: writes that the store counted / writes that a flow takes",
        (Some(counted.writes), Some(linked * WRITES)),
        1.0,
    );
    Ok(())
}

/// Links every device that falls to this caller, and says how long each took.
async fn link(
    server: SocketAddr,
    starts: Arc<Vec<Start>>,
    caller: usize,
) -> Result<Histogram<u64>, BoxError> {
    let mut line = Line::to(server).await?;
    let mut micros = Histogram::<u64>::new(3)?;
    for start in starts.iter().skip(caller).step_by(CONNECTIONS) {
        let begin = timing::now();
        let codes = line.ask(&start.request(), 200).await?;
        let code = |name: &str| codes[name].as_str().ok_or("a code is missing");
        line.ask(&start.approve_request(code("user_code")?), 200).await?;
        let token = line.ask(&start.poll_request(code("device_code")?), 200).await?;
        if !token["access_token"].is_string() {
            return Err("a flow without a token".into());
        }
        micros.record(begin.elapsed().as_micros() as u64)?;
    }
    Ok(micros)
}
