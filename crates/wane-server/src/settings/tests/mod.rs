//! Settings from all sources, one rule each.

mod given_back;

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Wane {
    #[command(flatten)]
    serve: ServeFlags,
}

fn flags(arguments: &[&str]) -> ServeFlags {
    Wane::try_parse_from([&["wane"], arguments].concat()).expect("legal flags").serve
}

type Variables<'a> = &'a [(&'a str, &'a str)];

fn environment(variables: Variables<'_>) -> Vec<(OsString, OsString)> {
    variables.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

/// A settings file that lasts as long as its test.
struct File {
    _directory: tempfile::TempDir,
    path: String,
}

fn file(toml: &str) -> File {
    file_named("wane.toml", toml)
}

fn file_named(name: &str, toml: &str) -> File {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(name);
    fs::write(&path, toml).expect("a file");
    File { path: path.to_str().expect("UTF-8").to_owned(), _directory: directory }
}

fn from_variables(variables: Variables<'_>) -> Result<Loaded, SettingsError> {
    Settings::load(&ServeFlags::default(), environment(variables))
}

fn from_flags(arguments: &[&str]) -> Result<Loaded, SettingsError> {
    Settings::load(&flags(arguments), [])
}

fn from_file(toml: &str) -> Result<Loaded, SettingsError> {
    from_flags(&["--config", &file(toml).path])
}

fn says(result: Result<Loaded, SettingsError>) -> String {
    result.expect_err("must be refused").to_string()
}

#[track_caller]
fn assert_says(result: Result<Loaded, SettingsError>, parts: &[&str]) {
    let said = says(result);
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

#[test]
fn without_any_source_the_server_keeps_a_file_and_listens_on_loopback() {
    let settings = from_flags(&[]).expect("legal").settings;
    assert_eq!(settings, Settings::default());
    assert_eq!(settings.store_url(), "file:./wane-data?young_bytes=268435456");
    assert_eq!(settings.listen, address("127.0.0.1:8628"));
    assert_eq!(settings.admin_listen, address("127.0.0.1:8629"));
    assert_eq!(settings.region.as_str(), "local");
    assert_eq!(settings.public_url, None);
    assert_eq!(settings.tls(), None);
    assert!(!settings.wait && !settings.insecure);
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let file = file("region = 'from-file'\ndata = 'from-file'\nlog_filter = 'warn'\n");
    let variables = [("WANE_REGION", "from-environment"), ("WANE_DATA", "from-environment")];
    let flags = flags(&["--config", &file.path, "--region", "from-flag"]);
    let loaded = Settings::load(&flags, environment(&variables)).expect("legal");

    assert_eq!(loaded.settings.region.as_str(), "from-flag");
    assert_eq!(loaded.settings.data, Path::new("from-environment"));
    assert_eq!(loaded.settings.log_filter.as_str(), "warn");
    assert_eq!(loaded.settings.storage, Storage::File);

    assert_eq!(loaded.origin("region"), &Origin::Flag("--region".into()));
    assert_eq!(loaded.origin("data"), &Origin::Environment("WANE_DATA".into()));
    assert_eq!(loaded.origin("log_filter"), &Origin::File { path: file.path.into(), line: 3 });
    assert_eq!(loaded.origin("storage"), &Origin::Default);
}

#[test]
fn the_flag_names_the_file_before_the_environment_does() {
    let (flagged, named) = (file("region = 'flagged'"), file("region = 'named'"));
    let variables = [("WANE_CONFIG", named.path.as_str())];
    let loaded = from_variables(&variables).expect("legal");
    assert_eq!(loaded.settings.region.as_str(), "named");

    let flags = flags(&["--config", &flagged.path]);
    let loaded = Settings::load(&flags, environment(&variables)).expect("legal");
    assert_eq!(loaded.settings.region.as_str(), "flagged");
}

/// Every entry is reachable from every source, under the names that the table tells.
#[test]
fn each_setting_comes_from_file_environment_and_flag() {
    for setting in &SETTINGS {
        let text = match (setting.name, setting.form) {
            ("storage", _) => "mem",
            ("log_format", _) => "json",
            ("listen" | "admin_listen", _) => "127.0.0.1:1",
            ("public_url" | "dynamodb_endpoint" | "stream_archive_endpoint", _) => {
                "https://wane.example"
            }
            ("redis_url" | "stream_redis_url", _) => "rediss://other:7",
            ("stream_redlock_urls", _) => "redis://a,redis://b,redis://c",
            ("log_filter", _) => "warn",
            ("file_young_bytes", _) => "33554432",
            ("trusted_proxies", _) => "10.0.0.1",
            ("dev_users", _) => "alice:wonderland",
            ("user_code_letters", _) => "12",
            ("stream_keys", _) => "file:/keys",
            ("stream_profile", _) => "icom",
            ("stream_archive", _) => "dir:/archive",
            ("stream_archive_every_ms", _) => "1000",
            ("backup_at", _) => "23:59",
            ("backup_keep", _) => "8",
            ("verification_uri_complete", _) => "false",
            (_, Form::Text) => "other",
            (_, Form::Number) => "7",
            (_, Form::Switch) => "true",
        };
        let toml = match setting.form {
            Form::Text => format!("{} = '{text}'", setting.name),
            Form::Number | Form::Switch => format!("{} = {text}", setting.name),
        };
        let flag = format!("{}={text}", setting.flag());
        let file = file(&toml);
        // Alone, a part of TLS breaks a rule between settings: only the parsing counts here.
        let taken = |flags: &ServeFlags, variables: Variables<'_>| {
            let mut given = sources::gather(flags, environment(variables));
            let settings = Settings::take_from(&mut given);
            assert_eq!(given.finish().1.len(), 0, "{}", setting.name);
            settings
        };
        let by_flag = taken(&flags(&[&flag]), &[]);
        assert_ne!(by_flag, Settings::default(), "{}", setting.name);
        assert_eq!(by_flag, taken(&flags(&["--config", &file.path]), &[]), "{}", setting.name);
        let variable = setting.variable();
        assert_eq!(by_flag, taken(&ServeFlags::default(), &[(&variable, text)]), "{variable}");
    }
}

#[test]
fn a_switch_stands_alone_or_takes_back_what_the_file_says() {
    assert!(from_flags(&["--wait"]).expect("legal").settings.wait);
    let file = file("wait = true");
    let taken_back = from_flags(&["--config", &file.path, "--wait=false"]).expect("legal");
    assert!(!taken_back.settings.wait);
    assert_says(from_flags(&["--wait=maybe"]), &["wait (flag --wait) is \"maybe\"; give true or"]);
}

#[test]
fn an_unknown_name_in_a_file_is_an_error_with_its_line_and_the_nearest_name() {
    assert_says(
        from_file("region = 'a'\n\nlisen = '127.0.0.1:1'\n"),
        &["\"lisen\" (", "wane.toml:3) is no setting; is listen meant?"],
    );
    assert_says(from_file("public-url = 'http://a'"), &["is public_url meant?"]);
    assert_says(from_file("WANE_STORAGE = 'mem'"), &["is storage meant?"]);
    assert_says(from_file("tls_certs = 'c'"), &["is tls_cert meant?"]);
    assert_says(from_file("qqq = 1"), &["wane serve --help lists them all"]);
    assert_says(from_file("[server]\nlisten = '127.0.0.1:1'"), &["\"server\" (", "is no setting"]);
}

#[test]
fn an_unknown_variable_is_an_error_with_the_nearest_one() {
    assert_says(
        from_variables(&[("WANE_STORAGE", "mem")]),
        &["\"WANE_STORAGE\" (environment WANE_STORAGE) is no setting; is WANE_STORAGE_TYPE meant?"],
    );
    assert_says(from_variables(&[("WANE_CONFG", "x")]), &["is WANE_CONFIG meant?"]);
    assert_says(from_variables(&[("WANE_LISEN", "")]), &["is WANE_LISTEN meant?"]);
    let not_text = OsString::from_vec(b"WANE_\xff".to_vec());
    assert_says(Settings::load(&ServeFlags::default(), [(not_text, "x".into())]), &["no setting"]);
}

/// A shell that talks to one server may start another, and the suite starts servers of its own.
#[test]
fn variables_of_the_client_of_tests_and_of_others_are_ignored() {
    let mut variables: Vec<_> = CLIENT_VARIABLES.map(|name| (name, "anything")).to_vec();
    variables.extend([("WANE_TEST_KILLS", "5"), ("PATH", "/bin"), ("WANED", "x")]);
    assert_eq!(from_variables(&variables).expect("legal").settings, Settings::default());
}

#[test]
fn an_empty_variable_is_not_set() {
    let loaded = from_variables(&[("WANE_PUBLIC_URL", ""), ("WANE_CONFIG", "")]).expect("legal");
    assert_eq!(loaded.settings, Settings::default());
}

#[test]
fn a_variable_that_is_not_text_is_an_error() {
    let variables = [("WANE_DATA".into(), OsString::from_vec(b"d\xff".to_vec()))];
    let refused = Settings::load(&ServeFlags::default(), variables);
    assert_says(refused, &["data (environment WANE_DATA) is \"d\\xFF\"; it is not UTF-8"]);
}

#[test]
fn a_wrong_value_is_named_with_its_source_and_what_is_legal() {
    assert_says(
        from_file("max_connections = 0"),
        &["max_connections (", "wane.toml:1) is 0; give a number from 1 to 1000000"],
    );
    assert_says(
        from_variables(&[("WANE_HEADER_TIMEOUT_MS", "3600001")]),
        &["header_timeout_ms (environment WANE_HEADER_TIMEOUT_MS) is \"3600001\"; give millisec"],
    );
    assert_says(
        from_flags(&["--listen", "8628"]),
        &["listen (flag --listen) is \"8628\"; give an address and a port such as 127.0.0.1:8628"],
    );
    for (variable, wrong, legal) in [
        ("WANE_STORAGE_TYPE", "disk", "give mem, file, redis, cas1, cas3, dynamodb"),
        ("WANE_LISTEN", "example.com:80", "give an address"),
        ("WANE_LISTEN", "127.0.0.1:65536", "give an address"),
        ("WANE_LISTEN", ":8628", "give an address"),
        ("WANE_REGION", "Up", "give 1 to 32 of a-z, 0-9 and -"),
        ("WANE_FILE_YOUNG_BYTES", "1000", "from 16777216 to"),
        ("WANE_STORE_DEADLINE_MS", "-1", "from 1 to 3600000"),
        ("WANE_STORE_DEADLINE_MS", "5s", "from 1 to 3600000"),
        ("WANE_INSECURE", "yes", "give true or false"),
        ("WANE_LOG_FORMAT", "xml", "give text or json"),
        ("WANE_STREAM_PROFILE", "ICOM", "give seed or icom"),
        ("WANE_LOG_FILTER", "inof", "give one of off, error, warn, info"),
        ("WANE_LOG_FILTER", "wane= debug", "give one of off, error, warn, info"),
        ("WANE_LOG_FILTER", "wane =debug", "give one of off, error, warn, info"),
        ("WANE_LOG_FILTER", "info, wane=debug", "give one of off, error, warn, info"),
        ("WANE_LOG_FILTER", "info,", "give one of off, error, warn, info"),
        ("WANE_LOG_FILTER", "info,a[span]=debug", "give one of off, error, warn, info"),
        ("WANE_LOG_FILTER", "info,wane=loud", "give one of off, error, warn, info"),
    ] {
        assert_says(from_variables(&[(variable, wrong)]), &[variable, wrong, legal]);
    }
    assert_says(from_flags(&["--data", ""]), &["data (flag --data) is \"\"; give a path"]);
    let long = "a".repeat(33);
    assert_says(from_flags(&["--region", &long]), &["give 1 to 32"]);
    assert!(from_flags(&["--region", &long[1..]]).is_ok());
}

#[test]
fn a_public_url_is_http_with_a_host_and_nothing_behind_the_path() {
    for wrong in [
        "wane.example",
        "ftp://wane.example",
        "https://",
        "https://user@wane.example",
        "https://wane.example/?a=b",
        "https://wane.example/#a",
        "https://wane.example/\u{e9}",
        "https://wane.example//evil.example",
        "https://wane.example/a//b",
        "/path",
    ] {
        assert_says(from_flags(&["--public-url", wrong]), &["give an http or https URL"]);
    }
    let loaded = from_flags(&["--public-url", "https://wane.example:8443/base/"]).expect("legal");
    let url = loaded.settings.public_url.expect("given");
    assert_eq!(url.as_str(), "https://wane.example:8443/base");
}

#[test]
fn an_address_may_be_localhost_and_port_0_is_any() {
    let listen = |text| from_flags(&["--listen", text]).expect("legal").settings.listen;
    assert_eq!(listen("localhost:0"), address("127.0.0.1:0"));
    assert_eq!(listen("[::1]:80"), address("[::1]:80"));
}

#[test]
fn a_log_filter_may_name_targets() {
    for legal in ["debug", "warn,wane_server=trace", "info,a::b=debug", "wane=off"] {
        assert!(from_flags(&["--log-filter", legal]).is_ok(), "{legal}");
    }
}

#[test]
fn every_backend_can_be_named() {
    for named in ["mem", "file", "redis", "cas1", "cas3", "dynamodb"] {
        let settings = from_flags(&["--storage", named]).expect("legal").settings;
        assert_eq!(settings.storage.name(), named);
    }
}

#[test]
fn a_file_must_write_numbers_switches_and_text_as_what_they_are() {
    for (toml, said) in [
        ("max_connections = '5'", "is \"5\"; a file writes it as a whole number without quotes"),
        ("wait = 1", "is 1; a file writes it as true or false without quotes"),
        ("region = 5", "is 5; a file writes it as text in quotes"),
        ("idle_timeout_ms = 1.5", "is 1.5; a file writes it as a whole number"),
        ("listen = [\n'127.0.0.1:1']", "is [ '127.0.0.1:1']; a file writes it as text"),
        ("[data]\na = 1", "is a section; a file writes it as text"),
    ] {
        assert_says(from_file(toml), &["wane.toml:1", said]);
    }
    let written = from_file("max_connections = 0x1_0").expect("legal").settings;
    assert_eq!(written.max_connections, 16);
}

#[test]
fn a_file_that_is_absent_or_no_toml_is_an_error_that_names_it() {
    assert_says(from_flags(&["--config", "no/such.toml"]), &["cannot read", "no/such.toml"]);
    assert_says(from_file("region = 'a'\nregion ="), &["wane.toml:2: "]);
    assert_says(from_file("region = 'a'\nregion = 'b'\n"), &["wane.toml:2: ", "duplicate"]);
}

/// An operator should not have to start once for each mistake.
#[test]
fn all_mistakes_are_reported_at_once() {
    let file = file("lisen = 'x'\nwait = 'x'\n");
    let flags = flags(&["--config", &file.path, "--region", "?"]);
    let refused = Settings::load(&flags, environment(&[("WANE_NOTHING", "1")]));
    assert_eq!(says(refused).lines().count(), 4);
}

#[test]
fn a_public_address_needs_tls_or_the_word_insecure() {
    let tls = ["--tls-cert", "c.pem", "--tls-key", "k.pem"];
    for flag in ["--listen", "--admin-listen"] {
        for public in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[::ffff:192.0.2.1]:1"] {
            let refused = from_flags(&[flag, public]);
            assert_says(refused, &[public, "set tls_cert and tls_key", "127.0.0.1", "insecure"]);
            assert!(from_flags(&[flag, public, "--insecure"]).is_ok());
            assert!(from_flags(&[[flag, public].as_slice(), &tls].concat()).is_ok());
        }
        for loopback in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(from_flags(&[flag, loopback]).is_ok(), "{loopback}");
        }
    }
}

