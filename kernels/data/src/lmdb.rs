//! `LMDBDataset`: the entries of databases, each a key and a value.

use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops};
use crate::files::{SharedFiles, file_names, path};
use crate::state::{Reader, Writer};
use graphmill_formats::LmdbReader;
use graphmill_graph::PartialShape;
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry, files: &SharedFiles) {
    let files = files.clone();
    dataset_ops(registry, &["LMDBDataset", "ExperimentalLMDBDataset"], move |_| {
        let files = files.clone();
        Ok(move |ctx: &Context<'_>| {
            let scalar = PartialShape::new(&[])?;
            let spec = Spec { types: vec![DType::String; 2], shapes: vec![scalar.clone(), scalar] };
            let names = Arc::new(file_names(ctx.input(0)?)?);
            Ok(Databases { spec: Arc::new(spec), files: files.clone(), names })
        })
    });
}

struct Databases {
    spec: Arc<Spec>,
    files: SharedFiles,
    names: Arc<Vec<Bytes>>,
}

impl Dataset for Databases {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn name(&self) -> &'static str {
        "LMDB"
    }

    fn make(&self, _: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let (files, names) = (self.files.clone(), self.names.clone());
        Ok(Box::new(DatabasesIterator { files, names, next: 0, open: None, entries: 0 }))
    }
}

struct DatabasesIterator {
    files: SharedFiles,
    names: Arc<Vec<Bytes>>,
    next: usize,
    open: Option<LmdbReader>,
    /// Entries that have come from the open database.
    entries: usize,
}

impl DatasetIterator for DatabasesIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        loop {
            if let Some(open) = &mut self.open {
                if let Some((key, value)) = open.next()? {
                    self.entries += 1;
                    let text = |bytes: Vec<u8>| Tensor::from_strings(Shape::scalar(), vec![Bytes::from(bytes)]);
                    return Ok(Some(vec![text(key)?, text(value)?]));
                }
                self.open = None;
                self.next += 1;
            }
            let Some(name) = self.names.get(self.next) else { return Ok(None) };
            self.open = Some(LmdbReader::open(&*self.files, &path(name))?);
            self.entries = 0;
        }
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("LMDB");
        writer.size(self.next);
        writer.size(if self.open.is_some() { self.entries } else { 0 });
        Ok(())
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("LMDB")?;
        self.next = reader.size()?;
        let entries = reader.size()?;
        if self.skip(entries)? < entries {
            return Err(invalid_argument!("A database has fewer entries than when the iterator was saved"));
        }
        Ok(())
    }
}
