//! libFuzzer's face of [`oncekey_fuzz::multipart`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| oncekey_fuzz::multipart::check(data));
