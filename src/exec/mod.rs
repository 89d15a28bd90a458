//! Lowers schedules to images, opens them on a backend, and runs iterations as streams or graphs.
//!
//! The code is the same for GPUs, the CPU and the simulator, which differ only in their implementations of [`Backend`]
//! and [`Driver`].

mod driver;
mod failure;
mod observe;
mod prepare;
mod ranks;
mod run;
mod verify;

pub use driver::{Backend, DeviceInfo, Driver, Fault, Issued, LaneCompletion, Repeat};
pub use failure::constant_text::Constant;
pub use failure::diagnose::Diagnosis;
pub use failure::error::ExecError;
pub use failure::watchdog::CommMonitor;
pub use observe::trace::{KernelLaunch, Moment, Span, Trace, TracedLaunch};
pub use observe::unit_reports::unit_reports;
pub use observe::vendor_observation::ObservedBy;
pub use observe::{Observation, activity, counters};
pub use prepare::image::{Address, Comm, Fill, Image, ImageOp, LoweredSpec, NO_COMM, NO_CROSSING, check_peers};
pub use prepare::queues::QueueMapping;
pub use prepare::rank_schedule::RankSchedule;
pub use prepare::{SessionOptions, prepare};
pub use ranks::processes::{MAX_MESSAGE, RankProcesses, agree, gather};
pub use ranks::{RankSamples, Ranks, prepare_ranks};
pub use run::control::Control;
pub use run::health::{Health, Sensors};
pub use run::samples::Samples;
pub use run::session::{LaunchMode, Session};
pub use run::timer::Timer;
pub use verify::inspect::{Inspection, LaunchedOperation, MatchBy, ReferenceProgram, inspect};
pub use verify::witness::{CheckedDependency, Witness, witness};
