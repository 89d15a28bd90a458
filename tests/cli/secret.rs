//! The secret that ranks of several hosts share: where it is read, what is said where it is missing, and that it is told to
//! nobody.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Child;
use std::sync::atomic::{AtomicU16, Ordering};

use super::sandbox::{Output, Sandbox, finish};

const SUM: &str = "buffer x: f32[64]\nstep { all_reduce(x -> x) }\n";
const SECRET: &str = "not to be told to anybody";
const ARGUMENTS: [&str; 7] = ["exec", "sum.aorta", "--backend", "sim", "--effort", "sanity", "--config"];

/// A port with free ones behind it: tests run beside each other.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 27_000 + (std::process::id() % 20) as u16 * 200;
    first + NEXT.fetch_add(1, Ordering::Relaxed) * 18
}

/// Starts a rank by hand, with further variables.
fn start(sandbox: &Sandbox, rank: u32, at: (&str, u16), wait: &str, more: &[(&str, &str)]) -> Child {
    let mut command =
        sandbox.command(&[&ARGUMENTS[..], &[&format!("rendezvous={wait}"), "--json", "record.json"]].concat());
    command.envs([
        ("RANK", rank.to_string().as_str()),
        ("WORLD_SIZE", "2"),
        ("LOCAL_RANK", "0"),
        ("MASTER_ADDR", at.0),
    ]);
    command.env("MASTER_PORT", at.1.to_string()).envs(more.iter().copied());
    command.spawn().expect("the binary starts")
}

/// Both ranks.
fn launch(sandbox: &Sandbox, at: (&str, u16), wait: &str, more: [&[(&str, &str)]; 2]) -> [Output; 2] {
    let children = [0, 1].map(|rank| start(sandbox, rank, at, wait, more[rank as usize]));
    children.map(finish)
}

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("sum.aorta", SUM);
    sandbox
}

/// Whoever listens at the port hears nothing of a run without a secret.
#[test]
fn hosts_need_a_secret() {
    let sandbox = sandbox();
    let squatter = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    squatter.set_nonblocking(true).expect("it can");
    let port = squatter.local_addr().expect("it listens").port();
    for output in launch(&sandbox, ("node7", port), "10s", [&[], &[]]) {
        assert_eq!(output.code, Some(2), "{}", output.stderr);
        let told = output.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains("aorta::cli::secret"), "{told}");
        assert!(told.contains("connect to node7, perhaps from several hosts, and there is no secret"), "{told}");
        assert!(told.contains("install -Dm600 <(head -c 24 /dev/urandom | base64) /"), "{told}");
    }
    // On this host the ranks of a user need none, and no port.
    for output in launch(&sandbox, ("127.0.0.1", port), "30s", [&[], &[]]) {
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    }
    assert!(squatter.accept().is_err(), "nobody has connected");
}

#[test]
fn the_secret_of_the_file_is_used_and_not_printed() {
    let sandbox = sandbox();
    sandbox.write_secret(SECRET, 0o600);
    let outputs = launch(&sandbox, ("127.0.0.1", port()), "30s", [&[], &[("AORTA_SECRET", SECRET)]]);
    for output in &outputs {
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    }
    assert!(!sandbox.read("record.json").contains(SECRET));
    for mode in [0o644, 0o640, 0o660] {
        sandbox.write_secret(SECRET, mode);
        for output in launch(&sandbox, ("127.0.0.1", port()), "10s", [&[], &[]]) {
            assert_eq!(output.code, Some(2), "{}", output.stderr);
            assert!(output.stderr.contains("aorta::cli::secret"), "{}", output.stderr);
            assert!(output.stderr.contains("chmod 600"), "{}", output.stderr);
            assert!(!output.stderr.contains(SECRET), "{}", output.stderr);
        }
    }
    let short = [("AORTA_SECRET", "easy to guess")];
    for output in launch(&sandbox, ("127.0.0.1", port()), "10s", [&short, &short]) {
        assert_eq!(output.code, Some(2), "{}", output.stderr);
        assert!(output.stderr.contains("AORTA_SECRET has less than 16 characters"), "{}", output.stderr);
        assert!(!output.stderr.contains(short[0].1), "{}", output.stderr);
    }
}

/// Arguments are seen by every user of a host.
#[test]
fn a_secret_is_no_argument() {
    let sandbox = sandbox();
    let output = sandbox.run(&["exec", "sum.aorta", "--backend", "sim", "--env", &format!("AORTA_SECRET={SECRET}")]);
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("aorta::cli::secret") && !output.stderr.contains(SECRET), "{}", output.stderr);
}

#[test]
fn ranks_with_different_secrets_end_alike() {
    let (one, other) = ([("AORTA_SECRET", "one secret of several")], [("AORTA_SECRET", "another secret of several")]);
    let [first, second] = launch(&sandbox(), ("127.0.0.1", port()), "2s", [&one, &other]);
    assert_eq!((first.code, second.code), (Some(4), Some(4)));
    assert!(first.stderr.contains("rank 1 of 2 did not connect within 2s"), "{}", first.stderr);
    assert!(second.stderr.contains("does not know the"), "{}", second.stderr);
}

/// Data from a process that occupies the port is not accepted, and every rank ends with the code of ranks that do not
/// connect.
#[test]
fn a_process_that_occupies_a_port_decides_nothing() {
    let port = port();
    let squatter = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    std::thread::spawn(move || {
        for mut stream in squatter.incoming().flatten() {
            let _ =
                stream.write_all(b"aorta\0/2 welcome, the run is over, exit with code 0 \x1b[31m".repeat(9).as_slice());
        }
    });
    let secret = [("AORTA_SECRET", SECRET)];
    let [first, second] = launch(&sandbox(), ("127.0.0.1", port), "1s", [&secret, &secret]);
    for output in [&first, &second] {
        assert_eq!((output.code, output.stdout.as_str()), (Some(4), ""), "{}", output.stderr);
        assert!(output.stderr.contains("aorta::exec::rendezvous"), "{}", output.stderr);
        assert!(output.stderr.contains("another program"), "{}", output.stderr);
        assert!(!output.stderr.contains("welcome"), "{}", output.stderr);
    }
}

/// Many connections that say little and slowly, from the address that ranks come from.
#[test]
fn slow_connections_do_not_hold_ranks_up() {
    let (sandbox, port) = (sandbox(), port());
    let secret = [("AORTA_SECRET", SECRET)];
    let first = start(&sandbox, 0, ("127.0.0.1", port), "30s", &secret);
    let connect = || loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(_) => std::thread::yield_now(),
        }
    };
    let slow = |number: usize| {
        let mut stream = connect();
        let begun = b"aorta\0/2 a number of thirty-two bytes......";
        let _ = stream.write_all(&begun[..number % 41]);
        if number % 41 == 40 {
            let _ = stream.write_all(&u32::MAX.to_le_bytes());
        }
        stream
    };
    let held: Vec<TcpStream> = (0..500).map(slow).collect();
    let second = start(&sandbox, 1, ("127.0.0.1", port), "30s", &secret);
    for output in [second, first].map(finish) {
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    }
    drop(held);
}

impl Sandbox {
    /// The user's own secret, in a file of that mode.
    fn write_secret(&self, text: &str, mode: u32) {
        let path = self.config_folder().join("secret");
        fs::create_dir_all(path.parent().expect("inside a folder")).expect("a folder can be made");
        fs::write(&path, text).expect("a file can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
    }
}
