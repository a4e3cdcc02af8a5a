//! Models as TensorFlow exports them: a graph with named inputs and outputs, values of its variables, and files.

use crate::graph_file::{from_text, in_file, read};
use crate::{Client, Outputs, Session, Step};
use graphmill_tensor::{Bytes, Result, Shape, Tensor, invalid_argument, not_found, unimplemented_op};
use graphmill_wire::tensorflow::collection_def::Kind;
use graphmill_wire::tensorflow::tensor_info::Encoding;
use graphmill_wire::tensorflow::{self, AssetFileDef, ConfigProto, GraphDef, MetaGraphDef, SignatureDef, TensorInfo};
use prost::Message;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where each signature is found that a model is asked for by no other name.
pub const DEFAULT_SIGNATURE: &str = "serving_default";
/// The tag of models that are exported to be served.
pub const SERVE: &str = "serve";

/// The signature that initialises a model, and the collections that said so before there was one.
const INIT_SIGNATURE: &str = "__saved_model_init_op";
const MAIN_OP: &str = "saved_model_main_op";
const LEGACY_INIT_OP: &str = "legacy_init_op";
/// The collection that lists files of a model, in models of old releases.
const ASSETS: &str = "saved_model_assets";

/// A model in a directory.
pub struct SavedModel {
    directory: PathBuf,
    meta: MetaGraphDef,
}

