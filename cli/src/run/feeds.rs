//! Arrays to feed, from files of NumPy.

use super::model::Model;
use anyhow::{Context, Result, anyhow, bail};
use graphmill_client::{DType, Tensor};
use graphmill_formats::{read_npy, read_npz};
use graphmill_tensor::Bytes;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// One `--feed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feed {
    /// One array under a name.
    One { name: String, file: PathBuf, member: Option<String> },
    /// All arrays of an archive under their own names.
    All(PathBuf),
}

impl FromStr for Feed {
    type Err = String;

    fn from_str(text: &str) -> Result<Feed, String> {
        let Some((name, file)) = text.split_once('=') else {
            return match text.ends_with(".npz") {
                true => Ok(Feed::All(text.into())),
                false => Err("expected NAME=FILE.npy, NAME=FILE.npz:ARRAY or FILE.npz".to_owned()),
            };
        };
        if name.is_empty() || file.is_empty() {
            return Err("expected NAME=FILE".to_owned());
        }
        let (file, member) = match file.split_once(".npz:") {
            Some((archive, member)) => (format!("{archive}.npz"), Some(member.to_owned())),
            None => (file.to_owned(), None),
        };
        Ok(Feed::One { name: name.to_owned(), file: file.into(), member })
    }
}

/// The tensors to feed and their values.
///
/// # Errors
/// If a file cannot be read, a name is unknown or comes twice, or a value does not fit.
pub fn load(feeds: &[Feed], model: &Model) -> Result<Vec<(String, Tensor)>> {
    let mut loaded = Vec::new();
    let mut given = Vec::new();
    for feed in feeds {
        match feed {
            Feed::One { name, file, member } => {
                let bytes = read(file)?;
                let bytes = match (is_archive(file), member) {
                    (true, member) => pick(file, archive(file, &bytes)?, member.as_deref())?,
                    (false, _) => bytes,
                };
                loaded.push((model.feed(name)?, value(model, name, &bytes, file)?));
                given.push(name.clone());
            }
            Feed::All(file) => {
                for (name, bytes) in archive(file, &read(file)?)? {
                    loaded.push((model.feed(&name)?, value(model, &name, &bytes, file)?));
                    given.push(name);
                }
            }
        }
    }
    let mut seen = HashSet::new();
    if let Some((name, _)) = loaded.iter().find(|(name, _)| !seen.insert(name.trim_end_matches(":0"))) {
        bail!("{name} is fed twice");
    }
    if let Some(missing) = model.inputs().into_iter().find(|input| !given.iter().any(|name| name == input)) {
        bail!("the input {missing} of the signature is not fed; give it with --feed {missing}=FILE.npy");
    }
    Ok(loaded)
}

fn value(model: &Model, name: &str, bytes: &Bytes, file: &Path) -> Result<Tensor> {
    let tensor = model.feed(name)?;
    let wanted: Option<DType> = model.dtype(&tensor);
    let value = read_npy(bytes, wanted).map_err(|error| anyhow!("{}: {}", file.display(), error.message()))?;
    model.check_feed(&tensor, &value).with_context(|| format!("{} cannot be fed as {name}", file.display()))?;
    Ok(value)
}

fn read(file: &Path) -> Result<Bytes> {
    let bytes = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    Ok(bytes.into())
}

fn is_archive(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "npz")
}

fn archive(file: &Path, bytes: &Bytes) -> Result<Vec<(String, Bytes)>> {
    read_npz(bytes).map_err(|error| anyhow!("{}: {}", file.display(), error.message()))
}

/// One array of an archive: the named one, or the only one.
fn pick(file: &Path, arrays: Vec<(String, Bytes)>, member: Option<&str>) -> Result<Bytes> {
    let names = arrays.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let mut fitting = arrays.into_iter().filter(|(name, _)| member.is_none_or(|member| member == name));
    match (fitting.next(), fitting.next()) {
        (Some((_, bytes)), None) => Ok(bytes),
        (None, _) => bail!("{} holds no array {}, but: {names}", file.display(), member.unwrap_or_default()),
        (Some(_), Some(_)) => {
            bail!("{0} holds several arrays: {names}; name one as in {0}:{1}", file.display(), member.unwrap_or("NAME"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        let one = |name: &str, file: &str, member: Option<&str>| Feed::One {
            name: name.into(),
            file: file.into(),
            member: member.map(str::to_owned),
        };
        assert_eq!("x=a.npy".parse(), Ok(one("x", "a.npy", None)));
        assert_eq!("x:0=a=b.npy".parse(), Ok(one("x:0", "a=b.npy", None)));
        assert_eq!("x=d/a.npz:b".parse(), Ok(one("x", "d/a.npz", Some("b"))));
        assert_eq!("a.npz".parse(), Ok(Feed::All("a.npz".into())));
        for text in ["", "a.npy", "=a.npy", "x="] {
            assert!(text.parse::<Feed>().is_err(), "{text}");
        }
    }

    #[test]
    fn one_array_of_an_archive_is_chosen() {
        let arrays = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), Bytes::from_static(b"x"))).collect();
        let file = Path::new("a.npz");
        assert!(pick(file, arrays(&["a"]), None).is_ok());
        assert!(pick(file, arrays(&["a", "b"]), Some("b")).is_ok());
        assert!(pick(file, arrays(&["a", "b"]), None).unwrap_err().to_string().contains("a, b"));
        assert!(pick(file, arrays(&["a", "b"]), Some("c")).unwrap_err().to_string().contains("a, b"));
        assert!(pick(file, arrays(&[]), None).is_err());
    }
}
