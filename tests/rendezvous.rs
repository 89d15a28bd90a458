//! How the processes of a run connect and exchange data; here each is a thread.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use aorta::backend::rendezvous::{JoinOptions, LostRankHandler, Rendezvous, Secret, Transport};
use aorta::exec::{ExecError, RankProcesses, agree, gather};

/// A free port followed by free ones, since tests and other programs run concurrently.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 5_000 + (std::process::id() % 20) as u16 * 320;
    first + NEXT.fetch_add(1, Ordering::Relaxed) * 20
}

fn network(port: u16) -> Transport {
    let secret = Secret::new(b"the secret of the tests").expect("it is long enough");
    Transport::Network { address: "127.0.0.1".to_owned(), port, secret }
}

fn place_by(transport: Transport, rank: u32, world: u32) -> JoinOptions {
    let (timeout, stall) = (Duration::from_secs(30), Duration::from_secs(600));
    JoinOptions { rank, world, transport, job: format!("a test of {}", std::process::id()), timeout, stall }
}

fn place(rank: u32, world: u32, port: u16) -> JoinOptions {
    place_by(network(port), rank, world)
}

fn no_rescue() -> LostRankHandler {
    Box::new(|_| {})
}

fn join(place: &JoinOptions) -> Result<Rendezvous, ExecError> {
    Rendezvous::join(place, no_rescue())
}

/// Runs `work` on each rank of a world, which connects over the network or on one host.
fn on_each_by<T: Send>(transport: Transport, world: u32, work: impl Fn(u32, Rendezvous) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let start = |rank: u32| {
            let (work, place) = (&work, place_by(transport.clone(), rank, world));
            scope.spawn(move || work(rank, join(&place).unwrap_or_else(|error| panic!("{error}"))))
        };
        let threads: Vec<_> = (0..world).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}

fn on_each<T: Send>(world: u32, work: impl Fn(u32, Rendezvous) -> T + Sync) -> Vec<T> {
    on_each_by(network(port()), world, work)
}

#[test]
fn all_ranks_receive_all_messages_in_rank_order() {
    let heard = on_each(5, |rank, peers| {
        let mut all = Vec::new();
        for turn in 0..20u32 {
            // Ranks with higher numbers send more; rank 0 sends nothing.
            let own = vec![rank * 1000 + turn; rank as usize * 4000];
            all.push(gather(&peers, "numbers", &own).expect("all are there"));
        }
        peers.leave(None);
        all
    });
    for all in &heard {
        assert_eq!(all, &heard[0]);
        for (turn, parts) in all.iter().enumerate() {
            let lengths: Vec<usize> = parts.iter().map(Vec::len).collect();
            assert_eq!(lengths, [0, 4000, 8000, 12000, 16000]);
            assert!((1..5).all(|rank| parts[rank][0] as usize == rank * 1000 + turn));
        }
    }
}

/// Long messages are split into several frames.
#[test]
fn long_texts_arrive_whole() {
    let said = |rank: u32| (0..500_000 * (rank + 1)).map(|number| number ^ rank).collect::<Vec<u32>>();
    let heard = on_each(3, |_, peers| {
        let all = gather(&peers, "numbers", &said(peers.rank())).expect("all are there");
        peers.leave(None);
        all
    });
    let expected: Vec<Vec<u32>> = (0..3).map(said).collect();
    assert!(heard.iter().all(|all| *all == expected));
}

#[test]
fn a_world_of_one_needs_nobody() {
    let peers = join(&place(0, 1, 1)).expect("it listens nowhere");
    assert_eq!(gather(&peers, "a number", &7).expect("it is alone"), [7]);
    assert_eq!((peers.rank(), peers.world()), (0, 1));
    peers.leave(None);
}

#[test]
fn one_rank_s_failure_ends_all() {
    let told = on_each(3, |rank, peers| {
        let own = match rank {
            0 => Err(ExecError::Ended),
            1 => Err(ExecError::Device { fault: "`launch` returned 700".to_owned(), help: None }),
            _ => Ok(rank),
        };
        let first =
            agree(Some(&peers as &dyn RankProcesses), "iterations", own).expect_err("one has failed").to_string();
        // All continue together if all agree.
        let then = agree(Some(&peers as &dyn RankProcesses), "graphs", Ok(rank)).expect("all are there");
        peers.leave(None);
        (first, then)
    });
    for (first, then) in told {
        assert_eq!(first, "rank 1: `launch` returned 700");
        assert_eq!(then, [0, 1, 2]);
    }
}

