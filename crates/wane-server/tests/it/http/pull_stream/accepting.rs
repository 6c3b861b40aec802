//! What readers accept: the form they get, and 406 that changes nothing.

use super::{ISPB, Streams, start};

/// One message, or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    One,
    Several,
    None,
}

#[test]
fn a_reader_gets_the_form_that_it_likes_best() {
    use Form::{None, One, Several};
    let streams = Streams::new();
    let mut pulled = streams.pull(&start(ISPB), &[]);
    assert!(pulled.messages.is_empty());
    #[rustfmt::skip]
    let cases: [(&[&str], Form); 27] = [
        (&[], One),
        (&["accept: */*"], One),
        (&["accept: application/*"], One),
        (&["accept: application/xml"], One),
        (&["accept: Application/XML"], One),
        (&["accept: application/xml;q=0.001"], One),
        (&["accept: multipart/mixed"], Several),
        (&["accept: multipart/*"], Several),
        (&["accept: application/xml, multipart/mixed"], Several),
        (&["accept: multipart/mixed, application/xml"], Several),
        (&["accept: application/xml", "accept: multipart/mixed"], Several),
        (&["accept: text/html", "accept: multipart/mixed"], Several),
        (&["accept: application/xml;q=0.9, multipart/mixed;q=0.8"], One),
        (&["accept: application/xml;q=0.8, multipart/mixed;q=0.9"], Several),
        (&["accept: text/html,*/*;q=0.1"], One),
        (&["accept: multipart/mixed;q=0, application/xml"], One),
        (&["accept: application/xml;q=0, multipart/mixed"], Several),
        (&["accept: application/xml;q=0"], None),
        (&["accept: multipart/mixed;q=0.0"], None),
        (&["accept: */*;q=0"], None),
        (&["accept: text/html"], None),
        (&["accept: application/json"], None),
        (&["accept: text/xml"], None),
        (&["accept: text/*"], None),
        (&["accept: multipart/form-data"], None),
        (&["accept: application/xml;q=0, multipart/mixed;q=0"], None),
        (&["accept: application/xmlx"], None),
    ];
    for (headers, form) in cases {
        streams.push_numbers(0..2);
        let before = streams.standing();
        if form == None {
            for path in [&start(ISPB), &pulled.next] {
                let refused = streams.ask("GET", path, headers);
                assert_eq!(refused.problem(), (406, "not_acceptable".into()), "{headers:?}");
            }
            assert_eq!(streams.standing(), before, "{headers:?}");
            pulled = streams.after(&pulled);
        } else {
            pulled = streams.pull(&pulled.next, headers);
            let count = if form == One { 1 } else { 2 };
            assert_eq!(pulled.messages.len(), count, "{headers:?}");
        }
        while !pulled.messages.is_empty() {
            pulled = streams.after(&pulled);
        }
    }
}

#[test]
fn a_body_is_compressed_for_those_who_can_read_it() {
    let streams = Streams::new();
    let mut pulled = streams.pull(&start(ISPB), &[]);
    for (headers, gzipped) in [
        (&[][..], false),
        (&["accept-encoding: gzip"], true),
        (&["accept-encoding: GZIP"], true),
        (&["accept-encoding: deflate, gzip;q=0.5"], true),
        (&["accept-encoding: br, gzip"], true),
        (&["accept-encoding: br", "accept-encoding: gzip"], true),
        (&["accept-encoding: gzip;q=0"], false),
        (&["accept-encoding: identity"], false),
        (&["accept-encoding: br, deflate"], false),
        (&["accept-encoding: "], false),
    ] {
        for form in ["accept: application/xml", "accept: multipart/mixed"] {
            streams.push_numbers(0..1);
            pulled = streams.pull(&pulled.next, &[headers, &[form]].concat());
            let encoded = pulled.reply.header("content-encoding");
            assert_eq!(encoded, gzipped.then_some("gzip"), "{headers:?} {form}");
            assert_eq!(pulled.messages[0].bytes, super::message(0));
        }
    }
}

#[test]
fn methods_that_are_not_there_are_refused_and_change_nothing() {
    let streams = Streams::new();
    streams.push_numbers(0..2);
    let pulled = streams.pull(&start(ISPB), &[]);
    let before = streams.standing();
    for method in ["HEAD", "POST", "PUT", "PATCH", "OPTIONS"] {
        for path in [&start(ISPB), &pulled.next] {
            let refused = streams.ask(method, path, &[]);
            assert_eq!(refused.status, 405, "{method} {path}");
            assert!(refused.header("allow").unwrap().contains("GET"), "{}", refused.head);
            assert_eq!(refused.header("pi-pull-next"), None);
        }
    }
    let inbox = super::inbox(ISPB);
    for method in ["GET", "HEAD", "PUT", "DELETE"] {
        let call = super::Call::new(method, &inbox).key(&streams.producer);
        let refused = call.send(streams.server.http);
        assert_eq!((refused.status, refused.header("allow")), (405, Some("POST")), "{method}");
    }
    assert_eq!(streams.standing(), before);
}
