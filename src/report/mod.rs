//! What people and tools read. A record, a plan or a stage as text: siblings that know nothing of each other. Forms of a
//! record need nothing but the record, forms of a plan nothing but its document.

mod ab;
mod analysis;
mod cases_csv;
mod chrome_trace;
pub mod compare;
mod csv;
mod curve;
pub mod dump;
mod expected;
mod markdown;
mod npy;
mod operations;
pub mod plan;
mod ranks;
mod search;
mod slots;
pub mod suite;
mod sweep;
mod table;
mod verification;
mod xml;

pub use ab::ab;
pub use analysis::top;
pub use cases_csv::cases_csv;
pub use chrome_trace::chrome_trace;
pub use csv::csv;
pub use expected::expected;
pub use npy::npy;
pub use search::{Searched, cost, search};
pub use sweep::sweep;
pub use table::table;
