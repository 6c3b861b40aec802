//! Walking over the rows of a hold, to put them under it or to let them go.
//!
//! After each page the hold's record says how far it is. Whoever finds the record changed by
//! somebody else goes on from what it says, so that several may work on one hold.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::hold::{Hold, HoldState, Standing};
use super::mark::MarkedRow;
use crate::services::pull_stream::PullStreamError;
use crate::services::pull_stream::core::Core;
use crate::services::pull_stream::log::{Found, MARGIN, Span, log_end};
use crate::store::{PageLimit, Store, StoreError, Timestamp};

/// Rows that are read at a time, and those that are written at once.
const PAGE: usize = 64;
const AT_ONCE: usize = 32;

/// How long after its release a hold is looked through again: longer than any call takes.
const LOOKED_AT_AGAIN_AFTER: Duration = Duration::from_secs(120);

/// Puts rows under a hold, as far as there are any.
pub(super) async fn place<S: Store>(
    core: &Core<S>,
    mut standing: Standing,
) -> Result<Hold, PullStreamError> {
    loop {
        if standing.hold.state != HoldState::Placing {
            return Ok(standing.hold);
        }
        match place_on(core, standing.clone()).await? {
            Some(hold) => return Ok(hold),
            None => standing = again(core, &standing).await?.ok_or(RELEASED)?,
        }
    }
}

/// Goes on to the end; `None` where somebody else has changed the hold.
async fn place_on<S: Store>(
    core: &Core<S>,
    mut standing: Standing,
) -> Result<Option<Hold>, PullStreamError> {
    let now = core.clock.now();
    let place = core.place(standing.hold.id.ispb());
    let (mut span, end) = rows_of(core, &standing.hold).await?;
    while let Some(page) = span.page(&core.store, place, PageLimit::new(PAGE)?).await? {
        // What lies where retention has emptied the log is not worth a write.
        if page.is_empty() {
            continue;
        }
        let mut hold = standing.hold.clone();
        let rows: Vec<u64> = page.iter().map(Found::row).collect();
        let held = hold_all(core, &hold, &rows).await;
        hold.rows += *held.as_ref().unwrap_or(&0);
        if held.is_ok() {
            hold.next_row = span.next_row().min(end);
            hold.note_damaged(&page);
        }
        let changed = standing.clone().changed(&core.store, hold).await;
        if !matches!(changed, Ok(Some(_))) {
            undo(core, &standing, &rows).await?;
        }
        held?;
        let Some(next) = changed? else { return Ok(None) };
        standing = next;
    }
    let covers = Timestamp::from_unix_millis(standing.hold.to);
    let state = if covers.until(now) > MARGIN { HoldState::Placed } else { HoldState::Placing };
    let walked = Hold { state, next_row: end, ..standing.hold.clone() };
    if walked == standing.hold {
        return Ok(Some(walked));
    }
    Ok(standing.changed(&core.store, walked).await?.map(|standing| standing.hold))
}

/// Lets rows go that were put under a hold while somebody released it.
async fn undo<S: Store>(
    core: &Core<S>,
    standing: &Standing,
    rows: &[u64],
) -> Result<(), PullStreamError> {
    let is_released = match again(core, standing).await? {
        Some(standing) => {
            matches!(standing.hold.state, HoldState::Releasing | HoldState::Released)
        }
        None => true,
    };
    if is_released {
        let_all_go(core, &standing.hold, rows).await?;
    }
    Ok(())
}

/// Lets all rows of a hold go. Its record stays for a while.
pub(super) async fn release<S: Store>(
    core: &Core<S>,
    mut standing: Standing,
) -> Result<(), PullStreamError> {
    loop {
        if release_on(core, standing.clone()).await? {
            return Ok(());
        }
        match again(core, &standing).await? {
            Some(next) => standing = next,
            None => return Ok(()),
        }
    }
}

