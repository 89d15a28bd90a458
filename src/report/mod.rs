//! What people and tools read. A record, a plan or a stage as text: siblings that know nothing of each other. Forms of a
//! record need nothing but the record, forms of a plan nothing but its document.

mod analysis;
mod chrome_trace;
pub mod compare;
mod csv;
pub mod dump;
mod npy;
pub mod plan;
mod ranks;
mod table;

pub use analysis::top;
pub use chrome_trace::chrome_trace;
pub use csv::csv;
pub use npy::npy;
pub use table::table;
