//! Attributes and shapes of two-dimensional pooling, checked.

use crate::window::{Axis, DataFormat, Padding, int32_list};
use graphmill_runtime::{Construction, Context};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument, unimplemented_op};

/// The attributes of a pooling op. `window` is there unless window and strides come as inputs.
pub(super) struct PoolAttrs {
    pub dtype: DType,
    pub format: DataFormat,
    padding: Padding,
    window: Option<Sliding>,
}

/// Window and strides, in the order of the data format.
#[derive(Clone, Copy)]
struct Sliding {
    ksize: [i64; 4],
    strides: [i64; 4],
}

/// The sizes of one pooling.
pub(super) struct PoolShape {
    pub batch: usize,
    pub rows: Axis,
    pub cols: Axis,
    pub depth: usize,
    /// Channels under a window; 1 unless pooling goes along the channels.
    pub depth_window: usize,
}

impl PoolShape {
    /// The output's shape, channels last.
    pub fn output(&self) -> Result<Shape> {
        if self.depth_window == 1 {
            Shape::from_dims(&[self.batch, self.rows.output, self.cols.output, self.depth])
        } else {
            Shape::from_dims(&[self.batch, self.rows.input, self.cols.input, self.depth / self.depth_window])
        }
    }

    /// Elements of an input image.
    pub fn image(&self) -> usize {
        self.rows.input * self.cols.input * self.depth
    }

    /// Elements of an output row, pooled along rows and columns.
    pub fn output_row(&self) -> usize {
        self.cols.output * self.depth
    }

    /// Elements under a window.
    pub fn window(&self) -> usize {
        self.rows.window * self.cols.window
    }
}

/// The element types whose pooling TensorFlow leaves to oneDNN, which takes channels second too.
pub(super) fn general(dtype: DType) -> bool {
    matches!(dtype, DType::Float | DType::BFloat16)
}

fn four(values: &[i64], name: &str) -> Result<[i64; 4]> {
    <[i64; 4]>::try_from(values).map_err(|_| invalid_argument!("Sliding window {name} field must specify 4 dimensions"))
}

impl PoolAttrs {
    /// Reads the attributes; `strides` is how the op's complaints name that attribute.
    pub fn new(c: &Construction<'_>, strides: &str) -> Result<PoolAttrs> {
        let window = if c.attrs().has("ksize") {
            let ksize = four(&int32_list(c, "ksize")?, "ksize")?;
            Some(Sliding { ksize, strides: four(&int32_list(c, "strides")?, strides)? })
        } else {
            None
        };
        let format = DataFormat::from_attr(c)?;
        let attrs = PoolAttrs { dtype: c.dtype("T")?, format, padding: Padding::from_attrs(c, format)?, window };
        if let Some(window) = &attrs.window {
            window.check_batch()?;
        }
        Ok(attrs)
    }

    /// Refuses channels in the second dimension unless the element type is one that takes them and no channels are pooled.
    pub fn channels_last_unless_general(self, kernel: &str) -> Result<PoolAttrs> {
        let (_, _, channels) = self.format.axes();
        let spatial = self.window.is_none_or(|w| w.ksize[channels] == 1 && w.strides[channels] == 1);
        if general(self.dtype) && self.format == DataFormat::Nchw && spatial {
            return Ok(self);
        }
        self.channels_last(kernel)
    }

    /// Refuses channels in the second dimension.
    pub fn channels_last(self, kernel: &str) -> Result<PoolAttrs> {
        if self.format == DataFormat::Nhwc {
            Ok(self)
        } else {
            Err(invalid_argument!("Default {kernel} only supports NHWC on device type CPU"))
        }
    }

    /// Refuses a window that is empty.
    pub fn positive_window(self) -> Result<PoolAttrs> {
        match &self.window {
            Some(window) if window.ksize.iter().any(|&k| k <= 0) => {
                let sizes: Vec<String> = window.ksize.iter().map(i64::to_string).collect();
                Err(invalid_argument!(
                    "Sliding window ksize must be positive. The specified or inferred ksize is: {}",
                    sizes.join(",")
                ))
            }
            _ => Ok(self),
        }
    }

    /// Refuses pooling along the channels, in a gradient of which `name` is the op.
    pub fn spatial(self, name: &str) -> Result<PoolAttrs> {
        if let Some(window) = &self.window {
            window.check_spatial(name, self.format)?;
        }
        Ok(self)
    }

