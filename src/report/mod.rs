//! Reports: a record, a plan or a compilation stage in the forms that people and tools read. The modules are
//! independent of each other. Reports of a run need only the record, and forms of a plan only its document.

mod comparison;
pub mod dump;
pub mod model_cost;
pub mod page;
pub mod picture;
pub mod plan;
mod quantity;
mod run;
mod tables;
mod traces;
mod variant;
mod view;

pub use comparison::ab::ab;
pub use comparison::cases_csv::cases_csv;
pub use comparison::search::{Searched, search};
pub use comparison::suite::{SuiteReport, suite};
pub use comparison::sweep::sweep;
pub use comparison::{compare, fast_p};
pub use run::analysis::top;
pub use run::expected::expected;
pub use run::run;
pub use tables::csv::csv;
pub use tables::npy::npy;
pub use traces::chrome_trace::chrome_trace;
pub use traces::kineto::kineto;
pub use traces::pftrace::pftrace;
pub use traces::timeline::timeline;
pub use view::PageContent;
