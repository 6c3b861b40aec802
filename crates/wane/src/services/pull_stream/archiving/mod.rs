//! Archiving: rows whose end is near, or of a time that somebody asks for, are copied into segments.
//!
//! Rows are read page by page and slower than they could be, as the stream goes first. When a
//! segment is full it is planned in the record of `progress`, put, and its rows are counted as
//! archived; so that a node that ends in between leaves a plan, and the next one carries it out.
//!
//! Nothing is deleted here: rows go with their retention, which is fixed when they come in. Those
//! that went before they were archived are counted and told of. So are those that cannot be read:
//! what lies behind them is archived, and they stay in the log for as long as they live.
//!
//! Invariants:
//! - Rows are read below an end of the log that was known before: what is not there had expired.
//! - Rows that are archived are not copied again.
//! - What fails leaves the record where it is, and can be asked for again.
//! - Where the archive is ahead of the record, as after a backup was restored, it holds rows of a log
//!   that is no more under the numbers of this one: nothing is written beside them, and nothing is
//!   read from there. [`ArchiveError::Foreign`] names the first one.

mod draft;
mod progress;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use self::draft::{Damaged, Draft, Due, Fate, Finished, Wanted, time_for};
use self::progress::{Known, Plan};
use super::archive::{Archive, SegmentName};
use super::archived::Listing;
use super::audit::{Action, AuditEntry, Verdict};
use super::core::Core;
use super::log::{Found, Place, SealedRow, Span, log_end};
use super::reader::Client;
use super::segment;
use super::{ArchiveError, Ispb, PullStream, PullStreamError};
use crate::store::{PageLimit, Store, StoreError, Timestamp};

/// Rows that are read at a time.
const PAGE_ROWS: usize = 16;

/// What a page takes beside its rows, for the pace.
const PAGE_COST: usize = 4 << 10;

/// How often other nodes may change the record under a call.
const MOST_CONTENDED: usize = 32;

/// How long the plan of another node is left to it.
const LEFT_TO_OTHERS: Duration = Duration::from_secs(60);

/// Pages that are looked through for the oldest row that is not archived.
const MOST_PAGES: usize = 64;

/// What was archived by a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ArchiveReport {
    /// Segments that were written.
    pub segments: u64,
    /// Rows in them.
    pub rows: u64,
    /// Messages in those.
    pub messages: u64,
    /// Bytes of the segments.
    pub bytes: u64,
    /// Rows that had expired before they could be archived.
    pub gone: u64,
    /// Rows that cannot be read, and so are in no segment.
    pub damaged: u64,
    /// The first of these.
    pub first_damaged: Option<u64>,
    /// When the last row came in that was archived.
    pub reached: Option<Timestamp>,
    /// Whether nothing is left of what was to be archived: ask again where not.
    pub is_done: bool,
}

impl ArchiveReport {
    fn note_damaged(&mut self, damaged: Damaged) {
        self.damaged += damaged.count;
        self.first_damaged = self.first_damaged.or(damaged.first);
    }
}

/// How far the archive of an institution is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveStatus {
    /// Rows that are archived, or had expired before.
    pub rows: u64,
    /// Rows that had expired before they were archived, since there has been an archive.
    pub gone: u64,
    /// Rows that could not be read, and are not archived.
    pub damaged: u64,
    /// When the oldest row came in that is not archived.
    pub oldest: Option<Timestamp>,
    /// For how long that one has been due; zero where none is.
    pub lag: Duration,
}

impl<S: Store> PullStream<S> {
    /// Archives the rows that came in at a time, up to a number of segments.
    ///
    /// Rows that are archived already are not copied again, so that the same call goes on where the
    /// last one ended. The audit tells of every call. [`PullStreamError::Absent`] without an archive.
    pub async fn archive(
        &self,
        ispb: Ispb,
        times: Range<Timestamp>,
        most_segments: u64,
        who: &Client,
    ) -> Result<ArchiveReport, PullStreamError> {
        let done = self.archive_times(ispb, times.clone(), most_segments).await;
        let verdict = match &done {
            Ok(report) if report.segments == 0 => Verdict::Empty,
            Ok(_) => Verdict::Done,
            Err(error) => error.verdict(),
        };
        let mut entry = self.entry(Action::Archive, verdict, who, None);
        entry.messages = done.as_ref().map_or(0, |report| report.messages);
        let [from, to] = [times.start, times.end].map(Timestamp::as_unix_millis);
        entry.reason = Some(format!("messages from {from} to {to}"));
        let remarked = self.remark(ispb, entry).await;
        let report = done?;
        self.tell_unread(ispb, &report, who).await;
        remarked.map_err(|error| unaudited(&error))?;
        Ok(report)
    }

