//! Contents of memory after a round of iterations.

use crate::base::MemoryId;
use crate::exec::{self, Backend, Control, ExecError, LaunchMode, RankSchedule};
use crate::model::MemoryKind;

/// Bytes of each buffer.
pub type BufferContents = Vec<(MemoryId, Vec<u8>)>;

/// Runs one round of the period on `backend` and returns the buffers of every rank; those of ranks in other processes
/// are empty. `None` if the run was stopped.
pub fn buffers(
    ranks: &[RankSchedule],
    backend: &dyn Backend,
    options: &exec::SessionOptions,
    control: &Control,
) -> Result<Option<Vec<BufferContents>>, ExecError> {
    let mut session = exec::prepare_ranks(ranks, backend, options)?;
    // Nothing is timed here, and the first launches of a library would wait at the gate.
    session.set_gate(false);
    let period = ranks.iter().map(|rank| rank.schedule.period.len()).max().unwrap_or(0) as u64;
    if session.iterate(LaunchMode::Stream, 0, period, control)?.slowest.stopped {
        return Ok(None);
    }
    session.tear_down(control)?;
    let mut read = || {
        let mut all = Vec::with_capacity(ranks.len());
        for (index, rank) in ranks.iter().enumerate() {
            let mut buffers = Vec::new();
            for memory in (0..rank.program.memories.len()).map(MemoryId::from) {
                if let MemoryKind::Buffer(_) = rank.program.memory(memory).kind
                    && let Some(bytes) = session.read(index, memory)?
                {
                    buffers.push((memory, bytes));
                }
            }
            all.push(buffers);
        }
        Ok(all)
    };
    let all = read();
    session.agree("buffers", all.as_ref().map(|_| ()).map_err(ExecError::clone))?;
    all.map(Some)
}
