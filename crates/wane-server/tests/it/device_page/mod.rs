//! The page `/device` in a real browser: Chromium, driven by playwright-core, without JavaScript and,
//! where it could make a difference, with it. People sign in by the development list, at a real OpenID Connect issuer and by an
//! assertion of an application; axe-core looks at every page.
//!
//! One process plays all scenarios against one server; each test here is what became of one of them.
//! Screenshots are kept in `target/device-page-screenshots`. Without Chromium or its driver the tests
//! are skipped and say so; where CI is set that is a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::server::Server;

/// Where scripts/browser installs what drives the browser.
const INSTALLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/browser/node_modules");

const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/device_page/driver.js");

const SCREENSHOTS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/device-page-screenshots");

/// Longer than all scenarios take on a slow machine.
const PATIENCE: Duration = Duration::from_secs(900);

/// What became of a scenario: by its name, and whether JavaScript was on.
type Played = BTreeMap<(String, bool), Result<(), String>>;

/// The browser, where this system has it.
fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|folder| folder.join("chromium"));
    found.find(|file| file.exists())
}

/// What is missing to drive a browser, and what installs it.
fn missing() -> Option<&'static str> {
    if chromium().is_none() {
        return Some("chromium is missing: scripts/tools installs it");
    }
    let has_driver = Path::new(INSTALLED).join("playwright-core").exists();
    (!has_driver).then_some("playwright-core is missing: scripts/browser installs it")
}

/// Whether nothing is missing; if something is it is said, and in CI that is a failure.
fn can_play(missing: Option<&str>, in_ci: bool) -> bool {
    let Some(missing) = missing else { return true };
    assert!(!in_ci, "the page must be tested here, and cannot be: {missing}");
    println!("skipped: {missing}");
    false
}

fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|ci| !["", "false", "0"].contains(&&*ci))
}

/// Plays every scenario, once for all tests; none where a browser cannot be driven.
fn played() -> Option<&'static Played> {
    static PLAYED: OnceLock<Option<Played>> = OnceLock::new();
    PLAYED.get_or_init(|| can_play(missing(), in_ci()).then(play)).as_ref()
}

fn play() -> Played {
    let server = Server::with(&["--storage", "mem", "--dev-users", "alice:wonderland,bob:builder"]);
    let asked = json!({
        "url": format!("http://{}", server.http),
        "admin": format!("http://{}", server.admin),
        "adminKey": server.admin_key,
        "key": server.key,
        "screenshots": SCREENSHOTS,
        "chromium": chromium(),
    });
    drop(std::fs::remove_dir_all(SCREENSHOTS));
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &PATIENCE.as_secs().to_string(), "node", DRIVER]);
    command.arg(asked.to_string()).env("NODE_PATH", INSTALLED).env("NO_PROXY", "*");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let told: Vec<Json> = lines
        .map(|line| line.unwrap())
        .inspect(|line| println!("{line}"))
        .map(|line| serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect();
    let status = process.wait().unwrap();
    assert!(!server.log().contains("panicked"), "{}", server.log());
    assert!(status.success() && told.last().is_some_and(|last| last["end"] == true), "{told:?}");
    told.iter().filter_map(result_of).collect()
}

fn result_of(line: &Json) -> Option<((String, bool), Result<(), String>)> {
    let name = line["name"].as_str()?.to_owned();
    let result = line["error"].as_str().map_or(Ok(()), |error| Err(error.to_owned()));
    Some(((name, line["javaScript"].as_bool()?), result))
}

/// A scenario went well in each of these ways.
#[track_caller]
fn assert_played(name: &str, with: &[bool]) {
    let Some(played) = played() else { return };
    for javascript in with {
        let result = played.get(&(name.to_owned(), *javascript));
        let result = result.unwrap_or_else(|| panic!("{name} was not played"));
        let mode = if *javascript { "with JavaScript" } else { "without JavaScript" };
        if let Err(error) = result {
            panic!("{mode}: {error}");
        }
    }
}

/// A test for each scenario that the driver plays.
macro_rules! scenarios {
    ($list:ident, $with:expr, $($name:ident)+) => {
        const $list: &[&str] = &[$(stringify!($name)),+];
        $(
            #[test]
            fn $name() {
                assert_played(stringify!($name), $with);
            }
        )+
    };
}

