//! libFuzzer's face of [`oncekey_fuzz::log`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| oncekey_fuzz::log::check(data));
