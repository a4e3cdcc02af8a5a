//! What convolution and pooling in three dimensions share: attributes, shapes, and data with the channels second.

use crate::convert::transposed;
use crate::window::{Axis, DataFormat, Padding, int32_list};
use graphmill_runtime::{Construction, Context};
use graphmill_tensor::{Element, Result, Shape, Status, Tensor, invalid_argument, unimplemented_op};

/// A sliding window in three dimensions.
pub(crate) struct VolumeAttrs {
    pub format: DataFormat,
    pub padding: Padding,
    /// Along planes, rows and columns.
    pub strides: [i64; 3],
    pub dilations: [i64; 3],
}

/// The three spatial elements of a list in the order of a data format, and those of batch and channels.
fn split(format: DataFormat, values: &[i64]) -> Option<([i64; 3], [i64; 2])> {
    match (format, values) {
        (DataFormat::Nhwc, &[n, z, y, x, c]) | (_, &[n, c, z, y, x]) => Some(([z, y, x], [n, c])),
        _ => None,
    }
}

impl VolumeAttrs {
    /// The attributes of a convolution.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for lists of the wrong length or values that are not supported.
    pub fn convolution(c: &Construction<'_>) -> Result<VolumeAttrs> {
        let format = DataFormat::from_attr(c)?;
        let Some((strides, outer)) = split(format, &int32_list(c, "strides")?) else {
            return Err(invalid_argument!("Sliding window strides field must specify 5 dimensions"));
        };
        if outer != [1, 1] {
            return Err(invalid_argument!(
                "Current implementation does not yet support strides in the batch and depth dimensions."
            ));
        }
        if strides.iter().any(|&s| s <= 0) {
            return Err(invalid_argument!("Spatial strides should be larger than 0."));
        }
        let Some((dilations, outer)) = split(format, &int32_list(c, "dilations")?) else {
            return Err(invalid_argument!("Dilation rates field must specify 5 dimensions"));
        };
        if outer != [1, 1] {
            return Err(invalid_argument!(
                "Current implementation does not yet support dilation rates in the batch and depth dimensions."
            ));
        }
        if dilations.iter().any(|&d| d <= 0) {
            return Err(invalid_argument!("Dilated rates should be larger than 0."));
        }
        Ok(VolumeAttrs { format, padding: padding(c)?, strides, dilations })
    }

    /// The attributes of pooling, and its window. `kernel` is named in the error for channels second, which pooling does not
    /// take.
    ///
    /// # Errors
    /// As [`VolumeAttrs::convolution`].
    pub fn pooling(c: &Construction<'_>, kernel: &str) -> Result<(VolumeAttrs, [i64; 3])> {
        let format = DataFormat::from_attr(c)?;
        if format != DataFormat::Nhwc {
            return Err(invalid_argument!("Default {kernel} only supports NDHWC on device type CPU"));
        }
        let Some((window, outer)) = split(format, &int32_list(c, "ksize")?) else {
            return Err(invalid_argument!("Sliding window ksize field must specify 5 dimensions"));
        };
        if window.iter().chain(&outer).any(|&k| k <= 0) {
            return Err(invalid_argument!("Sliding window ksize field must have non-negative dimensions"));
        }
        let Some((strides, outer_strides)) = split(format, &int32_list(c, "strides")?) else {
            return Err(invalid_argument!("Sliding window stride field must specify 5 dimensions"));
        };
        for (at, name) in ["batch", "depth"].into_iter().enumerate() {
            if outer[at] != 1 || outer_strides[at] != 1 {
                return Err(unimplemented_op!("Pooling is not yet supported on the {name} dimension."));
            }
        }
        Ok((VolumeAttrs { format, padding: padding(c)?, strides, dilations: [1; 3] }, window))
    }

    /// The window along each spatial dimension.
    ///
    /// # Errors
    /// As [`Axis::new`].
    pub fn axes(&self, input: [usize; 3], window: [usize; 3]) -> Result<[Axis; 3]> {
        let axis = |i: usize| Axis::new(input[i], window[i], self.strides[i], self.dilations[i], &self.padding, i + 1);
        Ok([axis(0)?, axis(1)?, axis(2)?])
    }
}

fn padding(c: &Construction<'_>) -> Result<Padding> {
    match c.attrs().str("padding")? {
        "SAME" => Ok(Padding::Same),
        "VALID" => Ok(Padding::Valid),
        other => Err(invalid_argument!("{other} is not an allowed padding type")),
    }
}

/// Batch, spatial sizes and channels of a 5-D shape.
pub(crate) fn sizes(format: DataFormat, shape: &Shape) -> Option<(usize, [usize; 3], usize)> {
    match (format, shape.dims()) {
        (DataFormat::Nhwc, &[n, z, y, x, c]) | (DataFormat::Nchw | DataFormat::NchwVectC, &[n, c, z, y, x]) => {
            Some((n, [z, y, x], c))
        }
        _ => None,
    }
}

/// A 5-D shape from its parts.
pub(crate) fn shape(format: DataFormat, batch: usize, [z, y, x]: [usize; 3], channels: usize) -> Result<Shape> {
    match format {
        DataFormat::Nhwc => Shape::from_dims(&[batch, z, y, x, channels]),
        DataFormat::Nchw | DataFormat::NchwVectC => Shape::from_dims(&[batch, channels, z, y, x]),
    }
}

/// A copy with the channels last, of a 5-D tensor with the channels second.
pub(crate) fn channels_last<T: Element>(ctx: &Context<'_>, tensor: &Tensor) -> Result<Tensor> {
    let (batch, inner, channels) = sizes(DataFormat::Nchw, tensor.shape()).ok_or_else(not_five)?;
    transposed::<T>(ctx, tensor, shape(DataFormat::Nhwc, batch, inner, channels)?, channels, inner.iter().product())
}

/// A copy with the channels second, of a 5-D tensor with the channels last.
pub(crate) fn channels_second<T: Element>(ctx: &Context<'_>, tensor: &Tensor) -> Result<Tensor> {
    let (batch, inner, channels) = sizes(DataFormat::Nhwc, tensor.shape()).ok_or_else(not_five)?;
    transposed::<T>(ctx, tensor, shape(DataFormat::Nchw, batch, inner, channels)?, inner.iter().product(), channels)
}

fn not_five() -> Status {
    invalid_argument!("input must be 5-dimensional")
}
