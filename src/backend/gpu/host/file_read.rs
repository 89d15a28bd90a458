//! `read` on a host stream: each thread reads a share of a part of a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::exec::ExecError;
use crate::ops::FilePart;

/// Alignment in bytes that direct reads need for memory, offsets and sizes: at least the logical block of any common
/// disk.
const BLOCK: u64 = 4096;

/// Maximum number of bytes that a thread reads by one call.
const READ_SIZE: u64 = 1 << 20;

/// Granularity in bytes at which a part of a file is divided among threads.
const PIECE: u64 = 64 << 10;

/// Size in bytes of the buffer of a direct read: the whole blocks around [`READ_SIZE`] bytes at any offset, aligned.
pub const BUFFER: usize = (READ_SIZE + 3 * BLOCK) as usize;

/// Open files, by path and by whether they are open for direct reads.
pub type OpenFiles = BTreeMap<(PathBuf, bool), Arc<File>>;

/// A part of a file, and the address to which it is read.
#[derive(Debug)]
pub struct FileRead {
    file: Arc<File>,
    part: FilePart,
    target: u64,
}

impl FileRead {
    /// Opens the file of a part; a file that is in `files` already is not opened again.
    pub fn open(part: FilePart, target: u64, files: &mut OpenFiles) -> Result<FileRead, ExecError> {
        let key = (part.file.path.clone(), part.direct);
        let file = match files.get(&key) {
            Some(file) => file.clone(),
            None => {
                let file = open(&part).map_err(|error| ExecError::Device {
                    fault: format!("the file `{}` cannot be read: {error}", part.file.path.display()),
                    help: part
                        .direct
                        .then(|| "its file system may have no direct reads: leave out `direct: true`".to_owned()),
                })?;
                files.entry(key).or_insert(Arc::new(file)).clone()
            }
        };
        Ok(FileRead { file, part, target })
    }

    /// True if the file is read past the page cache (`direct: true`); a thread that does so needs a buffer of [`BUFFER`] bytes.
    pub fn is_direct(&self) -> bool {
        self.part.direct
    }

    /// Reads share number `share` of `shares` equal shares, through `buffer` if the read is direct. The error names the
    /// file.
    ///
    /// # Safety
    ///
    /// The target is memory that lives and has room for the part, and threads of the CPU can access it.
    pub unsafe fn run(&self, (share, shares): (u32, u32), buffer: &mut [u8]) -> Result<(), String> {
        let pieces = u128::from(self.part.bytes.div_ceil(PIECE));
        let piece = |share: u32| (pieces * u128::from(share) / u128::from(shares)) as u64 * PIECE;
        let (mut begin, end) = (piece(share), piece(share + 1).min(self.part.bytes));
        while begin < end {
            let bytes = (end - begin).min(READ_SIZE);
            // SAFETY: the range lies within the target. The schedule orders other accesses; a permitted race may see
            // bytes from before or after.
            let target = unsafe { std::slice::from_raw_parts_mut((self.target + begin) as *mut u8, bytes as usize) };
            let at = self.part.offset + begin;
            let read = if self.part.direct { self.read_blocks(at, target, buffer) } else { self.read(at, target) };
            read.map_err(|error| format!("`read` of `{}`: {error}", self.part.file.path.display()))?;
            begin += bytes;
        }
        Ok(())
    }

    /// Fills `target` with the bytes of the file from `at` on.
    fn read(&self, at: u64, target: &mut [u8]) -> io::Result<()> {
        let wanted = target.len();
        self.read_some(at, target, wanted)
    }

    /// Fills `target` as [`FileRead::read`] does, by a direct read: reads whole blocks into the buffer and copies the
    /// requested bytes.
    fn read_blocks(&self, at: u64, target: &mut [u8], buffer: &mut [u8]) -> io::Result<()> {
        let first = at - at % BLOCK;
        let (skipped, wanted) = ((at - first) as usize, (at - first) as usize + target.len());
        let aligned = buffer.as_ptr().align_offset(BLOCK as usize);
        let blocks = &mut buffer[aligned..][..wanted.next_multiple_of(BLOCK as usize)];
        self.read_some(first, blocks, wanted)?;
        target.copy_from_slice(&blocks[skipped..wanted]);
        Ok(())
    }

    /// Reads from `at` on until at least the first `wanted` bytes of `target` are filled. Fails at the end of the file.
    fn read_some(&self, at: u64, target: &mut [u8], wanted: usize) -> io::Result<()> {
        let mut there = 0;
        while there < wanted {
            match self.file.read_at(&mut target[there..], at + there as u64) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has become shorter")),
                Ok(count) => there += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn open(part: &FilePart) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    let direct = if part.direct { OFlags::DIRECT } else { OFlags::empty() };
    Ok(open(&part.file.path, OFlags::RDONLY | OFlags::CLOEXEC | direct, Mode::empty())?.into())
}

#[cfg(not(target_os = "linux"))]
fn open(part: &FilePart) -> io::Result<File> {
    match part.direct {
        true => Err(io::Error::from(io::ErrorKind::Unsupported)),
        false => File::open(&part.file.path),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::ops::DataFile;

    fn read(bytes: &[u8], offset: u64, count: u64, direct: bool, shares: u32) -> Option<Vec<u8>> {
        // Direct reads need a file system with a disk below it.
        let mut file =
            tempfile::NamedTempFile::new_in(concat!(env!("CARGO_MANIFEST_DIR"), "/target")).expect("a temporary file");
        file.write_all(bytes).expect("a file of our own");
        let file = DataFile { path: file.path().to_owned(), bytes: bytes.len() as u64, read: |_, _, _| Ok(()) };
        let part = FilePart { file: Arc::new(file), offset, bytes: count, direct };
        let mut target = vec![0; count as usize];
        let read = FileRead::open(part, target.as_mut_ptr() as u64, &mut OpenFiles::new()).ok()?;
        for share in 0..shares {
            // SAFETY: the target has that many bytes.
            unsafe { read.run((share, shares), &mut vec![0; BUFFER]) }.expect("the file is long enough");
        }
        Some(target)
    }

    #[test]
    fn parts_at_any_place() {
        let bytes: Vec<u8> = (0..3_000_000u32).map(|index| (index * 7 / 5) as u8).collect();
        let places = [(0, 1), (0, 3_000_000), (1, 4095), (4096, 4096), (4097, 2_100_000), (2_999_999, 1), (70_000, 0)];
        for (offset, count) in places {
            for (direct, shares) in [(false, 1), (false, 3), (true, 1), (true, 7)] {
                let Some(found) = read(&bytes, offset, count, direct, shares) else { continue };
                let wanted = &bytes[offset as usize..][..count as usize];
                assert!(found == wanted, "{count} bytes from {offset}, direct {direct}, {shares} shares");
            }
        }
    }
}
