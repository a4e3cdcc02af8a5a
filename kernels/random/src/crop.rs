//! Random parts of images: `RandomCrop` and the `SampleDistortedBoundingBox` ops.

use crate::distribution::uniform_f32;
use crate::stateless::stream_of_seed;
use graphmill_runtime::philox::{Generator, Philox, Words};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{
    DType, Element, Result, Shape, Tensor, dispatch, failed_precondition, internal, invalid_argument,
};

pub(crate) fn register(registry: &mut Registry) {
    use DType::*;
    let integers = [Int16, Int32, Int64, Int8, UInt16, UInt32, UInt64, UInt8];
    let reals = [&integers[..], &[BFloat16, Double, Float, Half]].concat();
    registry.op("RandomCrop").types("T", &reals).kernel(|c| Ok(RandomCrop(Generator::new(c)?)));
    registry.op("SampleDistortedBoundingBox").types("T", &integers).kernel(|c| {
        let covered = Some(c.attrs().float("min_object_covered")?);
        SampleBox::new(c, Some(Generator::new(c)?), covered)
    });
    registry
        .op("SampleDistortedBoundingBoxV2")
        .types("T", &integers)
        .kernel(|c| SampleBox::new(c, Some(Generator::new(c)?), None));
    registry.op("StatelessSampleDistortedBoundingBox").types("T", &integers).kernel(|c| SampleBox::new(c, None, None));
}

/// Cuts a part of a size out of an image, at a random place.
struct RandomCrop(Generator);

impl Kernel for RandomCrop {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (image, size) = (ctx.input(0)?, ctx.input(1)?);
        let &[height, width, channels] = image.shape().dims() else {
            return Err(invalid_argument!("input must be 3-dimensional{}", image.shape()));
        };
        if !size.shape().is_vector() {
            return Err(invalid_argument!("shape_t must be 1-dimensional{}", size.shape()));
        }
        let &[rows, columns] = size.as_slice::<i64>()? else {
            return Err(invalid_argument!("shape_t must have two elements{}", size.shape()));
        };
        let shape = Shape::new(&[rows, columns, channels as i64])?;
        let (rows, columns) = (shape.dim(0), shape.dim(1));
        if columns > width {
            return Err(failed_precondition!(
                "width must be >= target_width: width = {width}, target_width = {columns}"
            ));
        }
        if rows > height {
            return Err(failed_precondition!(
                "height must be >= target_height: height = {height}, target_height = {rows}"
            ));
        }
        let mut words = Words::new(self.0.take(1));
        let mut offset = |room: usize| if room > 0 { words.next() as usize % (room + 1) } else { 0 };
        let left = offset(width - columns);
        let top = offset(height - rows);
        let mut output = Tensor::alloc(image.dtype(), shape)?;
        let line = columns * channels;
        for row in 0..rows {
            let start = ((top + row) * width + left) * channels;
            output.copy_elements(row * line, image, start..start + line)?;
        }
        ctx.set_output(0, output)
    }
}

/// Picks a part of an image, of random size, shape and place, that covers enough of one of the given boxes.
struct SampleBox {
    /// None for the op that gets a seed.
    generator: Option<Generator>,
    /// The part of a box to cover, if it is an attribute.
    covered: Option<f32>,
    whole_image_if_none: bool,
    aspects: [f32; 2],
    areas: [f32; 2],
    attempts: u64,
}

#[derive(Clone, Copy)]
struct Rectangle {
    left: i32,
    top: i32,
    right: i32,
    bottom: i32,
}

impl Rectangle {
    fn area(&self) -> f32 {
        self.right.wrapping_sub(self.left).wrapping_mul(self.bottom.wrapping_sub(self.top)) as f32
    }

    fn common(&self, other: &Rectangle) -> Rectangle {
        let both = Rectangle {
            left: self.left.max(other.left),
            top: self.top.max(other.top),
            right: self.right.min(other.right),
            bottom: self.bottom.min(other.bottom),
        };
        let empty = both.left > both.right || both.top > both.bottom;
        if empty { Rectangle { left: 0, top: 0, right: 0, bottom: 0 } } else { both }
    }

    /// Whether it covers enough of one of the boxes; those without a pixel do not count.
    fn covers(&self, part: f32, boxes: &[Rectangle]) -> bool {
        let enough = |object: &Rectangle| object.area() >= 1.0 && self.common(object).area() / object.area() >= part;
        self.area() >= 1.0 && boxes.iter().any(enough)
    }
}