/// False where somebody else has changed the hold.
async fn release_on<S: Store>(
    core: &Core<S>,
    mut standing: Standing,
) -> Result<bool, PullStreamError> {
    let place = core.place(standing.hold.id.ispb());
    if standing.hold.state != HoldState::Releasing {
        let begun = Hold { state: HoldState::Releasing, next_row: 0, ..standing.hold.clone() };
        let Some(next) = standing.changed(&core.store, begun).await? else { return Ok(false) };
        standing = next;
    }
    let (mut span, end) = rows_of(core, &standing.hold).await?;
    while let Some(page) = span.page(&core.store, place, PageLimit::new(PAGE)?).await? {
        if page.is_empty() {
            continue;
        }
        let rows: Vec<u64> = page.iter().map(Found::row).collect();
        let_all_go(core, &standing.hold, &rows).await?;
        let hold = Hold { next_row: span.next_row().min(end), ..standing.hold.clone() };
        let Some(next) = standing.changed(&core.store, hold).await? else { return Ok(false) };
        standing = next;
    }
    let released = Hold {
        state: HoldState::Released,
        released_at: Some(core.clock.now().as_unix_millis()),
        next_row: 0,
        ..standing.hold.clone()
    };
    Ok(standing.changed(&core.store, released).await?.is_some())
}

/// Looks through a hold that was released a while ago once more, and ends it.
pub(super) async fn forget<S: Store>(
    core: &Core<S>,
    standing: Standing,
) -> Result<(), PullStreamError> {
    let released_at = Timestamp::from_unix_millis(standing.hold.released_at.unwrap_or_default());
    if released_at.until(core.clock.now()) < LOOKED_AT_AGAIN_AFTER {
        return Ok(());
    }
    let place = core.place(standing.hold.id.ispb());
    let (mut span, _) = rows_of(core, &standing.hold).await?;
    while let Some(page) = span.page(&core.store, place, PageLimit::new(PAGE)?).await? {
        let rows: Vec<u64> = page.iter().map(Found::row).collect();
        let_all_go(core, &standing.hold, &rows).await?;
    }
    // Changed by another one, it is that one's.
    standing.end(&core.store).await?;
    Ok(())
}

/// The rows that a hold covers from where it is, and where the log ends.
async fn rows_of<S: Store>(core: &Core<S>, hold: &Hold) -> Result<(Span, u64), StoreError> {
    let place = core.place(hold.id.ispb());
    let end = log_end(&core.store, place).await?;
    let times = Timestamp::from_unix_millis(hold.from)..Timestamp::from_unix_millis(hold.to);
    let span = Span::of(&core.store, place, times, end).await?;
    Ok((span.not_before(hold.next_row), end))
}

/// Puts rows under the hold; how many were there.
async fn hold_all<S: Store>(core: &Core<S>, hold: &Hold, rows: &[u64]) -> Result<u64, StoreError> {
    let place = core.place(hold.id.ispb());
    let held = stream::iter(rows.to_vec())
        .map(|row| async move { MarkedRow::new(&core.store, place, row)?.hold(&hold.id).await })
        .buffer_unordered(AT_ONCE)
        .try_fold(0, async |count, is_held| Ok(count + u64::from(is_held)));
    held.await
}

async fn let_all_go<S: Store>(core: &Core<S>, hold: &Hold, rows: &[u64]) -> Result<(), StoreError> {
    let place = core.place(hold.id.ispb());
    let gone = stream::iter(rows.to_vec())
        .map(|row| async move { MarkedRow::new(&core.store, place, row)?.let_go(&hold.id).await })
        .buffer_unordered(AT_ONCE)
        .try_for_each(async |()| Ok(()));
    gone.await
}

/// The hold as it stands now.
async fn again<S: Store>(
    core: &Core<S>,
    standing: &Standing,
) -> Result<Option<Standing>, StoreError> {
    let id = &standing.hold.id;
    Standing::of(&core.store, core.place(id.ispb()), id).await
}

const RELEASED: PullStreamError =
    PullStreamError::Absent { what: "the hold was released while it was placed" };
