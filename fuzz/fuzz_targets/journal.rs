//! libFuzzer's face of [`oncekey_fuzz::journal`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| oncekey_fuzz::journal::check(data));
