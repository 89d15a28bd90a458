#![no_main]

use aorta_fuzz::records;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    records::show_cases(&records::text(data, &records::JOURNALS));
});
