//! Host memory shared by several processes of a host: an anonymous temporary file, mapped by each of them.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use tempfile::NamedTempFile;

use super::system::{self, lock};

/// Prefix of the file's name, by which leftover files are recognized.
const PREFIX: &str = "aorta-";

/// Memory that several processes map, used mostly by devices.
#[derive(Debug)]
pub struct SharedMemory {
    address: u64,
    bytes: usize,
    /// The file while other processes may still open it; `None` afterwards, and for memory of another process.
    file: Option<NamedTempFile>,
}

impl SharedMemory {
    /// Creates memory of this many bytes, all zero.
    pub fn create(bytes: u64) -> io::Result<SharedMemory> {
        let file = tempfile::Builder::new().prefix(PREFIX).tempfile_in(folder())?;
        // No other process has the name yet; the lock marks the file as used.
        lock(file.as_file());
        remove_orphans(&folder());
        file.as_file().set_len(bytes)?;
        let address = map(file.as_file(), bytes as usize)?;
        Ok(SharedMemory { address, bytes: bytes as usize, file: Some(file) })
    }

    /// Opens the memory of `bytes` bytes that another process has created under this name. A name is not a path, and
    /// only private files of this user are mapped, so that an untrusted name can do no harm.
    pub fn open(name: &str, bytes: u64) -> io::Result<SharedMemory> {
        let file = opened(name)?;
        let found = file.metadata()?;
        if !is_own(&found) || found.len() != bytes {
            return Err(not_shared_error(name));
        }
        Ok(SharedMemory { address: map(&file, bytes as usize)?, bytes: bytes as usize, file: None })
    }

    /// Name by which others open it; `None` after [`SharedMemory::hide`].
    pub fn name(&self) -> Option<String> {
        let name = self.file.as_ref()?.path().file_name()?;
        name.to_str().map(str::to_owned)
    }

    /// Removes the file once all processes have opened it. The memory stays.
    pub fn hide(&mut self) {
        self.file = None;
    }

    /// Address of the first byte in this process.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Size of the memory in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// The 32-bit word with this number, counted from the end, where the last word has number 0; `None` if there is
    /// none.
    pub fn word_from_end(&self, number: usize) -> Option<&AtomicU32> {
        let from = self.bytes.checked_sub(4 * (number + 1))?;
        // SAFETY: the word lies in the memory, which is mapped as long as this lives, and is only used as an atomic.
        (from % 4 == 0).then(|| unsafe { AtomicU32::from_ptr((self.address as usize + from) as *mut u32) })
    }
}

/// Folder for the files: one in memory if the system has it, otherwise the one for temporary files.
fn folder() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { tempfile::env::temp_dir() }
}

/// Age from which on a file's lock shows whether it is in use. The creator of a newer file may not have locked it yet.
const MIN_AGE: Duration = Duration::from_secs(60);

