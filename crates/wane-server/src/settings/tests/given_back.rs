//! Settings as they are printed are settings that can be given.

use super::*;

#[test]
#[expect(clippy::too_many_lines, reason = "a line for each setting")]
fn printed_settings_given_back_are_the_same_settings() {
    let odd = "a \"b\" \\ 'c' # d\u{7f}\te\u{e9}";
    let arguments = [
        "--storage=mem",
        &format!("--data={odd}"),
        "--listen=[::1]:7",
        "--admin-listen=0.0.0.0:8",
        "--public-url=https://wane.example",
        "--region=r-2",
        "--wait",
        "--insecure",
        "--tls-cert=c",
        "--tls-key=k",
        "--tls-client-ca=a",
        "--max-connections=11",
        "--header-timeout-ms=12",
        "--idle-timeout-ms=13",
        "--handshake-timeout-ms=14",
        "--store-deadline-ms=15",
        "--file-young-bytes=33554432",
        "--redis-url=redis://127.0.0.1:6379",
        "--cassandra-hosts=a,b:1",
        "--cassandra-keyspace=k_1",
        "--cassandra-user=u",
        "--cassandra-password=p",
        "--cassandra-datacenter=dc1",
        "--cassandra-ca=ca.pem",
        "--dynamodb-table=t_1",
        "--dynamodb-endpoint=http://127.0.0.1:1",
        "--spread-buckets=16",
        "--cache-bytes=17",
        "--cache-max-stale-ms=18",
        "--nodes=2",
        "--user-code-letters=12",
        "--verification-uri-complete=false",
        "--github-aliases",
        "--trusted-proxies=10.0.0.1, ::1",
        "--stream-hold-ms=1",
        "--stream-lease-ms=2",
        "--stream-token-ms=3",
        "--stream-retention-days=90",
        "--stream-replay-ms=4",
        "--stream-keys=file:/keys",
        "--stream-profile=icom",
        "--stream-archive=dir:/archive",
        "--stream-archive-endpoint=https://s3.example",
        "--stream-archive-before-hours=5",
        "--stream-archive-every-ms=70",
        "--stream-redis-url=redis://h/1",
        "--stream-redlock-urls=redis://a,redis://b,redis://c",
        "--backup-dir=/snapshots",
        "--backup-at=23:59",
        "--backup-every-seconds=3600",
        "--backup-keep=3",
        "--log-format=json",
        "--log-filter=warn,wane=debug",
    ];
    // It goes with nothing that other machines reach.
    let alone = ["--dev-users=alice:a,bob:b"];
    let given = arguments.len() + alone.len();
    assert_eq!(given, SETTINGS.len(), "each setting is told apart from its default");
    for arguments in [&arguments[..], &alone, &[]] {
        let loaded = from_flags(arguments).expect("legal");
        let again = from_file(&loaded.print_settings()).expect("printed settings are legal");
        // Passwords are not printed, and a file without them has none.
        let expected = Settings {
            cassandra_password: None,
            dev_users: None,
            stream_keys: None,
            stream_redis_url: None,
            stream_redlock_urls: None,
            ..loaded.settings
        };
        assert_eq!(again.settings, expected);
    }
}
