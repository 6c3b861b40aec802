//! Which command lines are legal, and what the exit codes are.

use std::time::Duration;

use clap::{CommandFactory, Parser};

use super::Desk;
use crate::cli::failure::Failure;
use crate::cli::lifetime;
use crate::cli::{Arguments, EXIT_CODES, Exit};
use crate::client::ClientError;

#[test]
fn the_command_line_is_consistent() {
    Arguments::command().debug_assert();
}

#[test]
fn documented_forms_are_legal() {
    for line in [
        "ttl get k",
        "ttl insert k v --ttl 900",
        "ttl insert k - --ttl 15m",
        "ttl insert k -5 --ttl 1",
        "ttl insert --ttl 1 -- k --value",
        "ttl swap k a b --ttl 900",
        "ttl swap k a b --keep-expiry",
        "ttl delete k",
        "ttl delete k --expected v",
        "ttl delete k --expected -",
        "ttl set k v --ttl 2h",
        "ttl touch k --ttl 30d",
        "ttl scan",
        "ttl scan a: --limit 5 --after a:1 --all",
        "ttl scan --prefix a:",
        "ttl watch a: --after 5 --count 1",
        "ttl get k --app acme/two --url http://a --key i.s --ca f --data d --json --color never",
        "--url http://a --json ttl --app acme/two get k",
        "app create acme/two",
        "app list --admin-url http://a",
        "app key add acme/two --scopes read,write",
        "app key revoke acme/two 1-ab",
        "app limits acme/two",
        "app limits acme/two --max-keys 5 --max-bytes default --requests-per-second 9",
        "blob put f --workspace 7",
        "blob put - --name n --content-type text/plain --ttl 6h --downloads 1",
        "blob put f --ttl 900 --restart --app acme/two",
        "blob get AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8 --workspace 7 -o f --force",
        "blob get -o - -- -AECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
        "blob info --workspace 7 -AECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
        "blob delete AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8 --secret \
         -AECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
        "device start",
        "device start --client tv --client-secret-file f --scope read --no-qr --json",
        "device approve BCDFG-HJKLM --subject alice",
        "device approve bcdfghjklm --subject alice --link-token -",
        "device deny BCDFG-HJKLM --app acme/two",
        "device list",
        "device list --subject alice --json",
        "device revoke AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
        "device revoke -AECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
        "app client add acme/two TV",
        "app client add acme/two TV --confidential --scope read --scope write --id tv.1 --code-life \
         10m --token-life 30d",
        "app client remove acme/two tv.1",
        "stream push --ispb 00000208 a.xml b.xml --gzip",
        "stream push --ispb 00000208 -",
        "stream pull --ispb 00000208",
        "stream pull --ispb 00000208 --out d --exec true --max-batches 1 --follow --single --gzip \
         --client-id reader-1 --json",
        "stream pull --ispb 00000208 --cert c.pem --key-file k.pem --ca a.pem --url https://a",
        "stream status --ispb 00000208 --admin-url http://a --data d",
        "stream hold --ispb 00000208 --from 1 --to 2 --reason x",
        "stream holds --ispb 00000208 --json",
        "stream release 00000208-0123456789abcdef",
        "completions bash",
        "serve",
    ] {
        let words = format!("wane {line}");
        if let Err(error) = Arguments::try_parse_from(words.split_whitespace()) {
            panic!("{line}: {error}");
        }
    }
}

#[test]
fn wrong_usage_ends_with_two_and_says_so_on_standard_error() {
    for line in [
        "",
        "no-such-command",
        "ttl",
        "ttl get",
        "ttl insert k v",
        "ttl insert k v --ttl 0",
        "ttl insert k v --ttl 366d",
        "ttl insert k v --ttl soon",
        "ttl swap k a b",
        "ttl swap k a b --ttl 1 --keep-expiry",
        "ttl scan a --prefix b",
        "ttl get k --app noslash",
        "ttl get k --color sometimes",
        "app create",
        "app create a/b/c",
        "app key add a/b --scopes everything",
        "app limits a/b --max-keys -1",
        "app limits a/b --in-flight 4294967296",
        "blob put",
        "blob put f --workspace -1",
        "blob put f --workspace 18446744073709551616",
        "blob put f --ttl 500ms",
        "blob put f --downloads 0",
        "blob get",
        "blob get AAEC",
        "blob info AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9",
        "blob delete AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8 --secret x",
        "device",
        "device start --client no/slash",
        "device approve BCDFG-HJKLM",
        "device approve --subject alice",
        "device revoke AAEC",
        "app client add acme/two",
        "app client add acme/two TV --code-life 1500ms",
        "app client remove acme/two no/slash",
        "stream",
        "stream push --ispb 00000208",
        "stream push a.xml",
        "stream push --ispb 208 a.xml",
        "stream hold --ispb 00000208 --from 1 --to 2",
        "stream hold --ispb 00000208 --from x --to 2 --reason x",
        "stream release 00000208",
        "stream pull",
        "stream pull --ispb 0000020x",
        "stream pull --ispb 00000208 --max-batches 0",
        "stream pull --ispb 00000208 --client-id \u{e9}",
        "stream push --ispb 00000208 --key i.s - -",
        "stream pull --ispb 00000208 --key i.s --cert c.pem",
        "stream status",
        "audit",
        "audit verify",
        "audit verify --ispb 208",
        "audit export",
        "audit export --ispb 00000208 --from yesterday",
        "audit export --ispb 00000208 --to -1",
        "completions cmd",
        "ttl get k --url localhost:8628 --key i.s",
        "ttl get k --key \u{1}\u{7}",
    ] {
        let desk = Desk::default();
        assert_eq!(desk.types(line), Exit::Usage, "{line}: {}", desk.err.text());
        assert!(!desk.err.text().is_empty(), "{line}");
        assert_eq!(desk.out.text(), "", "{line}");
    }
}

