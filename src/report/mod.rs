//! A record as bytes. Siblings that know nothing of each other, and need nothing but the record; and tensors as files.

mod chrome_trace;
mod csv;
mod npy;
mod table;

pub use chrome_trace::chrome_trace;
pub use csv::csv;
pub use npy::npy;
pub use table::table;
