//! Runs in which the generated kernels of chosen operations report on which compute units their blocks run.

use crate::base::{DType, OpId, Space};
use crate::exec::prepare::image::{StepCommands, StepLaunch};
use crate::exec::ranks::prepare_with;
use crate::exec::run::session::device;
use crate::exec::{
    Address, Backend, Control, ExecError, Fill, Image, LaunchMode, LoweredSpec, RankSchedule, Session, SessionOptions,
};
use crate::ops::init::Init;
use crate::ops::unit_report::{COUNTERS, reporting};

use super::counters::UnitBlocks;

/// Alignment of a report in bytes.
const ALIGN: u64 = 256;

/// Runs a program of one rank on streams, until the first iteration of the second period. Returns for each chosen operation of
/// the first slot the compute units that ran its blocks in this last iteration, in increasing order of their numbers. The list
/// is empty if no generated kernel ran for the operation, or if the run was stopped.
pub fn unit_reports(
    rank: RankSchedule,
    backend: &dyn Backend,
    options: &SessionOptions,
    chosen: &[OpId],
    control: &Control,
) -> Result<Vec<Vec<UnitBlocks>>, ExecError> {
    let mut reports = Vec::new();
    let mut ranks = prepare_with(&[rank], backend, options, |_, image, commands| {
        reports = chosen.iter().map(|&op| add_report(image, &commands.period[0], op)).collect();
    })?;
    let run = |session: &mut Session| {
        let counted = session.report_units(&reports, control);
        counted.map_err(|error| session.explained(error, 0, control))
    };
    let (_, counted) = ranks.each_or_none("compute units", control, run, |_| ())?;
    Ok(counted.into_iter().flatten().next().unwrap_or_default())
}

/// Makes the kernels of an operation report to counters after the end of an image's device memory. Returns their
/// address; `None` if the operation has no generated kernel.
fn add_report(image: &mut Image, step: &StepCommands, chosen: OpId) -> Option<Address> {
    let (StepLaunch { op: number, .. }, _) = step.launches().zip(&step.ops).find(|(_, op)| **op == chosen)?;
    let op = image.ops[number as usize];
    let work = &image.works[op.work as usize];
    let operand = u8::try_from(image.operands(&op).len()).ok()?;
    let launches = reporting(&work.launches, operand)?.into();
    let work = LoweredSpec { launches, ..work.clone() };
    let offset = image.bytes[0].next_multiple_of(ALIGN);
    let at = Address { space: Space::Device, offset };
    let fill = Fill { space: at.space, offset, dtype: DType::I32, elements: COUNTERS, init: Init::Zeros };
    image.bytes[0] = offset + COUNTERS * DType::I32.size();
    image.fills.push(fill);
    image.works.push(work);
    let op = &mut image.ops[number as usize];
    (op.work, op.report) = (image.works.len() as u32 - 1, Some(at));
    Some(at)
}

impl Session {
    fn report_units(
        &mut self,
        reports: &[Option<Address>],
        control: &Control,
    ) -> Result<Vec<Vec<UnitBlocks>>, ExecError> {
        self.set_up(control)?;
        self.begin();
        let mut before = Vec::new();
        // The gate holds only the last iteration, since libraries load code in the earlier ones.
        let last = self.period() as u64;
        for iteration in 0..=last {
            if !self.stopping.may_begin(iteration, control.stopped()) {
                return Ok(Vec::new());
            }
            if iteration == last {
                before = self.read_reports(reports)?;
            }
            self.lead_in(LaunchMode::Stream, iteration, None, iteration == last)?;
            self.issue(LaunchMode::Stream, iteration, None, (1, None))?;
            if self.retire(LaunchMode::Stream, iteration, control)?.is_none() {
                return Ok(Vec::new());
            }
        }
        let after = self.read_reports(reports)?;
        let units = |(before, after): (&Vec<u32>, &Vec<u32>)| {
            let blocks = before.iter().zip(after).map(|(before, after)| after.wrapping_sub(*before));
            (0..)
                .zip(blocks)
                .filter(|(_, blocks)| *blocks > 0)
                .map(|(unit, blocks)| UnitBlocks { unit, blocks })
                .collect()
        };
        Ok(before.iter().zip(&after).map(units).collect())
    }

    /// Returns the counters of each report; an empty list for an operation that does not report, or without memory.
    fn read_reports(&mut self, reports: &[Option<Address>]) -> Result<Vec<Vec<u32>>, ExecError> {
        let mut bytes = vec![0; (COUNTERS * DType::I32.size()) as usize];
        let mut read = |report: &Option<Address>| {
            let Some(at) = report else { return Ok(Vec::new()) };
            if !self.driver.read(at.space, at.offset, &mut bytes).map_err(device)? {
                return Ok(Vec::new());
            }
            Ok(bytes.as_chunks().0.iter().map(|count| u32::from_le_bytes(*count)).collect())
        };
        reports.iter().map(&mut read).collect()
    }
}