#[test]
fn each_public_address_is_reported() {
    let public = address("0.0.0.0:1");
    let both =
        Settings { listen: public, admin_listen: address("0.0.0.0:2"), ..Settings::default() };
    assert_eq!(broken_rules(&both).len(), 2);
    assert_eq!(broken_rules(&Settings { insecure: true, ..both }).len(), 0);
    let one = Settings { listen: public, ..Settings::default() };
    let broken = broken_rules(&one);
    assert!(matches!(broken[..], [Problem::Exposed { setting: "listen", .. }]), "{broken:?}");
}

#[test]
fn a_part_of_tls_without_the_other_is_refused() {
    let refused = |arguments: &[&str], said| assert_says(from_flags(arguments), &[said]);
    refused(&["--tls-cert", "c"], "tls_cert is set, but tls_key is not");
    refused(&["--tls-key", "k"], "tls_key is set, but tls_cert is not");
    refused(&["--tls-client-ca", "a"], "tls_client_ca is set, but tls_cert is not");
    // Half of TLS is no TLS, whatever `insecure` says.
    refused(&["--insecure", "--tls-cert", "c"], "tls_cert is set, but tls_key is not");
}

#[test]
fn a_time_of_the_day_has_two_digits_for_hours_and_two_for_minutes() {
    let settings = from_flags(&["--backup-at", "23:59"]).expect("legal").settings;
    assert_eq!(settings.backup_at.since_midnight(), Duration::from_secs(86_340));
    for wrong in ["24:00", "12:60", "2:00", "0200", "02:00:00", "+2:00", "aa:bb", ""] {
        assert_says(from_flags(&["--backup-at", wrong]), &["--backup-at", "up to 23:59"]);
    }
}

