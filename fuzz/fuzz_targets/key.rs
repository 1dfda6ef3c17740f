//! libFuzzer's face of [`oncekey_fuzz::key`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| oncekey_fuzz::key::check(data));
