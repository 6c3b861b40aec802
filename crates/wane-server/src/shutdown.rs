//! The end of the process: asked for by a signal, heard by everyone who waits.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The announcement that the server is stopping. A clone hears the same.
#[derive(Debug, Clone)]
pub struct Closing {
    sender: watch::Sender<bool>,
}

impl Default for Closing {
    fn default() -> Self {
        Self { sender: watch::Sender::new(false) }
    }
}

impl Closing {
    /// Announces the end.
    pub fn begin(&self) {
        self.sender.send_replace(true);
    }

    /// Whether the end was announced.
    pub fn has_begun(&self) -> bool {
        *self.sender.borrow()
    }

    /// Returns once the end is announced.
    pub async fn wait(&self) {
        let mut announced = self.sender.subscribe();
        // The sender is in `self`, so the channel does not close.
        drop(announced.wait_for(|begun| *begun).await);
    }
}

/// Returns when the process is asked to stop: by SIGTERM or by Ctrl-C.
pub async fn asked_to_stop() -> std::io::Result<()> {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