impl SampleBox {
    fn new(c: &Construction<'_>, generator: Option<Generator>, covered: Option<f32>) -> Result<SampleBox> {
        if let Some(part) = covered.filter(|&part| part.is_nan() || part < 0.0) {
            return Err(invalid_argument!("Min object covered must be non-negative: {part}"));
        }
        let &[low, high] = c.attrs().float_list("aspect_ratio_range")? else {
            return Err(invalid_argument!("Aspect ratio range field must specify 2 dimensions"));
        };
        if !(low > 0.0 && high > 0.0) {
            return Err(invalid_argument!("Aspect ratio range must be non-negative: [{low}, {high}]"));
        }
        let &[least, most] = c.attrs().float_list("area_range")? else {
            return Err(invalid_argument!("Area range field must specify 2 dimensions"));
        };
        if !(least > 0.0 && most > 0.0) {
            return Err(invalid_argument!("Area range must be non-negative: [{least}, {most}]"));
        }
        if least > 1.0 || most > 1.0 {
            return Err(invalid_argument!("Area range must be less then or equal to 1.0: [{least}, {most}]"));
        }
        let attempts = c.attrs().int32("max_attempts")?;
        if attempts <= 0 {
            return Err(invalid_argument!("Max attempts must be non-negative: {attempts}"));
        }
        Ok(SampleBox {
            generator,
            covered,
            whole_image_if_none: c.attrs().bool("use_image_if_no_bounding_boxes")?,
            aspects: [low, high],
            areas: [least, most],
            attempts: attempts.unsigned_abs().into(),
        })
    }

    fn stream(&self, ctx: &Context<'_>) -> Result<Philox> {
        match &self.generator {
            Some(generator) => Ok(generator.take(self.attempts)),
            None => stream_of_seed(ctx.input(3)?),
        }
    }

    fn covered(&self, ctx: &Context<'_>) -> Result<f32> {
        if let Some(part) = self.covered {
            return Ok(part);
        }
        let part = ctx.input(2)?;
        if !part.shape().is_scalar() {
            return Err(invalid_argument!("min_object_covered must be 0-D, got shape {}", part.shape()));
        }
        let part = part.scalar_value::<f32>()?;
        if part.is_nan() || part < 0.0 {
            return Err(invalid_argument!("Min object covered must be non-negative: {part}"));
        }
        Ok(part)
    }

    /// A part of the image of a shape, if there can be one.
    fn part(&self, width: i32, height: i32, aspect: f32, words: &mut Words) -> Option<Rectangle> {
        let [least, most] = self.areas.map(|area| area * width as f32 * height as f32);
        if width <= 0 || height <= 0 || self.areas[0] > self.areas[1] {
            return None;
        }
        let rounded = |value: f32| value.round_ties_even() as i32;
        let width_of = |rows: i32| rounded(rows as f32 * aspect);
        let mut rows = rounded((least / aspect).sqrt());
        let mut largest = rounded((most / aspect).sqrt());
        if width_of(largest) > width {
            largest = ((f64::from(width) + 0.5 - f64::from(1e-7f32)) / f64::from(aspect)) as i32;
            if width_of(largest) > width {
                largest -= 1;
            }
        }
        largest = largest.min(height);
        rows = rows.min(largest);
        if rows < largest {
            rows += below(words, (largest - rows + 1) as u32) as i32;
        }
        let area = |rows: i32| width_of(rows).wrapping_mul(rows) as f32;
        // A little larger, then a little smaller, where rounding alone has missed the bounds.
        if area(rows) < least {
            rows += 1;
        }
        if area(rows) > most {
            rows -= 1;
        }
        let columns = width_of(rows);
        let fits = columns <= width && rows <= height && columns > 0 && rows > 0;
        if area(rows) < least || area(rows) > most || !fits {
            return None;
        }
        let top = if rows < height { below(words, (height - rows) as u32) as i32 } else { 0 };
        let left = if columns < width { below(words, (width - columns) as u32) as i32 } else { 0 };
        Some(Rectangle { left, top, right: left + columns, bottom: top + rows })
    }
}

/// A number below `n`, each as likely as any other.
fn below(words: &mut Words, n: u32) -> u32 {
    if n.is_power_of_two() {
        return words.next() & (n - 1);
    }
    if n == 0 {
        words.next();
        return 0;
    }
    let rest = u32::MAX % n + 1;
    loop {
        let word = words.next();
        if word < u32::MAX - rest {
            return word % n;
        }
    }
}

