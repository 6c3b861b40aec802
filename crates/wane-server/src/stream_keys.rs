//! Where the keys that sign pull-stream tokens come from: the store, KMS, a file, or the settings.
//!
//! Unless told otherwise the store keeps them, where all nodes find them and they change by
//! themselves. `kms:KEY_ID` keeps them there too, closed by that key of AWS KMS. `file:PATH` names a file that is looked at once a second, so that keys are rotated by
//! replacing it. Otherwise the setting is the keys themselves, which change with the next start.
//!
//! Keys are written `KID:BASE64`, the one that signs first, then the one that is still good: with a
//! comma between them in the setting, on a line each in a file. A file that cannot be used leaves the
//! keys as they were, and the log says why.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use tokio::sync::watch;
use wane::clock::SharedClock;
#[cfg(feature = "aws")]
use wane::services::pull_stream::WrappedKeys;
use wane::services::pull_stream::{
    KeyService, KeySource, PullStreamError, REFRESH_EVERY, StaticKeys, StoredKeys, TokenKey,
    TokenKeys, WrappedKeysError,
};
use wane::store::Store;
use wane_backends::OpenError;

use crate::settings::StreamKeys;

/// How often a file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What begins the name of a file.
const FILE: &str = "file:";

/// What begins the name of a key of KMS.
const KMS: &str = "kms:";

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum StreamKeysError {
    /// The file cannot be read.
    #[error("cannot read the keys of pull streams in {}: {source} (WANE_STREAM_KEYS)", path.display())]
    File { path: PathBuf, source: std::io::Error },

    /// What was given are not keys.
    #[error("the keys of pull streams: {reason} (WANE_STREAM_KEYS)")]
    Unfit { reason: String },

    /// The store does not have them.
    #[error("the keys of pull streams: {0}")]
    Store(#[from] PullStreamError),

    /// KMS cannot be asked.
    #[error("the keys of pull streams: {0} (WANE_STREAM_KEYS)")]
    Kms(#[from] OpenError),

    /// What the store has cannot be opened.
    #[error("the keys of pull streams are closed, and cannot be opened: {0} (WANE_STREAM_KEYS)")]
    Closed(#[from] WrappedKeysError),
}

/// Keys that are at hand.
#[derive(Debug)]
pub(crate) struct OpenedKeys {
    pub(crate) source: Arc<dyn KeySource>,
    /// How the service does that opens them, where there is one.
    pub(crate) service: Option<watch::Receiver<KeyService>>,
}

impl OpenedKeys {
    fn of(source: Arc<impl KeySource>) -> Self {
        Self { source, service: None }
    }
}

/// The keys that the settings name, followed for as long as somebody uses them.
pub(crate) async fn open<S: Store + Clone>(
    setting: Option<&StreamKeys>,
    store: &S,
    clock: &SharedClock,
) -> Result<OpenedKeys, StreamKeysError> {
    let Some(setting) = setting else {
        let keys = StoredKeys::open(store.clone(), Arc::clone(clock)).await?;
        tokio::spawn(follow_store(Arc::downgrade(&keys), Arc::clone(clock)));
        return Ok(OpenedKeys::of(keys));
    };
    if let Some(id) = setting.as_str().strip_prefix(KMS) {
        return open_wrapped(id, store, clock).await;
    }
    let Some(path) = setting.as_str().strip_prefix(FILE) else {
        let keys = StaticKeys::new(parsed(setting.as_str().split(','))?);
        return Ok(OpenedKeys::of(Arc::new(keys)));
    };
    let keys = Arc::new(FileKeys::open(Path::new(path)).await?);
    tokio::spawn(follow_file(Arc::downgrade(&keys), Arc::clone(clock)));
    Ok(OpenedKeys::of(keys))
}

/// The keys that a key of KMS keeps closed.
#[cfg(feature = "aws")]
async fn open_wrapped<S: Store + Clone>(
    id: &str,
    store: &S,
    clock: &SharedClock,
) -> Result<OpenedKeys, StreamKeysError> {
    let wrap = Arc::new(wane_backends::kms::KmsKey::find(id).await?);
    let keys = WrappedKeys::open(store.clone(), Arc::clone(clock), wrap).await?;
    let service = keys.service();
    tokio::spawn(follow_wrapped(Arc::downgrade(&keys), Arc::clone(clock)));
    Ok(OpenedKeys { source: keys, service: Some(service) })
}

#[cfg(not(feature = "aws"))]
fn open_wrapped<S>(
    _: &str,
    _: &S,
    _: &SharedClock,
) -> std::future::Ready<Result<OpenedKeys, StreamKeysError>> {
    let not_built = OpenError::NotBuilt { backend: "kms", feature: "aws" };
    std::future::ready(Err(not_built.into()))
}

/// Whether this can be a setting.
pub(crate) fn is_legal(setting: &str) -> bool {
    if let Some(id) = setting.strip_prefix(KMS) {
        return !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic());
    }
    match setting.strip_prefix(FILE) {
        Some(path) => !path.trim().is_empty(),
        None => parsed(setting.split(',')).is_ok(),
    }
}

/// One key or two, the one that signs first.
fn parsed<'a>(lines: impl Iterator<Item = &'a str>) -> Result<TokenKeys, StreamKeysError> {
    let unfit = |reason: &str| StreamKeysError::Unfit { reason: reason.into() };
    let mut keys = Vec::new();
    for line in lines.map(str::trim) {
        let form = || unfit("give KID:BASE64, the key that signs first");
        let (kid, secret) = line.split_once(':').ok_or_else(form)?;
        let secret = STANDARD.decode(secret).map_err(|_| unfit("a key is not Base64"))?;
        keys.push(TokenKey::new(kid, &secret)?);
    }
    let mut keys = keys.into_iter();
    match (keys.next(), keys.next(), keys.next()) {
        (Some(current), previous, None) => Ok(TokenKeys::new(current, previous)?),
        _ => Err(unfit("give one key, or two")),
    }
}

/// Keys in a file.
#[derive(Debug)]
struct FileKeys {
    path: PathBuf,
    live: StaticKeys,
    seen: Mutex<Option<(SystemTime, u64)>>,
}

impl FileKeys {
    async fn open(path: &Path) -> Result<Self, StreamKeysError> {
        // Looked at before it is read: a file that changes meanwhile looks different next time.
        let seen = Mutex::new(look(path).await);
        let live = StaticKeys::new(read(path).await?);
        Ok(Self { path: path.to_owned(), live, seen })
    }

    async fn refresh(&self) {
        let looks = look(&self.path).await;
        if looks == *self.seen.lock() {
            return;
        }
        *self.seen.lock() = looks;
        match read(&self.path).await {
            Ok(keys) => {
                let kid = keys.current().kid().to_owned();
                self.live.replace(keys);
                tracing::info!(kid, "the keys of pull streams have changed and are in use");
            }
            Err(error) => tracing::warn!(%error, "the keys stay as they were"),
        }
    }
}

impl KeySource for FileKeys {
    fn keys(&self) -> Arc<TokenKeys> {
        self.live.keys()
    }
}

async fn look(path: &Path) -> Option<(SystemTime, u64)> {
    let file = tokio::fs::metadata(path).await.ok()?;
    Some((file.modified().ok()?, file.len()))
}

async fn read(path: &Path) -> Result<TokenKeys, StreamKeysError> {
    let text = tokio::fs::read_to_string(path).await;
    let text = text.map_err(|source| StreamKeysError::File { path: path.to_owned(), source })?;
    let is_key = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    parsed(text.lines().filter(is_key))
}

async fn follow_file(keys: Weak<FileKeys>, clock: SharedClock) {
    loop {
        clock.sleep(LOOK_EVERY).await;
        let Some(keys) = keys.upgrade() else { return };
        keys.refresh().await;
    }
}

async fn follow_store<S: Store>(keys: Weak<StoredKeys<S>>, clock: SharedClock) {
    loop {
        clock.sleep(REFRESH_EVERY).await;
        let Some(keys) = keys.upgrade() else { return };
        if let Err(error) = keys.refresh().await {
            tracing::warn!(%error, "the keys of pull streams could not be looked at");
        }
    }
}

/// Says each change once: the keys at hand are in use whatever it is.
#[cfg(feature = "aws")]
async fn follow_wrapped<S: Store>(keys: Weak<WrappedKeys<S>>, clock: SharedClock) {
    let Some(mut service) = keys.upgrade().map(|keys| keys.service()) else { return };
    service.mark_changed();
    loop {
        if service.has_changed().unwrap_or(false) {
            match &*service.borrow_and_update() {
                KeyService::Answers => tracing::info!("the key service of pull streams answers"),
                KeyService::Fails { reason, .. } => {
                    tracing::warn!(reason, "the keys of pull streams stay as they were");
                }
            }
        }
        clock.sleep(REFRESH_EVERY).await;
        let Some(keys) = keys.upgrade() else { return };
        if let Err(WrappedKeysError::Stream(error)) = keys.refresh().await {
            tracing::warn!(%error, "the keys of pull streams could not be looked at");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn key(kid: &str, byte: u8) -> String {
        format!("{kid}:{}", STANDARD.encode([byte; 64]))
    }

    #[test]
    fn one_key_or_two_are_a_setting_and_so_is_a_file() {
        let (one, other) = (key("a", 1), key("b", 2));
        for legal in
            [one.clone(), format!("{one},{other}"), "file:/keys".into(), "kms:alias/wane".into()]
        {
            assert!(is_legal(&legal), "{legal}");
        }
        let short = format!("a:{}", STANDARD.encode([1; 31]));
        for wrong in [
            String::new(),
            "file:".into(),
            "kms:".into(),
            "kms:a key".into(),
            "a".into(),
            "a:!!".into(),
            short,
            format!("{one},{one}"),
            format!("{one},{other},{}", key("c", 3)),
            format!("{one},"),
        ] {
            assert!(!is_legal(&wrong), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_file_that_was_replaced_is_read_again_and_one_that_is_broken_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        fs::write(&path, format!("# the keys\n{}\n", key("first", 1))).unwrap();
        let keys = FileKeys::open(&path).await.unwrap();
        let kid = || keys.keys().current().kid().to_owned();
        assert_eq!(kid(), "first");

        fs::write(&path, format!("{}\n{}\n", key("second", 2), key("first", 1))).unwrap();
        keys.refresh().await;
        assert_eq!(kid(), "second");
        for broken in ["", "nonsense", "third:AAAA"] {
            fs::write(&path, broken).unwrap();
            keys.refresh().await;
            assert_eq!(kid(), "second", "{broken:?}");
        }
        fs::remove_file(&path).unwrap();
        keys.refresh().await;
        assert_eq!(kid(), "second");
    }
}
