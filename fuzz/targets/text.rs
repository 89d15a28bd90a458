#![no_main]

use aorta_fuzz::{properties, text};

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::text(&text(data)));