#[test]
fn both_ports_at_one_address_are_refused_unless_any_port_will_do() {
    let both = |text| from_flags(&["--listen", text, "--admin-listen", text]);
    assert_says(both("127.0.0.1:1"), &["listen and admin_listen are both 127.0.0.1:1"]);
    assert!(both("127.0.0.1:0").is_ok());
}

#[test]
fn printed_settings_tell_reason_unit_origin_and_what_is_not_set() {
    let file = file_named("odd\nname.toml", "idle_timeout_ms = 9");
    let printed = from_flags(&["--config", &file.path]).expect("legal").print_settings();
    for setting in &SETTINGS {
        assert!(printed.contains(setting.why), "{}", setting.name);
    }
    assert!(printed.contains("Unit: ms. From: default.\nheader_timeout_ms = 10000\n"), "{printed}");
    assert!(printed.contains("odd name.toml:1.\nidle_timeout_ms = 9\n"), "{printed}");
    assert!(printed.contains("# public_url is not set: taken from each request\n"), "{printed}");
    assert_eq!(from_file(&printed).expect("legal").settings.idle_timeout_ms.as_millis(), 9);
}

#[test]
fn secrets_are_neither_printed_nor_repeated_in_errors() {
    let text = "twenty-characters-or-more".to_owned();
    for name in [
        "cassandra_password",
        "redis_url",
        "dev_users",
        "stream_keys",
        "stream_redis_url",
        "stream_redlock_urls",
    ] {
        let secret = Setting::named(name).expect("there is such a setting");
        let printed = printed::paragraph(secret, Some(&text), &Origin::Default);
        assert!(!printed.contains(&text), "{printed}");
        assert!(printed.contains(&format!("# {name} is set, and secret")), "{printed}");
        assert!(!sources::shown(secret, text.clone()).contains(&text));
    }

    let [storage, ..] = &SETTINGS;
    let open = printed::paragraph(storage, Some(&text), &Origin::Default);
    assert!(open.contains(&text), "the control");
    assert_eq!(sources::shown(storage, text.clone()), text);
}

