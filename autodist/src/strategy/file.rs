//! Strategy files.

use super::Strategy;
use crate::item::GraphItem;
use graphmill_tensor::{Result, Status, not_found, permission_denied, unavailable};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Where strategies lie unless the caller says otherwise: `strategies` in the folder that `GRAPHMILL_AUTODIST_DIR` names, or
/// in AutoDist's own, `/tmp/autodist`.
pub fn default_folder() -> PathBuf {
    let folder = env::var_os("GRAPHMILL_AUTODIST_DIR").filter(|folder| !folder.is_empty());
    folder.map_or_else(|| PathBuf::from("/tmp/autodist"), PathBuf::from).join("strategies")
}

/// Writes the strategy to the file that its id names in `folder`, which is made if need be, and notes the path in the
/// strategy, before, so that the file contains its own path. Readers see the whole file or none.
///
/// # Errors
/// `PERMISSION_DENIED` or `UNAVAILABLE`, naming the folder, if it cannot be written to.
pub fn write(strategy: &mut Strategy, folder: &Path) -> Result<PathBuf> {
    let path = folder.join(&strategy.id);
    strategy.path = path.to_string_lossy().into_owned();
    let failed = |error: io::Error| {
        let message = format!(
            "Cannot write strategy \"{}\" to folder {}: {error}; choose another with GRAPHMILL_AUTODIST_DIR",
            strategy.id,
            folder.display()
        );
        if error.kind() == ErrorKind::PermissionDenied {
            permission_denied!("{message}")
        } else {
            unavailable!("{message}")
        }
    };
    fs::create_dir_all(folder).map_err(failed)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".strategy");
    // Temporary files are private by default, but other users' processes may have to read this one.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    let mut file = builder.tempfile_in(folder).map_err(failed)?;
    file.write_all(&strategy.encode()).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(&path).map_err(|error| failed(error.error))?;
    Ok(path)
}

/// Reads a strategy file.
///
/// # Errors
/// `NOT_FOUND` if there is none, `DATA_LOSS` if it is damaged or cut short, `INVALID_ARGUMENT` if an entry makes no sense.
pub fn read(path: &Path) -> Result<Strategy> {
    read_with(path, |_| None)
}

/// Reads a strategy file together with the graph that it is for. This also reads the files from before April 2020 that split
/// variables.
///
/// # Errors
/// As [`read`].
pub fn read_for(path: &Path, item: &GraphItem) -> Result<Strategy> {
    read_with(path, |variable| item.variable(variable)?.shape.rank())
}

fn read_with(path: &Path, rank_of: impl Fn(&str) -> Option<usize>) -> Result<Strategy> {
    let bytes = fs::read(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            not_found!("There is no strategy file {}; the chief writes it when it builds the strategy", path.display())
        }
        ErrorKind::PermissionDenied => permission_denied!("Cannot read strategy file {}: {error}", path.display()),
        _ => unavailable!("Cannot read strategy file {}: {error}", path.display()),
    })?;
    Strategy::decode(&bytes, rank_of).map_err(|error: Status| {
        let message = format!("Strategy file {}: {}", path.display(), error.message());
        error.with_message(message)
    })
}
