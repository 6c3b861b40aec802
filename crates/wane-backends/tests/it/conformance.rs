//! The contract on every backend of this crate.

use wane::conformance::run_all;

use crate::harness::file::File;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_keeps_the_contract() {
    let report = run_all(&File::new()).await;
    println!("{report}");
    report.assert_passed();
}
