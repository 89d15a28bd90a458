//! The secret of a user's runs, by which ranks on several hosts authenticate.

use std::io::{self, Read};
use std::path::Path;

use crate::backend::system;

/// Minimum number of characters. Whoever records a handshake can test guesses offline.
pub const SHORTEST: usize = 16;

/// Maximum number of characters.
const LONGEST: usize = 1024;

/// A text that only the processes of a user's runs know. It is never printed, recorded or sent.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Reason why a secret cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum SecretFault {
    TooShort,
    TooLong,
    /// The file belongs to another user, or other users can read or write it.
    Open,
    /// The path is a link, a folder or a device, and not a regular file.
    NoFile,
    Unreadable(String),
}

impl Secret {
    /// Creates a secret; surrounding white space is removed.
    pub fn new(text: &[u8]) -> Result<Secret, SecretFault> {
        let text = text.trim_ascii();
        match text.len() {
            SHORTEST..=LONGEST => Ok(Secret(text.to_vec())),
            ..SHORTEST => Err(SecretFault::TooShort),
            _ => Err(SecretFault::TooLong),
        }
    }

    /// Reads the secret from a file that only this user may access; `None` if there is no such file.
    pub fn read(path: &Path) -> Result<Option<Secret>, SecretFault> {
        let unreadable = |error: io::Error| SecretFault::Unreadable(error.to_string());
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
            // Opening anything but a regular file could block.
            Ok(found) if !found.is_file() => return Err(SecretFault::NoFile),
            Ok(_) => {}
        }
        let file = std::fs::File::open(path).map_err(unreadable)?;
        if !system::is_own(&file.metadata().map_err(unreadable)?, 0o077) {
            return Err(SecretFault::Open);
        }
        let mut text = Vec::new();
        file.take(2 * LONGEST as u64).read_to_end(&mut text).map_err(unreadable)?;
        Secret::new(&text).map(Some)
    }

    /// The bytes of the secret.
    pub(super) fn key(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("secret");
        assert!(matches!(Secret::read(&path), Ok(None)));
        std::fs::write(&path, "  0123456789abcdef\n").expect("it can be written");
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        for open in [0o644, 0o640, 0o602, 0o610] {
            mode(open);
            assert_eq!(Secret::read(&path).err(), Some(SecretFault::Open), "{open:o}");
        }
        mode(0o600);
        let secret = Secret::read(&path).expect("it is private").expect("it is there");
        assert_eq!(secret.key(), b"0123456789abcdef");
        assert_eq!(format!("{secret:?}"), "Secret");
        let link = folder.path().join("link");
        symlink(&path, &link).expect("a link can be made");
        assert_eq!(Secret::read(&link).err(), Some(SecretFault::NoFile));
        std::fs::write(&path, "short").expect("it can be written");
        assert_eq!(Secret::read(&path).err(), Some(SecretFault::TooShort));
        std::fs::write(&path, [b'a'; 1 << 20]).expect("it can be written");
        assert_eq!(Secret::read(&path).err(), Some(SecretFault::TooLong));
    }
}