/// Shows that a thread has been woken, without a clock.
fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        thread::yield_now();
    }
}

#[test]
fn a_failure_wakes_those_that_are_under_way() {
    let failing = |failing: u32| {
        let told = on_each(3, |rank, peers| {
            let flag = Arc::new(AtomicBool::new(false));
            peers.watch(Some(flag.clone()));
            let own = match rank == failing {
                true => Err(ExecError::Died { rank: 1, why: "it had enough".to_owned() }),
                false => {
                    wait_for(&flag);
                    Err(ExecError::Ended)
                }
            };
            peers.watch(None);
            let error =
                agree::<u32>(Some(&peers as &dyn RankProcesses), "iterations", own).expect_err("one has failed");
            // A wait that has ended wakes nobody later.
            let later = Arc::new(AtomicBool::new(false));
            peers.watch(Some(later.clone()));
            agree(Some(&peers as &dyn RankProcesses), "graphs", Ok(())).expect("all are there");
            peers.leave(None);
            (error.to_string(), later.load(Ordering::Relaxed))
        });
        assert_eq!(told, vec![("rank 1 died: it had enough".to_owned(), false); 3]);
    };
    failing(0);
    failing(2);
}

/// A rank that leaves, wherever the others are, is named to all of them.
#[test]
fn a_rank_that_goes_is_named() {
    for gone in 0..3 {
        let told = on_each(3, |rank, peers| {
            if rank == gone {
                match gone {
                    1 => peers.leave(Some("no such device")),
                    // As when a process ends without a message.
                    _ => drop(peers),
                }
                return Vec::new();
            }
            let flag = Arc::new(AtomicBool::new(false));
            peers.watch(Some(flag.clone()));
            wait_for(&flag);
            let error = || gather(&peers, "numbers", &rank).expect_err("one is gone").to_string();
            vec![error(), error()]
        });
        let why = if gone == 1 { "no such device" } else { "it ended without a message" };
        for (rank, errors) in (0..).zip(told).filter(|(rank, _)| *rank != gone) {
            assert_eq!(errors, vec![format!("rank {gone} was lost: {why}"); 2], "on rank {rank}");
        }
    }
}

#[test]
fn a_finished_rank_is_not_waited_for() {
    let told = on_each(2, |rank, peers| match rank {
        1 => {
            peers.leave(None);
            String::new()
        }
        _ => gather(&peers, "outputs", &rank).expect_err("the other is through").to_string(),
    });
    assert_eq!(told[0], "rank 1 was lost: it ended while other ranks were still in the phase `outputs`");
}

#[test]
fn places_that_differ_are_a_bug_and_no_hang() {
    let told = on_each(2, |rank, peers| {
        let what = ["graphs", "iterations"][rank as usize];
        let error = gather(&peers, what, &rank).expect_err("they are at different places").to_string();
        peers.leave(Some("that"));
        error
    });
    assert!(told[0].contains("it is in the phase `iterations`, and this process is in `graphs`"), "{}", told[0]);
}