#[test]
fn people_with_passwords_are_for_loopback_only() {
    let here = ["--dev-users=alice:wonderland", "--listen=127.0.0.1:0"];
    let users = from_flags(&here).expect("legal").settings.dev_users.expect("set");
    assert_eq!(users.password_of("alice"), Some("wonderland"));
    assert_eq!(users.password_of("bob"), None);
    for exposed in [
        &["--listen=0.0.0.0:1", "--insecure"][..],
        &["--public-url=https://login.example"],
        &["--trusted-proxies=127.0.0.1"],
    ] {
        let said = says(from_flags(&[&["--dev-users=alice:wonderland"], exposed].concat()));
        assert!(said.contains("dev_users") && !said.contains("wonderland"), "{said}");
    }
    let own = ["--dev-users=alice:wonderland", "--public-url=http://localhost:8628"];
    assert!(from_flags(&own).is_ok());
    for wrong in ["alice", "alice:", ":secret", "alice:a,,bob:b"] {
        let said = says(from_flags(&[&format!("--dev-users={wrong}")]));
        assert!(said.contains("NAME:PASSWORD"), "{said}");
    }
}

#[test]
fn a_proxy_is_trusted_by_its_address() {
    let proxies = ["--trusted-proxies=10.0.0.1, ::1,10.1.0.0/16"];
    let proxies = from_flags(&proxies).expect("legal").settings;
    let proxies = proxies.trusted_proxies.expect("set");
    for (address, is_trusted) in [
        ("10.0.0.1", true),
        ("::ffff:10.0.0.1", true),
        ("::1", true),
        ("10.1.2.3", true),
        ("10.0.0.2", false),
        ("10.2.0.1", false),
    ] {
        assert_eq!(proxies.contains(address.parse().expect("an address")), is_trusted, "{address}");
    }
    assert!(says(from_flags(&["--trusted-proxies=proxy.example"])).contains("10.1.0.0/16"));
}

