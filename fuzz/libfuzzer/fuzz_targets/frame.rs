//! The target `frame` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wane_fuzz::targets::frame::target(bytes));
