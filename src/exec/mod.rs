//! Lowers schedules to images, opens them on a backend, and runs iterations as streams or graphs.
//!
//! The code is the same for GPUs, the CPU and the simulator, which differ only in their implementations of [`Backend`]
//! and [`Driver`].

mod aftermath;
mod capture;
mod clock;
mod constant;
mod control;
pub mod counters;
mod counting;
mod diagnose;
mod driver;
mod error;
mod gate;
mod hang;
mod health;
mod image;
mod inspect;
mod observe;
mod peers;
mod prepare;
mod queues;
mod rank_schedule;
mod ranks;
mod recorded;
pub mod records;
mod samples;
mod session;
mod stopping;
mod timer;
mod trace;
mod unit_reports;
mod watchdog;
mod witness;

pub use constant::Constant;
pub use control::Control;
pub use diagnose::Diagnosis;
pub use driver::{Backend, DeviceInfo, Driver, Fault, Issued, LaneCompletion, Repeat};
pub use error::ExecError;
pub use health::{Health, Sensors};
pub use image::{Address, Comm, Fill, Image, ImageOp, LoweredSpec, NO_COMM, NO_CROSSING, check_peers};
pub use inspect::{Inspected, Inspection, Launched, MatchBy, inspect};
pub use observe::Observation;
pub use peers::{MAX_MESSAGE, Peers, agree, gather};
pub use prepare::{SessionOptions, prepare};
pub use queues::QueueMapping;
pub use rank_schedule::RankSchedule;
pub use ranks::{RankSamples, Ranks, prepare_ranks};
pub use recorded::ObservedBy;
pub use samples::Samples;
pub use session::{LaunchMode, Session};
pub use timer::Timer;
pub use trace::{KernelLaunch, Moment, Span, Trace, TracedLaunch};
pub use unit_reports::unit_reports;
pub use watchdog::CommMonitor;
pub use witness::{CheckedDependency, Witness, witness};
