//! The pages as HTML. Everything that somebody else wrote is text: it is escaped, and held apart
//! from the sentence around it, so that no writing direction leaks out of it.

mod code;
mod confirm;
mod outcome;
mod sign_in;

pub(super) use code::{Complaint, code_form, compare};
pub(super) use confirm::{Confirmation, confirm};
pub(super) use outcome::{
    already_answered, expired, not_understood, other_site, outcome, stale, trouble, two_sessions,
};
pub(super) use sign_in::{Elsewhere, elsewhere, no_sign_in, not_here, password, sign_in_failed};

use maud::{Markup, html};

/// The token of a form.
fn hidden_token(token: &str) -> Markup {
    html! { input type="hidden" name="token" value=(token); }
}

/// A code in its groups, large; to those who listen, letter by letter.
fn shown_code(code: &str) -> Markup {
    let spelled: Vec<String> = code.split('-').map(spelled).collect();
    html! {
        p.unseen { "Code: " (spelled.join(", ")) }
        p.code-shown aria-hidden="true" {
            @for (at, group) in code.split('-').enumerate() {
                @if at > 0 { span.dash { "-" } }
                span { (group) }
            }
        }
    }
}

fn spelled(group: &str) -> String {
    let letters: Vec<String> = group.chars().map(String::from).collect();
    letters.join(" ")
}

/// What went wrong, said at once to those who listen.
fn alert(headline: &str, rest: &str) -> Markup {
    html! { div.alert role="alert" id="error" { p { strong { (headline) } " " (rest) } } }
}

fn mark(kind: &str, path: &str) -> Markup {
    html! {
        div class={ "mark " (kind) } {
            svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2.4"
                stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"
                focusable="false" { path d=(path) {} }
        }
    }
}

const CHECK: &str = "M5 12.5l4.6 4.5L19 7.5";
const CROSS: &str = "M6.5 6.5l11 11M17.5 6.5l-11 11";
const CLOCK: &str = "M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17zM12 7.5V12l3 2";
const DOTS: &str = "M5.5 12h.01M12 12h.01M18.5 12h.01";

#[cfg(test)]
mod tests;
