//! Entering a code: `/device`, with and without a code in the link.
//!
//! Showing the page looks nothing up, so that a link, a reload or a preview costs nobody an
//! attempt. Only the form looks, and what is no code at all is told so before it is looked for.

use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::form::Fields;
use super::session::{AskedCode, Form};
use super::shell::{ICON, Page, STYLE, answer, file, see_other};
use super::trouble::Trouble;
use super::views::{self, Complaint};
use super::visit::{Answered, Visit};
use crate::http::problem::Problem;
use crate::qr;
use crate::wiring::Services;

/// What was typed is shown again up to this many characters.
const MOST_TYPED: usize = 128;

/// `GET /device`: the field for a code, or the question whether it is the one of the link.
pub(in crate::http) async fn show(State(services): State<Services>, request: Request) -> Answered {
    let (visit, _) = Visit::begin(services, request)?;
    let query = Fields::of_query(&visit.parts.uri);
    // Once: a proxy may say another host than the one that people see.
    if visit.services.origin.is_elsewhere(&visit.parts) && query.get("moved").is_none() {
        let given =
            utf8_percent_encode(query.get("user_code").unwrap_or_default(), NON_ALPHANUMERIC);
        let there = format!("{}/device?user_code={given}&moved=1", visit.base_url);
        return Ok(see_other(&there, None));
    }
    let Some(given) = query.get("user_code").filter(|given| !given.trim().is_empty()) else {
        return Ok(visit.show(form(&visit, "", None)));
    };
    Ok(match visit.services.device_auth.read_user_code(given) {
        Some(code) => {
            let token = visit.token(Form::Code);
            visit.show(views::compare(visit.prefix(), &token, &code.reveal()))
        }
        None => visit.show(form(&visit, given, Some(&no_code(&visit)))),
    })
}

/// `POST /device`: looks the code up.
pub(in crate::http) async fn submit(
    State(services): State<Services>,
    request: Request,
) -> Answered {
    let (mut visit, body) = Visit::begin(services, request)?;
    let fields = visit.form(body).await?;
    let typed = fields.get("user_code").unwrap_or_default();
    if !visit.is_own(&fields, Form::Code) {
        return Ok(visit.show(form(&visit, typed, Some(&too_late(&visit)))));
    }
    let Some(code) = visit.services.device_auth.read_user_code(typed) else {
        let page = form(&visit, typed, Some(&no_code(&visit)));
        return Ok(visit.show(page.status(StatusCode::UNPROCESSABLE_ENTITY)));
    };
    let code = code.reveal();
    // A page that says so, loaded again: the answer would be the same, and is not looked for.
    let tried = visit.session.derived("missed code", &code, &visit.key);
    if visit.session.missed.as_ref() == Some(&tried) {
        let page = form(&visit, typed, Some(&wrong_code()));
        return Ok(visit.show(page.status(StatusCode::UNPROCESSABLE_ENTITY)));
    }
    Ok(match visit.services.device_auth.look_up(&code, visit.source()).await {
        Ok(Some(asked)) => {
            let has_decided = visit.session.has_decided(&code);
            let is_signed_in = visit.session.who(asked.app, visit.now).is_some();
            if asked.is_decided && !has_decided && !is_signed_in {
                return Ok(visit.show(views::already_answered(visit.prefix())));
            }
            visit.session.asked = Some(AskedCode::new(code, asked.app, asked.expires_at));
            visit.go("/device/confirm")
        }
        Ok(None) => {
            visit.session.missed = Some(tried);
            let page = form(&visit, typed, Some(&wrong_code()));
            visit.show(page.status(StatusCode::UNPROCESSABLE_ENTITY))
        }
        Err(error) => {
            let trouble = Trouble::from(error);
            let (headline, advice) = trouble.words();
            let page = form(&visit, typed, Some(&Complaint::new(headline, advice)));
            visit.show(page.status(trouble.status()).retry_after(trouble.retry_after()))
        }
    })
}

fn form(visit: &Visit, typed: &str, complaint: Option<&Complaint>) -> Page {
    let letters = visit.services.device_auth.user_code_length().letters();
    let typed: String = typed.chars().take(MOST_TYPED).collect();
    views::code_form(visit.prefix(), &visit.token(Form::Code), letters, &typed, complaint)
}

fn no_code(visit: &Visit) -> Complaint {
    let letters = visit.services.device_auth.user_code_length().letters();
    let advice = format!(
        "A code has {letters} letters, no digits and no vowels. Please compare it with your device."
    );
    Complaint::of_input("That is not a whole code.", advice)
}

fn wrong_code() -> Complaint {
    Complaint::of_input(
        "There is no such code.",
        "Please compare it with your device. If it is the same, it has expired: start again on the \
         device to get a new one.",
    )
}

/// The form is of no session: it was open for too long, or the browser keeps no cookies.
fn too_late(visit: &Visit) -> Complaint {
    let headline = "Please press Continue once more.";
    if visit.is_known {
        return Complaint::new(headline, "This page was out of date.");
    }
    Complaint::new(
        headline,
        "This page was open for too long, or your browser does not keep our cookie. If this comes \
         again, allow cookies for this site.",
    )
}

/// `GET /device/qr.svg`: the link with the code in it, as a picture. It says nothing about whether
/// there is such a code.
pub(in crate::http) async fn picture(
    State(services): State<Services>,
    request: Request,
) -> Answered {
    let (visit, _) = Visit::begin(services, request)?;
    let query = Fields::of_query(&visit.parts.uri);
    let given = query.get("user_code").unwrap_or_default();
    let Some(code) = visit.services.device_auth.read_user_code(given) else {
        let problem = Problem::invalid("user_code", "give it once, as the device shows it");
        return Ok(answer(problem.into_response(), None));
    };
    Ok(match qr::svg(&format!("{}/device?user_code={}", visit.base_url, code.reveal())) {
        Ok(svg) => {
            let mut picture =
                answer(([(CONTENT_TYPE, "image/svg+xml")], svg).into_response(), None);
            // Pages of applications show it, and it says nothing that their link does not.
            let everybody = HeaderValue::from_static("cross-origin");
            picture.headers_mut().insert("cross-origin-resource-policy", everybody);
            picture
        }
        Err(error) => answer(Problem::invalid("user_code", error).into_response(), None),
    })
}

/// `GET /device/style.css`.
pub(in crate::http) async fn style() -> Response {
    file("text/css; charset=utf-8", STYLE)
}

/// `GET /device/icon.svg`.
pub(in crate::http) async fn icon() -> Response {
    file("image/svg+xml", ICON)
}
