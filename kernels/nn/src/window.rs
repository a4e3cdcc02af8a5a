//! Sliding windows: data formats, padding, and what they mean for one spatial dimension.

use graphmill_runtime::Construction;
use graphmill_tensor::{Result, Shape, invalid_argument};

/// Where the dimensions of a 4-D image tensor lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DataFormat {
    /// Channels last.
    Nhwc,
    /// Channels second.
    Nchw,
    /// Channels second, in vectors of four that make a fifth dimension.
    NchwVectC,
}

impl DataFormat {
    /// The format in attribute `data_format`; channels last if the op has none.
    pub fn from_attr(c: &Construction<'_>) -> Result<DataFormat> {
        if !c.attrs().has("data_format") {
            return Ok(DataFormat::Nhwc);
        }
        match c.attrs().str("data_format")? {
            "NHWC" | "NDHWC" => Ok(DataFormat::Nhwc),
            "NCHW" | "NCDHW" => Ok(DataFormat::Nchw),
            "NCHW_VECT_C" => Ok(DataFormat::NchwVectC),
            _ => Err(invalid_argument!("Invalid data format")),
        }
    }

    /// The positions of rows, columns and channels among four dimensions.
    pub fn axes(self) -> (usize, usize, usize) {
        match self {
            DataFormat::Nhwc => (1, 2, 3),
            DataFormat::Nchw | DataFormat::NchwVectC => (2, 3, 1),
        }
    }

    /// A shape from its parts.
    pub fn shape(self, batch: usize, rows: usize, cols: usize, channels: usize) -> Result<Shape> {
        match self {
            DataFormat::Nhwc => Shape::from_dims(&[batch, rows, cols, channels]),
            DataFormat::Nchw | DataFormat::NchwVectC => Shape::from_dims(&[batch, channels, rows, cols]),
        }
    }
}

/// How the border of an image is padded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Padding {
    /// As much as makes the output the input's size divided by the stride, rounded up.
    Same,
    /// None.
    Valid,
    /// Before and after each of the four dimensions, in the order of the data format.
    Explicit([i64; 8]),
}

impl Padding {
    /// The padding in attributes `padding` and, where the op has it, `explicit_paddings`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if explicit paddings are missing, superfluous, negative, or not of rows and columns.
    pub fn from_attrs(c: &Construction<'_>, format: DataFormat) -> Result<Padding> {
        let explicit = if c.attrs().has("explicit_paddings") { c.attrs().int_list("explicit_paddings")? } else { &[] };
        let padding = match c.attrs().str("padding")? {
            "SAME" => Padding::Same,
            "VALID" => Padding::Valid,
            "EXPLICIT" => {
                let Ok(values) = <[i64; 8]>::try_from(explicit) else {
                    return Err(invalid_argument!(
                        "explicit_paddings attribute must contain 8 values, but got: {}",
                        explicit.len()
                    ));
                };
                if values.iter().any(|&v| v < 0) {
                    return Err(invalid_argument!("All elements of explicit_paddings must be nonnegative"));
                }
                let (_, _, channels) = format.axes();
                if [0, 1, 2 * channels, 2 * channels + 1].iter().any(|&at| values[at] != 0) {
                    return Err(invalid_argument!(
                        "Nonzero explicit padding in the batch or depth dimensions is not supported"
                    ));
                }
                return Ok(Padding::Explicit(values));
            }
            other => return Err(invalid_argument!("{other} is not an allowed padding type")),
        };
        if explicit.is_empty() {
            Ok(padding)
        } else {
            Err(invalid_argument!("explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT"))
        }
    }
}

/// A list of integers that must fit 32 bits.
pub(crate) fn int32_list(c: &Construction<'_>, name: &str) -> Result<Vec<i64>> {
    let values = c.attrs().int_list(name)?;
    match values.iter().find(|&&v| i32::try_from(v).is_err()) {
        Some(v) => Err(invalid_argument!("Attr {name} has value {v} out of range for an int32")),
        None => Ok(values.to_vec()),
    }
}

/// A window that slides along one dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Axis {
    /// Elements of the input.
    pub input: usize,
    /// Elements of the window.
    pub window: usize,
    /// Elements of the output.
    pub output: usize,
    /// Input elements from one window to the next.
    pub stride: usize,
    /// Input elements from one element of the window to the next.
    pub dilation: usize,
    /// Elements of padding before the input.
    pub before: usize,
    /// Elements of padding behind the input.
    pub after: usize,
}

