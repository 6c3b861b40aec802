//! nginx, serving one file from memory that the system keeps, without `sendfile`.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{BoxError, timing};

/// An nginx that runs until this is dropped.
#[derive(Debug)]
pub(super) struct Nginx {
    pub(super) http: SocketAddr,
    name: String,
    process: Child,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It holds nothing that is needed later. Its worker ends with it.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Nginx {
    /// Starts it; an error says why there is none.
    pub(super) fn start(scratch: &Path, file: &Path) -> Result<Self, BoxError> {
        let home = scratch.join("nginx");
        std::fs::create_dir_all(&home)?;
        // The port is free again when nginx takes it.
        let http = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let root = file.parent().ok_or("the file is in no directory")?;
        let name = file.file_name().ok_or("the file has no name")?.display().to_string();
        let configuration = home.join("nginx.conf");
        std::fs::write(&configuration, configured(&home, root, http))?;
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let process = Command::new("nginx")
            .env("PATH", path)
            .arg("-c")
            .arg(&configuration)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("nginx does not run: {error}; scripts/peers installs it"))?;
        let mut nginx = Self { http, name, process };
        for _ in 0..500 {
            if TcpStream::connect(http).is_ok() {
                return Ok(nginx);
            }
            if let Some(status) = nginx.process.try_wait()? {
                return Err(format!("nginx ended with {status}").into());
            }
            timing::pause(Duration::from_millis(10));
        }
        Err("nginx does not answer".into())
    }

    pub(super) fn download_head(&self) -> String {
        format!("GET /{} HTTP/1.1\r\nhost: bench\r\n\r\n", self.name)
    }
}

/// One process, which is ended as such, and nothing set that the measurement does not name.
fn configured(home: &Path, root: &Path, http: SocketAddr) -> String {
    let (home, root) = (home.display(), root.display());
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {home}/{name};"))
        .join(" ");
    format!(
        "daemon off; master_process off; pid {home}/pid; error_log {home}/error.log;\n\
         events {{ }}\n\
         http {{ access_log off; sendfile off; {temporary}\n\
         server {{ listen {http}; root {root}; }} }}\n"
    )
}
