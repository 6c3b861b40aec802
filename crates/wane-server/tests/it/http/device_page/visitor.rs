//! A browser without scripts: it keeps a cookie, sends forms with everything in them, and goes where
//! it is sent.

use crate::http::conversation::{Conversation, Request};
use crate::server::{Answer, Server};

/// Somebody at the page.
#[derive(Clone)]
pub(super) struct Visitor<'a> {
    server: &'a Server,
    /// What the browser was told to visit.
    pub(super) host: &'static str,
    /// The cookie as it is sent back.
    pub(super) cookie: Option<String>,
    /// The page that is open.
    pub(super) page: String,
}

impl<'a> Visitor<'a> {
    pub(super) fn of(server: &'a Server) -> Self {
        Self { server, host: "localhost", cookie: None, page: String::new() }
    }

    /// Loads a page, and goes where it leads on this server.
    pub(super) fn opens(&mut self, path: &str) -> Answer {
        let answer = self.asks(&Request::new("GET", path));
        self.follows(answer)
    }

    /// Sends the form that has this action, with these fields beside its hidden ones.
    pub(super) fn sends(&mut self, action: &str, fields: &[(&str, &str)]) -> Answer {
        let answer = self.sends_and_stays(action, fields, &[]);
        self.follows(answer)
    }

    /// The same without going where the answer leads, and with more headers.
    pub(super) fn sends_and_stays(
        &mut self,
        action: &str,
        fields: &[(&str, &str)],
        headers: &[&str],
    ) -> Answer {
        let form = form_of(&self.page, action);
        let mut all = hidden_fields(form);
        all.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let encoded: Vec<_> =
            all.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let request = Request::new("POST", action).form(&encoded.join("&"));
        let request = headers.iter().fold(request, |request, line| request.header(line));
        self.asks(&request)
    }

    /// Opens the page and enters a code.
    pub(super) fn enters(&mut self, code: &str) -> Answer {
        self.opens("/device");
        self.sends("/device", &[("user_code", code)])
    }

    pub(super) fn signs_in(&mut self, name: &str, password: &str) -> Answer {
        self.sends("/device/sign-in", &[("name", name), ("password", password)])
    }

    pub(super) fn decides(&mut self, decision: &str) -> Answer {
        self.sends("/device/decide", &[("decision", decision)])
    }

    /// One request with the cookie; keeps what the answer sets.
    pub(super) fn asks(&mut self, request: &Request) -> Answer {
        let mut request = request.clone().header(&format!("host: {}", self.host));
        if let Some(cookie) = &self.cookie {
            request = request.header(&format!("cookie: other=1; {cookie}"));
        }
        let answer = Conversation::with(self.server.http).ask(&request);
        if let Some(set) = answer.header("set-cookie") {
            self.cookie = Some(set.split(';').next().unwrap().to_owned());
        }
        if answer.status != 303 {
            self.page.clone_from(&answer.body);
        }
        answer
    }

    fn follows(&mut self, mut answer: Answer) -> Answer {
        for _ in 0..5 {
            let Some(path) = answer.header("location").filter(|_| answer.status == 303) else {
                return answer;
            };
            if !path.starts_with('/') {
                return answer;
            }
            let request = Request::new("GET", path);
            answer = self.asks(&request);
        }
        panic!("it goes round in circles: {}", answer.head);
    }
}

/// The form of a page that is sent there.
fn form_of<'p>(page: &'p str, action: &str) -> &'p str {
    let begin = format!("action=\"{action}\"");
    let at = page.find(&begin).unwrap_or_else(|| panic!("there is no form for {action}:\n{page}"));
    let rest = &page[at..];
    &rest[..rest.find("</form>").unwrap()]
}

/// The hidden fields of a form.
fn hidden_fields(form: &str) -> Vec<(String, String)> {
    let inputs = form.split("<input").skip(1).map(|rest| rest.split('>').next().unwrap());
    let hidden = inputs.filter(|input| input.contains("type=\"hidden\""));
    hidden.map(|input| (attribute(input, "name"), attribute(input, "value"))).collect()
}

/// What an attribute of a tag says.
pub(super) fn attribute(tag: &str, name: &str) -> String {
    let begin = format!(" {name}=\"");
    let Some(at) = tag.find(&begin) else { return String::new() };
    let value = tag[at + begin.len()..].split('"').next().unwrap();
    value.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// The tag of a page that has this id.
pub(super) fn tag<'p>(page: &'p str, id: &str) -> &'p str {
    let at = page.find(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("no {id} in {page}"));
    let begin = page[..at].rfind('<').unwrap();
    let end = at + page[at..].find('>').unwrap();
    &page[begin..end]
}

pub(super) fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let escape = |byte: u8| {
        if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(escape).collect()
}
