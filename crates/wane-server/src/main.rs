//! The `wane` binary: arguments in, exit code out.

fn main() {
    println!("wane {}", env!("CARGO_PKG_VERSION"));
}