    fn sliding(&self, ctx: &Context<'_>, sizes: Option<usize>, strides: &str) -> Result<Sliding> {
        match (&self.window, sizes) {
            (Some(window), _) => Ok(*window),
            (None, Some(first)) => {
                let window = Sliding {
                    ksize: four(&ctx.input(first)?.to_i64_vec()?, "ksize")?,
                    strides: four(&ctx.input(first + 1)?.to_i64_vec()?, strides)?,
                };
                window.check_batch()?;
                if window.ksize.iter().any(|&k| k <= 0) {
                    return Err(invalid_argument!("Sliding window ksize must be positive."));
                }
                Ok(window)
            }
            (None, None) => Err(invalid_argument!("Sliding window ksize field must specify 4 dimensions")),
        }
    }

    /// The sizes of pooling an `input`; `sizes` is the first of the two inputs that hold window and strides if attributes do
    /// not.
    pub fn shape(&self, ctx: &Context<'_>, input: &Shape, sizes: Option<usize>) -> Result<PoolShape> {
        self.shape_of(&self.sliding(ctx, sizes, "stride")?, input)
    }

    /// As [`PoolAttrs::shape`], for a gradient: pooling along the channels is refused.
    pub fn spatial_shape(
        &self,
        ctx: &Context<'_>,
        input: &Shape,
        sizes: Option<usize>,
        name: &str,
    ) -> Result<PoolShape> {
        let sliding = self.sliding(ctx, sizes, "strides")?;
        sliding.check_spatial(name, self.format)?;
        self.shape_of(&sliding, input)
    }

    fn shape_of(&self, sliding: &Sliding, input: &Shape) -> Result<PoolShape> {
        if input.rank() != 4 {
            let format = if self.format == DataFormat::Nhwc { "NHWC" } else { "NCHW" };
            return Err(invalid_argument!("tensor_in_shape must have 2 spatial dimensions. {} {format}", input.rank()));
        }
        let (rows_at, cols_at, channels_at) = self.format.axes();
        let Sliding { ksize, strides } = sliding;
        let (depth, depth_window) = (input.dim(channels_at), ksize[channels_at]);
        if depth_window != 1 && (ksize[rows_at], ksize[cols_at]) != (1, 1) {
            return Err(unimplemented_op!(
                "MaxPooling supports exactly one of pooling across depth or pooling across width/height."
            ));
        }
        let window = |at: usize| {
            usize::try_from(ksize[at]).map_err(|_| invalid_argument!("Sliding window ksize must be positive."))
        };
        let named = [
            ("Top", 2 * rows_at, rows_at),
            ("Bottom", 2 * rows_at + 1, rows_at),
            ("Left", 2 * cols_at, cols_at),
            ("Right", 2 * cols_at + 1, cols_at),
        ];
        if let Padding::Explicit(values) = &self.padding {
            for (side, at, axis) in named {
                if values[at] >= ksize[axis] {
                    return Err(invalid_argument!(
                        "{side} padding {} needs to be smaller than the window size {}",
                        values[at],
                        ksize[axis]
                    ));
                }
            }
        }
        let axis = |at: usize| Axis::new(input.dim(at), window(at)?, strides[at], 1, &self.padding, at);
        if depth_window != 1 {
            if depth_window <= 0 {
                return Err(invalid_argument!("depth_window must not be 0"));
            }
            if !depth.is_multiple_of(window(channels_at)?) {
                return Err(unimplemented_op!(
                    "Depthwise max pooling requires the depth window to evenly divide the input depth"
                ));
            }
            if strides[channels_at] != depth_window {
                return Err(unimplemented_op!(
                    "Depthwise max pooling requires the depth window to equal the depth stride"
                ));
            }
        }
        Ok(PoolShape {
            batch: input.dim(0),
            rows: axis(rows_at)?,
            cols: axis(cols_at)?,
            depth,
            depth_window: window(channels_at)?,
        })
    }
}

impl Sliding {
    fn check_batch(&self) -> Result<()> {
        if self.ksize[0] == 1 && self.strides[0] == 1 {
            Ok(())
        } else {
            Err(unimplemented_op!("Pooling is not yet supported on the batch dimension."))
        }
    }

    fn check_spatial(&self, name: &str, format: DataFormat) -> Result<()> {
        let (_, _, channels) = format.axes();
        if self.ksize[channels] == 1 && self.strides[channels] == 1 {
            Ok(())
        } else {
            Err(unimplemented_op!("{name} is not yet supported on the depth dimension."))
        }
    }
}

/// Checks that a tensor has four dimensions.
pub(super) fn check_rank(tensor: &Tensor, name: &str) -> Result<()> {
    if tensor.shape().rank() == 4 { Ok(()) } else { Err(invalid_argument!("{name} must be 4-dimensional")) }
}

/// Checks that a tensor has the shape it must have.
pub(super) fn check_shape(tensor: &Tensor, name: &str, expected: &Shape) -> Result<()> {
    if tensor.shape() == expected {
        Ok(())
    } else {
        Err(invalid_argument!("Expected {name} shape to be {expected}, but got {}", tensor.shape()))
    }
}
