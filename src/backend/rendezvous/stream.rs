//! A connection between two processes of a run: TCP, or a Unix socket on one host.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// An address at which rank 0 may listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    Network(SocketAddr),
    Host(PathBuf),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Network(address) => address.fmt(f),
            ListenAddress::Host(path) => path.display().fmt(f),
        }
    }
}

/// True if an address, as text, is a loopback address.
pub fn is_loopback(address: &str) -> bool {
    address == "localhost" || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A connection.
#[derive(Debug)]
pub enum Socket {
    Network(TcpStream),
    Host(UnixStream),
}

macro_rules! each {
    ($stream:expr, $one:ident => $work:expr) => {
        match $stream {
            Socket::Network($one) => $work,
            Socket::Host($one) => $work,
        }
    };
}

impl Socket {
    /// Connects to an address. Checks the owner of a Unix socket's other end.
    pub fn connect(address: &ListenAddress, timeout: Duration) -> io::Result<Socket> {
        match address {
            ListenAddress::Network(address) => {
                let stream = TcpStream::connect_timeout(address, timeout)?;
                // If nobody listens, TCP may connect a local port to itself.
                if stream.local_addr()? == stream.peer_addr()? {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                stream.set_nodelay(true)?;
                Ok(Socket::Network(stream))
            }
            ListenAddress::Host(path) => {
                let stream = connect_now(path)?;
                match is_same_user(&stream) {
                    true => Ok(Socket::Host(stream)),
                    false => Err(io::ErrorKind::PermissionDenied.into()),
                }
            }
        }
    }

    /// Address of the other end; `None` for a process of this host.
    pub fn from(&self) -> Option<IpAddr> {
        match self {
            Socket::Network(stream) => stream.peer_addr().ok().map(|address| address.ip()),
            Socket::Host(_) => None,
        }
    }

    /// Returns a second handle of the same connection.
    pub fn try_clone(&self) -> io::Result<Socket> {
        match self {
            Socket::Network(stream) => stream.try_clone().map(Socket::Network),
            Socket::Host(stream) => stream.try_clone().map(Socket::Host),
        }
    }

    /// Sets whether reads and writes fail instead of blocking.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        each!(self, stream => stream.set_nonblocking(on))
    }

    /// Closes the sending direction.
    pub fn end(&self) -> io::Result<()> {
        each!(self, stream => stream.shutdown(Shutdown::Write))
    }

    /// Returns the connection with a deadline for all following reads and writes together.
    pub fn until(&mut self, deadline: Instant) -> DeadlineStream<'_> {
        DeadlineStream { stream: self, deadline }
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        each!(self, stream => stream.read(into))
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        each!(self, stream => stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        each!(self, stream => stream.flush())
    }
}

/// A connection with a deadline for all calls together, so that a slow peer cannot extend it.
pub struct DeadlineStream<'a> {
    stream: &'a mut Socket,
    deadline: Instant,
}

impl DeadlineStream<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for DeadlineStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.left()?;
        each!(&*self.stream, stream => stream.set_read_timeout(left))?;
        self.stream.read(into)
    }
}

impl Write for DeadlineStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left()?;
        each!(&*self.stream, stream => stream.set_write_timeout(left))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A listening socket of rank 0. Dropping it removes the file of a Unix socket.
#[derive(Debug)]
pub enum Listener {
    Network(TcpListener),
    Host(UnixListener, PathBuf),
}

impl Listener {
    /// Listens at an address.
    pub fn bind(address: &ListenAddress) -> io::Result<Listener> {
        let listener = match address {
            ListenAddress::Network(address) => Listener::Network(TcpListener::bind(address)?),
            ListenAddress::Host(path) => Listener::Host(UnixListener::bind(path)?, path.clone()),
        };
        match &listener {
            Listener::Network(listener) => listener.set_nonblocking(true)?,
            Listener::Host(listener, _) => listener.set_nonblocking(true)?,
        }
        Ok(listener)
    }

    /// Network address of the listener; `None` for a Unix socket.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Listener::Network(listener) => listener.local_addr().ok().map(|address| address.ip()),
            Listener::Host(..) => None,
        }
    }

    /// Accepts the next connection, without blocking. Closes connections of other users to a Unix socket at once.
    pub fn accept(&self) -> io::Result<Option<Socket>> {
        let stream = match self {
            Listener::Network(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Socket::Network(stream)
            }
            Listener::Host(listener, _) => {
                let (stream, _) = listener.accept()?;
                if !is_same_user(&stream) {
                    return Ok(None);
                }
                Socket::Host(stream)
            }
        };
        stream.set_nonblocking(true)?;
        Ok(Some(stream))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Host(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Connects to a Unix socket. Fails at once if the listener is busy, since the system has no timeout for it.
fn connect_now(path: &Path) -> io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
    let stream = UnixStream::from(socket(AddressFamily::UNIX, SocketType::STREAM, None)?);
    stream.set_nonblocking(true)?;
    connect(&stream, &SocketAddrUnix::new(path)?)?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// True if the process at the other end of a Unix socket belongs to this user, according to the kernel.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_same_user(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Returns true: on systems that do not report the peer's user, the private folder of the socket keeps others out.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_same_user(_stream: &UnixStream) -> bool {
    true
}