impl SavedModel {
    /// Reads the graph of a model that has exactly these tags; most have [`SERVE`] alone.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no model in the directory, or none with these tags, with the tags that there are.
    pub fn load(directory: impl AsRef<Path>, tags: &[&str]) -> Result<SavedModel> {
        let directory = directory.as_ref();
        let directory =
            directory.canonicalize().map_err(|_| not_found!("{}: there is no such directory", directory.display()))?;
        let (binary, text) = (directory.join("saved_model.pb"), directory.join("saved_model.pbtxt"));
        let model: tensorflow::SavedModel = if binary.exists() {
            tensorflow::SavedModel::decode(read(&binary)?.as_slice())
                .map_err(|error| invalid_argument!("{} is not a SavedModel: {error}", binary.display()))?
        } else if text.exists() {
            let contents = String::from_utf8_lossy(&read(&text)?).into_owned();
            from_text(&contents, "tensorflow.SavedModel").map_err(|error| in_file(&text, error))?
        } else if directory.join("saved_model.cpb").exists() {
            return Err(unimplemented_op!("{} is split into several messages", directory.display()));
        } else {
            return Err(not_found!("{} holds no saved_model.pb", directory.display()));
        };
        let mut wanted: Vec<&str> = tags.to_vec();
        wanted.sort_unstable();
        let mut found = Vec::new();
        for meta in model.meta_graphs {
            let mut own: Vec<&str> = tags_of(&meta).collect();
            own.sort_unstable();
            if own == wanted {
                return Ok(SavedModel { directory, meta });
            }
            found.push(format!("{{{}}}", own.join(", ")));
        }
        Err(not_found!(
            "{} has no graph with the tags {{{}}}, but with {}",
            directory.display(),
            wanted.join(", "),
            found.join(" and ")
        ))
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The graph with all that belongs to it.
    pub fn meta_graph(&self) -> &MetaGraphDef {
        &self.meta
    }

    /// The graph.
    pub fn graph(&self) -> GraphDef {
        self.meta.graph_def.clone().unwrap_or_default()
    }

    /// The signatures by name, without those that are there for loading.
    pub fn signatures(&self) -> impl Iterator<Item = (&str, &SignatureDef)> {
        let listed = self.meta.signature_def.iter().filter(|(name, _)| !name.starts_with("__saved_model_"));
        listed.map(|(name, signature)| (name.as_str(), signature))
    }

    /// The signature of this name.
    ///
    /// # Errors
    /// `NOT_FOUND` with the names that there are.
    pub fn signature(&self, name: &str) -> Result<Signature> {
        let found = self.signatures().find(|(other, _)| *other == name);
        let Some((_, signature)) = found else {
            let names: Vec<&str> = self.signatures().map(|(name, _)| name).collect();
            return Err(not_found!("The model has no signature {name}, but: {}", names.join(", ")));
        };
        Ok(Signature { inputs: ports(&signature.inputs)?, outputs: ports(&signature.outputs)? })
    }

    /// Opens a session on the model: restores variables and runs what initialises tables. The server reads the model's files itself, so
    /// that they have to be at the same path there.
    ///
    /// # Errors
    /// What the server finds wrong with the graph; `NOT_FOUND` if it does not find the files.
    pub async fn session(&self, client: &Client, config: ConfigProto) -> Result<Session> {
        let session = client.session(self.graph(), config).await?;
        match self.initialise(&session).await {
            Ok(()) => Ok(session),
            Err(error) => {
                // The first error is the one that says why.
                let _ = session.close().await;
                Err(error)
            }
        }
    }

    /// Restores variables and runs what initialises tables, in a session on [`SavedModel::graph`].
    ///
    /// # Errors
    /// As [`SavedModel::session`].
    pub async fn initialise(&self, session: &Session) -> Result<()> {
        let variables = self.directory.join("variables").join("variables");
        if let Some(saver) = &self.meta.saver_def
            && !saver.restore_op_name.is_empty()
            && variables.with_extension("index").exists()
        {
            let step = self.with_files(Step::new())?.feed(&saver.filename_tensor_name, path_tensor(&variables)?);
            session.run(&step.target(&saver.restore_op_name)).await?;
        }
        if let Some(node) = self.init_node()? {
            session.run(&self.with_files(Step::new())?.target(node)).await?;
        }
        Ok(())
    }

    /// Feeds the paths of the model's files.
    fn with_files(&self, mut step: Step) -> Result<Step> {
        for asset in self.assets()? {
            let name = asset.tensor_info.as_ref().map(tensor_name).transpose()?.unwrap_or_default();
            let file = Path::new(&asset.filename);
            if file.is_absolute() || file.components().any(|part| part == std::path::Component::ParentDir) {
                return Err(invalid_argument!("The model's file {} lies outside of it", asset.filename));
            }
            step = step.feed(name, path_tensor(&self.directory.join("assets").join(file))?);
        }
        Ok(step)
    }

    fn assets(&self) -> Result<Vec<AssetFileDef>> {
        if !self.meta.asset_file_def.is_empty() {
            return Ok(self.meta.asset_file_def.clone());
        }
        let Some(Kind::AnyList(list)) = self.meta.collection_def.get(ASSETS).and_then(|entry| entry.kind.as_ref())
        else {
            return Ok(Vec::new());
        };
        let decode = |any: &graphmill_wire::Any| {
            AssetFileDef::decode(any.value.as_slice())
                .map_err(|error| invalid_argument!("The list of the model's files is damaged: {error}"))
        };
        list.value.iter().map(decode).collect()
    }

    /// The node that initialises the model, if it has one.
    fn init_node(&self) -> Result<Option<String>> {
        if let Some(signature) = self.meta.signature_def.get(INIT_SIGNATURE)
            && let Some(output) = signature.outputs.get(INIT_SIGNATURE)
        {
            let name = tensor_name(output)?;
            return Ok(Some(name.rsplit_once(':').map_or(name, |(node, _)| node).to_owned()));
        }
        for collection in [MAIN_OP, LEGACY_INIT_OP] {
            if let Some(Kind::NodeList(list)) = self.meta.collection_def.get(collection).and_then(|c| c.kind.as_ref()) {
                match list.value.as_slice() {
                    [] => {}
                    [node] => return Ok(Some(node.clone())),
                    _ => return Err(invalid_argument!("The model has more than one node in {collection}")),
                }
            }
        }
        Ok(None)
    }
}

fn tags_of(meta: &MetaGraphDef) -> impl Iterator<Item = &str> {
    meta.meta_info_def.iter().flat_map(|info| info.tags.iter().map(String::as_str))
}

fn path_tensor(path: &Path) -> Result<Tensor> {
    Tensor::from_strings(Shape::scalar(), vec![Bytes::copy_from_slice(path.as_os_str().as_encoded_bytes())])
}

fn tensor_name(info: &TensorInfo) -> Result<&str> {
    match &info.encoding {
        Some(Encoding::Name(name)) => Ok(name),
        Some(_) => Err(unimplemented_op!("The signature has a sparse or composite tensor")),
        None => Err(invalid_argument!("The signature has a tensor without a name")),
    }
}

fn ports(infos: &BTreeMap<String, TensorInfo>) -> Result<BTreeMap<String, String>> {
    infos.iter().map(|(name, info)| Ok((name.clone(), tensor_name(info)?.to_owned()))).collect()
}

/// Named inputs and outputs of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The tensor of each input.
    pub inputs: BTreeMap<String, String>,
    /// The tensor of each output.
    pub outputs: BTreeMap<String, String>,
}