/// Height and width of an image.
fn image_size(size: &Tensor) -> Result<[i32; 2]> {
    if !size.shape().is_vector() {
        return Err(invalid_argument!("image_size must be 1-dimensional{}", size.shape()));
    }
    if size.num_elements() != 3 {
        return Err(invalid_argument!("image_size must contain 3 elements{}", size.shape()));
    }
    let sizes = dispatch!(size.dtype(), T in integers => {
        size.as_slice::<T>()?.iter().map(|&v| i128::from(v)).collect::<Vec<_>>()
    });
    let sizes = sizes.ok_or_else(|| internal!("image_size cannot be of type {}", size.dtype()))?;
    let checked = |at: usize, name: &str| {
        let size = sizes.get(at).copied().unwrap_or(-1);
        i32::try_from(size)
            .ok()
            .filter(|&size| (0..i32::MAX).contains(&size))
            .ok_or_else(|| invalid_argument!("image {name} cannot be >= int32 max"))
    };
    Ok([checked(0, "height")?, checked(1, "width")?])
}

/// A vector of three numbers of a type.
fn triple(dtype: DType, values: [i32; 3]) -> Result<Tensor> {
    fn of<T: Element>(values: [i32; 3], cast: impl Fn(i32) -> T) -> Result<Tensor> {
        Tensor::vector(&values.map(cast))
    }
    match dtype {
        DType::Int8 => of(values, |v| v as i8),
        DType::Int16 => of(values, |v| v as i16),
        DType::Int64 => of(values, i64::from),
        DType::UInt8 => of(values, |v| v as u8),
        DType::UInt16 => of(values, |v| v as u16),
        DType::UInt32 => of(values, |v| v as u32),
        DType::UInt64 => of(values, |v| v as u64),
        _ => of(values, |v| v),
    }
}

impl Kernel for SampleBox {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (size, given) = (ctx.input(0)?, ctx.input(1)?);
        let stream = self.stream(ctx)?;
        let [height, width] = image_size(size)?;
        let &[_, _, corners] = given.shape().dims() else {
            return Err(invalid_argument!(
                "input boxes must be 3-dimensional [batch, num_boxes, coords]: {}",
                given.shape()
            ));
        };
        if corners != 4 {
            return Err(invalid_argument!("bounding boxes must have shape [4] or [*, 4], got {}", given.shape()));
        }
        let covered = self.covered(ctx)?;
        let mut boxes = Vec::new();
        for edges in given.as_slice::<f32>()?.as_chunks::<4>().0 {
            if let Some(edge) = edges.iter().find(|edge| !(0.0..=1.0).contains(*edge)) {
                return Err(invalid_argument!("All bounding box coordinates must be in [0.0, 1.0]: {edge}"));
            }
            let [top, left, bottom, right] = *edges;
            let (across, down) = (|x: f32| (x * width as f32) as i32, |y: f32| (y * height as f32) as i32);
            boxes.push(Rectangle { left: across(left), top: down(top), right: across(right), bottom: down(bottom) });
        }
        let whole = Rectangle { left: 0, top: 0, right: width, bottom: height };
        if boxes.is_empty() {
            if !self.whole_image_if_none {
                return Err(invalid_argument!(
                    "No bounding boxes provided as input. One must enable use_image_if_no_bounding_boxes if you wish to not \
                     provide any bounding boxes."
                ));
            }
            boxes.push(whole);
        }
        let mut words = Words::new(stream);
        let [low, high] = self.aspects;
        let mut chosen = whole;
        for _ in 0..self.attempts {
            let aspect = uniform_f32(words.next()) * (high - low) + low;
            if let Some(part) = self.part(width, height, aspect, &mut words).filter(|part| part.covers(covered, &boxes))
            {
                chosen = part;
                break;
            }
        }
        let dtype = size.dtype();
        let sizes = [chosen.bottom - chosen.top, chosen.right - chosen.left, -1];
        let relative = [
            chosen.top as f32 / height as f32,
            chosen.left as f32 / width as f32,
            chosen.bottom as f32 / height as f32,
            chosen.right as f32 / width as f32,
        ];
        ctx.set_output(0, triple(dtype, [chosen.top, chosen.left, 0])?)?;
        ctx.set_output(1, triple(dtype, sizes)?)?;
        ctx.set_output(2, Tensor::from_slice(Shape::from_dims(&[1, 1, 4])?, &relative)?)
    }
}
