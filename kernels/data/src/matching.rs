//! `MatchingFilesDataset`: the names of files that match patterns.

use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops};
use crate::files::{SharedFiles, path};
use crate::state::{Reader, Writer};
use graphmill_graph::PartialShape;
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument, not_found};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry, files: &SharedFiles) {
    let kept = files.clone();
    dataset_ops(registry, &["MatchingFilesDataset", "ExperimentalMatchingFilesDataset"], move |_| {
        let files = kept.clone();
        Ok(move |ctx: &Context<'_>| {
            let patterns = ctx.input(0)?;
            if patterns.shape().rank() > 1 {
                return Err(invalid_argument!("`patterns` must be a scalar or a vector."));
            }
            let spec = Spec { types: vec![DType::String], shapes: vec![PartialShape::new(&[])?] };
            let files = files.clone();
            Ok(MatchingFiles { spec: Arc::new(spec), files, patterns: Arc::new(patterns.strings()?.to_vec()) })
        })
    });
}

struct MatchingFiles {
    spec: Arc<Spec>,
    files: SharedFiles,
    patterns: Arc<Vec<Bytes>>,
}

impl Dataset for MatchingFiles {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn name(&self) -> &'static str {
        "MatchingFiles"
    }

    fn make(&self, _: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(MatchingFilesIterator {
            files: self.files.clone(),
            patterns: self.patterns.clone(),
            next: 0,
            found: VecDeque::new(),
            any: false,
        }))
    }
}

struct MatchingFilesIterator {
    files: SharedFiles,
    patterns: Arc<Vec<Bytes>>,
    /// The first pattern that has not been looked for.
    next: usize,
    found: VecDeque<Vec<u8>>,
    any: bool,
}

impl DatasetIterator for MatchingFilesIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        loop {
            if let Some(name) = self.found.pop_front() {
                self.any = true;
                return Ok(Some(vec![Tensor::from_strings(Shape::scalar(), vec![Bytes::from(name)])?]));
            }
            let Some(pattern) = self.patterns.get(self.next) else { break };
            self.next += 1;
            let files = &self.files;
            let matching = files.matching(&path(pattern))?;
            self.found.extend(matching.into_iter().filter(|name| files.is_directory(&path(name)) == Some(false)));
        }
        if self.any { Ok(None) } else { Err(not_found!("Don't find any matched files")) }
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("MatchingFiles");
        writer.size(self.next);
        writer.bool(self.any);
        writer.size(self.found.len());
        self.found.iter().for_each(|name| writer.text(name));
        Ok(())
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("MatchingFiles")?;
        self.next = reader.size()?;
        self.any = reader.bool()?;
        for _ in 0..reader.size()? {
            let name = reader.text()?;
            self.found.push_back(name.to_vec());
        }
        Ok(())
    }
}