#[test]
fn names_in_the_table_are_unique_and_follow_one_form() {
    for (index, setting) in SETTINGS.iter().enumerate() {
        let twice = SETTINGS[..index].iter().any(|other| other.name == setting.name);
        assert!(!twice, "{} is there twice", setting.name);
        assert_eq!(setting.name.ends_with("_ms"), setting.unit == "ms", "{}", setting.name);
        assert!(setting.why.ends_with('.'), "{}: a reason is a sentence", setting.name);
        assert!(!is_someone_elses(&setting.variable()), "{}", setting.name);
    }
}

fn is_someone_elses(variable: &str) -> bool {
    variable == "WANE_CONFIG"
        || variable.starts_with("WANE_TEST_")
        || CLIENT_VARIABLES.contains(&variable)
}

#[test]
fn help_tells_variable_and_default_of_each_setting() {
    let help = Wane::try_parse_from(["wane", "--help"]).expect_err("help").to_string();
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for setting in &SETTINGS {
        assert!(words.contains(&setting.flag()), "{}", setting.name);
        assert!(words.contains(&setting.help()), "{} in {words}", setting.name);
    }
}

/// The manual has the table of the code. When this fails, paste what it prints.
#[test]
fn the_manual_lists_every_setting_as_the_code_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating.md");
    let manual = fs::read_to_string(path).expect("the manual");
    let table = manual_table();
    assert!(manual.contains(&format!("\n\n{table}\n")), "docs/operating.md needs:\n\n{table}");
}

fn manual_table() -> String {
    let row = |setting: &Setting| {
        let initial = match setting.initial {
            Is(text) => format!("`{text}`"),
            Unset(meaning) => meaning.to_owned(),
        };
        let (name, variable) = (setting.name, setting.variable());
        let (legal, why) = (setting.legal(), setting.why);
        format!("| `{name}` | `{variable}` | {initial} | {legal} | {why} |\n")
    };
    let rows: String = SETTINGS.iter().map(row).collect();
    format!("| setting | environment | default | legal | why |\n|---|---|---|---|---|\n{rows}")
}

#[test]
fn a_hold_is_shorter_than_a_lease_and_a_lease_than_a_token() {
    for arguments in [
        ["--stream-hold-ms=30000", "--stream-lease-ms=30000"],
        ["--stream-lease-ms=300000", "--stream-token-ms=300000"],
    ] {
        let said = from_flags(&arguments).expect_err("not in order").to_string();
        assert!(said.contains("shorter than the lease"), "{said}");
    }
    from_flags(&["--stream-hold-ms=60000", "--stream-lease-ms=60001"]).expect("in order");
}
