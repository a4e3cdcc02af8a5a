//! `DatasetToTFRecord`: a dataset of strings as the records of a file.

use crate::consume::run_in_step;
use crate::dataset::{input_dataset, scalar_string};
use crate::files::{SharedFiles, path};
use graphmill_formats::{Compression, RecordWriter};
use graphmill_runtime::{AsyncContext, AsyncKernel, Outputs, Registry};
use graphmill_tensor::{Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry, files: &SharedFiles) {
    for op in ["DatasetToTFRecord", "ExperimentalDatasetToTFRecord"] {
        let files = files.clone();
        registry.op(op).async_kernel(move |_| Ok(ToTfRecord(files.clone())));
    }
}

struct ToTfRecord(SharedFiles);

impl AsyncKernel for ToTfRecord {
    fn start(&self, mut ctx: AsyncContext) {
        let files = self.0.clone();
        let prepared = ctx.with_context(|ctx| {
            let compression = scalar_string(ctx, 2, "compression_type")?;
            let compression = Compression::from_name(&compression).ok_or_else(|| {
                invalid_argument!("Unsupported compression type: {}", String::from_utf8_lossy(&compression))
            })?;
            Ok((input_dataset(ctx, 0)?, scalar_string(ctx, 1, "filename")?, compression))
        });
        match prepared {
            Err(error) => ctx.complete(Err(error)),
            Ok(((dataset, name, compression), _)) => run_in_step(ctx, move |ctx| {
                let mut writer = RecordWriter::new(files.create(&path(&name))?, compression);
                let mut iterator = dataset.iterator(ctx)?;
                while let Some(element) = iterator.next()? {
                    ctx.check()?;
                    let record = element.first().map(Tensor::strings).transpose()?.and_then(<[_]>::first);
                    writer.write(record.map_or(&[], |record| record))?;
                }
                writer.close()?;
                Ok(Outputs::new())
            }),
        }
    }
}
