//! Reports: a record, a plan or a compilation stage in the forms that people and tools read. The modules are
//! independent of each other. Reports of a run need only the record, and forms of a plan only its document.

mod ab;
mod analysis;
mod cases;
mod cases_csv;
mod chrome_trace;
pub mod compare;
mod csv;
mod curve;
pub mod dump;
mod expected;
mod npy;
mod operations;
pub mod page;
pub mod plan;
mod ranks;
mod run;
mod search;
mod slots;
mod suite;
mod sweep;
mod variant;
mod verification;

pub use ab::ab;
pub use analysis::top;
pub use cases_csv::cases_csv;
pub use chrome_trace::chrome_trace;
pub use csv::csv;
pub use expected::expected;
pub use npy::npy;
pub use run::run;
pub use search::{Searched, search};
pub use suite::{Suite, suite};
pub use sweep::sweep;