    async fn archive_times(
        &self,
        ispb: Ispb,
        times: Range<Timestamp>,
        most_segments: u64,
    ) -> Result<ArchiveReport, PullStreamError> {
        if times.is_empty() {
            let reason = "it must be later than `from`".into();
            return Err(PullStreamError::Invalid { field: "to", reason });
        }
        let (core, place) = (&*self.core, self.core.place(ispb));
        let archive = core.archive()?;
        let end = self.log_end(ispb).await?;
        let from = Span::of(&core.store, place, times.clone(), end).await?.next_row();
        let wanted = Wanted::Of(times);
        Archiving { core, archive, place, wanted, from, end }.run(most_segments).await
    }

    /// Archives the rows of an institution whose end is near, up to a number of segments.
    ///
    /// Leaves alone what another node began within the last minute. The audit tells of what was
    /// archived.
    pub async fn archive_due(
        &self,
        ispb: Ispb,
        most_segments: u64,
    ) -> Result<ArchiveReport, PullStreamError> {
        let (core, place) = (&*self.core, self.core.place(ispb));
        let archive = core.archive()?;
        let known = Known::read(&core.store, place).await?;
        if let Some(plan) = known.progress.planned {
            let at = Timestamp::from_unix_millis(plan.at);
            if at.until(core.clock.now()) < LEFT_TO_OTHERS {
                return Ok(ArchiveReport::default());
            }
        }
        let end = self.log_end(ispb).await?;
        let wanted = Wanted::Due(self.due(ispb).await?);
        let archiving = Archiving { core, archive, place, wanted, from: 0, end };
        let report = archiving.run(most_segments).await?;
        let who = Client::new("archiver")?;
        self.tell_unread(ispb, &report, &who).await;
        if report.segments > 0 {
            let mut entry = self.entry(Action::Archive, Verdict::Done, &who, None);
            entry.messages = report.messages;
            entry.reason = Some("their end is near".into());
            self.remark(ispb, entry).await.map_err(|error| unaudited(&error))?;
        }
        Ok(report)
    }

    /// Tells the audit of rows that are not archived as they cannot be read.
    async fn tell_unread(&self, ispb: Ispb, report: &ArchiveReport, who: &Client) {
        let Some(first) = report.first_damaged else { return };
        let entry = self.entry(Action::Archive, Verdict::Damaged, who, None);
        let count = report.damaged;
        let about =
            format!("{count} rows cannot be read and are not archived, the first is {first}");
        self.remark_or_count(ispb, AuditEntry { reason: Some(about), ..entry }).await;
    }

    /// How far the archive of an institution is. Changes nothing.
    pub async fn archive_status(&self, ispb: Ispb) -> Result<ArchiveStatus, PullStreamError> {
        let (core, place) = (&*self.core, self.core.place(ispb));
        let end = self.log_end(ispb).await?;
        let progress = Known::read(&core.store, place).await?.progress;
        let mut oldest = None;
        if let Some(gap) = progress.gap(0, end) {
            let mut span = Span::whole(gap);
            for _ in 0..MOST_PAGES {
                let Some(rows) = span.page(&core.store, place, PageLimit::new(1)?).await? else {
                    break;
                };
                oldest = rows.iter().find_map(Found::readable).map(|row| row.sealed.at());
                if oldest.is_some() {
                    break;
                }
            }
        }
        let due = self.due(ispb).await?;
        let lag = oldest.map_or(Duration::ZERO, |at| at.until(due.before));
        let (rows, gone, damaged) = (progress.rows(), progress.gone, progress.damaged);
        Ok(ArchiveStatus { rows, gone, damaged, oldest, lag })
    }

