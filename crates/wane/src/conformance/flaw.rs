//! The catalogue of mistakes that the suite must notice.
//!
//! Most were made by others who built stores like these. Each is one line of documentation here
//! and a few lines in `flawed`.

/// Declares the flaws and the list of them, so that the list is complete.
macro_rules! flaws {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A mistake that a store may make against the contract.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Flaw {
            $($(#[$doc])* $name,)*
        }

        impl Flaw {
            /// Every flaw.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

flaws! {
    /// An insert looks, lets others run, then writes.
    InsertInTwoSteps,
    /// A swap compares, lets others run, then writes.
    SwapInTwoSteps,
    /// A delete compares, lets others run, then removes.
    DeleteInTwoSteps,
    /// A put compares fences, lets others run, then writes.
    PutInTwoSteps,

    /// An expired record that was not removed yet refuses an insert.
    ExpiredBlocksInsert,
    /// An expired record that was not removed yet matches a swap.
    ExpiredMatchesSwap,
    /// An expired record that was not removed yet matches a delete.
    ExpiredMatchesDelete,
    /// An expired record is returned by `get` until it is removed.
    ExpiredInGet,
    /// An expired record is returned by `get_batch` until it is removed.
    ExpiredInBatch,
    /// An expired row is returned by `read` until it is removed.
    ExpiredInRead,
    /// An expired record is shown by `scan` until it is removed.
    ExpiredInScan,
    /// An expired record has zero time left instead of none.
    ExpiredHasZeroLeft,
    /// A refusal carries an expired record.
    ExpiredInRefusal,
    /// A read ends at the first expired row.
    ExpiredEndsRead,
    /// A record still lives at the instant of its expiry.
    AliveAtTheInstant,
    /// The store believes a clock that was set back.
    ClockStepsBack,

    /// The expiry is stored in whole seconds.
    SecondsForMillis,
    /// The remaining time is told in whole seconds, rounded down.
    RemainingInSeconds,
    /// The remaining time is rounded up beyond the life.
    RemainingRoundedUp,
    /// The index entry of a record that was swapped stays, and removes the record later.
    StaleIndexAfterSwap,
    /// The index entry of a record that was put over stays, and removes the record later.
    StaleIndexAfterPut,
    /// The index entry of a record that was deleted stays, and removes its successor.
    StaleIndexAfterDelete,
    /// The marker of a row outlives a swap to a shorter life, and refuses inserts.
    MarkerOutlivesRecord,
    /// A permanent put over a lasting record leaves the old expiry.
    PutKeepsExpiry,
    /// A swap leaves the old expiry, whatever it asks for.
    SwapKeepsExpiry,
    /// A swap that keeps the expiry makes the record permanent.
    KeepMakesPermanent,
    /// Anything but a swap may ask to keep the expiry, and becomes permanent.
    KeepTakenAsPermanent,
    /// A life of more than 30 days is taken as an instant.
    LongLifeIsAnInstant,
    /// An instant more than 365 days ahead is cut to 365 days.
    FarInstantCut,
    /// An instant that has passed is an error.
    PastInstantRefused,

    /// An empty expected value matches an absent record.
    EmptyMatchesAbsent,
    /// A swap compares only as many bytes as are expected.
    SwapComparesPrefix,
    /// A swap that was applied is tried again and reported as refused.
    SwapRetried,
    /// A refusal does not carry the current record.
    RefusalWithoutCurrent,
    /// A refused swap leaves its fence behind.
    RefusalStamps,
    /// An applied write does not report its expiry.
    ExpiryNotReported,
    /// A delete reports no expiry of what it removed.
    DeleteReportsNoExpiry,

    /// A put with a lower fence is applied.
    PutIgnoresFence,
    /// A swap with a lower fence is applied.
    SwapIgnoresFence,
    /// A delete with a lower fence is applied.
    DeleteIgnoresFence,
    /// An equal fence is refused.
    EqualFenceRefused,
    /// A write without a fence is refused where there is one.
    UnfencedRefused,
    /// A write without a fence clears the stamp.
    UnfencedClearsStamp,
    /// An insert does not stamp its fence.
    InsertDoesNotStamp,
    /// A put writes its value, lets others run, then writes its fence.
    PutIsTorn,
    /// Fences are compared and stored as signed numbers.
    SignedFences,
    /// The fence of a deleted record guards its successor.
    FenceOutlivesDelete,
    /// The fence of an expired record guards its successor.
    FenceOutlivesExpiry,

    /// A batch is read without fences.
    BatchLosesFences,
    /// A range is read without fences.
    ReadLosesFences,

    /// A range whose start is not a row reads nothing.
    StartMustBeARow,
    /// Rows of a page descend.
    RowsDescend,
    /// The end of a range is included.
    UpperBoundIncluded,
    /// The start of a range is left out.
    LowerBoundLeftOut,
    /// A start beyond the end reads the whole partition.
    ReversedRangeReadsAll,
    /// A read returns the rows of partitions that begin alike as well.
    PartitionTakenAsPrefix,
    /// Rows are ordered by signed bytes.
    SignedByteOrder,
    /// Only the first page of a range is returned.
    FirstPageOnly,
    /// The next page begins with the last row of the one before.
    PagesOverlap,
    /// The end of a range is lost after the first page.
    EndLostAfterFirstPage,
    /// The rest of a range is empty once the row that it begins with is deleted.
    RestLostWithItsRow,
    /// A page holds one row more than its limit.
    PageBeyondLimit,
    /// A page has no limit in bytes.
    PageBeyondBytes,

    /// A key seen absent stays absent for that handle.
    AbsenceCached,
    /// A value seen is served to that handle for as long as it does not write itself.
    ValueCached,
    /// A value beyond 65,535 bytes leaves the smaller one before it.
    LargeValueKeepsOld,
    /// A value is cut at 65,535 bytes.
    LargeValueCut,
    /// An empty value reads as absent.
    EmptyValueIsAbsent,
    /// Empty clustering is stored as a zero byte in every operation.
    EmptyIsZeroByte,
    /// Empty clustering is stored as a zero byte, which only point operations know.
    EmptyHandledInGetOnly,
    /// The longest keys are cut.
    LongKeysCut,
    /// The longest keys are refused, because a prefix pushes them over a limit.
    LongKeysRefused,
    /// The longest partitions are refused, because a prefix pushes them over a limit.
    LongPartitionsRefused,
    /// A read that is given up blocks the next one.
    AbandonedReadBlocks,
    /// Where a key is split is not stored.
    SplitNotStored,
    /// Zero bytes at the end of a clustering are lost.
    TrailingZerosCut,

    /// A batch answers each key once.
    BatchAnswersOnce,
    /// Answers to absent keys of a batch are left out.
    BatchSkipsAbsent,
    /// Answers to a batch come in the order of keys.
    BatchAnswersSorted,
    /// Beyond 100 keys a batch answers none.
    BatchReadsFirst100,
    /// Beyond 25 rows a batch is dropped without a word.
    BatchWritesFirst25,
    /// The first of two writes to a key in a batch stands.
    BatchFirstWins,
    /// A batch is applied up to its first invalid write.
    BatchAppliedInPart,
    /// All rows of a batch get the life of the first.
    BatchSharesLife,

    /// Only the first page of a scan is returned.
    ScanFirstPageOnly,
    /// A scan shows the last row of a page again on the next one.
    ScanRepeats,
    /// A scan goes on in the store as it is by then.
    ScanMovesOn,
    /// A scan has no fences.
    ScanLosesFences,
    /// A scan's page has no limit in bytes.
    ScanBeyondBytes,

    /// Expired records are never removed.
    NeverSweeps,
    /// Sweeping removes whatever can expire.
    SweepsLiveRecords,
    /// A restart forgets everything.
    RestartForgetsRecords,
    /// A restart forgets what was written by batches.
    RestartForgetsBatches,
    /// A restart forgets expiries.
    RestartForgetsExpiries,
    /// A restart begins every life anew.
    RestartRenewsLives,
    /// A restart forgets fences.
    RestartForgetsFences,
    /// A restart brings deleted records back.
    RestartRevivesDeleted,
}
