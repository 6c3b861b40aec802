//! The target `backup` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wane_fuzz::targets::backup::target(bytes));
