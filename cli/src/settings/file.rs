//! Files of settings, in TOML or YAML.

use super::Layer;
use super::wrong::{Wrong, key};
use anyhow::{Context, Result, anyhow, bail};
use std::path::Path;

/// Reads a file, whose extension tells its form. Relative paths in it are below its directory.
///
/// # Errors
/// If it cannot be read or has keys or values that are none; the message names file, line and key.
pub fn read(path: &Path) -> Result<Layer> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let parse = match extension.to_ascii_lowercase().as_str() {
        "toml" => parse_toml,
        "yaml" | "yml" => parse_yaml,
        _ => {
            bail!("the name of {} has to end in .toml, .yaml or .yml, which tells how it is to be read", path.display())
        }
    };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut layer = parse(&text).map_err(|wrong| anyhow!("cannot use {}{wrong}", path.display()))?;
    let directory = path.parent().unwrap_or(Path::new(""));
    layer.file_root = layer.file_root.map(|root| directory.join(root));
    if let Some(given) = &mut layer.session_config {
        let below = directory.join(&*given);
        if let (true, Some(below)) = (below.exists(), below.to_str()) {
            *given = below.to_owned();
        }
    }
    Ok(layer)
}

fn parse_toml(text: &str) -> Result<Layer, Wrong> {
    let wrong = |key: Option<String>, error: &toml::de::Error| Wrong {
        line: error.span().map(|span| text.get(..span.start).unwrap_or(text).matches('\n').count() + 1),
        key,
        message: error.message().to_owned(),
    };
    let reader = toml::Deserializer::parse(text).map_err(|error| wrong(None, &error))?;
    serde_path_to_error::deserialize(reader).map_err(|error| wrong(key(error.path()), error.inner()))
}

fn parse_yaml(text: &str) -> Result<Layer, Wrong> {
    let mut at = None;
    let parsed = serde_saphyr::with_deserializer_from_str(text, |reader| {
        serde_path_to_error::deserialize(reader).map_err(|error| {
            at = key(error.path());
            error.into_inner()
        })
    });
    parsed.map_err(|error| {
        let message = error.without_snippet().to_string();
        let line = error.location().and_then(|location| usize::try_from(location.line()).ok());
        Wrong { line, key: at, message }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, content: &str) -> (tempfile::TempDir, Result<Layer>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        let layer = read(&path);
        (directory, layer)
    }

    #[test]
    fn both_forms_mean_the_same() {
        let toml = r#"
            job = "worker"
            task = 1
            grace = 5
            file-root = "data"
            exit-with-chief = true
            [cluster]
            ps = ["h:1"]
            worker = { 0 = "h:2", 1 = "h:3" }
        "#;
        let yaml = "job: worker\ntask: 1\ngrace: 5\nfile-root: data\nexit-with-chief: true\ncluster:\n  ps: h:1\n  worker: [h:2, h:3]\n";
        for (name, text) in [("a.toml", toml), ("a.yaml", yaml), ("a.YML", yaml)] {
            let (directory, layer) = written(name, text);
            let layer = layer.unwrap();
            assert_eq!((layer.job.as_deref(), layer.task, layer.grace), (Some("worker"), Some(1), Some(5.0)));
            assert_eq!(layer.cluster.unwrap().0.to_string(), "ps=h:1;worker=h:2,h:3");
            assert_eq!(layer.file_root.unwrap(), directory.path().join("data"));
            assert_eq!(layer.exit_with_chief, Some(true));
        }
        assert!(written("b.toml", "cluster = 'ps=h:1'").1.unwrap().cluster.is_some());
    }

    #[test]
    fn errors_name_file_line_and_key() {
        for (name, text, line, key) in [
            ("a.toml", "job = 'ps'\nport = 70000\n", "line 2", "key port"),
            ("a.toml", "job = 'ps'\nprot = 7\n", "line 2", "prot"),
            ("a.toml", "\n[cluster]\nps = ['nonsense']\n", "line", "cluster"),
            ("a.toml", "job = \n", "line 1", ""),
            ("a.toml", "grace = -1\n", "line 1", "key grace"),
            ("a.yaml", "job: ps\nport: 70000\n", "line 2", "key port"),
            ("a.yaml", "job: ps\nprot: 7\n", "line 2", "prot"),
            ("a.yaml", "job: ps\ncluster:\n  ps: [1]\n", "line 3", "key cluster"),
            ("a.yaml", "job: [\n", "line", ""),
        ] {
            let error = format!("{:#}", written(name, text).1.err().unwrap());
            assert!(error.contains(name) && error.contains(line) && error.contains(key), "{text}: {error}");
        }
        assert!(written("a.ini", "").1.is_err());
        assert!(read(Path::new("/no/such/file.toml")).is_err());
    }
}