impl Axis {
    /// The window along dimension `axis` of the data format.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a stride or dilation below 1, or if the output would have a negative size.
    pub fn new(
        input: usize,
        window: usize,
        stride: i64,
        dilation: i64,
        padding: &Padding,
        axis: usize,
    ) -> Result<Axis> {
        if stride <= 0 {
            return Err(invalid_argument!("Stride must be > 0, but got {stride}"));
        }
        if dilation < 1 {
            return Err(invalid_argument!("Dilation rate must be >= 1, but got {dilation}"));
        }
        // All are sizes of tensors or 32-bit attributes, so that 128 bits hold every product and sum.
        let (input_size, stride_size) = (input as i128, i128::from(stride));
        let effective = (window as i128 - 1) * i128::from(dilation) + 1;
        // Division rounds towards 0, so that a window just too large makes an empty output and no error.
        let (output, before, after) = match padding {
            Padding::Valid => ((input_size - effective + stride_size) / stride_size, 0, 0),
            Padding::Explicit(values) => {
                let (before, after) = (i128::from(values[2 * axis]), i128::from(values[2 * axis + 1]));
                ((input_size + before + after - effective + stride_size) / stride_size, before, after)
            }
            Padding::Same => {
                let output = (input_size + stride_size - 1) / stride_size;
                let needed = ((output - 1) * stride_size + effective - input_size).max(0);
                (output, needed / 2, needed - needed / 2)
            }
        };
        if output < 0 {
            return Err(invalid_argument!(
                "Computed output size would be negative: {output} [input_size: {input}, effective_filter_size: \
                 {effective}, stride: {stride}]"
            ));
        }
        let fits = |value: i128| {
            usize::try_from(value)
                .ok()
                .filter(|&v| i32::try_from(v).is_ok())
                .ok_or_else(|| invalid_argument!("filter too large"))
        };
        Ok(Axis {
            input,
            window,
            output: fits(output)?,
            stride: fits(stride_size)?,
            dilation: fits(i128::from(dilation))?,
            before: fits(before)?,
            after: fits(after)?,
        })
    }

    /// The input element under element `tap` of window `at`, if that is not padding.
    pub fn source(&self, at: usize, tap: usize) -> Option<usize> {
        (at * self.stride + tap * self.dilation).checked_sub(self.before).filter(|&i| i < self.input)
    }

    /// The input elements under window `at` when nothing is dilated: a range within the input, possibly empty.
    pub fn covered(&self, at: usize) -> std::ops::Range<usize> {
        let start = (at * self.stride).saturating_sub(self.before).min(self.input);
        let end = (at * self.stride + self.window).saturating_sub(self.before).min(self.input);
        start..end.max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_padding_puts_the_odd_element_behind() {
        let axis = Axis::new(5, 2, 2, 1, &Padding::Same, 1).unwrap();
        assert_eq!((axis.output, axis.before, axis.after), (3, 0, 1));
        let axis = Axis::new(4, 3, 1, 2, &Padding::Same, 1).unwrap();
        assert_eq!((axis.output, axis.before, axis.after), (4, 2, 2));
        assert_eq!(axis.source(0, 0), None);
        assert_eq!(axis.source(0, 1), Some(0));
        assert_eq!(axis.source(3, 2), None);
    }

    #[test]
    fn a_window_that_does_not_fit_is_an_error() {
        assert_eq!(Axis::new(3, 4, 1, 1, &Padding::Valid, 1).unwrap().output, 0);
        let error = Axis::new(3, 5, 1, 1, &Padding::Valid, 1).unwrap_err();
        assert_eq!(
            error.message(),
            "Computed output size would be negative: -1 [input_size: 3, effective_filter_size: 5, stride: 1]"
        );
        assert!(Axis::new(3, 1, 0, 1, &Padding::Valid, 1).is_err());
        assert!(Axis::new(3, usize::MAX, i64::MAX, i64::MAX, &Padding::Same, 1).is_err());
    }

    #[test]
    fn covered_ranges_stay_inside() {
        let padding = Padding::Explicit([0, 0, 3, 3, 0, 0, 0, 0]);
        let axis = Axis::new(2, 2, 1, 1, &padding, 1).unwrap();
        let ranges: Vec<_> = (0..axis.output).map(|at| axis.covered(at)).collect();
        assert_eq!(ranges, [0..0, 0..0, 0..1, 0..2, 1..2, 2..2, 2..2]);
    }
}
