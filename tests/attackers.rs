//! Attacks on connecting ranks. Over a network, a process without the secret cannot become a rank, change what ranks
//! receive, or keep them from connecting; on one host, neither can another user. Here each rank is a thread.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use aorta::backend::rendezvous::{JoinOptions, Rendezvous, Secret, Transport};
use aorta::exec::{ExecError, gather};

/// A free port followed by free ones that no other test uses, since tests run concurrently.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 14_000 + (std::process::id() % 8) as u16 * 1_500;
    first + NEXT.fetch_add(1, Ordering::Relaxed) * 18
}

fn place(rank: u32, world: u32, port: u16) -> JoinOptions {
    let secret = Secret::new(b"the secret of the tests").expect("it is long enough");
    let transport = Transport::Network { address: "127.0.0.1".to_owned(), port, secret };
    let (timeout, stall) = (Duration::from_secs(20), Duration::from_secs(20));
    JoinOptions { rank, world, transport, job: "a run under attack".to_owned(), timeout, stall }
}

fn within(place: JoinOptions, seconds: u64) -> JoinOptions {
    JoinOptions { timeout: Duration::from_secs(seconds), ..place }
}

/// Connects, and sends a number to all others.
fn run(place: &JoinOptions) -> Result<Vec<u32>, ExecError> {
    let peers = Rendezvous::join(place, Box::new(|_| {}))?;
    let heard = gather(&peers, "numbers", &(place.rank + 7));
    peers.leave(heard.as_ref().err().map(|_| "it has lost another rank"));
    heard
}

/// Connects to a port once somebody listens on it.
fn connected(port: u16) -> TcpStream {
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(_) => thread::yield_now(),
        }
    }
}

/// The first message of the protocol as an attacker would send it.
const OPENING: &[u8] = b"aorta\0/2 a number of thirty-two bytes......";

#[test]
fn unauthenticated_peers_cannot_interfere() {
    let port = port();
    let first = thread::spawn(move || run(&place(0, 3, port)));
    let says = |bytes: Vec<u8>| {
        let mut stream = connected(port);
        let _ = stream.write_all(&bytes);
        stream
    };
    let opening = &OPENING[..40];
    let texts = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 100_000],
        b"aorta\0/1".to_vec(),
        opening.to_vec(),
        // Lengths announced before authentication, and a rank without a proof.
        [opening, &u32::MAX.to_le_bytes()].concat(),
        [opening, &4096u32.to_le_bytes(), &[b'x'; 3000]].concat(),
        [opening, &2u32.to_le_bytes(), b"{}", &[0; 32]].concat(),
        [opening, &0u32.to_le_bytes(), &[0; 32]].concat(),
        Vec::new(),
    ];
    let held: Vec<TcpStream> = texts.into_iter().map(says).collect();
    let others = [1, 2].map(|rank| thread::spawn(move || run(&place(rank, 3, port))));
    for rank in others.into_iter().chain([first]) {
        assert_eq!(rank.join().expect("no panic").expect("all come"), [7, 8, 9]);
    }
    drop(held);
}

#[test]
fn a_process_with_another_secret_is_rejected() {
    let port = port();
    let other = move || {
        let Transport::Network { address, port, .. } = place(1, 2, port).transport else { panic!("a network") };
        let secret = Secret::new(b"the secret of the test!").expect("it is long enough");
        let place = within(place(1, 2, port), 2);
        run(&JoinOptions { transport: Transport::Network { address, port, secret }, ..place })
    };
    let other = thread::spawn(other);
    let first = run(&within(place(0, 2, port), 3)).expect_err("nobody comes").to_string();
    let other = other.join().expect("no panic").expect_err("it is no rank").to_string();
    assert_eq!(
        first,
        "the ranks did not find each other: rank 1 of 2 did not connect within 3s; connections from 127.0.0.1 did not \
         prove that they know the secret"
    );
    let told = format!(
        "within 2s: the process that listens at 127.0.0.1:{port} does not know the secret: another program uses the port, or rank \
         0 has another secret"
    );
    assert!(other.ends_with(&told), "{other}");
}

