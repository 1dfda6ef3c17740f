//! libFuzzer's face of [`oncekey_fuzz::config`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| oncekey_fuzz::config::check(data));