/// Removes files of processes that were killed before all others had opened them: no process holds their lock.
fn remove_orphans(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let Some(file) = name.to_str().and_then(|name| opened(name).ok()) else { continue };
        let about = file.metadata().ok().filter(is_own);
        let age = about.and_then(|about| about.modified().ok()?.elapsed().ok());
        if age.is_some_and(|age| age > MIN_AGE) && lock(&file) {
            // Another process may have removed it meanwhile.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn not_shared_error(name: &str) -> io::Error {
    let why = format!("`{}` is not memory that another rank of this user shares", name.escape_default());
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Opens a file by a name that `create` could have given it. Follows no links and does not block on a pipe.
fn opened(name: &str) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    let is_ours = name.strip_prefix(PREFIX).filter(|rest| rest.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    if is_ours.is_none_or(str::is_empty) {
        return Err(not_shared_error(name));
    }
    let how = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(open(folder().join(name), how, Mode::empty())?.into())
}

/// True if only processes of this user can have created and can change a file, which has at most one name.
fn is_own(found: &Metadata) -> bool {
    found.is_file() && system::is_own(found, 0o077) && found.nlink() <= 1
}

fn map(file: &File, bytes: usize) -> io::Result<u64> {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let how = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the system chooses a free range of addresses, and no process shortens the file.
    let address = unsafe { mmap(std::ptr::null_mut(), bytes, how, MapFlags::SHARED, file, 0)? };
    Ok(address as u64)
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped by `map` with this size, and the owner guarantees that nothing uses it any
        // more.
        let _ = unsafe { rustix::mm::munmap(self.address as *mut std::ffi::c_void, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn shared_memory_outlives_its_name() {
        let mut own = SharedMemory::create(64).expect("a file of our own");
        let name = own.name().expect("others may open it");
        let other = SharedMemory::open(&name, 64).expect("it is there");
        own.hide();
        assert!(own.name().is_none() && !folder().join(&name).exists());
        assert_ne!(own.address(), other.address());
        assert_eq!((own.bytes(), other.bytes()), (64, 64));
        let [here, there] = [&own, &other].map(|one| one.word_from_end(15).expect("there are 16"));
        assert!(own.word_from_end(16).is_none());
        assert_eq!(there.load(Ordering::Acquire), 0);
        here.store(7, Ordering::Release);
        assert_eq!(there.load(Ordering::Acquire), 7);
        assert!(SharedMemory::open(&name, 64).is_err());
    }

    /// Another process sends the name, so it must not be able to name any other file.
    #[test]
    fn names_cannot_open_other_files() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let own = SharedMemory::create(64).expect("a file of our own");
        let name = own.name().expect("others may open it");
        let path = folder().join(&name);
        let refused = |name: &str| SharedMemory::open(name, 64).expect_err(name).kind();
        let denied = io::ErrorKind::PermissionDenied;
        let target = tempfile::NamedTempFile::new().expect("a file can be made");
        target.as_file().set_len(64).expect("it can be that long");
        let absolute = target.path().to_str().expect("a text");
        let escape = format!("aorta-/../../..{absolute}");
        for name in ["", "aorta-", "../etc/passwd", "aorta-..", absolute, &escape, "aorta-\u{202e}x"] {
            assert_eq!(refused(name), denied, "{name}");
        }
        assert!(SharedMemory::open(&name, 32).is_err(), "another size");
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        mode(0o606);
        assert_eq!(refused(&name), denied, "others may write it");
        mode(0o600);
        let [soft, hard, sub] = ["soft", "hard", "sub"].map(|kind| format!("{name}{kind}"));
        symlink(target.path(), folder().join(&soft)).expect("a link can be made");
        let soft_refused = SharedMemory::open(&soft, 64).is_err();
        std::fs::hard_link(&path, folder().join(&hard)).expect("a link can be made");
        let hard_refused = [&hard, &name].map(|name| SharedMemory::open(name, 64).is_err());
        std::fs::create_dir(folder().join(&sub)).expect("a folder can be made");
        let folder_refused = SharedMemory::open(&sub, 64).is_err();
        for name in [&soft, &hard] {
            std::fs::remove_file(folder().join(name)).expect("it is ours");
        }
        std::fs::remove_dir(folder().join(&sub)).expect("it is ours");
        assert!(soft_refused && hard_refused == [true; 2] && folder_refused);
        assert!(SharedMemory::open(&name, 64).is_ok(), "it is one again, under one name");
    }

    #[test]
    fn files_of_killed_processes_are_removed() {
        let old = std::time::SystemTime::now() - 2 * MIN_AGE;
        let make = || {
            let file = tempfile::Builder::new().prefix(PREFIX).tempfile_in(folder()).expect("a temporary file");
            file.as_file().set_modified(old).expect("a file of our own");
            file
        };
        let (orphan, held) = (make(), make());
        assert!(lock(held.as_file()), "nobody else has it");
        let fresh = tempfile::Builder::new().prefix(PREFIX).tempfile_in(folder()).expect("a temporary file");
        remove_orphans(&folder());
        assert_eq!([&orphan, &held, &fresh].map(|file| file.path().exists()), [false, true, true]);
    }
}
