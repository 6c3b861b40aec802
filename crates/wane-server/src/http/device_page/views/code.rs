//! Entering a code, and comparing one that came with a link.

use maud::html;

use super::super::shell::Page;
use super::{alert, hidden_token, shown_code};

/// What was wrong with what was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Complaint {
    pub(in super::super) headline: String,
    pub(in super::super) advice: String,
    /// Whether what was typed is wrong, rather than late or too much.
    pub(in super::super) is_of_input: bool,
}

impl Complaint {
    pub(in super::super) fn new(headline: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { headline: headline.into(), advice: advice.into(), is_of_input: false }
    }

    /// What was typed is wrong.
    pub(in super::super) fn of_input(
        headline: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { is_of_input: true, ..Self::new(headline, advice) }
    }

    /// What a field says of itself, `aria-invalid`.
    pub(super) fn mark(complaint: Option<&Self>) -> Option<&'static str> {
        complaint.filter(|complaint| complaint.is_of_input).map(|_| "true")
    }
}

/// The field for a code. What was typed is kept.
pub(in super::super) fn code_form(
    prefix: &str,
    token: &str,
    letters: usize,
    typed: &str,
    complaint: Option<&Complaint>,
) -> Page {
    let described_by = if complaint.is_some() { "error hint" } else { "hint" };
    let content = html! {
        h1 { "Connect a device" }
        p.lead { "Enter the code that your device shows." }
        @if let Some(complaint) = complaint { (alert(&complaint.headline, &complaint.advice)) }
        form method="post" action={ (prefix) "/device" } {
            (hidden_token(token))
            div.field {
                label for="user_code" { "Code" }
                input.code #user_code type="text" name="user_code" value=(typed) required
                    maxlength="128" autofocus autocomplete="off" autocapitalize="characters"
                    autocorrect="off" spellcheck="false" inputmode="text" enterkeyhint="go"
                    aria-describedby=(described_by)
                    aria-invalid=[Complaint::mark(complaint)];
                p.hint #hint { (letters) " letters. Small or capital, with or without dashes." }
            }
            div.actions { button.main type="submit" { "Continue" } }
        }
    };
    let title = if complaint.is_some() { "Error: enter the code" } else { "Enter the code" };
    Page::new(title, content)
}

/// A code that came with a link: only somebody who sees the device can say that it is the one.
pub(in super::super) fn compare(prefix: &str, token: &str, code: &str) -> Page {
    let content = html! {
        h1 { "Does your device show this code?" }
        p.lead { "Compare it letter by letter with the one on your device." }
        (shown_code(code))
        form method="post" action={ (prefix) "/device" } {
            (hidden_token(token))
            input type="hidden" name="user_code" value=(code);
            div.actions {
                button.main type="submit" { "Yes, it shows this code" }
                a.button.other href={ (prefix) "/device" } { "No, enter another code" }
            }
        }
    };
    Page::new("Compare the code", content)
}
