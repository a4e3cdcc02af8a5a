//! Fetches in files of NumPy.

use anyhow::{Context, Result, anyhow, bail};
use graphmill_client::Tensor;
use graphmill_formats::{write_npy, write_npz};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where fetches go.
pub enum Target {
    /// One array in one file.
    Array(PathBuf),
    /// All in one file.
    Archive(PathBuf),
    /// A file for each.
    Directory(PathBuf),
}

impl Target {
    /// What `--out` means for these fetches.
    ///
    /// # Errors
    /// If several arrays would go into one file.
    pub fn new(path: &Path, fetches: &[String]) -> Result<Target> {
        let unique: HashSet<_> = fetches.iter().map(|name| file_name(name)).collect();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("npy") if fetches.len() != 1 => {
                bail!(
                    "{} holds one array, but {} are fetched; write them to an .npz file",
                    path.display(),
                    fetches.len()
                )
            }
            _ if unique.len() != fetches.len() => bail!("the same fetch is named twice"),
            Some("npy") => Ok(Target::Array(path.to_owned())),
            Some("npz") => Ok(Target::Archive(path.to_owned())),
            _ => Ok(Target::Directory(path.to_owned())),
        }
    }

    /// Writes the arrays, and yields the file of each.
    ///
    /// # Errors
    /// If a file cannot be written, or a tensor is no array.
    pub fn write(&self, fetches: &[(&str, &Tensor)]) -> Result<Vec<PathBuf>> {
        let array =
            |name: &str, tensor: &Tensor| write_npy(tensor).map_err(|error| anyhow!("{name}: {}", error.message()));
        match self {
            Target::Array(file) => {
                for (name, tensor) in fetches {
                    save(file, &array(name, tensor)?)?;
                }
                Ok(vec![file.clone(); fetches.len()])
            }
            Target::Archive(file) => {
                let members = fetches.iter().map(|(name, tensor)| Ok(((*name).to_owned(), array(name, tensor)?)));
                let members = members.collect::<Result<Vec<_>>>()?;
                save(file, &write_npz(&members).map_err(|error| anyhow!("{}", error.message()))?)?;
                Ok(vec![file.clone(); fetches.len()])
            }
            Target::Directory(directory) => {
                fs::create_dir_all(directory).with_context(|| format!("{} cannot be made", directory.display()))?;
                let mut files = Vec::with_capacity(fetches.len());
                for (name, tensor) in fetches {
                    let file = directory.join(file_name(name));
                    save(&file, &array(name, tensor)?)?;
                    files.push(file);
                }
                Ok(files)
            }
        }
    }
}

fn save(file: &Path, contents: &[u8]) -> Result<()> {
    fs::write(file, contents).with_context(|| format!("{} cannot be written", file.display()))
}

/// The name of a tensor without what separates directories.
fn file_name(name: &str) -> String {
    format!("{}.npy", name.trim_end_matches(":0").replace(['/', ':', '\\'], "_"))
}
