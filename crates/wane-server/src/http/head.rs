//! What is checked of the head of every request before anything else looks at it.

use axum::extract::Request;
use axum::http::Version;
use axum::http::header::HOST;

use super::problem::Problem;

/// The longest path with its query. Two keys of 1,024 bytes, all of them escaped, are below 8 KiB.
const LONGEST_TARGET: usize = 8 << 10;

/// Refuses a target that is too long, and a request of HTTP/1.1 that does not name one host.
pub(super) fn check(request: &Request) -> Result<(), Problem> {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    if target > LONGEST_TARGET {
        return Err(Problem::target_too_long(LONGEST_TARGET));
    }
    let hosts = request.headers().get_all(HOST).iter().count();
    if request.version() == Version::HTTP_11 && hosts != 1 {
        return Err(Problem::invalid("Host", "name one host in one header"));
    }
    Ok(())
}
