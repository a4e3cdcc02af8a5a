//! Ops that write summaries to a file.

use super::audio::{audio_values, most_sounds};
use super::histogram::histogram;
use super::image::{check_bad_color, image_values, most_images};
use super::ops::tensor_value;
use super::to_f64;
use super::writer::{Settings, SummaryWriter};
use crate::inputs::{first, text};
use graphmill_formats::FileSystem;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{ResourceHandle, Result, Shape, Tensor, data_loss, internal, invalid_argument};
use graphmill_wire::tensorflow::summary::{Value, value};
use graphmill_wire::tensorflow::{Event, GraphDef, Summary, event};
use prost::Message;
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    registry.op("SummaryWriter").kernel(WriterHandle::new);
    let kept = files.clone();
    registry.op("CreateSummaryFileWriter").blocking_kernel(move |_| Ok(CreateSummaryFileWriter(kept.clone())));
    registry.op("FlushSummaryWriter").blocking_kernel(|_| Ok(FlushSummaryWriter));
    registry.op("CloseSummaryWriter").blocking_kernel(|_| Ok(CloseSummaryWriter));
    registry.op("WriteScalarSummary").blocking_kernel(|_| Ok(Write(Kind::Scalar)));
    registry.op("WriteHistogramSummary").blocking_kernel(|_| Ok(Write(Kind::Histogram)));
    registry.op("WriteImageSummary").blocking_kernel(|c| Ok(Write(Kind::Image(most_images(c)?))));
    registry.op("WriteAudioSummary").blocking_kernel(|c| Ok(Write(Kind::Audio(most_sounds(c)?))));
    registry.op("WriteSummary").blocking_kernel(|_| Ok(Write(Kind::Tensor)));
    registry.op("WriteRawProtoSummary").blocking_kernel(|_| Ok(Write(Kind::RawProto)));
    registry.op("WriteGraphSummary").blocking_kernel(|_| Ok(Write(Kind::Graph)));
    registry.op("ImportEvent").blocking_kernel(|_| Ok(Write(Kind::Event)));
}

/// The handle of a writer, which another op makes.
struct WriterHandle(ResourceHandle);

impl WriterHandle {
    fn new(c: &Construction<'_>) -> Result<WriterHandle> {
        let (container, shared) = (c.attrs().str("container")?, c.attrs().str("shared_name")?);
        let container = if container.is_empty() { c.device().default_container() } else { container };
        let name = if shared.is_empty() { c.name() } else { shared };
        Ok(WriterHandle(c.device().resource_handle::<SummaryWriter>(container, name, Vec::new())))
    }
}

impl Kernel for WriterHandle {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        ctx.set_output(0, Tensor::from_handles(Shape::scalar(), vec![self.0.clone()])?)
    }
}

fn handle<'a>(ctx: &'a Context<'_>) -> Result<&'a ResourceHandle> {
    ctx.input(0)?.handles()?.first().ok_or_else(|| internal!("there is no handle"))
}

fn writer(ctx: &Context<'_>) -> Result<Arc<SummaryWriter>> {
    ctx.device().lookup_handle(handle(ctx)?)
}

/// Makes the writer that a handle names, if there is none.
struct CreateSummaryFileWriter(Arc<dyn FileSystem>);

impl Kernel for CreateSummaryFileWriter {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        for (i, name) in [(1, "logdir"), (2, "max_queue"), (3, "flush_millis"), (4, "filename_suffix")] {
            if !ctx.input(i)?.shape().is_scalar() {
                return Err(invalid_argument!("{name} must be a scalar"));
            }
        }
        let handle = handle(ctx)?;
        ctx.device().check_handle::<SummaryWriter>(handle)?;
        let settings = Settings {
            directory: text(first(ctx.input(1)?)?),
            max_queue: usize::try_from(ctx.input(2)?.scalar_value::<i32>()?).unwrap_or(0),
            flush_every: Duration::from_millis(u64::try_from(ctx.input(3)?.scalar_value::<i32>()?).unwrap_or(0)),
            suffix: text(first(ctx.input(4)?)?),
        };
        let create = || SummaryWriter::create(self.0.clone(), settings);
        ctx.device().resources().lookup_or_create(&handle.container, &handle.name, create)?;
        Ok(())
    }
}

