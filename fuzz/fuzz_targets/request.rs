//! libFuzzer's face of [`oncekey_fuzz::request`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| oncekey_fuzz::request::check(data));
