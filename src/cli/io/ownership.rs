//! Checks of file ownership: which links may be followed, which files replaced, and which folders trusted.

use std::fs::Metadata;
use std::io;
use std::path::Path;

use crate::backend::user_id;

/// True if a link may be followed to a file that is written. In a folder that everybody can write to, such as `/tmp`,
/// only links of the user and of the folder's owner may be followed: another user's link would choose which file is
/// replaced.
pub fn may_follow(link: &Path, folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    const STICKY_AND_OPEN: u32 = 0o1002;
    let (Ok(link), Ok(folder)) = (link.symlink_metadata(), folder.metadata()) else { return false };
    let open = folder.mode() & STICKY_AND_OPEN == STICKY_AND_OPEN;
    !open || link.uid() == user_id() || link.uid() == folder.uid()
}

/// Gives a new file the mode of the one that it replaces, and its owner and group if the system allows it. If the group
/// cannot be kept, the new group gets the rights of everybody else.
pub fn take_over(file: &std::fs::File, before: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let now = file.metadata()?;
    let mut mode = before.mode() & 0o777;
    let same_group = now.gid() == before.gid() || fchown(file, None, Some(before.gid())).is_ok();
    if !same_group {
        mode = mode & !0o070 | (mode & 0o007) << 3;
    }
    if now.uid() != before.uid() {
        // Only root can change the owner; otherwise the file becomes the user's own.
        let _ = fchown(file, Some(before.uid()), None);
    }
    file.set_permissions(PermissionsExt::from_mode(mode))
}

/// Creates a folder that only its user can access, with its parents.
///
/// # Errors
///
/// Reason why the folder cannot be used: it belongs to another user, or cannot be created.
pub fn private_folder(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
    let failed = |error: io::Error| error.to_string();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    // Only the owner of the folder can change its mode afterwards, so the result of this check stays valid.
    let folder = std::fs::File::open(path).map_err(failed)?;
    let about = folder.metadata().map_err(failed)?;
    if about.uid() != user_id() {
        return Err("it belongs to another user".to_owned());
    }
    if about.mode() & 0o077 != 0 {
        folder.set_permissions(PermissionsExt::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}
