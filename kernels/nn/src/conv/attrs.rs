//! Attributes and shapes of two-dimensional convolutions, checked.

use crate::window::{Axis, DataFormat, Padding, int32_list};
use graphmill_runtime::Construction;
use graphmill_tensor::{DType, Result, Shape, Status, Tensor, invalid_argument, unimplemented_op};

/// The attributes that the three convolution ops share.
pub(crate) struct ConvAttrs {
    pub dtype: DType,
    pub format: DataFormat,
    padding: Padding,
    strides: (i64, i64),
    dilations: (i64, i64),
}

/// The sizes of one convolution; `in_depth` is a multiple of `patch_depth`, `out_depth` of the number of groups.
#[derive(Clone, Debug)]
pub(crate) struct ConvShape {
    pub batch: usize,
    pub rows: Axis,
    pub cols: Axis,
    pub in_depth: usize,
    /// Input channels that each output channel sees.
    pub patch_depth: usize,
    pub out_depth: usize,
}

impl ConvShape {
    /// The number of groups of channels that do not mix.
    pub fn groups(&self) -> usize {
        self.in_depth.checked_div(self.patch_depth).unwrap_or(0)
    }

    /// Elements of the filter under one output channel.
    pub fn patch_size(&self) -> usize {
        self.rows.window * self.cols.window * self.patch_depth
    }

    /// Elements of one input image.
    pub fn image(&self) -> usize {
        self.rows.input * self.cols.input * self.in_depth
    }

    /// Elements of one row of an output image.
    pub fn output_row(&self) -> usize {
        self.cols.output * self.out_depth
    }

    /// Whether any element has to be multiplied at all.
    pub fn is_empty(&self) -> bool {
        let sizes = [self.batch, self.rows.output, self.cols.output, self.out_depth, self.in_depth];
        sizes.contains(&0) || [self.rows.window, self.cols.window, self.patch_depth].contains(&0)
    }
}

/// The element types whose kernels in TensorFlow are oneDNN's, which take more shapes than the others.
fn general(dtype: DType) -> bool {
    matches!(dtype, DType::Float | DType::BFloat16)
}

impl ConvAttrs {
    /// Attributes of `Conv2D`.
    pub fn forward(c: &Construction<'_>) -> Result<ConvAttrs> {
        let attrs = ConvAttrs::new(c, Code::Unimplemented)?;
        if !general(attrs.dtype) && attrs.format != DataFormat::Nhwc {
            return Err(unimplemented_op!(
                "The Conv2D op currently only supports the NHWC tensor format on the CPU. The op was given the format: \
                 NCHW"
            ));
        }
        Ok(attrs)
    }

    /// Attributes of `Conv2DBackpropInput`.
    pub fn input_gradient(c: &Construction<'_>) -> Result<ConvAttrs> {
        ConvAttrs::new(c, Code::Unimplemented)?.gradient("Conv2DCustomBackpropInputOp")
    }

    /// Attributes of `Conv2DBackpropFilter`.
    pub fn filter_gradient(c: &Construction<'_>) -> Result<ConvAttrs> {
        ConvAttrs::new(c, Code::InvalidArgument)?.gradient("Conv2DCustomBackpropFilterOp")
    }

    fn gradient(self, kernel: &str) -> Result<ConvAttrs> {
        if general(self.dtype) {
            return Ok(self);
        }
        if self.format != DataFormat::Nhwc {
            return Err(invalid_argument!("{kernel} only supports NHWC."));
        }
        if self.dilations != (1, 1) {
            return Err(invalid_argument!(
                "Current CPU implementations do not yet support dilation rates larger than 1."
            ));
        }
        Ok(self)
    }