/// Another program listens on rank 0's port, and sends something, nothing, or an echo.
#[test]
fn a_port_that_somebody_has_is_named_by_all_ranks() {
    if !crate::common::effort::is_due() {
        return;
    }
    type Answer = fn(&mut TcpStream);
    let loud: Answer = |stream| drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\nrank 0 exits with 0"));
    let silent: Answer = |stream| drop(stream.read_to_end(&mut Vec::new()));
    let closed: Answer = |_| {};
    let echo: Answer = |stream| {
        let mut bytes = [0; 256];
        while let Ok(read @ 1..) = stream.read(&mut bytes) {
            // Sent twice, so that there are always enough bytes for an answer.
            let _ = stream.write_all(&[&bytes[..read], &bytes[..read]].concat());
        }
    };
    for answer in [loud, silent, closed, echo] {
        let port = port();
        let squatter = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        thread::spawn(move || {
            for mut stream in squatter.incoming().flatten() {
                thread::spawn(move || answer(&mut stream));
            }
        });
        let other = thread::spawn(move || run(&within(place(1, 2, port), 1)));
        let first = run(&place(0, 2, port)).expect_err("the port is taken");
        let other = other.join().expect("no panic").expect_err("the port is taken").to_string();
        let ExecError::Rendezvous { why, help } = &first else { panic!("{first}") };
        let taken = "another program, which is not a rank of this run, uses it";
        assert_eq!(*why, format!("rank 0 cannot listen at 127.0.0.1:{port}: {taken}"));
        assert!(help.contains("another MASTER_PORT"), "{help}");
        let told = format!("the process that listens at 127.0.0.1:{port} does not know the secret");
        assert!(other.contains(&told), "{other}");
    }
}

/// Another run of the same user has the port, so the next one is used.
#[test]
fn runs_that_know_the_same_secret_share_ports() {
    let port = port();
    let other = move |rank| JoinOptions { job: "another run".to_owned(), ..place(rank, 2, port) };
    let waiting = thread::spawn(move || run(&other(0)));
    drop(connected(port));
    let ranks = [0, 1].map(|rank| thread::spawn(move || run(&place(rank, 2, port))));
    for rank in ranks {
        assert_eq!(rank.join().expect("no panic").expect("both come"), [7, 8]);
    }
    assert_eq!(run(&other(1)).expect("its rank 0 waits"), [7, 8]);
    assert_eq!(waiting.join().expect("no panic").expect("both come"), [7, 8]);
}

#[test]
fn an_address_of_another_host_is_reported() {
    let Transport::Network { port, secret, .. } = place(0, 2, port()).transport else { panic!("a network") };
    // An address reserved for documentation, which no host has.
    let transport = Transport::Network { address: "192.0.2.7".to_owned(), port, secret };
    let error = run(&JoinOptions { transport, ..place(0, 2, port) }).expect_err("it is no address of this host");
    assert!(error.to_string().contains("192.0.2.7 is not an address of this host"), "{error}");
}

/// A proxy between two ports. `alter` gets the number of the connection, whether the bytes come from rank 0, the number
/// of bytes before, and the bytes, which it can change. It returns false to close the connection.
fn between(from: u16, to: u16, alter: impl Fn(usize, bool, usize, &mut Vec<u8>) -> bool + Send + Sync + 'static) {
    let listener = TcpListener::bind(("127.0.0.1", from)).expect("the port is free");
    let (alter, connections) = (Arc::new(alter), AtomicUsize::new(0));
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else { continue };
            let number = connections.fetch_add(1, Ordering::Relaxed);
            for is_answer in [false, true] {
                let (near, far) = (near.try_clone().expect("a handle"), far.try_clone().expect("a handle"));
                let (mut source, mut sink) = if is_answer { (far, near) } else { (near, far) };
                let alter = alter.clone();
                thread::spawn(move || {
                    let (mut passed, mut bytes) = (0, [0; 4096]);
                    while let Ok(read @ 1..) = source.read(&mut bytes) {
                        let mut part = bytes[..read].to_vec();
                        let stays = alter(number, is_answer, passed, &mut part);
                        passed += read;
                        if sink.write_all(&part).is_err() || !stays {
                            let _ = source.shutdown(Shutdown::Both);
                            break;
                        }
                    }
                    let _ = sink.shutdown(Shutdown::Both);
                });
            }
        }
    });
}

