//! Where the pixels of a resized image come from.

use graphmill_runtime::{Construction, Context};
use graphmill_tensor::{Result, Shape, Tensor, invalid_argument};

/// Where the corners of both images lie on each other.
#[derive(Clone, Copy)]
pub(super) struct Corners {
    /// The centres of the corner pixels, rather than their outer corners.
    pub aligned: bool,
    /// Whether coordinates are those of pixel centres, at a half.
    pub half_pixel: bool,
}

impl Corners {
    /// From the attributes of a node.
    pub(super) fn new(c: &Construction<'_>) -> Result<Corners> {
        let half_pixel = c.attrs().has("half_pixel_centers") && c.attrs().bool("half_pixel_centers")?;
        Ok(Corners { aligned: c.attrs().bool("align_corners")?, half_pixel })
    }

    fn check(self) -> Result<()> {
        if self.half_pixel && self.aligned {
            return Err(invalid_argument!("If half_pixel_centers is True, align_corners must be False."));
        }
        Ok(())
    }

    /// Steps in the original per step in the resized image.
    pub(super) fn scale(self, original: usize, resized: usize) -> f32 {
        if self.aligned && resized > 1 {
            (original - 1) as f32 / (resized - 1) as f32
        } else {
            original as f32 / resized as f32
        }
    }

    /// The coordinate in the original of a pixel of the resized image.
    pub(super) fn source(self, at: usize, scale: f32) -> f32 {
        if self.half_pixel { (at as f32 + 0.5) * scale - 0.5 } else { at as f32 * scale }
    }
}

/// Sizes of a batch of images, and their new size.
#[derive(Clone, Copy)]
pub(super) struct Geometry {
    pub batch: usize,
    pub channels: usize,
    pub height: usize,
    pub width: usize,
    pub new_height: usize,
    pub new_width: usize,
    pub vertical: f32,
    pub horizontal: f32,
}

impl Geometry {
    /// For an op that gets images and a size, with TensorFlow's checks.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for other shapes, sizes that are not positive, and combinations that are none.
    pub(super) fn forward(ctx: &Context<'_>, corners: Corners) -> Result<Geometry> {
        corners.check()?;
        let (images, size) = (ctx.input(0)?, ctx.input(1)?);
        let &[batch, height, width, channels] = images.shape().dims() else {
            return Err(invalid_argument!("input must be 4-dimensional{}", images.shape()));
        };
        if channels == 0 {
            return Err(invalid_argument!("image must have at least one channel"));
        }
        if height == 0 || width == 0 {
            return Err(invalid_argument!("input image must be of non-zero size"));
        }
        if height >= i32::MAX as usize || width >= i32::MAX as usize {
            return Err(invalid_argument!("input sizes must be between 0 and max int32"));
        }
        let [new_height, new_width] = new_size(size)?;
        let (Some(new_height), Some(new_width)) = (positive(new_height), positive(new_width)) else {
            return Err(invalid_argument!("output dimensions must be positive"));
        };
        let (vertical, horizontal) = (corners.scale(height, new_height), corners.scale(width, new_width));
        if ((new_width - 1) as f32 * horizontal).ceil() > i32::MAX as f32 {
            return Err(invalid_argument!("input image width scale would cause an overflow"));
        }
        Ok(Geometry { batch, channels, height, width, new_height, new_width, vertical, horizontal })
    }

    /// For an op that gets the gradient of resized images and the original ones.
    ///
    /// # Errors
    /// As [`Geometry::forward`].
    pub(super) fn backward(ctx: &Context<'_>, corners: Corners) -> Result<Geometry> {
        corners.check()?;
        let (gradient, original) = (ctx.input(0)?.shape(), ctx.input(1)?.shape());
        let &[batch, new_height, new_width, channels] = gradient.dims() else {
            return Err(invalid_argument!("input_grad must be 4-dimensional{gradient}"));
        };
        if new_height == 0 || new_width == 0 {
            return Err(invalid_argument!("resized dimensions must be positive"));
        }
        let &[_, height, width, _] = original.dims() else {
            return Err(invalid_argument!("original_image must be 4-dimensional{original}"));
        };
        if height == 0 || width == 0 {
            return Err(invalid_argument!("original dimensions must be positive"));
        }
        if height >= i32::MAX as usize || width >= i32::MAX as usize {
            return Err(invalid_argument!("original sizes must be between 0 and max int32"));
        }
        let (vertical, horizontal) = (corners.scale(height, new_height), corners.scale(width, new_width));
        Ok(Geometry { batch, channels, height, width, new_height, new_width, vertical, horizontal })
    }

    /// The shape of the original images.
    pub(super) fn original_shape(&self) -> Result<Shape> {
        Shape::from_dims(&[self.batch, self.height, self.width, self.channels])
    }

    /// The shape of the resized images.
    pub(super) fn resized_shape(&self) -> Result<Shape> {
        Shape::from_dims(&[self.batch, self.new_height, self.new_width, self.channels])
    }
}

/// The two numbers of a size.
pub(super) fn new_size(size: &Tensor) -> Result<[i32; 2]> {
    if !size.shape().is_vector() {
        return Err(invalid_argument!("shape_t must be 1-dimensional{}", size.shape()));
    }
    match size.as_slice::<i32>()? {
        &[height, width] => Ok([height, width]),
        _ => Err(invalid_argument!("shape_t must have two elements{}", size.shape())),
    }
}

/// A size, if it is one.
pub(super) fn positive(size: i32) -> Option<usize> {
    usize::try_from(size).ok().filter(|&size| size > 0)
}

/// The two pixels that a coordinate lies between, and how far it is from the first.
#[derive(Clone, Copy)]
pub(super) struct Between {
    pub low: usize,
    pub high: usize,
    pub part: f32,
}

/// For each pixel of a resized row or column, where it lies in the original.
pub(super) fn positions(corners: Corners, original: usize, resized: usize, scale: f32) -> Vec<Between> {
    (0..resized)
        .map(|at| {
            let source = corners.source(at, scale);
            let floor = source.floor();
            let last = original - 1;
            Between {
                low: (floor.max(0.0) as usize).min(last),
                high: (source.ceil().max(0.0) as usize).min(last),
                part: source - floor,
            }
        })
        .collect()
}
