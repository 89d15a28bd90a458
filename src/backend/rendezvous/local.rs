//! The rendezvous of one user's ranks on one host: a Unix socket in a private folder.

use std::path::Path;

use crate::backend::system;

use super::stream::ListenAddress;

/// Maximum bytes of a socket's path; the system's limit is 104 or 108.
const PATH: usize = 100;

/// File extension of sockets.
const SOCKET: &str = "socket";

/// Age after which a socket without a listener is removed, since its process was killed.
const STALE: std::time::Duration = std::time::Duration::from_secs(60);

/// Returns the address of a run's socket in a folder, which is created if missing. The error is the reason why the
/// folder cannot be used.
pub fn address(folder: &Path, job: &str) -> Result<ListenAddress, String> {
    use sha2::{Digest, Sha256};
    use std::os::unix::fs::DirBuilderExt;

    let shown = folder.display();
    if let Err(error) = std::fs::DirBuilder::new().mode(0o700).create(folder)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(format!("the folder {shown} cannot be made: {error}"));
    }
    let found = std::fs::symlink_metadata(folder).map_err(|error| format!("{shown}: {error}"))?;
    if !found.is_dir() || !system::is_own(&found, 0o077) {
        return Err(format!("{shown} is not a folder that only this user can enter"));
    }
    let name = crate::base::hex(&Sha256::digest(job)[..8]);
    let path = folder.join(name).with_extension(SOCKET);
    match path.as_os_str().len() {
        ..PATH => Ok(ListenAddress::Host(path)),
        _ => Err(format!("the path of {shown} is too long for a socket")),
    }
}

/// Removes the sockets of runs that were killed during their rendezvous.
pub fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_socket = path.extension().is_some_and(|extension| extension == SOCKET);
        let made = std::fs::symlink_metadata(&path).and_then(|found| found.modified()).ok();
        let is_old = made.and_then(|made| made.elapsed().ok()).is_some_and(|age| age > STALE);
        if is_socket && is_old && is_abandoned(&path) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// True if no process listens at a socket any more.
pub fn is_abandoned(path: &Path) -> bool {
    let connected = std::os::unix::net::UnixStream::connect(path);
    connected.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_folder_that_others_may_enter_is_refused() {
        let outer = tempfile::tempdir().expect("a folder can be made");
        let folder = outer.path().join("run");
        let Ok(ListenAddress::Host(path)) = address(&folder, "a job") else { panic!("the folder is made") };
        assert_eq!(path.parent(), Some(folder.as_path()));
        assert_ne!(address(&folder, "another").expect("the folder is private"), ListenAddress::Host(path));
        let mode = |mode| std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        for open in [0o755, 0o701, 0o770] {
            mode(open);
            let why = address(&folder, "a job").expect_err("others may enter");
            assert!(why.ends_with("is not a folder that only this user can enter"), "{open:o}: {why}");
        }
        mode(0o700);
        let link = outer.path().join("link");
        symlink(&folder, &link).expect("a link can be made");
        assert!(address(&link, "a job").is_err(), "a link may lead elsewhere");
        assert!(address(&outer.path().join("missing/run"), "a job").is_err(), "only the last folder is made");
        let long = outer.path().join("a".repeat(90));
        assert!(address(&long, "a job").is_err_and(|why| why.contains("too long")));
    }

    #[test]
    fn only_sockets_at_which_nobody_listens_are_abandoned() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("a.socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket can be made");
        assert!(!is_abandoned(&path));
        drop(listener);
        assert!(path.exists() && is_abandoned(&path));
        // The file is new: another process may be about to listen.
        sweep(folder.path());
        assert!(path.exists());
    }
}
