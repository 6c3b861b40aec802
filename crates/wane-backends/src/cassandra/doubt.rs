//! Doubt: what is known about a write that ended in an error.
//!
//! Only two kinds of error prove that nothing was applied: those from before the request was sent,
//! and refusals that a node gives before it proposes anything. Everything else may hide a write
//! that was applied, or that another request will complete: it must be looked for.

use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::statement::Consistency;

/// Whether the write behind this error was certainly not applied.
pub(super) fn is_certainly_unapplied(error: &ExecutionError) -> bool {
    if let ExecutionError::LastAttemptError(attempt) = error {
        return is_attempt_unapplied(attempt);
    }
    // Never sent: with no retries, these come only before the first attempt.
    matches!(
        error,
        ExecutionError::BadQuery(_)
            | ExecutionError::EmptyPlan
            | ExecutionError::PrepareError(_)
            | ExecutionError::ConnectionPoolError(_)
    )
}

fn is_attempt_unapplied(attempt: &RequestAttemptError) -> bool {
    if let RequestAttemptError::DbError(error, _) = attempt {
        return is_refused_up_front(error);
    }
    matches!(
        attempt,
        RequestAttemptError::SerializationError(_)
            | RequestAttemptError::CqlRequestSerialization(_)
            | RequestAttemptError::UnableToAllocStreamId
            | RequestAttemptError::RepreparedIdChanged { .. }
    )
}

fn is_refused_up_front(error: &DbError) -> bool {
    if let DbError::Unavailable { consistency, .. } = error {
        // At the consistency of the commit it comes after the proposal was accepted.
        return *consistency == Consistency::Serial;
    }
    matches!(
        error,
        DbError::SyntaxError
            | DbError::Invalid
            | DbError::ConfigError
            | DbError::AuthenticationError
            | DbError::Unauthorized
            | DbError::Unprepared { .. }
    )
}

/// Whether a node gave up on a read because of what else it had to complete, or in time.
pub(super) fn is_interrupted(error: &ExecutionError) -> bool {
    matches!(
        error,
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(
            DbError::ReadTimeout { .. } | DbError::WriteTimeout { .. },
            _
        ))
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use scylla::errors::WriteType;

    use super::*;

    fn told(error: DbError) -> ExecutionError {
        RequestAttemptError::DbError(error, String::new()).into()
    }

    fn too_few(consistency: Consistency) -> ExecutionError {
        told(DbError::Unavailable { consistency, required: 2, alive: 1 })
    }

    #[test]
    fn a_write_that_was_never_sent_or_refused_up_front_is_certainly_unapplied() {
        for error in [
            ExecutionError::EmptyPlan,
            RequestAttemptError::UnableToAllocStreamId.into(),
            too_few(Consistency::Serial),
            told(DbError::Unauthorized),
            told(DbError::Invalid),
        ] {
            assert!(is_certainly_unapplied(&error), "{error}");
        }
    }

    /// A false "nothing was applied" is what callers cannot defend against.
    #[test]
    fn everything_else_may_have_been_applied() {
        let consistency = Consistency::Serial;
        let write_type = WriteType::Cas;
        for error in [
            ExecutionError::RequestTimeout(Duration::from_secs(3)),
            too_few(Consistency::Quorum),
            told(DbError::WriteTimeout { consistency, received: 0, required: 2, write_type }),
            told(DbError::ReadTimeout {
                consistency,
                received: 1,
                required: 2,
                data_present: false,
            }),
            told(DbError::Overloaded),
            told(DbError::IsBootstrapping),
            told(DbError::ServerError),
            told(DbError::Other(0x1700)),
        ] {
            assert!(!is_certainly_unapplied(&error), "{error}");
        }
    }
}