impl Signature {
    /// Runs the signature: takes its inputs by name, and yields its outputs by name.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for inputs that are missing or unknown; what the step fails with.
    pub async fn run(&self, session: &Session, inputs: Vec<(&str, Tensor)>) -> Result<BTreeMap<String, Tensor>> {
        let mut step = Step::new().fetch_all(self.outputs.values());
        let missing = self.inputs.keys().find(|name| !inputs.iter().any(|(given, _)| given == name));
        if let Some(missing) = missing {
            return Err(invalid_argument!("The input {missing} of the signature is not given"));
        }
        for (name, value) in inputs {
            step = step.feed(self.input(name)?, value);
        }
        let outputs: Outputs = session.run(&step).await?;
        Ok(self.outputs.keys().cloned().zip(outputs.into_tensors()).collect())
    }

    /// The tensor of an input.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with the names that there are.
    pub fn input(&self, name: &str) -> Result<&str> {
        find(&self.inputs, name, "input")
    }

    /// The tensor of an output.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with the names that there are.
    pub fn output(&self, name: &str) -> Result<&str> {
        find(&self.outputs, name, "output")
    }
}

fn find<'a>(ports: &'a BTreeMap<String, String>, name: &str, kind: &str) -> Result<&'a str> {
    ports.get(name).map(String::as_str).ok_or_else(|| {
        let names: Vec<&str> = ports.keys().map(String::as_str).collect();
        invalid_argument!("The signature has no {kind} {name}, but: {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::Code;
    use graphmill_wire::tensorflow::meta_graph_def::MetaInfoDef;

    fn named(name: &str) -> TensorInfo {
        TensorInfo { encoding: Some(Encoding::Name(name.to_owned())), ..Default::default() }
    }

    fn written(metas: Vec<MetaGraphDef>) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let model = tensorflow::SavedModel { saved_model_schema_version: 1, meta_graphs: metas };
        std::fs::write(directory.path().join("saved_model.pb"), model.encode_to_vec()).unwrap();
        directory
    }

    fn meta(tags: &[&str]) -> MetaGraphDef {
        let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        MetaGraphDef { meta_info_def: Some(MetaInfoDef { tags, ..Default::default() }), ..Default::default() }
    }

    #[test]
    fn tags_choose_the_graph() {
        let directory = written(vec![meta(&["serve", "gpu"]), meta(&["serve"])]);
        assert!(SavedModel::load(directory.path(), &[SERVE]).is_ok());
        assert!(SavedModel::load(directory.path(), &["gpu", SERVE]).is_ok());
        let error = SavedModel::load(directory.path(), &["train"]).err().unwrap();
        assert_eq!(error.code(), Code::NotFound);
        assert!(error.message().contains("{gpu, serve} and {serve}"), "{error}");
        assert_eq!(SavedModel::load("/no such", &[SERVE]).err().unwrap().code(), Code::NotFound);
    }

    #[test]
    fn signatures_are_found_by_name() {
        let mut meta = meta(&[SERVE]);
        let signature = SignatureDef {
            inputs: [("x".to_owned(), named("in:0"))].into(),
            outputs: [("y".to_owned(), named("out:1"))].into(),
            ..Default::default()
        };
        meta.signature_def.insert(DEFAULT_SIGNATURE.into(), signature);
        let init =
            SignatureDef { outputs: [(INIT_SIGNATURE.to_owned(), named("init:0"))].into(), ..Default::default() };
        meta.signature_def.insert(INIT_SIGNATURE.into(), init);
        let directory = written(vec![meta]);
        let model = SavedModel::load(directory.path(), &[SERVE]).unwrap();
        assert_eq!(model.init_node().unwrap().unwrap(), "init");
        let signature = model.signature(DEFAULT_SIGNATURE).unwrap();
        assert_eq!((signature.input("x").unwrap(), signature.output("y").unwrap()), ("in:0", "out:1"));
        assert!(signature.input("z").unwrap_err().message().ends_with("but: x"));
        assert!(model.signature("other").unwrap_err().message().ends_with("but: serving_default"));
    }

    #[test]
    fn files_outside_the_model_are_refused() {
        for name in ["../x", "/etc/passwd", "a/../../x"] {
            let mut meta = meta(&[SERVE]);
            let asset = AssetFileDef { tensor_info: Some(named("file:0")), filename: name.into() };
            meta.asset_file_def.push(asset);
            let directory = written(vec![meta]);
            let model = SavedModel::load(directory.path(), &[SERVE]).unwrap();
            assert_eq!(model.with_files(Step::new()).unwrap_err().code(), Code::InvalidArgument, "{name}");
        }
    }
}
