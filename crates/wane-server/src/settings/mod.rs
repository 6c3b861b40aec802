//! Every setting of `wane serve`: its name, default, unit and reason, in one table.
//!
//! A setting is one entry below. From it come the field of [`Settings`], the line in a TOML file,
//! the `WANE_*` variable, the flag, the output of `--print-settings` and the row in the operator's
//! manual, so that these cannot drift apart.
//!
//! Sources, the later wins: defaults, the file, the environment, flags. A name that nobody knows is
//! an error wherever it stands, and so is a value that is not legal; all of them are reported at
//! once. What [`Settings::load`] returns has also passed the rules between settings, above all that
//! no port is open to other machines without TLS unless the operator said so.
//!
//! Reading order: this file, then `setting` (what an entry is), `value` (what is legal), `sources`
//! (where values come from), `rules` (between settings), `problem` (what is said) and `printed`.

mod printed;
mod problem;
mod rules;
mod setting;
mod sources;
mod store;
#[cfg(test)]
mod tests;
mod value;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use printed::Loaded;
pub use problem::{Origin, Problem, SettingsError};
pub use rules::broken_rules;
pub use setting::{Form, Initial, Setting};
pub use sources::{CLIENT_VARIABLES, ServeFlags};
pub use store::SPREAD;
pub use value::{
    ArchivePlace, DevUsers, Hosts, LogFilter, LogFormat, Networks, PublicUrl, RedisUrl,
    RedlockUrls, Region, Secret, Storage, StreamKeys, StreamProfile, TableName, TimeOfDay, Word,
};

use setting::Initial::{Is, Unset};

/// Longer than anyone waits for an answer.
const LONGEST_MS: u64 = 3_600_000;