    /// What is due now.
    async fn due(&self, ispb: Ispb) -> Result<Due, StoreError> {
        let (core, now) = (&self.core, self.core.clock.now());
        // Rows are archived in their order. So while some live that came in when retention was
        // shorter, all before them are due by it.
        let retention = core.recorded_policy(ispb).await?.shortest_retention(now);
        let now = now.as_unix_millis();
        let ahead = core.settings.archive_before.as_millis() as u64;
        let before = now.saturating_sub(retention).saturating_add(ahead).min(now);
        let with = before.saturating_add(ahead / 2).min(now);
        let moment = Timestamp::from_unix_millis;
        let expiring_by = moment(now.saturating_add(ahead));
        Ok(Due { before: moment(before), with: moment(with), expiring_by, has_begun: false })
    }

    /// Where the log ends now.
    async fn log_end(&self, ispb: Ispb) -> Result<u64, StoreError> {
        log_end(&self.core.store, self.core.place(ispb)).await
    }
}

fn unaudited(error: &PullStreamError) -> PullStreamError {
    let source = format!("it was archived, and the audit does not tell of it: {error}");
    StoreError::Unknown { backend: "audit", source: source.into() }.into()
}

/// [`ArchiveError::Foreign`] where one of these rows, which were found in the archive before, is not
/// what the log has archived.
pub(super) async fn check_own<S: Store>(
    store: &S,
    place: Place<'_>,
    mut rows: impl Iterator<Item = u64>,
) -> Result<(), PullStreamError> {
    let progress = Known::read(store, place).await?.progress;
    match rows.find(|row| !progress.has(*row)) {
        Some(row) => Err(ArchiveError::Foreign { ispb: place.ispb, row }.into()),
        None => Ok(()),
    }
}

impl<S> Core<S> {
    /// Where rows are archived.
    pub(super) fn archive(&self) -> Result<&dyn Archive, PullStreamError> {
        let what = "there is no archive; start the server with the setting stream_archive";
        self.settings.archive.as_deref().ok_or(PullStreamError::Absent { what })
    }
}

/// The segment of a draft: see [`Draft::finish`].
async fn finish(draft: Draft, end: Option<u64>) -> Result<Option<Finished>, ArchiveError> {
    segment::aside(move || draft.finish(end)).await
}

async fn drafted(
    draft: Draft,
    end: Option<u64>,
    is_last: bool,
) -> Result<Drafted, PullStreamError> {
    let (damaged, is_early) = (draft.all_damaged(), draft.is_early());
    Ok(Drafted { finished: finish(draft, end).await?, is_last, damaged, is_early })
}

/// One run over the log of an institution.
struct Archiving<'a, S> {
    core: &'a Core<S>,
    archive: &'a dyn Archive,
    place: Place<'a>,
    wanted: Wanted,
    /// The row to go on with.
    from: u64,
    /// Where the log ended before anything was read.
    end: u64,
}

/// What comes next.
enum Next {
    Rows(Finished),
    /// Nothing is left of these rows, but for some that cannot be read.
    Gone(Range<u64>, Damaged),
    Nothing,
}

/// What came of a gap.
struct Drafted {
    finished: Option<Finished>,
    /// Whether nothing more is wanted after it.
    is_last: bool,
    /// Rows that cannot be read, where nothing else was wanted.
    damaged: Damaged,
    /// Whether they are left for later.
    is_early: bool,
}