    fn new(c: &Construction<'_>, code: Code) -> Result<ConvAttrs> {
        let dtype = c.dtype("T")?;
        let format = DataFormat::from_attr(c)?;
        let (rows, cols, channels) = format.axes();
        let strides = int32_list(c, "strides")?;
        let dilations = int32_list(c, "dilations")?;
        let &[_, _, _, _] = dilations.as_slice() else {
            return Err(invalid_argument!("Sliding window dilations field must specify 4 dimensions"));
        };
        let &[_, _, _, _] = strides.as_slice() else {
            return Err(invalid_argument!("Sliding window strides field must specify 4 dimensions"));
        };
        if strides[0] != 1 || strides[channels] != 1 {
            return Err(
                code.status("Current implementation does not yet support strides in the batch and depth dimensions.")
            );
        }
        if strides[rows] <= 0 || strides[cols] <= 0 {
            return Err(invalid_argument!("Row and column strides should be larger than 0."));
        }
        if dilations[0] != 1 || dilations[channels] != 1 {
            return Err(
                code.status("Current implementation does not yet support dilations in the batch and depth dimensions.")
            );
        }
        if dilations[rows] <= 0 || dilations[cols] <= 0 {
            return Err(invalid_argument!("Dilated rates should be larger than 0."));
        }
        let padding = Padding::from_attrs(c, format)?;
        let strides = (strides[rows], strides[cols]);
        Ok(ConvAttrs { dtype, format, padding, strides, dilations: (dilations[rows], dilations[cols]) })
    }

    /// Attributes of the depthwise ops.
    pub fn depthwise(c: &Construction<'_>) -> Result<ConvAttrs> {
        let attrs = ConvAttrs::new(c, Code::InvalidArgument)?;
        if general(attrs.dtype) {
            return Ok(attrs);
        }
        if attrs.strides.0 != attrs.strides.1 {
            return Err(invalid_argument!(
                "Current implementation only supports equal length strides in the row and column dimensions."
            ));
        }
        if attrs.format != DataFormat::Nhwc {
            return Err(unimplemented_op!("Depthwise convolution on CPU is only supported for NHWC format"));
        }
        if attrs.dilations != (1, 1) {
            let dilations: Vec<String> = int32_list(c, "dilations")?.iter().map(i64::to_string).collect();
            return Err(unimplemented_op!(
                "Current kernel implementation does not support dilations, received [{}]",
                dilations.join(" ")
            ));
        }
        Ok(attrs)
    }

    /// The sizes of a depthwise convolution of `input` with `filter`.
    pub fn depthwise_shape(&self, input: &Shape, filter: &Shape) -> Result<ConvShape> {
        if input.rank() == 4 && filter.rank() == 4 {
            let (_, _, channels) = self.format.axes();
            if input.dim(channels) != filter.dim(2) {
                return Err(invalid_argument!(
                    "input and filter must have the same depth: {} vs {}",
                    input.dim(channels),
                    filter.dim(2)
                ));
            }
            return self.forward_shape(input, &in_groups(filter)?);
        }
        self.forward_shape(input, filter)
    }

    /// The sizes of the depthwise convolution whose gradient `out_backprop` is; `label` begins the texts of errors.
    pub fn depthwise_gradient_shape(
        &self,
        label: &str,
        input: &Shape,
        filter: &Shape,
        out_backprop: &Shape,
    ) -> Result<ConvShape> {
        for (shape, name) in [(input, "input"), (filter, "filter"), (out_backprop, "out_backprop")] {
            if shape.rank() != 4 {
                return Err(invalid_argument!("{label}: {name} must be 4-dimensional"));
            }
        }
        let (rows_at, cols_at, channels_at) = self.format.axes();
        if input.dim(0) != out_backprop.dim(0) {
            return Err(invalid_argument!("{label}: input and out_backprop must have the same batch size"));
        }
        for (at, text) in [(rows_at, "Input rows too large"), (cols_at, "Input cols too large")] {
            if i32::try_from(input.dim(at)).is_err() {
                return Err(invalid_argument!("{text}"));
            }
        }
        let in_depth = input.dim(channels_at);
        if in_depth != filter.dim(2) {
            return Err(invalid_argument!("{label}: input and filter must have the same in_depth"));
        }
        let filter = in_groups(filter)?;
        let out_depth = filter.dim(3);
        if out_depth != out_backprop.dim(channels_at) {
            return Err(invalid_argument!("{label}: depth_multiplier * in_depth not equal to out_depth"));
        }
        let (rows, cols) = self.axes(input, &filter)?;
        for (name, axis, at) in [("rows", rows, rows_at), ("cols", cols, cols_at)] {
            let actual = out_backprop.dim(at);
            if axis.output != actual {
                return Err(invalid_argument!(
                    "{label}: Number of {name} of out_backprop doesn't match computed: actual = {actual}, computed = {}",
                    axis.output
                ));
            }
        }
        Ok(ConvShape { batch: input.dim(0), rows, cols, in_depth, patch_depth: 1, out_depth })
    }

