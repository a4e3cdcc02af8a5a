//! Versions of file formats.

use graphmill_tensor::{Result, invalid_argument};
use graphmill_wire::tensorflow::VersionDef;

/// The release whose formats these are; it stands in the texts of errors.
const TENSORFLOW: &str = "2.21.0";

/// Whether a reader of version `consumer` may read what a file was written as.
///
/// # Errors
/// `INVALID_ARGUMENT` if the file is too old, too new, or rules this version out.
pub(crate) fn check_versions(versions: &VersionDef, consumer: i32, min_producer: i32) -> Result<()> {
    if versions.producer < min_producer {
        return Err(invalid_argument!(
            "Checkpoint producer version {} below min producer {min_producer} supported by TensorFlow {TENSORFLOW}.  Please \
             regenerate your checkpoint.",
            versions.producer
        ));
    }
    if versions.min_consumer > consumer {
        return Err(invalid_argument!(
            "Checkpoint min consumer version {} above current version {consumer} for TensorFlow {TENSORFLOW}.  Please upgrade \
             TensorFlow.",
            versions.min_consumer
        ));
    }
    if versions.bad_consumers.contains(&consumer) {
        return Err(invalid_argument!(
            "Checkpoint disallows consumer version {consumer}.  Please upgrade TensorFlow: this version is likely buggy."
        ));
    }
    Ok(())
}
