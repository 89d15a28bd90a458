//! A record as bytes. Siblings that know nothing of each other, and need nothing but the record.

mod chrome_trace;
mod csv;
mod table;

pub use chrome_trace::chrome_trace;
pub use csv::csv;
pub use table::table;