    fn axes(&self, input: &Shape, filter: &Shape) -> Result<(Axis, Axis)> {
        let (rows, cols, _) = self.format.axes();
        let axis =
            |at, tap, stride, dilation| Axis::new(input.dim(at), filter.dim(tap), stride, dilation, &self.padding, at);
        Ok((axis(rows, 0, self.strides.0, self.dilations.0)?, axis(cols, 1, self.strides.1, self.dilations.1)?))
    }

    /// The sizes of a convolution of `input` with `filter`.
    pub fn forward_shape(&self, input: &Shape, filter: &Shape) -> Result<ConvShape> {
        if input.rank() != 4 {
            return Err(invalid_argument!("input must be 4-dimensional{input}"));
        }
        if filter.rank() != 4 {
            return Err(invalid_argument!("filter must be 4-dimensional: {filter}"));
        }
        let too_large = |size: usize| i32::try_from(size).is_err();
        if filter.dims().iter().any(|&d| too_large(d)) {
            return Err(invalid_argument!("filter too large"));
        }
        let (rows_at, cols_at, channels_at) = self.format.axes();
        let (in_depth, patch_depth, out_depth) = (input.dim(channels_at), filter.dim(2), filter.dim(3));
        let named = [
            (channels_at, "Input depth too large"),
            (rows_at, "Input rows too large"),
            (cols_at, "Input cols too large"),
            (0, "batch is too large"),
        ];
        for (at, text) in named {
            if too_large(input.dim(at)) {
                return Err(invalid_argument!("{text}"));
            }
        }
        if patch_depth == 0 {
            return Err(invalid_argument!("filter depth must be stricly positive, got 0"));
        }
        if !in_depth.is_multiple_of(patch_depth) {
            return Err(invalid_argument!(
                "input depth must be evenly divisible by filter depth: {in_depth} vs {patch_depth}"
            ));
        }
        let (rows, cols) = self.axes(input, filter)?;
        let shape = ConvShape { batch: input.dim(0), rows, cols, in_depth, patch_depth, out_depth };
        if [shape.batch, rows.output, cols.output, out_depth].contains(&0) {
            return Ok(shape);
        }
        if filter.num_elements() == 0 {
            return Err(invalid_argument!("filter must not have zero elements (i.e. all dimensions must be non-zero)"));
        }
        if in_depth == 0 {
            return Err(invalid_argument!("grouped convolution must have at least one group: 0 groups"));
        }
        if !out_depth.is_multiple_of(shape.groups()) {
            return Err(invalid_argument!(
                "output depth must be evenly divisible by number of groups: {out_depth} vs {}",
                shape.groups()
            ));
        }
        Ok(shape)
    }