/// A thread stuck elsewhere is ended from outside.
#[test]
fn a_thread_that_never_returns_is_abandoned() {
    if !crate::common::effort::is_due() {
        return;
    }
    let (port, rescued) = (port(), Arc::new(Mutex::new(Vec::new())));
    let told = rescued.clone();
    let other = thread::spawn(move || drop(join(&place(1, 2, port)).expect("rank 0 is there")));
    let rescue: LostRankHandler =
        Box::new(move |error| told.lock().expect("nothing panics with it").push(error.to_string()));
    let peers = Rendezvous::join(&place(0, 2, port), rescue).expect("rank 1 comes");
    other.join().expect("it only leaves");
    while rescued.lock().expect("nothing panics with it").is_empty() {
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(*rescued.lock().expect("nothing panics with it"), ["rank 1 was lost: it ended without a message"]);
    drop(peers);
}

#[test]
fn missing_ranks_are_named() {
    let port = port();
    let short = |rank| JoinOptions { timeout: Duration::from_secs(2), ..place(rank, 4, port) };
    let other = thread::spawn({
        let place = short(2);
        move || join(&place).err().expect("not all come").to_string()
    });
    let error = join(&short(0)).err().expect("two do not come");
    let ExecError::Rendezvous { why, help } = &error else { panic!("{error}") };
    assert_eq!(why, "ranks 1, 3 of 4 did not connect within 2s");
    assert!(help.contains(&format!("127.0.0.1 on the first of the ports {port} to {}", port + 15)), "{help}");
    let told = other.join().expect("it only waits");
    assert!(told.contains("rank 0 started, but ended before all ranks had connected"), "{told}");
}

#[test]
fn an_unreachable_rank_0_is_reported() {
    let port = port();
    let error =
        join(&JoinOptions { timeout: Duration::from_millis(100), ..place(1, 2, port) }).err().expect("nobody is there");
    let told =
        "the ranks did not find each other: rank 1 did not find rank 0 at 127.0.0.1 within 100ms: nobody listens";
    assert_eq!(error.to_string(), told);
    let Transport::Network { secret, .. } = network(port) else { panic!("it is on a network") };
    let transport = Transport::Network { address: "no-such-host.invalid".to_owned(), port, secret };
    let nowhere = place_by(transport, 1, 2);
    let error =
        join(&JoinOptions { timeout: Duration::from_millis(100), ..nowhere }).err().expect("there is no such host");
    assert!(error.to_string().contains("the address of `no-such-host.invalid` is not known"), "{error}");
}

#[test]
fn a_rejected_process_is_told_why() {
    if !crate::common::effort::is_due() {
        return;
    }
    let port = port();
    let first = thread::spawn(move || {
        join(&JoinOptions { timeout: Duration::from_secs(12), ..place(0, 3, port) })
            .err()
            .expect("not all come")
            .to_string()
    });
    let error = |place: JoinOptions| join(&place).err().expect("there is no place for it").to_string();
    let told = error(place(1, 4, port));
    assert!(told.ends_with("rank 0 refused: rank 1 expects 4 ranks, and rank 0 expects 3"), "{told}");
    for rank in [3, 4, u32::MAX] {
        let told = error(place(rank, 3, port));
        assert!(told.ends_with(&format!("rank 0 refused: there is no rank {rank} among 3")), "{told}");
    }
    let twins = [(); 2].map(|()| thread::spawn(move || error(place(1, 3, port))));
    // Another run tries to connect, and finds nobody.
    let job = JoinOptions { job: "another".to_owned(), timeout: Duration::from_secs(2), ..place(2, 3, port) };
    let told = error(job);
    assert!(told.contains(&format!("another run listens at 127.0.0.1:{port}")), "{told}");
    let told = first.join().expect("no panic");
    assert!(told.contains("rank 2 of 3 did not connect"), "{told}");
    assert!(told.contains("refused: rank 1 expects 4 ranks, and rank 0 expects 3"), "{told}");
    let mut twins = twins.map(|twin| twin.join().expect("no panic"));
    twins.sort();
    assert!(twins[0].ends_with("rank 0 refused: two processes claim to be rank 1"), "{twins:?}");
    assert!(twins[1].contains("rank 0 started, but ended before all ranks had connected"), "{twins:?}");
}

/// Many ranks that arrive at very different times.
#[test]
fn many_come_in_any_order() {
    let barrier = Barrier::new(24);
    let heard = on_each(24, |rank, peers| {
        barrier.wait();
        let all = gather(&peers, "numbers", &rank).expect("all are there");
        peers.leave(None);
        all
    });
    assert!(heard.iter().all(|all| all.iter().copied().eq(0..24)));
}

/// On one host, the ranks of a user connect without a secret, and leave no files behind.
#[test]
fn ranks_of_one_user_meet_on_a_host() {
    let outer = tempfile::tempdir().expect("a folder can be made");
    let folder = outer.path().join("run");
    let host = Transport::Host { folder: folder.clone(), advice: "create a secret".to_owned() };
    let heard = on_each_by(host.clone(), 4, |rank, peers| {
        let all = gather(&peers, "numbers", &rank).expect("all are there");
        peers.leave(None);
        all
    });
    assert!(heard.iter().all(|all| *all == [0, 1, 2, 3]));
    assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), 0, "the socket is gone");
    // A socket left by a killed process is no obstacle.
    let path = {
        let waiting = thread::spawn({
            let place = JoinOptions { timeout: Duration::from_secs(2), ..place_by(host.clone(), 0, 2) };
            move || join(&place).err().expect("nobody comes").to_string()
        });
        let path = loop {
            let found = std::fs::read_dir(&folder).expect("it is there").flatten().next();
            if let Some(found) = found {
                break found.path();
            }
            thread::yield_now();
        };
        assert!(waiting.join().expect("no panic").contains("rank 1 of 2 did not connect within 2s"));
        path
    };
    drop(std::os::unix::net::UnixListener::bind(&path).expect("the path is free"));
    assert!(path.exists());
    let met = on_each_by(host.clone(), 2, |_, peers| peers.leave(None));
    assert_eq!(met.len(), 2);
    // A second rank 0 of the same name is rejected, and so is a folder that other users can access.
    let first = thread::spawn({
        let place = place_by(host.clone(), 0, 2);
        move || join(&place).expect("rank 1 comes").leave(None)
    });
    while std::fs::read_dir(&folder).expect("it is there").count() == 0 {
        thread::yield_now();
    }
    let second = join(&place_by(host.clone(), 0, 2)).err().expect("there is one").to_string();
    assert!(second.contains("a rank 0 has already connected"), "{second}");
    join(&place_by(host.clone(), 1, 2)).expect("rank 0 is there").leave(None);
    first.join().expect("no panic");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    for rank in 0..2 {
        let place = JoinOptions { timeout: Duration::from_millis(100), ..place_by(host.clone(), rank, 2) };
        let error = join(&place).err().expect("the folder is open");
        assert!(error.to_string().contains("is not a folder that only this user can enter"), "{error}");
        assert!(matches!(error, ExecError::Rendezvous { help, .. } if help == "create a secret"));
    }
}