impl<S: Store> Archiving<'_, S> {
    async fn run(mut self, most_segments: u64) -> Result<ArchiveReport, PullStreamError> {
        let mut report = ArchiveReport::default();
        let mut contended = 0;
        while report.segments < most_segments {
            let known = Known::read(&self.core.store, self.place).await?;
            let is_done = if let Some(plan) = known.progress.planned.clone() {
                self.carry_out(known, &plan, &mut report).await?
            } else {
                // Before there was an archive, rows went without one.
                let gone_of = |rows: u64| if known.is_new() { 0 } else { rows };
                match self.look(&known, &mut report).await? {
                    Next::Rows(finished) => {
                        let (gone, end) = (gone_of(finished.gone()), finished.segment.rows.end);
                        self.check_ahead(&finished.rows, Some(&finished)).await?;
                        let is_done = self.write(known, finished, gone, &mut report).await?;
                        if is_done {
                            self.from = self.from.max(end);
                        }
                        is_done
                    }
                    Next::Gone(rows, damaged) => {
                        let gone = gone_of(rows.end - rows.start - damaged.count);
                        self.check_ahead(&rows, None).await?;
                        self.let_go(known, &rows, (gone, damaged), &mut report).await?
                    }
                    Next::Nothing => {
                        report.is_done = true;
                        return Ok(report);
                    }
                }
            };
            contended = if is_done { 0 } else { contended + 1 };
            if contended > MOST_CONTENDED {
                return Err(PullStreamError::Contended);
            }
        }
        Ok(report)
    }

    /// The next rows that are wanted and not archived.
    async fn look(
        &mut self,
        known: &Known,
        report: &mut ArchiveReport,
    ) -> Result<Next, PullStreamError> {
        while let Some(gap) = known.progress.gap(self.from, self.end) {
            let drafted = self.draft(gap.clone()).await?;
            if let Some(finished) = drafted.finished {
                return Ok(Next::Rows(finished));
            }
            if drafted.is_last {
                return Ok(Next::Nothing);
            }
            match self.wanted {
                Wanted::Due(_) if !drafted.is_early => {
                    return Ok(Next::Gone(gap, drafted.damaged));
                }
                Wanted::Due(_) => {}
                // Nothing is counted for good here, and whoever asked is told.
                Wanted::Of(_) => report.note_damaged(drafted.damaged),
            }
            self.from = gap.end;
        }
        Ok(Next::Nothing)
    }

    /// A segment of the first wanted rows of a gap.
    async fn draft(&mut self, gap: Range<u64>) -> Result<Drafted, PullStreamError> {
        let mut draft = self.empty(gap.start);
        let mut span = Span::whole(gap.clone());
        while let Some(rows) = self.page(&mut span).await? {
            for found in rows {
                let row = match found {
                    Found::Row(row) => row,
                    Found::Damaged(row) => {
                        draft.note_damaged(&row, self.wanted.is_due(&row));
                        continue;
                    }
                };
                if !draft.reaches(&row) {
                    return drafted(draft, None, false).await;
                }
                match self.wanted.fate(&row) {
                    Fate::Take => draft.take(&row)?,
                    Fate::Pass => draft.pass(row)?,
                    Fate::Stop => return drafted(draft, None, true).await,
                }
                // Compressing a row takes up to some milliseconds, in which others wait.
                tokio::task::yield_now().await;
                if draft.is_full() {
                    return drafted(draft, None, false).await;
                }
            }
        }
        drafted(draft, Some(gap.end), false).await
    }

    fn empty(&self, start: u64) -> Draft {
        Draft::new(self.place, start, self.core.settings.archive_segment)
    }

    /// The next page, at the pace of the settings.
    async fn page(&self, span: &mut Span) -> Result<Option<Vec<Found>>, PullStreamError> {
        let (core, limit) = (self.core, PageLimit::new(PAGE_ROWS)?);
        let rows = span.page(&core.store, self.place, limit).await?;
        let readable = rows.iter().flatten().filter_map(Found::readable);
        let bytes: usize = readable.map(|row| row.record.value.len()).sum();
        core.clock.sleep(time_for(bytes + PAGE_COST, core.settings.archive_rate)).await;
        Ok(rows)
    }

    /// [`ArchiveError::Foreign`] where the archive has other rows than these in their place. It may
    /// have the same, of a plan that was carried out otherwise.
    async fn check_ahead(
        &self,
        rows: &Range<u64>,
        finished: Option<&Finished>,
    ) -> Result<(), ArchiveError> {
        let mut listing = Listing::over(self.archive, self.place, rows.start);
        while let Some(name) = listing.next().await? {
            if name.rows.start >= rows.end {
                break;
            }
            if name.rows.end <= rows.start {
                continue;
            }
            let is_same = match finished {
                Some(finished) => self.has_same(&name, finished).await?,
                None => false,
            };
            if !is_same {
                let row = name.rows.start.max(rows.start);
                return Err(ArchiveError::Foreign { ispb: self.place.ispb, row });
            }
        }
        Ok(())
    }

    /// Whether rows that both have are the same, and there are some.
    async fn has_same(&self, name: &SegmentName, ours: &Finished) -> Result<bool, ArchiveError> {
        let Some(bytes) = self.archive.get(name).await? else { return Ok(true) };
        let theirs = segment::decode_aside(name, bytes).await?;
        let ours = segment::decode_aside(&ours.segment, ours.bytes.clone()).await?;
        let ours: BTreeMap<u64, SealedRow> = ours.into_iter().collect();
        let mut both = theirs.iter().filter_map(|(row, sealed)| Some((sealed, ours.get(row)?)));
        let first = both.next();
        Ok(first.is_some_and(|(theirs, ours)| theirs.is_same(ours))
            && both.all(|(theirs, ours)| theirs.is_same(ours)))
    }

    /// Plans a segment, puts it and counts its rows; false where another node was faster.
    async fn write(
        &mut self,
        known: Known,
        finished: Finished,
        gone: u64,
        report: &mut ArchiveReport,
    ) -> Result<bool, PullStreamError> {
        let now = self.core.clock.now().as_unix_millis();
        let plan = Plan::new(&finished, gone, now);
        let mut planned = known.progress.clone();
        // Refused here where it could not be counted after all.
        planned.clone().cover(&finished.rows)?;
        planned.planned = Some(plan.clone());
        let Some(known) = known.swap(&self.core.store, planned).await? else { return Ok(false) };
        self.put(known, &plan, finished, report).await
    }

    /// Puts a segment that is planned and counts its rows.
    async fn put(
        &mut self,
        known: Known,
        plan: &Plan,
        finished: Finished,
        report: &mut ArchiveReport,
    ) -> Result<bool, PullStreamError> {
        let Finished { segment, bytes, messages, .. } = finished;
        let length = bytes.len() as u64;
        self.archive.put(&segment, bytes).await?;
        if self.count(known, plan, report).await? {
            report.segments += 1;
            report.rows += segment.count;
            report.messages += messages;
            report.bytes += length;
            let last = segment.times.end.as_unix_millis().saturating_sub(1);
            report.reached = Some(Timestamp::from_unix_millis(last));
            return Ok(true);
        }
        Ok(false)
    }

    /// Counts the rows of a plan as archived.
    async fn count(
        &self,
        known: Known,
        plan: &Plan,
        report: &mut ArchiveReport,
    ) -> Result<bool, PullStreamError> {
        self.let_go(known, &plan.rows(), (plan.gone, plan.damaged()), report).await
    }

    /// Counts rows that are archived, gone or damaged.
    async fn let_go(
        &self,
        known: Known,
        rows: &Range<u64>,
        (gone, damaged): (u64, Damaged),
        report: &mut ArchiveReport,
    ) -> Result<bool, PullStreamError> {
        let mut progress = known.progress.clone();
        progress.planned = None;
        progress.cover(rows)?;
        progress.gone += gone;
        progress.damaged += damaged.count;
        let is_counted = known.swap(&self.core.store, progress).await?.is_some();
        if is_counted {
            report.gone += gone;
            report.note_damaged(damaged);
        }
        Ok(is_counted)
    }

    /// Carries out a plan that somebody left, or is at work on: it writes the same segment.
    async fn carry_out(
        &mut self,
        known: Known,
        plan: &Plan,
        report: &mut ArchiveReport,
    ) -> Result<bool, PullStreamError> {
        let mut draft = self.empty(plan.rows().start);
        let mut span = Span::whole(plan.rows());
        while let Some(rows) = self.page(&mut span).await? {
            for found in rows {
                match found {
                    Found::Row(row) => draft.take(&row)?,
                    Found::Damaged(row) => draft.note_damaged(&row, true),
                }
                tokio::task::yield_now().await;
            }
        }
        let damaged = draft.all_damaged();
        let finished = finish(draft, Some(plan.rows().end)).await?;
        // Those that have expired since the plan was made, and before.
        let left = finished.as_ref().map_or(0, |finished| finished.segment.count);
        let left = left + damaged.count.saturating_sub(plan.damaged().count);
        let gone = plan.gone + plan.count().saturating_sub(left);
        match finished {
            Some(finished) if plan.is_of(&finished.segment) => {
                self.put(known, plan, finished, report).await
            }
            // They are there if the segment was put.
            _ if self.has(plan).await? => self.count(known, plan, report).await,
            Some(finished) => self.write(known, finished, gone, report).await,
            None => self.let_go(known, &plan.rows(), (gone, damaged), report).await,
        }
    }

    /// Whether the segment of a plan was put, whole. A damaged one counts as none: what is left of
    /// its rows is written instead.
    async fn has(&self, plan: &Plan) -> Result<bool, ArchiveError> {
        let Some(name) = plan.segment() else { return Ok(false) };
        let Some(bytes) = self.archive.get(&name).await? else { return Ok(false) };
        Ok(segment::decode_aside(&name, bytes).await.is_ok())
    }
}
