//! Files of the cache on disk: machine code of kernels, and chosen algorithms. A digest binds each content to its
//! file's name, so that a damaged or exchanged file is ignored.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::backend::system;

/// Path of a cache file. The name is a digest of `parts`: everything that determines the content.
pub fn path(folder: &Path, parts: &[&str], extension: &str) -> PathBuf {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    let name = crate::base::hex(hasher.finalize());
    folder.join(format!("{name}.{extension}"))
}

/// Header of a cache file: this magic number, then a digest of the file's name and the code.
const MAGIC: &[u8; 8] = b"aortak02";

fn pack(name: &OsStr, code: &[u8]) -> Vec<u8> {
    [MAGIC, digest(name, code).as_slice(), code].concat()
}

/// Binds the content to its file's name, so that another file cannot replace it.
fn digest(name: &OsStr, code: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(name.as_encoded_bytes());
    hasher.update([0]);
    hasher.update(code);
    hasher.finalize().into()
}

/// The content of a cache file; `None` if it is damaged or belongs to another file's name. The driver checks neither
/// machine code nor its length, so damaged code must not reach it.
fn unpack<'a>(name: &OsStr, file: &'a [u8]) -> Option<&'a [u8]> {
    let (found, code) = file.strip_prefix(MAGIC)?.split_at_checked(32)?;
    (!code.is_empty() && digest(name, code).as_slice() == found).then_some(code)
}

/// The content of a cache file; `None` if the file does not exist, is damaged, or is writable by other users.
pub fn read(path: &Path) -> Option<Vec<u8>> {
    let mut file = std::fs::File::open(path).ok()?;
    // Checks the open file rather than its path, so that it cannot be replaced in between.
    let about = file.metadata().ok()?;
    if !about.is_file() || !system::is_own(&about, 0o022) {
        return None;
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    unpack(path.file_name()?, &bytes).map(<[u8]>::to_vec)
}

/// Stores a file. Failing to write the cache costs time but does not fail the run.
pub fn store(path: Option<&Path>, code: &[u8]) {
    let Some((path, folder)) = path.and_then(|path| Some((path, path.parent()?))) else { return };
    let Some(name) = path.file_name() else { return };
    let written = tempfile::NamedTempFile::new_in(folder).and_then(|mut file| {
        file.write_all(&pack(name, code))?;
        Ok(file)
    });
    if let Ok(file) = written {
        let _ = file.persist(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_code_of_its_own_file_is_used() {
        let name = OsStr::new("a.bin");
        let file = pack(name, b"machine code");
        assert_eq!(unpack(name, &file), Some(b"machine code".as_slice()));
        for length in 0..file.len() {
            assert_eq!(unpack(name, &file[..length]), None, "cut to {length}");
        }
        for index in 0..file.len() {
            let mut damaged = file.clone();
            damaged[index] ^= 1;
            assert_eq!(unpack(name, &damaged), None, "byte {index}");
        }
        assert_eq!(unpack(name, b"machine code"), None);
        assert_eq!(unpack(OsStr::new("b.bin"), &file), None);
    }

    #[test]
    fn a_file_that_others_may_write_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        store(Some(&path), b"machine code");
        assert_eq!(read(&path).as_deref(), Some(b"machine code".as_slice()));
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        for others in [0o620, 0o602, 0o666] {
            mode(others);
            assert_eq!(read(&path), None, "{others:o}");
        }
        mode(0o600);
        assert!(read(&path).is_some());
        // A folder has the file's name, or the file is missing.
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(&path), None);
        std::fs::create_dir(&path).unwrap();
        assert_eq!(read(&path), None);
    }
}
