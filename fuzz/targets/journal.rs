#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aorta_fuzz::targets::journal(data));
