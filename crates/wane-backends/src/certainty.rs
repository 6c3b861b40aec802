//! Of several errors, the one that says the least about what was applied.

use wane::store::StoreError;

/// The error to tell of a call that failed in two ways. That nothing was applied is told only where
/// both say so.
pub(crate) fn least_certain(
    one: Option<StoreError>,
    other: Option<StoreError>,
) -> Option<StoreError> {
    match (&one, &other) {
        (None, _) | (Some(StoreError::Unavailable { .. }), Some(_)) => other,
        (Some(_), _) => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unavailable() -> Option<StoreError> {
        Some(StoreError::Unavailable { backend: "tests", source: "away".into() })
    }

    fn unknown() -> Option<StoreError> {
        Some(StoreError::Unknown { backend: "tests", source: "not heard".into() })
    }

    /// Rows of one batch may fail apart, and the quick failure is as a rule the certain one.
    #[test]
    fn what_may_have_been_applied_is_never_called_unavailable() {
        let is_unknown = |error| matches!(error, Some(StoreError::Unknown { .. }));
        assert!(is_unknown(least_certain(unavailable(), unknown())));
        assert!(is_unknown(least_certain(unknown(), unavailable())));
        assert!(is_unknown(least_certain(None, unknown())));
        assert!(!is_unknown(least_certain(unavailable(), unavailable())));
        assert!(least_certain(None, None).is_none());
    }
}
