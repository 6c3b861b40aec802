//! Why a device was not linked or a code not decided, and what to do.

use crate::cli::failure::{Exit, Failure};
use crate::client::ClientError;

/// Why a command of device login failed in its ordinary course.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::cli) enum DeviceCommandError {
    /// Somebody said no.
    #[error("denied: somebody turned this device away")]
    Denied,

    /// Nobody decided in time.
    #[error("expired: nobody approved the code in time")]
    Expired,

    /// The token was given to a poll whose answer was lost, or was revoked before it was asked for.
    #[error("the code is not good any more: it was used or revoked")]
    Spent,

    /// There is no such live code.
    #[error("absent: no device shows this code, or it has expired")]
    NoSuchCode,

    /// Somebody was faster.
    #[error("refused: somebody has decided about this code before")]
    AlreadyDecided,

    /// No device of this app has this id.
    #[error("absent: no linked device has this id")]
    NoSuchDevice,

    /// No client of this app has this id, or there is no such app.
    #[error("absent: there is no such app, or it has no such client")]
    NoSuchClient,
}

impl DeviceCommandError {
    /// What an answer to a decision means.
    pub(super) fn of_code(error: ClientError) -> Failure {
        if matches!(error, ClientError::Refused { .. }) {
            return Self::AlreadyDecided.into();
        }
        Self::NoSuchCode.if_absent(error)
    }

    /// What an answer about a device means.
    pub(super) fn of_device(error: ClientError) -> Failure {
        Self::NoSuchDevice.if_absent(error)
    }

    /// What an answer about a client means.
    pub(in crate::cli) fn of_client(error: ClientError) -> Failure {
        Self::NoSuchClient.if_absent(error)
    }

    fn if_absent(self, error: ClientError) -> Failure {
        if matches!(error, ClientError::Absent) { self.into() } else { error.into() }
    }

    /// How a command ends with this.
    pub(in crate::cli) fn exit(self) -> Exit {
        match self {
            Self::Denied | Self::AlreadyDecided => Exit::Refused,
            Self::Expired | Self::NoSuchCode | Self::NoSuchDevice | Self::NoSuchClient => {
                Exit::Absent
            }
            Self::Spent => Exit::Failed,
        }
    }

    /// The name and the status under which a server says it.
    pub(in crate::cli) fn code(self) -> (&'static str, u16) {
        match self {
            Self::Denied => ("access_denied", 400),
            Self::Expired => ("expired_token", 400),
            Self::Spent => ("invalid_grant", 400),
            Self::NoSuchCode | Self::NoSuchDevice | Self::NoSuchClient => ("absent", 404),
            Self::AlreadyDecided => ("refused", 409),
        }
    }

    pub(in crate::cli) fn advice(self) -> &'static str {
        match self {
            Self::Denied => "nothing is linked; start again if that was a mistake",
            Self::Expired => "nothing is linked; start again and have the new code approved",
            Self::Spent => {
                "revoke what `wane device list` shows of it, if anything, and start again"
            }
            Self::NoSuchCode => {
                "compare it with what the device shows, and --app; a device whose code has expired \
                 must start again"
            }
            Self::AlreadyDecided => "`wane device list` shows whether it is linked",
            Self::NoSuchDevice => "`wane device list` shows those that are linked; check --app",
            Self::NoSuchClient => "`wane app list` shows the apps; check the id of the client",
        }
    }
}