/// Hands what has been written to the system.
struct FlushSummaryWriter;

impl Kernel for FlushSummaryWriter {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        writer(ctx)?.flush()
    }
}

/// Ends a writer, with all that it has not written yet.
struct CloseSummaryWriter;

impl Kernel for CloseSummaryWriter {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let handle = handle(ctx)?;
        ctx.device().check_handle::<SummaryWriter>(handle)?;
        ctx.device().resources().delete::<SummaryWriter>(&handle.container, &handle.name)
    }
}

/// Writes one kind of summary.
struct Write(Kind);

enum Kind {
    Scalar,
    Histogram,
    /// How many at most.
    Image(usize),
    /// How many at most.
    Audio(usize),
    Tensor,
    RawProto,
    Graph,
    Event,
}

impl Kernel for Write {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let writer = writer(ctx)?;
        if matches!(self.0, Kind::Event) {
            let event = Event::decode(scalar_string(ctx, 1, "event")?)
                .map_err(|_| data_loss!("Bad tf.Event binary proto tensor string"))?;
            return writer.write(event);
        }
        let step = ctx.input(1)?;
        if !step.shape().is_scalar() {
            return Err(invalid_argument!("step must be scalar, got shape {}", step.shape()));
        }
        let step = step.scalar_value::<i64>()?;
        match self.0 {
            Kind::Graph => {
                let graph = scalar_string(ctx, 2, "tensor")?;
                GraphDef::decode(graph).map_err(|_| data_loss!("Bad tf.GraphDef binary proto tensor string"))?;
                writer.write_what(step, event::What::GraphDef(first(ctx.input(2)?)?.clone()))
            }
            Kind::RawProto => {
                let mut summary = Summary::default();
                for (i, part) in ctx.input(2)?.strings()?.iter().enumerate() {
                    summary
                        .merge(part.as_ref())
                        .map_err(|_| data_loss!("Bad tf.compat.v1.Summary binary proto tensor string at index {i}"))?;
                }
                writer.write_what(step, event::What::Summary(summary))
            }
            _ => writer.write_values(step, self.values(ctx)?),
        }
    }
}

impl Write {
    fn values(&self, ctx: &Context<'_>) -> Result<Vec<Value>> {
        if matches!(self.0, Kind::Tensor) {
            let tag = text(scalar_string(ctx, 3, "tag")?);
            return Ok(vec![tensor_value(tag, ctx.input(2)?, scalar_string(ctx, 4, "summary_metadata")?)]);
        }
        let tag = text(scalar_string(ctx, 2, "tag")?);
        let tensor = ctx.input(3)?;
        let value = match self.0 {
            Kind::Scalar => {
                let number = to_f64(tensor)?.first().copied();
                let number = number.ok_or_else(|| invalid_argument!("value must be scalar"))?;
                value::Value::SimpleValue(number as f32)
            }
            Kind::Histogram => value::Value::Histo(histogram(&to_f64(tensor)?, &tag)?),
            Kind::Image(most) => {
                let bad_color = ctx.input(4)?;
                check_bad_color(bad_color)?;
                return image_values(&tag, tensor, most, bad_color.as_slice::<u8>()?);
            }
            Kind::Audio(most) => {
                return audio_values(&tag, tensor, most, ctx.input(4)?.scalar_value::<f32>()?);
            }
            Kind::Tensor | Kind::RawProto | Kind::Graph | Kind::Event => {
                return Err(internal!("a summary of this kind has no values"));
            }
        };
        Ok(vec![Value { tag, value: Some(value), ..Value::default() }])
    }
}

fn scalar_string<'a>(ctx: &'a Context<'_>, i: usize, name: &str) -> Result<&'a [u8]> {
    let tensor = ctx.input(i)?;
    if !tensor.shape().is_scalar() {
        return Err(invalid_argument!("{name} must be scalar, got shape {}", tensor.shape()));
    }
    Ok(first(tensor)?)
}
