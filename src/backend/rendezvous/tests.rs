//! Tests of thread interleavings within one process that an ordinary run cannot force.

use std::thread;

use crate::base::threads::lock;
use crate::exec::gather;

use super::*;

/// Every rank reports the first rank that was lost, even if rank 0 ends before its detecting thread has notified the
/// others.
#[test]
fn every_rank_reports_the_first_lost_rank() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let place = |rank| JoinOptions {
        rank,
        world: 3,
        transport: Transport::Host { folder: folder.path().join("run"), advice: String::new() },
        job: "a test".to_owned(),
        timeout: Duration::from_secs(30),
        stall: Duration::from_secs(30),
    };
    let join = |rank| Rendezvous::join(&place(rank), Box::new(|_| {})).expect("all come");
    let heard = thread::scope(|scope| {
        let others = [1, 2].map(|rank| scope.spawn(move || (rank, gather(&join(rank), "numbers", &rank))));
        let first = join(0);
        lock(&first.shared.state).lost = Some((2, "its process ended".to_owned()));
        first.leave(Some("a rank is gone"));
        others.map(|other| other.join().expect("it only waits"))
    });
    for (rank, all) in heard {
        let error = all.expect_err("rank 0 has left").to_string();
        assert_eq!(error, "rank 2 was lost: its process ended", "on rank {rank}");
    }
}
