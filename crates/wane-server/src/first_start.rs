//! The first start: an admin credential and a demo application, with their keys in files; and a
//! public client `demo` of that application, for device login.
//!
//! `DATA/admin.key` and `DATA/demo.key` hold a credential each, readable by their owner alone. A key
//! that the store knows is left as it is. Where a file is missing, or holds a key that the store
//! does not know (memory forgets), a new credential is made: on a store that other nodes use too,
//! one more beside theirs.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use wane::services::ClusterAppId;
use wane::services::apps::{AppName, AppsError, NewKey, Scope};
use wane::services::device_auth::{DeviceAuthError, NewClient};

use crate::wiring::Services;

/// Why the keys could not be made ready.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum FirstStartError {
    /// A key file cannot be read or written.
    #[error("cannot use {}: {source}; make the directory writable or name another with --data", path.display())]
    File { path: PathBuf, source: io::Error },

    /// The store failed.
    #[error(transparent)]
    Apps(#[from] AppsError),

    /// The client cannot be registered.
    #[error("the client demo: {0}")]
    Client(#[from] DeviceAuthError),
}

/// Sees to it that both key files hold a credential that the store knows.
pub async fn make_keys(services: &Services, data: &Path) -> Result<(), FirstStartError> {
    let at = |source| FirstStartError::File { path: data.to_path_buf(), source };
    fs::create_dir_all(data).map_err(at)?;
    let admin = data.join("admin.key");
    if !is_known(services, &admin).await? {
        let key = services.apps.add_credential(&[Scope::Admin], None).await?;
        write(&admin, &key)?;
    }
    let demo = data.join("demo.key");
    if !is_known(services, &demo).await? {
        write(&demo, &demo_key(services).await?)?;
    }
    Ok(())
}

async fn demo_key(services: &Services) -> Result<NewKey, FirstStartError> {
    let name = AppName::new("demo", "app")?;
    match services.apps.create(&name).await {
        Ok(made) => {
            register_demo(services, made.app.id).await?;
            Ok(made.key)
        }
        Err(AppsError::Exists { .. }) => Ok(services.apps.add_node_key(&name).await?),
        Err(error) => Err(error.into()),
    }
}

/// Registers the client `demo`, with the application and never again: an operator may remove it.
async fn register_demo(services: &Services, app: ClusterAppId) -> Result<(), FirstStartError> {
    let client = NewClient {
        id: Some("demo".parse()?),
        name: "Demo device".into(),
        scopes: vec!["read".into(), "write".into()],
        ..NewClient::default()
    };
    match services.device_auth.of(app).register(client).await {
        Ok(_) | Err(DeviceAuthError::ClientExists) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn is_known(services: &Services, path: &Path) -> Result<bool, FirstStartError> {
    match fs::read_to_string(path) {
        Ok(key) => Ok(services.apps.authenticate(key.trim()).await?.is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(FirstStartError::File { path: path.to_path_buf(), source }),
    }
}

/// Writes the key beside its place and moves it there, so that no reader meets half of it.
fn write(path: &Path, key: &NewKey) -> Result<(), FirstStartError> {
    let draft = path.with_extension("key.draft");
    let written = || {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        writeln!(file, "{}", key.reveal())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    written().map_err(|source| FirstStartError::File { path: path.to_path_buf(), source })
}
