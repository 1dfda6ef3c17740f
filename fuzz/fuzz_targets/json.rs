//! libFuzzer's face of [`oncekey_fuzz::json`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| oncekey_fuzz::json::check(data));
