//! Under which container and name an op keeps its resource.

use graphmill_runtime::Construction;
use graphmill_tensor::{Result, invalid_argument};

/// Container and name of a resource.
pub(crate) struct Place {
    pub container: String,
    pub name: String,
}

impl Place {
    /// From the attributes `container` and `shared_name`; the job's container and the node's name stand in for empty ones.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a container or name that TensorFlow does not permit.
    pub fn checked(c: &Construction<'_>) -> Result<Place> {
        let (container, name) = (c.attrs().str("container")?, c.attrs().str("shared_name")?);
        if !container.is_empty() && !is_container_name(container) {
            return Err(invalid_argument!("container contains invalid characters: {container}"));
        }
        if name.starts_with('_') {
            return Err(invalid_argument!("shared_name cannot start with '_':{name}"));
        }
        Ok(Place::filled(c, container, name))
    }

    /// As [`Place::checked`], with any names, as `VarHandleOp` takes them.
    ///
    /// # Errors
    /// If an attribute is missing or is not text.
    pub fn unchecked(c: &Construction<'_>) -> Result<Place> {
        Ok(Place::filled(c, c.attrs().str("container")?, c.attrs().str("shared_name")?))
    }

    fn filled(c: &Construction<'_>, container: &str, name: &str) -> Place {
        let container = if container.is_empty() { c.device().default_container() } else { container };
        let name = if name.is_empty() { c.name() } else { name };
        Place { container: container.to_owned(), name: name.to_owned() }
    }
}

/// A letter, digit or dot, then any number of these, dashes and slashes.
fn is_container_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
    name.starts_with(plain) && name.chars().all(|c| plain(c) || c == '-' || c == '/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_names() {
        assert!(["ps", "a-b/c.d", ".", "1"].into_iter().all(is_container_name));
        assert!(!["", "-a", "/a", "a_b", "a b", "_"].into_iter().any(is_container_name));
    }
}
