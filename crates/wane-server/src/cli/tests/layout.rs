//! Tables, and what others wrote on a terminal of ours.

use super::Desk;
use crate::cli::output::{Color, Table, shown_text, shown_value};

#[test]
fn columns_are_as_wide_as_their_widest_cell() {
    let mut table = Table::new(&["KEY", "LEFT"]);
    table.push(vec!["a".into(), "1s".into()]);
    table.push(vec!["\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}".into(), "14m 59s".into()]);
    let text = "KEY    LEFT\na      1s\n\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}  14m 59s\n";
    assert_eq!(table.layout(false), text);
    assert_eq!(table.layout(true).lines().next().unwrap(), "\x1b[1mKEY    LEFT\x1b[0m");
}

#[test]
fn a_table_without_a_head_has_rows_only() {
    let mut table = Table::default();
    table.push(vec!["id".into(), "1".into()]);
    table.push(vec!["name".into(), String::new()]);
    assert_eq!(table.layout(true), "id    1\nname\n");
}

/// A value of somebody else's may hold anything, also orders to a terminal.
#[test]
fn orders_to_a_terminal_are_shown_not_obeyed() {
    assert_eq!(
        shown_text("a\x1b[2Jb\n\t\u{202e}c\u{9b}\u{7f}"),
        "a\\u{1b}[2Jb\\n\\t\\u{202e}c\\u{9b}\\u{7f}"
    );
    assert_eq!(shown_text("caf\u{e9} \"x\""), "caf\u{e9} \"x\"");
    assert_eq!(shown_value(&[255, 0]), "base64:/wA=");
}

#[test]
fn long_values_are_cut() {
    assert_eq!(shown_value("x".repeat(60).as_bytes()), "x".repeat(60));
    assert_eq!(shown_value("x".repeat(61).as_bytes()), format!("{}...", "x".repeat(57)));
}

#[test]
fn colour_is_for_terminals_that_want_it() {
    let mut desk = Desk::default();
    let is_on =
        |desk: &Desk, color: Color, is_terminal| color.is_on(is_terminal, &desk.surroundings());
    assert!(is_on(&desk, Color::Auto, true));
    assert!(!is_on(&desk, Color::Auto, false));
    assert!(is_on(&desk, Color::Always, false));
    assert!(!is_on(&desk, Color::Never, true));
    desk.env.insert("NO_COLOR", "".into());
    assert!(is_on(&desk, Color::Auto, true), "empty is as good as not set");
    desk.env.insert("NO_COLOR", "1".into());
    assert!(!is_on(&desk, Color::Auto, true));
    assert!(is_on(&desk, Color::Always, true));
    desk.env = [("TERM", "dumb".into())].into();
    assert!(!is_on(&desk, Color::Auto, true));
}