scenarios! { IN_BOTH_WAYS, &[true, false],
    a_code_is_typed_and_the_device_is_approved
    everything_works_by_keyboard_alone
    the_back_button_undoes_nothing
    a_form_that_is_sent_twice_decides_once
    people_sign_in_at_an_openid_connect_issuer
    html_in_names_scopes_and_agents_is_shown_as_text
    html_in_codes_and_names_that_are_typed_is_text
    a_form_of_another_site_decides_nothing
    every_page_keeps_others_out
    the_cookie_is_out_of_reach_of_scripts_and_other_sites
    a_cookie_from_before_the_sign_in_opens_nothing
}

scenarios! { WITHOUT_JAVASCRIPT, &[false],
    a_device_is_denied
    the_link_asks_to_compare_the_code_and_approves_nothing_alone
    a_link_with_another_code_leads_to_the_field
    every_way_of_writing_a_code_finds_it
    consent_is_asked_for_where_no_scope_is
    the_qr_code_of_a_device_is_a_picture
    a_wrong_code_has_a_message_and_the_input_is_kept
    a_wrong_code_in_a_link_has_a_message
    a_wrong_password_has_a_message_and_the_name_is_kept
    a_reload_of_any_page_shows_it_again
    of_two_windows_the_first_decides
    of_two_people_the_first_decides
    a_form_counts_for_the_code_that_it_showed
    another_person_may_sign_in_instead
    a_page_in_the_middle_leads_back_to_the_start
    a_reload_of_the_page_spends_no_attempts
    a_success_does_not_clear_the_failures
    variants_of_case_and_dashes_do_not_evade_the_limiter
    who_cancels_at_the_issuer_can_try_again
    what_the_issuer_sent_is_good_once_and_for_one_browser
    people_sign_in_by_an_assertion_of_the_application
    an_assertion_that_is_not_right_signs_nobody_in
    who_signed_in_to_one_application_is_nobody_in_another
    a_code_that_expires_while_the_page_is_open_is_over
}

scenarios! { LOOKS, &[true],
    a_page_with_faults_is_noticed
    the_pages_of_a_code_look_right
    the_pages_of_other_ends_look_right
    long_names_fit
}

/// No scenario is played that no test looks at, and none is left out.
#[test]
fn every_scenario_has_its_test() {
    let Some(played) = played() else { return };
    let both = IN_BOTH_WAYS.iter().flat_map(|name| [(*name, false), (*name, true)]);
    let without = WITHOUT_JAVASCRIPT.iter().map(|name| (*name, false));
    let expected = both.chain(without).chain(LOOKS.iter().map(|name| (*name, true)));
    let expected: BTreeSet<_> = expected.map(|(name, with)| (name.to_owned(), with)).collect();
    assert_eq!(played.keys().cloned().collect::<BTreeSet<_>>(), expected);
}

/// People look at these: each page at two widths, in light and dark.
#[test]
fn screenshots_are_kept() {
    if played().is_none() {
        return;
    }
    for page in ["1-enter", "6-confirm", "7-approved", "8-denied", "12-too-many"] {
        for look in ["phone-light", "phone-dark", "desktop-light", "desktop-dark"] {
            let file = Path::new(SCREENSHOTS).join(format!("{page}-{look}.png"));
            let bytes = std::fs::read(&file).unwrap_or_else(|_| panic!("no {}", file.display()));
            assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 4_000, "{}", file.display());
        }
    }
}

/// Control: a scenario that failed is a failure with its reason, and so is one that was not played.
#[test]
fn a_scenario_that_failed_is_noticed() {
    let line = json!({ "name": "some", "javaScript": true, "error": "it was red", "millis": 1 });
    let ((name, javascript), result) = result_of(&line).unwrap();
    assert_eq!((&*name, javascript, result), ("some", true, Err("it was red".to_owned())));
    let line = json!({ "name": "some", "javaScript": false, "millis": 1 });
    assert_eq!(result_of(&line).unwrap().1, Ok(()));
    if played().is_some() {
        assert!(std::panic::catch_unwind(|| assert_played("none_of_this_name", &[true])).is_err());
    }
}

/// Control: where CI is set a missing browser is a failure, as nobody reads what was skipped.
#[test]
fn a_missing_browser_is_a_failure_in_ci() {
    assert!(can_play(None, true) && can_play(None, false));
    assert!(!can_play(Some("no browser"), false));
    assert!(std::panic::catch_unwind(|| can_play(Some("no browser"), true)).is_err());
}
