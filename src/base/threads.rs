//! Starts threads only if there is enough memory for them to begin.
//!
//! The system may allocate a thread's stack and then have no memory left for the few hundred bytes that the C library
//! needs at the thread's start; the C library then ends the process. Therefore threads are started one at a time, and
//! only while more memory than the stack is available.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// Bytes of a thread's stack by default.
const STACK: usize = 2 << 20;

/// Bytes that must be free in addition to the stack before a thread starts; several times the memory that a thread
/// needs when it starts.
const ROOM: usize = 1 << 20;

/// Held while a thread is being started.
static STARTING: Mutex<()> = Mutex::new(());

/// Locks a mutex. If a thread has panicked while it held the lock, the data is as that thread left it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

/// Result of a lock or of a wait for a condition, also if a thread has panicked while it held the lock.
pub fn unpoisoned<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread, and returns when it runs. Fails if the system refuses to create the thread. If memory is exhausted,
/// the program's allocator handles the failure.
pub fn spawn<T: Send + 'static>(
    builder: Builder,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    start(STACK, |begun| builder.spawn(begin(begun, Box::new(work))))
}

/// [`spawn`] for a thread that ends before its scope does.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    builder: Builder,
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    spawn_scoped_with_stack(STACK, builder, scope, work)
}

/// [`spawn_scoped`] for a thread whose stack has `stack` bytes.
pub fn spawn_scoped_with_stack<'scope, T: Send + 'scope>(
    stack: usize,
    builder: Builder,
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    spawn_boxed(stack, builder, scope, Box::new(work))
}

/// [`spawn_scoped_with_stack`] for work in a box: the code that starts a thread is compiled once for each type of result.
fn spawn_boxed<'scope, T: Send + 'scope>(
    stack: usize,
    builder: Builder,
    scope: &'scope Scope<'scope, '_>,
    work: Box<dyn FnOnce() -> T + Send + 'scope>,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    start(stack, |begun| builder.stack_size(stack).spawn_scoped(scope, begin(begun, work)))
}

fn start<H>(stack: usize, spawn: impl FnOnce(Sender<()>) -> io::Result<H>) -> io::Result<H> {
    let _starting = lock(&STARTING);
    // Without this check, the thread might be created but end the process when it begins.
    let mut room = Vec::<u8>::new();
    room.try_reserve_exact(stack + ROOM).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    drop(std::hint::black_box(room));
    let (begun, began) = channel();
    let thread = spawn(begun)?;
    // Returns once the thread has dropped its end of the channel, without a message.
    let _ = began.recv();
    Ok(thread)
}

/// Returns the function that a thread runs: it first allocates the memory that every thread needs, then reports that it
/// runs.
fn begin<'work, T>(begun: Sender<()>, work: Box<dyn FnOnce() -> T + Send + 'work>) -> impl FnOnce() -> T + Send + 'work
where
    T: 'work,
{
    move || {
        let _ = std::thread::current();
        drop(begun);
        work()
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{current, scope};

    use super::*;

    /// Each thread starts the next one.
    #[test]
    fn threads_may_start_threads() {
        fn nested(depth: u32) -> u32 {
            match depth {
                0 => 0,
                _ => 1 + spawn(Builder::new(), move || nested(depth - 1)).expect("a thread").join().expect("no panic"),
            }
        }
        assert_eq!(nested(5), 5);
        let named = scope(|scope| {
            let name = || current().name().map(str::to_owned);
            let thread = spawn_scoped(Builder::new().name("own".to_owned()), scope, name);
            thread.expect("a thread").join().expect("no panic")
        });
        assert_eq!(named.as_deref(), Some("own"));
    }
}