#[test]
fn help_is_an_answer_and_names_the_exit_codes() {
    let desk = Desk::default();
    assert_eq!(desk.types("--help"), Exit::Done);
    assert!(desk.out.text().contains(EXIT_CODES), "{}", desk.out.text());
    let desk = Desk::default();
    assert_eq!(desk.types("--version"), Exit::Done);
    assert_eq!(desk.out.text(), format!("wane {}\n", env!("CARGO_PKG_VERSION")));
}

/// A page that programs are written after.
#[test]
fn the_page_about_the_command_line_has_every_command_and_exit_code() {
    let page = include_str!("../../../../../docs/cli.md");
    for exit in EXIT_CODES.lines().filter(|line| line.starts_with("  ")).take(6) {
        let (code, meaning) = exit.trim().split_once("  ").unwrap();
        let name = meaning.split(':').next().unwrap();
        assert!(page.contains(&format!("| {code} | {name} |")), "{code} {name}");
    }
    let top = Arguments::command();
    let group = |name: &str| top.find_subcommand(name).unwrap().clone();
    for name in ["ttl", "election", "sequence", "blob", "device", "stream", "audit", "app"] {
        for command in group(name).get_subcommands() {
            let words = format!("wane {name} {}", command.get_name());
            assert!(page.contains(&words), "{words}");
            for step in command.get_subcommands() {
                let words = format!("{words} {}", step.get_name());
                assert!(page.contains(&words), "{words}");
            }
        }
    }
    for flag in top.get_arguments().filter_map(|flag| flag.get_long()) {
        assert!(
            matches!(flag, "help" | "version") || page.contains(&format!("`--{flag}")),
            "{flag}"
        );
    }
}

#[test]
fn exit_codes_are_those_of_the_interface() {
    let all = [Exit::Done, Exit::Failed, Exit::Usage, Exit::Refused, Exit::Absent, Exit::Unknown];
    assert_eq!(all.map(Exit::code), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn every_failure_has_its_exit_code() {
    let problem = |code: &str, status| ClientError::Problem {
        code: code.into(),
        status,
        detail: String::new(),
        retry_after: None,
    };
    for (error, exit) in [
        (ClientError::Refused { current: None, detail: String::new() }, Exit::Refused),
        (problem("stale_token", 409), Exit::Refused),
        (problem("token_out_of_order", 400), Exit::Refused),
        (ClientError::Absent, Exit::Absent),
        (ClientError::UnknownOutcome { source: "".into() }, Exit::Unknown),
        (problem("invalid_ttl", 400), Exit::Usage),
        (problem("key_too_long", 400), Exit::Usage),
        (problem("unauthorized", 401), Exit::Failed),
        (problem("limited", 429), Exit::Failed),
        (problem("too_large", 413), Exit::Failed),
        (problem("unsupported_media_type", 415), Exit::Usage),
        (problem("gone", 410), Exit::Absent),
        (problem("audit_broken", 409), Exit::Failed),
        (problem("unavailable", 503), Exit::Failed),
        (ClientError::Unreachable { url: String::new(), source: "".into() }, Exit::Failed),
        (ClientError::Protocol { reason: String::new() }, Exit::Failed),
    ] {
        let name = format!("{error:?}");
        assert_eq!(Failure::from(error).exit(), exit, "{name}");
    }
}

#[test]
fn lives_are_seconds_or_have_a_unit() {
    for (text, millis) in [
        ("1", 1_000),
        ("900", 900_000),
        ("0900", 900_000),
        ("1ms", 1),
        ("500ms", 500),
        ("7s", 7_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("365d", 31_536_000_000),
        ("31536000", 31_536_000_000),
        ("31536000000ms", 31_536_000_000),
    ] {
        assert_eq!(lifetime::parse(text).unwrap().as_millis(), millis, "{text}");
    }
    for text in [
        "",
        "0",
        "0ms",
        "-1",
        "+1",
        "1.5h",
        "1e3",
        "m",
        "15 m",
        "15M",
        "1w",
        "31536001",
        "366d",
        "99999999999999999999d",
        "\u{661}",
    ] {
        assert!(lifetime::parse(text).is_err(), "{text}");
    }
}

#[test]
fn what_is_left_has_two_units() {
    for (millis, text) in [
        (0, "0ms"),
        (999, "999ms"),
        (1_000, "1s"),
        (59_999, "59s"),
        (60_000, "1m 0s"),
        (899_999, "14m 59s"),
        (3_600_000, "1h 0m"),
        (86_399_999, "23h 59m"),
        (86_400_000, "1d 0h"),
        (31_536_000_000, "365d 0h"),
    ] {
        assert_eq!(lifetime::shown(Duration::from_millis(millis)), text);
    }
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let desk = Desk::default();
        assert_eq!(desk.types(&format!("completions {shell}")), Exit::Done);
        assert!(desk.out.text().contains("keep-expiry"), "{shell}");
    }
}
