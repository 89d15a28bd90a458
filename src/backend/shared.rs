//! Host memory that several processes of a host see: a file without a place on a disk, mapped by each of them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;

use tempfile::NamedTempFile;

/// A mapped file, mostly for devices.
#[derive(Debug)]
pub struct SharedMemory {
    address: u64,
    bytes: usize,
    /// The file, while others may still open it.
    file: Option<NamedTempFile>,
}

impl SharedMemory {
    /// New memory, all zeros.
    pub fn create(bytes: u64) -> io::Result<SharedMemory> {
        let memory = Path::new("/dev/shm");
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("aorta-");
        let file = if memory.is_dir() { builder.tempfile_in(memory)? } else { builder.tempfile()? };
        file.as_file().set_len(bytes)?;
        let address = map(file.as_file(), bytes as usize)?;
        Ok(SharedMemory { address, bytes: bytes as usize, file: Some(file) })
    }

    /// The memory that another process has created there.
    pub fn open(path: &Path) -> io::Result<SharedMemory> {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = file.metadata()?.len() as usize;
        Ok(SharedMemory { address: map(&file, bytes)?, bytes, file: None })
    }

    /// Where others find it.
    pub fn path(&self) -> PathBuf {
        self.file.as_ref().map(|file| file.path().to_owned()).unwrap_or_default()
    }

    /// All have opened it who will: the file goes, the memory stays.
    pub fn hide(&mut self) {
        self.file = None;
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// A word of it, counted from the end: the last is number 0. Nothing where there are fewer.
    pub fn word_from_end(&self, number: usize) -> Option<&AtomicU32> {
        let from = self.bytes.checked_sub(4 * (number + 1))?;
        // SAFETY: the word lies in the memory, which is mapped as long as this lives, and is only used as an atomic.
        (from % 4 == 0).then(|| unsafe { AtomicU32::from_ptr((self.address as usize + from) as *mut u32) })
    }
}

#[cfg(unix)]
fn map(file: &std::fs::File, bytes: usize) -> io::Result<u64> {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let how = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the system chooses a place that nothing else has; nobody shortens the file.
    let address = unsafe { mmap(std::ptr::null_mut(), bytes, how, MapFlags::SHARED, file, 0)? };
    Ok(address as u64)
}

#[cfg(not(unix))]
fn map(_file: &std::fs::File, _bytes: usize) -> io::Result<u64> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        #[cfg(unix)]
        // SAFETY: it was mapped by `map` with that many bytes, and who has this says that nothing uses it any more.
        let _ = unsafe { rustix::mm::munmap(self.address as *mut std::ffi::c_void, self.bytes) };
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn what_one_writes_the_other_sees_when_the_file_is_gone() {
        let mut own = SharedMemory::create(64).expect("a file of our own");
        let path = own.path();
        let other = SharedMemory::open(&path).expect("it is there");
        own.hide();
        assert!(!path.exists());
        assert_ne!(own.address(), other.address());
        assert_eq!((own.bytes(), other.bytes()), (64, 64));
        let [here, there] = [&own, &other].map(|one| one.word_from_end(15).expect("there are 16"));
        assert!(own.word_from_end(16).is_none());
        assert_eq!(there.load(Ordering::Acquire), 0);
        here.store(7, Ordering::Release);
        assert_eq!(there.load(Ordering::Acquire), 7);
        assert!(SharedMemory::open(&path).is_err());
    }
}
