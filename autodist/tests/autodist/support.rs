//! The graphs of `tests/data`.

use graphmill_autodist::item::GraphItem;
use graphmill_wire::tensorflow::MetaGraphDef;
use prost::Message;
use std::fs;
use std::path::PathBuf;

pub fn data(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn meta_graph(name: &str) -> MetaGraphDef {
    MetaGraphDef::decode(&*data(&format!("{name}.pb"))).unwrap()
}

pub fn item(name: &str) -> GraphItem {
    GraphItem::from_meta_graph(meta_graph(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}
