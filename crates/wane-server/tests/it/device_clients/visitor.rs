//! Somebody at the page `/device` without a browser: keeps the cookie, and sends the forms.

use super::*;

/// A visitor, and everything private that passed through their hands.
pub(super) struct Visitor<'a> {
    login: &'a Login,
    address: String,
    cookie: Option<String>,
    /// Cookies and tokens of forms.
    pub(super) private: Vec<String>,
    /// Bodies of all pages.
    pub(super) pages: Vec<String>,
}

impl<'a> Visitor<'a> {
    pub(super) fn at(login: &'a Login) -> Self {
        let (private, pages) = (Vec::new(), Vec::new());
        Self { login, address: own_address(), cookie: None, private, pages }
    }

    pub(super) fn get(&mut self, path: &str) -> Answer {
        self.send("GET", path, None)
    }

    pub(super) fn post(&mut self, path: &str, pairs: &[(&str, &str)]) -> Answer {
        self.send("POST", path, Some(&encoded(pairs)))
    }

    pub(super) fn send(&mut self, method: &str, path: &str, form: Option<&str>) -> Answer {
        let host = self.login.server.http;
        let mut bytes =
            format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
        bytes.push_str(&format!("x-forwarded-for: {}\r\n", self.address));
        if let Some(cookie) = &self.cookie {
            bytes.push_str(&format!("cookie: {cookie}\r\n"));
        }
        if let Some(form) = form {
            let length = form.len();
            let type_ = "application/x-www-form-urlencoded";
            bytes.push_str(&format!("content-type: {type_}\r\ncontent-length: {length}\r\n"));
        }
        bytes.push_str(&format!("\r\n{}", form.unwrap_or_default()));
        let answer = raw(host, bytes.as_bytes());
        if let Some(cookie) = answer.header("set-cookie") {
            let pair = cookie.split(';').next().unwrap();
            self.private.push(pair.split_once('=').unwrap().1.to_owned());
            self.cookie = Some(pair.to_owned());
        }
        self.private.extend(token_in(&answer.body));
        self.pages.push(answer.body.clone());
        answer
    }

    /// Loads a page and returns the token of its form.
    #[track_caller]
    pub(super) fn token(&mut self, path: &str) -> String {
        let answer = self.get(path);
        token_in(&answer.body).unwrap_or_else(|| panic!("no form at {path}: {}", answer.body))
    }

    /// Types a code, and comes to where one signs in.
    #[track_caller]
    pub(super) fn enter(&mut self, user_code: &str) {
        let token = self.token(&format!("/device?user_code={user_code}"));
        let answer = self.post("/device", &[("token", &token), ("user_code", user_code)]);
        assert_eq!(answer.status, 303, "{}", answer.body);
    }

    /// Signs in by a password; whether it was right.
    pub(super) fn sign_in(&mut self, name: &str, password: &str) -> bool {
        let token = self.token("/device/sign-in");
        let form = [("token", &*token), ("name", name), ("password", password)];
        self.post("/device/sign-in", &form).status == 303
    }

    pub(super) fn decide(&mut self, decision: &str) -> Answer {
        let token = self.token("/device/confirm");
        self.post("/device/decide", &[("token", &token), ("decision", decision)])
    }
}

/// The token of the first form on a page.
fn token_in(page: &str) -> Option<String> {
    let (_, rest) = page.split_once("name=\"token\" value=\"")?;
    rest.split('"').next().map(str::to_owned)
}
