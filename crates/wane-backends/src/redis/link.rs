//! One server: a connection that many callers share, made anew when it is gone.
//!
//! Commands of all callers go down one connection, one behind the other without waiting for
//! answers. Nothing is ever sent twice. What is known of a command that failed is told exactly:
//! it was not sent, the server answered with an error, or it is unclear ([`Fault`]).
//!
//! Invariant: [`Fault::NotSent`] is told only where no byte of the command went out. So a connection
//! that the server closed while idle must be noticed before it is used: the driver reports it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, PushInfo, PushKind, RedisError, ServerError,
    Value as Reply, cmd,
};

/// How long a connection may take to be made, from the name of the host to the password.
const DIAL: Duration = Duration::from_secs(1);

/// How long an answer may take. Then the connection is given up: it may lead nowhere.
const ANSWER: Duration = Duration::from_secs(2);

/// Commands that wait to be written before callers have to.
const QUEUE: usize = 1_024;

/// Why a command has no answer, by what is known of it.
#[derive(Debug)]
pub(super) enum Fault {
    /// There is no connection, and nothing was sent.
    NotSent(RedisError),
    /// The server answered with an error.
    Answered(ServerError),
    /// It may have been carried out, or may yet be.
    Unclear(RedisError),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(error) | Self::Unclear(error) => error.fmt(f),
            Self::Answered(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Fault {}

/// A server, and the connection to it while there is one.
pub(super) struct Link {
    address: String,
    client: Client,
    live: Mutex<Option<Live>>,
    /// How the last attempt to connect ended; held while connecting.
    dialling: tokio::sync::Mutex<Option<RedisError>>,
    attempts: AtomicU64,
}

#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    gone: Arc<AtomicBool>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client knows the password.
        f.debug_struct("Link").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Link {
    /// A server that is not connected to yet.
    pub(super) fn new(address: String, client: Client) -> Self {
        let (live, dialling) = (Mutex::new(None), tokio::sync::Mutex::new(None));
        Self { address, client, live, dialling, attempts: AtomicU64::new(0) }
    }

    /// `host:port`, for errors.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Sends a command and waits for its answer.
    pub(super) async fn request(&self, command: &Cmd) -> Result<Reply, Fault> {
        let mut live = self.connected().await.map_err(Fault::NotSent)?;
        let answer = live.connection.send_packed_command(command).await;
        let reply = answer.map_err(|error| self.lost(&live, error))?;
        if let Reply::ServerError(error) = reply {
            return Err(self.answered(&live, error));
        }
        Ok(reply)
    }

    /// Sends commands one behind the other and waits for their answers, errors among them.
    pub(super) async fn requests(&self, commands: &Pipeline) -> Result<Vec<Reply>, Fault> {
        let mut live = self.connected().await.map_err(Fault::NotSent)?;
        let count = commands.len();
        let answers = live.connection.send_packed_commands(commands, 0, count).await;
        answers.map_err(|error| self.lost(&live, error))
    }

    /// Sends a command for a slot that is on its way to this server.
    pub(super) async fn request_asking(&self, command: &Cmd) -> Result<Reply, Fault> {
        let mut both = Pipeline::with_capacity(2);
        both.add_command(cmd("ASKING")).add_command(command.clone());
        match self.requests(&both).await?.pop() {
            Some(Reply::ServerError(error)) => Err(Fault::Answered(error)),
            Some(reply) => Ok(reply),
            None => Err(Fault::Unclear(strange())),
        }
    }

    /// The connection, made where there is none.
    async fn connected(&self) -> Result<Live, RedisError> {
        if let Some(live) = self.standing() {
            return Ok(live);
        }
        let seen = self.attempts.load(Ordering::Acquire);
        let mut last = self.dialling.lock().await;
        if let Some(live) = self.standing() {
            return Ok(live);
        }
        // Whoever waited for an attempt that failed shares its end: a server that does not answer
        // would otherwise hold up its callers one after the other.
        if self.attempts.load(Ordering::Acquire) != seen
            && let Some(error) = last.as_ref()
        {
            return Err(error.clone());
        }
        let dialled = self.dial().await;
        self.attempts.fetch_add(1, Ordering::AcqRel);
        *last = dialled.as_ref().err().cloned();
        let live = dialled?;
        *self.live.lock() = Some(live.clone());
        Ok(live)
    }

    fn standing(&self) -> Option<Live> {
        self.live.lock().as_ref().filter(|live| !live.gone.load(Ordering::Acquire)).cloned()
    }

    async fn dial(&self) -> Result<Live, RedisError> {
        let gone = Arc::new(AtomicBool::new(false));
        let notice = Arc::clone(&gone);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(DIAL))
            .set_response_timeout(Some(ANSWER))
            .set_pipeline_buffer_size(QUEUE)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    notice.store(true, Ordering::Release);
                }
                Ok::<_, redis::aio::SendError>(())
            });
        let dialled = self.client.get_multiplexed_async_connection_with_config(&config);
        let connection = tokio::time::timeout(DIAL, dialled).await;
        let connection = connection.map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut));
        Ok(Live { connection: connection??, gone })
    }

    /// A command that was sent and not answered takes its connection with it.
    fn lost(&self, live: &Live, error: RedisError) -> Fault {
        live.gone.store(true, Ordering::Release);
        tracing::debug!(backend = "redis", address = self.address, %error, "connection lost");
        Fault::Unclear(error)
    }

    fn answered(&self, live: &Live, error: ServerError) -> Fault {
        // A master that became a replica: its name may lead to another server by now.
        if error.code() == "READONLY" {
            live.gone.store(true, Ordering::Release);
        }
        Fault::Answered(error)
    }
}

/// An answer that the command cannot have.
pub(super) fn strange() -> RedisError {
    (redis::ErrorKind::UnexpectedReturnType, super::reply::STRANGE).into()
}
