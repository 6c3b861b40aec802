//! Problems as XML, which a server with the profile `icom` tells those of streams in.
//!
//! Two elements of them are looked for. Text in XML has no `<` of its own, so that the first one behind
//! an element's beginning ends it.

use hyper::HeaderMap;
use hyper::header::CONTENT_TYPE;

use super::exchange::ProblemForm;

/// The problem in the body, if it is one in XML that has a code.
pub(super) fn read(headers: &HeaderMap, body: &[u8]) -> Option<ProblemForm> {
    let media_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    if !media_type.starts_with("application/problem+xml") {
        return None;
    }
    let xml = std::str::from_utf8(body).ok()?;
    let detail = element(xml, "<detail>").unwrap_or_default();
    Some(ProblemForm::plain(&element(xml, "<code>")?, detail))
}

fn element(xml: &str, begin: &str) -> Option<String> {
    let (_, rest) = xml.split_once(begin)?;
    let (text, _) = rest.split_once('<')?;
    let plain = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    // Last: what it was escaped from may look like another one.
    Some(plain.replace("&apos;", "'").replace("&#13;", "\r").replace("&amp;", "&"))
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;
    use crate::client::ClientError;

    fn told(media_type: &'static str, body: &str) -> Option<ClientError> {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media_type))]);
        read(&headers, body.as_bytes()).map(|form| form.meaning(410, None))
    }

    #[test]
    fn code_and_detail_are_taken_from_their_elements() {
        let body = "<?xml version=\"1.0\"?>\n<problem xmlns=\"urn:ietf:rfc:7807\"><code>gone</code>\
                    <detail>&lt;a&gt; &amp;lt; &quot;b&apos;&#13;</detail></problem>";
        let Some(ClientError::Problem { code, detail, .. }) = told("application/problem+xml", body)
        else {
            panic!("no problem");
        };
        assert_eq!((&*code, &*detail), ("gone", "<a> &lt; \"b'\r"));
        assert!(told("application/xml", body).is_none(), "another type");
        assert!(told("application/problem+xml", "<problem/>").is_none(), "no code");
        assert!(told("application/problem+xml", "<problem><code>gone").is_none(), "cut off");
    }
}