setting::settings! {
    /// The backend that keeps the records.
    storage: Storage = Is("file"), environment "WANE_STORAGE_TYPE";

    /// The directory of the file backend, and of the key files whatever the backend.
    data: PathBuf = Is("./wane-data");

    /// The address of the API.
    listen: SocketAddr = Is("127.0.0.1:8628");

    /// The address of administration and metrics, apart from the API so that it can stay private.
    admin_listen: SocketAddr = Is("127.0.0.1:8629");

    /// The URL under which clients reach the API, for the links that it hands out.
    public_url: Option<PublicUrl> = Unset("taken from each request");

    /// The region of this node; nodes that share a store may differ in it.
    region: Region = Is("local");

    /// At start, wait for a store that is in use or does not answer, instead of ending.
    wait: bool = Is("false");

    /// Allow addresses that other machines reach without TLS, as behind a proxy that does TLS.
    insecure: bool = Is("false");

    /// The certificate chain of both ports, in PEM. With it they speak TLS only.
    tls_cert: Option<PathBuf> = Unset("no TLS");

    /// The private key of the certificate, in PEM.
    tls_key: Option<PathBuf> = Unset("no TLS");

    /// The authorities that sign the certificates of clients, in PEM.
    tls_client_ca: Option<PathBuf> = Unset("clients need no certificate");

    /// Connections held at once on each port.
    max_connections: usize = Is("10000"), within 1..=1_000_000;

    /// How long a client may take to send the head of a request.
    header_timeout_ms: Duration = Is("10000"), within 1..=LONGEST_MS;

    /// How long a connection may lie idle between requests.
    idle_timeout_ms: Duration = Is("60000"), within 1..=LONGEST_MS;

    /// How long a client may take to finish the TLS handshake.
    handshake_timeout_ms: Duration = Is("10000"), within 1..=LONGEST_MS;

    /// How long a call waits for the store; then a read is unavailable and the outcome of a write unknown.
    store_deadline_ms: Duration = Is("5000"), within 1..=LONGEST_MS;

    /// Memory for records of the storage file that have not reached its tree, and log kept for them.
    file_young_bytes: usize = Is("268435456"), within 16_777_216..=1_099_511_627_776;

    /// The Redis server, or several of a cluster, for the storage redis.
    redis_url: RedisUrl = Is("redis://127.0.0.1:6379");

    /// The nodes to begin with, for the storages cas1 and cas3; the others are found.
    cassandra_hosts: Hosts = Is("127.0.0.1:9042");

    /// The keyspace that holds the tables.
    cassandra_keyspace: TableName = Is("wane");

    /// The user, where Cassandra asks for one.
    cassandra_user: Option<Word> = Unset("no password is sent");

    /// The password of the user.
    cassandra_password: Option<Secret> = Unset("no password is sent");

    /// The datacenter whose nodes are asked first.
    cassandra_datacenter: Option<Word> = Unset("all alike");

    /// The authorities that sign the certificates of nodes, in PEM. With it connections are TLS.
    cassandra_ca: Option<PathBuf> = Unset("no TLS");

    /// The table, for the storage dynamodb. Region and credentials come from AWS_* as usual.
    dynamodb_table: TableName = Is("wane");

    /// Where DynamoDB is, for local use.
    dynamodb_endpoint: Option<PublicUrl> = Unset("as the region says");

    /// Partitions over which independent keys of one app are spread. Recorded in the store.
    spread_buckets: Option<usize> = Unset("256 on cas1, cas3 and dynamodb; 1 elsewhere"), within 1..=65_535;

    /// Memory for records read from a shared store.
    cache_bytes: usize = Is("67108864"), within 1..=1_099_511_627_776;

    /// How old a record from that memory may be; 0 keeps nothing.
    cache_max_stale_ms: Duration = Is("0"), within 0..=LONGEST_MS;

    /// Nodes that serve this store: each lets through its share of wrong user codes.
    nodes: usize = Is("1"), within 1..=30;

    /// Letters of a user code; more where more than 10,000 codes are live at once.
    user_code_letters: usize = Is("10"), within 10..=20;

    /// Give devices the link that has the code in it, as for a QR code.
    verification_uri_complete: bool = Is("true");

    /// Serve device login where clients made for GitHub look for it too, under /login.
    github_aliases: bool = Is("false");

    /// Proxies whose X-Forwarded-For is believed.
    trusted_proxies: Option<Networks> = Unset("none: the address is that of the connection");

    /// People who sign in at /device by a password, while developing. Only on loopback.
    dev_users: Option<DevUsers> = Unset("nobody; applications say who signs in where");

    /// How long a pull waits for a message.
    stream_hold_ms: Duration = Is("5000"), within 0..=LONGEST_MS;

    /// How long a reader of a pull stream has its slot without a call; longer than the hold.
    stream_lease_ms: Duration = Is("30000"), within 2..=LONGEST_MS;

    /// How long a token of a pull stream is good without being used; longer than the lease.
    stream_token_ms: Duration = Is("300000"), within 2..=86_400_000;

    /// How long messages of pull streams are kept, unless the institution has a policy.
    stream_retention_days: usize = Is("30"), within 1..=365;

    /// How long a compliance replay can be read, counted from when it was asked for.
    stream_replay_ms: Duration = Is("86400000"), within 1..=2_592_000_000;

    /// The keys that sign tokens: kms:KEY_ID, file:PATH, or KID:BASE64 and with a comma the one before.
    stream_keys: Option<StreamKeys> = Unset("kept in the store, changed every 90 days");

    /// How producers and readers of pull streams are answered: as the service is described, or as ICOM does.
    stream_profile: StreamProfile = Is("seed");

    /// Where messages of pull streams are archived before they expire: dir:PATH or s3://BUCKET/PREFIX.
    stream_archive: Option<ArchivePlace> = Unset("nowhere: they are gone with their retention");

    /// Where S3 is, for servers other than that of AWS. Region and credentials come from AWS_* as usual.
    stream_archive_endpoint: Option<PublicUrl> = Unset("as the region says");

    /// How long before their end messages are due for the archive.
    stream_archive_before_hours: usize = Is("72"), within 1..=8_760;

    /// How often the archiver looks for messages that are due.
    stream_archive_every_ms: Duration = Is("60000"), within 10..=86_400_000;

    /// The Redis server that shows slots and tokens of pull streams to whoever looks on.
    stream_redis_url: Option<RedisUrl> = Unset("they are shown nowhere");

    /// Three Redis masters whose majority gives a node its turn at a pull stream. Results are the same without.
    stream_redlock_urls: Option<RedlockUrls> = Unset("nodes take no turns");

    /// Where a snapshot of the whole store is written every night; made if it is missing.
    backup_dir: Option<PathBuf> = Unset("no snapshots");

    /// When snapshots are taken, in UTC.
    backup_at: TimeOfDay = Is("02:00");

    /// How long it is from one snapshot to the next: a day is every night.
    backup_every_seconds: usize = Is("86400"), within 1..=604_800;

    /// Snapshots that are kept. Older ones are removed once a newer one was restored for a trial.
    backup_keep: usize = Is("7"), within 1..=10_000;

    /// How log lines are written: for people or for programs.
    log_format: LogFormat = Is("text");

    /// What is logged: a level, and levels of single targets. The driver of Cassandra talks much.
    log_filter: LogFilter = Is("info,scylla=warn");
}

/// The files of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsFiles<'a> {
    /// The certificate chain.
    pub cert: &'a Path,
    /// Its private key.
    pub key: &'a Path,
    /// Who signs the certificates of clients; none are asked for without it.
    pub client_ca: Option<&'a Path>,
}

impl Settings {
    /// Reads all sources and checks the rules between settings.
    ///
    /// `environment` is the whole environment of the process, as [`std::env::vars_os`] gives it.
    pub fn load(
        flags: &ServeFlags,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Loaded, SettingsError> {
        let mut given = sources::gather(flags, environment);
        let settings = Self::take_from(&mut given);
        let (origins, mut problems) = given.finish();
        if problems.is_empty() {
            problems = broken_rules(&settings);
        }
        if problems.is_empty() {
            Ok(Loaded { settings, origins })
        } else {
            Err(SettingsError { problems })
        }
    }

    /// The files of TLS, where TLS is on.
    #[must_use]
    pub fn tls(&self) -> Option<TlsFiles<'_>> {
        let (cert, key) = (self.tls_cert.as_deref()?, self.tls_key.as_deref()?);
        Some(TlsFiles { cert, key, client_ca: self.tls_client_ca.as_deref() })
    }
}
