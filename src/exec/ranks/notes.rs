//! Notes of the ranks' drivers for the report.

use crate::exec::{ExecError, Session};

use super::Ranks;

impl Ranks {
    /// Notes of all drivers, each with its rank; without ranks if all drivers have the same notes.
    pub fn notes(&self) -> Result<Vec<String>, ExecError> {
        self.merge_notes(Ok(self.sessions.iter().map(Session::notes).collect()))
    }

    /// Determines by a test, one rank after the other, whether copy engines or kernels execute the copies, and returns notes
    /// like [`Ranks::notes`]. The test overwrites buffers and may leave the device slower, so it ends a session.
    pub fn infer_copy_units(&mut self) -> Result<Vec<String>, ExecError> {
        let notes = self.sessions.iter_mut().map(Session::infer_copy_units).collect();
        self.merge_notes(notes)
    }

    /// Notes of all ranks, given those of each rank of this process.
    fn merge_notes(&self, of_sessions: Result<Vec<Vec<String>>, ExecError>) -> Result<Vec<String>, ExecError> {
        let notes: Vec<Vec<String>> = self.agree("notes", of_sessions)?.into_iter().flatten().collect();
        if notes.windows(2).all(|pair| pair[0] == pair[1]) {
            return Ok(notes.into_iter().next().unwrap_or_default());
        }
        let numbered = notes.into_iter().zip(&self.numbers);
        let named = |(notes, rank): (Vec<String>, &u32)| {
            let rank = *rank;
            notes.into_iter().map(move |note| format!("rank {rank}: {note}"))
        };
        Ok(numbered.flat_map(named).collect())
    }
}