    /// The sizes of the convolution whose gradient `out_backprop` is; `label` begins the texts of errors.
    pub fn gradient_shape(
        &self,
        label: &str,
        input: &Shape,
        filter: &Shape,
        out_backprop: &Shape,
    ) -> Result<ConvShape> {
        for (shape, name) in [(input, "input"), (filter, "filter"), (out_backprop, "out_backprop")] {
            if shape.rank() != 4 {
                return Err(invalid_argument!("{label}: {name} must be 4-dimensional"));
            }
            if shape.dims().iter().any(|&d| i32::try_from(d).is_err()) {
                return Err(invalid_argument!("Tensor too large"));
            }
        }
        let (rows_at, cols_at, channels_at) = self.format.axes();
        let batch = input.dim(0);
        if batch != out_backprop.dim(0) {
            return Err(invalid_argument!(
                "{label}: input and out_backprop must have the same batch size. Input batch: {batch}, outbackprop batch: \
                 {}, batch_dim: 0",
                out_backprop.dim(0)
            ));
        }
        let (in_depth, patch_depth, out_depth) = (input.dim(channels_at), filter.dim(2), filter.dim(3));
        if patch_depth == 0 {
            return Err(invalid_argument!("{label}: filter depth must be strictly greated than zero"));
        }
        if !in_depth.is_multiple_of(patch_depth) {
            return Err(invalid_argument!("{label}: input depth must be evenly divisible by filter depth"));
        }
        if out_depth != out_backprop.dim(channels_at) {
            return Err(invalid_argument!("{label}: filter and out_backprop must have the same out_depth"));
        }
        let (rows, cols) = self.axes(input, filter)?;
        for (axis, at) in [(rows, rows_at), (cols, cols_at)] {
            let actual = out_backprop.dim(at);
            if axis.output != actual {
                return Err(invalid_argument!(
                    "{label}: Size of out_backprop doesn't match computed: actual = {actual}, computed = {} spatial_dim: \
                     {at} input: {} filter: {} output: {actual} stride: {} dilation: {}",
                    axis.output,
                    axis.input,
                    axis.window,
                    axis.stride,
                    axis.dilation
                ));
            }
        }
        let shape = ConvShape { batch, rows, cols, in_depth, patch_depth, out_depth };
        if shape.groups() > 1 {
            if !general(self.dtype) && label.ends_with("Input") {
                return Err(invalid_argument!(
                    "Gradients for grouped convolutions are not supported on CPU. Please file a feature request if you run \
                     into this issue. Computed input depth {in_depth} doesn't match filter input depth {patch_depth}"
                ));
            }
            if !general(self.dtype) {
                let taps = rows.window * cols.window * out_depth;
                return Err(invalid_argument!(
                    "filter_size does not have enough elements, requested {}, got {}",
                    taps.saturating_mul(in_depth),
                    taps.saturating_mul(patch_depth)
                ));
            }
            if !out_depth.is_multiple_of(shape.groups()) {
                return Err(invalid_argument!(
                    "output depth must be evenly divisible by number of groups: {out_depth} vs {}",
                    shape.groups()
                ));
            }
        }
        Ok(shape)
    }

    /// The shape of the input that tensor `input_sizes` spells out: all four sizes, or rows and columns alone.
    pub fn input_shape(&self, sizes: &Tensor, filter: &Shape, out_backprop: &Shape) -> Result<Shape> {
        if !sizes.shape().is_vector() {
            return Err(invalid_argument!(
                "Conv2DBackpropInput: input_sizes input must be 1-dim, not {}",
                sizes.shape().rank()
            ));
        }
        match sizes.to_i64_vec()?.as_slice() {
            dims @ [_, _, _, _] => shape_from(dims),
            &[rows, cols] => {
                if rows < 0 || cols < 0 {
                    return shape_from(&[rows, cols]);
                }
                self.format.shape(out_backprop.dim(0), rows as usize, cols as usize, filter.dim(2))
            }
            other => Err(invalid_argument!(
                "Conv2DBackpropInput requires input_sizes to contain 4 values or 2 values, but got: {}",
                other.len()
            )),
        }
    }
}

/// The status code of a complaint that two kernels make with different ones.
#[derive(Clone, Copy)]
enum Code {
    Unimplemented,
    InvalidArgument,
}

impl Code {
    fn status(self, text: &str) -> Status {
        match self {
            Code::Unimplemented => unimplemented_op!("{text}"),
            Code::InvalidArgument => invalid_argument!("{text}"),
        }
    }
}

/// The shape that a vector of sizes spells out; `name` is what complaints call it.
pub(crate) fn sizes_shape(name: &str, sizes: &Tensor) -> Result<Shape> {
    if !sizes.shape().is_vector() {
        return Err(invalid_argument!("{name} input must be 1-dim, not {}", sizes.shape().rank()));
    }
    shape_from(&sizes.to_i64_vec()?)
}

/// The filter of a depthwise convolution as that of one in groups of one channel; the elements lie alike.
fn in_groups(filter: &Shape) -> Result<Shape> {
    let channels = filter.dim(2).checked_mul(filter.dim(3));
    Shape::from_dims(&[filter.dim(0), filter.dim(1), 1, channels.unwrap_or(usize::MAX)])
}

fn shape_from(dims: &[i64]) -> Result<Shape> {
    match dims.iter().find(|&&d| d < 0) {
        Some(dim) => Err(invalid_argument!("Dimension {dim} must be >= 0")),
        None => Shape::new(dims),
    }
}