/// A rank that is alive but makes no progress is named by all others, with the last point that it reached, and ended.
#[test]
fn a_rank_that_makes_no_progress_is_named() {
    if !crate::common::effort::is_due() {
        return;
    }
    for stuck in [0, 2] {
        let rescued = Arc::new(Mutex::new(None));
        let folder = tempfile::tempdir().expect("a folder can be made");
        let told = thread::scope(|scope| {
            let start = |rank: u32| {
                let transport = Transport::Host { folder: folder.path().join("run"), advice: String::new() };
                let place = JoinOptions { stall: Duration::from_secs(2), ..place_by(transport, rank, 3) };
                let rescued = rescued.clone();
                scope.spawn(move || {
                    let (ended, end) = std::sync::mpsc::channel();
                    let rescue: LostRankHandler = Box::new(move |error| drop(ended.send(error.to_string())));
                    let peers = Rendezvous::join(&place, rescue).expect("all come");
                    gather(&peers, "devices", &rank).expect("all are there");
                    if rank == stuck {
                        // Its other threads go on.
                        *rescued.lock().expect("nothing panics with it") = end.recv().ok();
                        return String::new();
                    }
                    let error = gather(&peers, "iterations", &rank).expect_err("one does not come").to_string();
                    peers.leave(Some("it has lost another rank"));
                    error
                })
            };
            let threads: Vec<_> = (0..3).map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect::<Vec<_>>()
        });
        let why = format!(
            "rank {stuck} was lost: it is alive and has made no progress for 2 s since its devices, while other ranks \
             wait for it in the phase `iterations`; `--config stall=…` changes how long that may take"
        );
        for (rank, told) in told.iter().enumerate().filter(|(rank, _)| *rank != stuck as usize) {
            assert_eq!(*told, why, "on rank {rank}");
        }
        assert_eq!(rescued.lock().expect("nothing panics with it").as_deref(), Some(why.as_str()));
    }
}

/// A rank that makes progress is waited for, however long it takes.
#[test]
fn a_rank_that_makes_progress_is_waited_for() {
    if !crate::common::effort::is_due() {
        return;
    }
    for slow in [0, 2] {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let heard = thread::scope(|scope| {
            let start = |rank: u32| {
                let transport = Transport::Host { folder: folder.path().join("run"), advice: String::new() };
                let place = JoinOptions { stall: Duration::from_secs(2), ..place_by(transport, rank, 3) };
                scope.spawn(move || {
                    let peers = join(&place).expect("all come");
                    let done = Arc::new(AtomicU64::new(0));
                    let counted = done.clone();
                    peers.count_work(move || counted.load(Ordering::Relaxed));
                    // Three times as long as a rank may be stuck.
                    for _ in 0..if rank == slow { 60 } else { 0 } {
                        thread::sleep(Duration::from_millis(100));
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    let all = gather(&peers, "iterations", &rank).map_err(|error| error.to_string());
                    peers.leave(None);
                    all
                })
            };
            let threads: Vec<_> = (0..3).map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect::<Vec<_>>()
        });
        assert!(heard.iter().all(|all| *all == Ok(vec![0, 1, 2])), "{heard:?}");
    }
}