/// A flipped bit or a closed connection at any point of the handshake: ranks connect by a later attempt, or all fail
/// with an error. They never accept altered data.
#[test]
fn altered_messages_are_never_accepted() {
    // More bytes than either side sends before it has received the other's number.
    let cases: Vec<(bool, usize, bool)> = (0..2)
        .flat_map(|answer| (0..16).map(move |index| (answer == 1, index * 31 + index % 7, index % 3 == 2)))
        .collect();
    let met = Mutex::new(BTreeSet::new());
    let attack = &|(altered_answer, at, cut): (bool, usize, bool)| {
        let (near, far) = (port(), port());
        between(near, far, move |number, is_answer, passed, part| {
            let inside = (passed..passed + part.len()).contains(&at);
            if number > 0 || is_answer != altered_answer || !inside {
                return true;
            }
            if cut {
                part.truncate(at - passed);
            } else {
                part[at - passed] ^= 1 << (at % 8);
            }
            !cut
        });
        let first = thread::spawn(move || run(&within(place(0, 2, far), 3)));
        let other = run(&within(place(1, 2, near), 3));
        for heard in [first.join().expect("no panic"), other] {
            match heard {
                Ok(all) => assert_eq!(all, [7, 8], "{at} {altered_answer} {cut}"),
                Err(ExecError::Rendezvous { .. } | ExecError::LostRank { .. }) => {
                    met.lock().expect("nothing panics with it").insert("failed");
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            met.lock().expect("nothing panics with it").insert("met");
        }
    };
    // Most of the time is spent waiting.
    thread::scope(|scope| cases.into_iter().for_each(|case| drop(scope.spawn(move || attack(case)))));
    let met = met.into_inner().expect("nothing panics with it");
    assert_eq!(met.into_iter().collect::<Vec<_>>(), ["failed", "met"], "both outcomes occur");
}

/// A recorded conversation with rank 0 cannot be replayed to the next rank 0, even of a run with the same name.
#[test]
fn a_recorded_conversation_proves_nothing() {
    let (near, far) = (port(), port());
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let record = recorded.clone();
    between(near, far, move |_, is_answer, _, part| {
        if !is_answer {
            record.lock().expect("nothing panics with it").extend_from_slice(part);
        }
        true
    });
    let first = thread::spawn(move || run(&place(0, 2, far)));
    assert_eq!(run(&place(1, 2, near)).expect("both come"), [7, 8]);
    first.join().expect("no panic").expect("both come");
    let recorded = recorded.lock().expect("nothing panics with it").clone();
    assert!(recorded.len() > 200, "{} bytes", recorded.len());
    let again = port();
    let first = thread::spawn(move || run(&within(place(0, 2, again), 2)));
    let mut stream = connected(again);
    let _ = stream.write_all(&recorded);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(answer.len(), 72, "rank 0 says its number and its proof, and nothing more");
    let told = first.join().expect("no panic").expect_err("nobody comes").to_string();
    assert!(told.contains("rank 1 of 2 did not connect within 2s; connections from 127.0.0.1 did not prove"), "{told}");
}

/// The variable that gives the socket's path to [`a_process_connects_to_a_socket`].
const SOCKET: &str = "AORTA_TEST_SOCKET";

/// Not a test but a process of [`another_user_cannot_be_a_rank`], which starts it as another user. Reports whether rank
/// 0 answers.
#[test]
fn a_process_connects_to_a_socket() {
    let Some(path) = std::env::var_os(SOCKET) else { return };
    let mut stream = UnixStream::connect(path).expect("everybody may connect");
    let _ = stream.write_all(&OPENING[..40]);
    println!("answered: {}", stream.read_exact(&mut [0; 72]).is_ok());
}

/// Runs the process above as a user; returns its answer, or why it cannot be run.
fn answered(socket: &Path, user: u32) -> Result<bool, String> {
    let test = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut process = Command::new(test);
    process.args(["attackers::a_process_connects_to_a_socket", "--exact", "--nocapture"]).env(SOCKET, socket).uid(user);
    let output = process.output().map_err(|error| error.to_string())?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    match (told.contains("answered: true"), told.contains("answered: false")) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(told + &String::from_utf8_lossy(&output.stderr)),
    }
}

/// Even if another user can access the socket's folder and write to the socket, the kernel reports who connects.
#[test]
fn another_user_cannot_be_a_rank() {
    let outer = tempfile::tempdir().expect("a folder can be made");
    let folder = outer.path().join("run");
    let host = |rank| {
        let transport = Transport::Host { folder: folder.clone(), advice: String::new() };
        JoinOptions { transport, ..place(rank, 2, 1) }
    };
    let first = thread::spawn({
        let place = host(0);
        move || run(&place)
    });
    let socket = loop {
        if let Some(found) = std::fs::read_dir(&folder).into_iter().flatten().flatten().next() {
            break found.path();
        }
        thread::yield_now();
    };
    let allow = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    allow(outer.path(), 0o711);
    allow(&folder, 0o711);
    allow(&socket, 0o777);
    let own = std::fs::metadata(&folder).expect("it is there").uid();
    // Any other number is another user, with or without a name.
    match answered(&socket, own ^ 65_534) {
        Ok(answered) => assert!(!answered, "rank 0 answers another user"),
        Err(why) => println!("skipped: no process can be started as another user: {why}"),
    }
    assert_eq!(answered(&socket, own), Ok(true), "rank 0 answers its own user");
    allow(&folder, 0o700);
    let second = run(&host(1)).expect("both are of one user");
    assert_eq!((first.join().expect("no panic").expect("both come"), second), (vec![7, 8], vec![7, 8]));
}
