//! libFuzzer's face of [`oncekey_fuzz::record`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| oncekey_fuzz::record::check(data));
