//! `CropAndResize` and its gradients.

use crate::real::{REALS, Real};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, dispatch, f16, internal, invalid_argument, out_of_range};

/// Nanoseconds a value takes, roughly.
const COST: f64 = 4.0;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("CropAndResize").types("T", &REALS).kernel(CropAndResize::new);
    let floats = [DType::Double, DType::Float, DType::Half];
    registry.op("CropAndResizeGradImage").types("T", &floats).kernel(|c| Ok(GradImage { nearest: nearest(c)? }));
    registry.op("CropAndResizeGradBoxes").types("T", &REALS).kernel(|_| Ok(GradBoxes));
}

fn nearest(c: &Construction<'_>) -> Result<bool> {
    match c.attrs().str("method")? {
        "bilinear" => Ok(false),
        "nearest" => Ok(true),
        other => Err(invalid_argument!("method must be 'bilinear' or 'nearest'{other}")),
    }
}

/// The boxes, and the image that each is cut from.
fn check_boxes<'a>(boxes: &'a Tensor, indices: &'a Tensor, batch: usize) -> Result<(&'a [[f32; 4]], Vec<usize>)> {
    if boxes.num_elements() == 0 && indices.num_elements() == 0 {
        return Ok((&[], Vec::new()));
    }
    let &[count, corners] = boxes.shape().dims() else {
        return Err(invalid_argument!("boxes must be 2-D{}", boxes.shape()));
    };
    if corners != 4 {
        return Err(invalid_argument!("boxes must have 4 columns"));
    }
    if !indices.shape().is_vector() {
        return Err(invalid_argument!("box_index must be 1-D{}", indices.shape()));
    }
    if indices.num_elements() != count {
        return Err(invalid_argument!("box_index has incompatible shape"));
    }
    let indices = indices.as_slice::<i32>()?.iter().map(|&i| usize::try_from(i).ok().filter(|&i| i < batch));
    let indices: Option<Vec<usize>> = indices.collect();
    let indices = indices.ok_or_else(|| out_of_range!("box_index has values outside [0, batch_size)"))?;
    Ok((boxes.as_slice::<f32>()?.as_chunks::<4>().0, indices))
}

/// Where the rows or columns of a crop lie in the image, between two edges given as parts of it; none outside of it.
fn places(low: f32, high: f32, image: usize, crop: usize) -> Vec<Option<f32>> {
    let last = (image - 1) as f32;
    let scale = if crop > 1 { (high - low) * last / (crop - 1) as f32 } else { 0.0 };
    (0..crop)
        .map(|at| {
            let place = if crop > 1 {
                low * last + at as f32 * scale
            } else {
                (0.5 * f64::from(low + high) * f64::from(last)) as f32
            };
            (0.0..=last).contains(&place).then_some(place)
        })
        .collect()
}

/// Cuts boxes out of images and brings them to one size. The result is `float`.
struct CropAndResize {
    nearest: bool,
    outside: f32,
}

impl CropAndResize {
    fn new(c: &Construction<'_>) -> Result<CropAndResize> {
        Ok(CropAndResize { nearest: nearest(c)?, outside: c.attrs().float("extrapolation_value")? })
    }
}

impl Kernel for CropAndResize {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (image, size) = (ctx.input(0)?, ctx.input(3)?);
        let &[batch, height, width, depth] = image.shape().dims() else {
            return Err(invalid_argument!("input image must be 4-D{}", image.shape()));
        };
        if height == 0 || width == 0 {
            return Err(invalid_argument!("image dimensions must be positive"));
        }
        if !size.shape().is_vector() {
            return Err(invalid_argument!("crop_size must be 1-D{}", size.shape()));
        }
        let &[crop_height, crop_width] = size.as_slice::<i32>()? else {
            return Err(invalid_argument!("crop_size must have two elements{}", size.shape()));
        };
        let positive = |size: i32| usize::try_from(size).ok().filter(|&size| size > 0);
        let (Some(crop_height), Some(crop_width)) = (positive(crop_height), positive(crop_width)) else {
            return Err(invalid_argument!("crop dimensions must be positive"));
        };
        let (boxes, indices) = check_boxes(ctx.input(1)?, ctx.input(2)?, batch)?;
        let shape = Shape::from_dims(&[boxes.len(), crop_height, crop_width, depth])?;
        if boxes.iter().flatten().any(|edge| !edge.is_finite()) {
            return Err(invalid_argument!("Boxes contains at least one element that is not finite"));
        }
        let mut output = Tensor::alloc(DType::Float, shape)?;
        let unit = crop_height * crop_width * depth;
        let done = dispatch!(image.dtype(), T in reals => {
            let image = image.as_slice::<T>()?;
            ctx.parallel_chunks(output.as_mut_slice::<f32>()?, unit, unit as f64 * COST, |range, output| {
                for (at, crop) in range.zip(output.chunks_exact_mut(unit)) {
                    let image = &image[indices[at] * height * width * depth..][..height * width * depth];
                    let source = Source { image, height, width, depth };
                    source.cut(&boxes[at], [crop_height, crop_width], self.nearest, self.outside, crop);
                }
            });
            Ok(())
        });
        done.unwrap_or_else(|| Err(internal!("images cannot be of type {}", image.dtype())))?;
        ctx.set_output(0, output)
    }
}

struct Source<'a, T> {
    image: &'a [T],
    height: usize,
    width: usize,
    depth: usize,
}

impl<T: Real> Source<'_, T> {
    fn pixel(&self, row: usize, column: usize) -> &[T] {
        &self.image[(row * self.width + column) * self.depth..][..self.depth]
    }

    fn cut(&self, &[y1, x1, y2, x2]: &[f32; 4], size: [usize; 2], nearest: bool, outside: f32, crop: &mut [f32]) {
        let rows = places(y1, y2, self.height, size[0]);
        let columns = places(x1, x2, self.width, size[1]);
        let mut pixels = crop.chunks_exact_mut(self.depth.max(1));
        for row in &rows {
            for column in &columns {
                let Some(target) = pixels.next() else { return };
                let (Some(y), Some(x)) = (row, column) else {
                    target.fill(outside);
                    continue;
                };
                if nearest {
                    let source = self.pixel(y.round() as usize, x.round() as usize);
                    target.iter_mut().zip(source).for_each(|(t, s)| *t = s.to_f32());
                    continue;
                }
                let (top, left) = (y.floor(), x.floor());
                let (down, across) = (y - top, x - left);
                let (above, below) = (top as usize, y.ceil() as usize);
                let (before, behind) = (left as usize, x.ceil() as usize);
                let upper = self.pixel(above, before).iter().zip(self.pixel(above, behind));
                let lower = self.pixel(below, before).iter().zip(self.pixel(below, behind));
                for (target, ((tl, tr), (bl, br))) in target.iter_mut().zip(upper.zip(lower)) {
                    let (tl, bl) = (tl.to_f32(), bl.to_f32());
                    let upper = tl + (tr.to_f32() - tl) * across;
                    let lower = bl + (br.to_f32() - bl) * across;
                    *target = upper + (lower - upper) * down;
                }
            }
        }
    }
}

/// The shape of the crops' gradients.
fn check_gradients(grads: &Tensor) -> Result<[usize; 4]> {
    let &[count, height, width, depth] = grads.shape().dims() else {
        return Err(invalid_argument!("grads image must be 4-D{}", grads.shape()));
    };
    if height == 0 || width == 0 {
        return Err(invalid_argument!("grads dimensions must be positive"));
    }
    Ok([count, height, width, depth])
}

/// The gradient with respect to the images.
struct GradImage {
    nearest: bool,
}

impl Kernel for GradImage {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (grads, size) = (ctx.input(0)?, ctx.input(3)?);
        let [count, crop_height, crop_width, depth] = check_gradients(grads)?;
        if !size.shape().is_vector() {
            return Err(invalid_argument!("image_size must be 1-D{}", size.shape()));
        }
        let &[batch, height, width, image_depth] = size.as_slice::<i32>()? else {
            return Err(invalid_argument!("image_size must have 4 elements{}", size.shape()));
        };
        if height <= 0 || width <= 0 {
            return Err(invalid_argument!("image dimensions must be positive"));
        }
        if usize::try_from(image_depth) != Ok(depth) {
            return Err(invalid_argument!("image_size and grads are incompatible"));
        }
        let shape = Shape::new(&[batch, height, width, image_depth].map(i64::from))?;
        let (boxes, indices) = check_boxes(ctx.input(1)?, ctx.input(2)?, shape.dim(0))?;
        if boxes.len() != count {
            return Err(invalid_argument!("boxes and grads have incompatible shape"));
        }
        let (height, width) = (shape.dim(1), shape.dim(2));
        let mut sums = vec![0.0f64; shape.num_elements()];
        let mut pixels = grads.as_slice::<f32>()?.chunks_exact(depth.max(1));
        for (&[y1, x1, y2, x2], image) in boxes.iter().zip(indices) {
            let rows = places(y1, y2, height, crop_height);
            let columns = places(x1, x2, width, crop_width);
            for row in &rows {
                for column in &columns {
                    let Some(gradient) = pixels.next() else { break };
                    let (Some(y), Some(x)) = (row, column) else { continue };
                    let mut add = |row: f32, column: f32, weight: f32| {
                        let start = ((image * height + row as usize) * width + column as usize) * depth;
                        if let Some(pixel) = sums.get_mut(start..start + depth) {
                            pixel.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += f64::from(weight * g));
                        }
                    };
                    if self.nearest {
                        add(y.round(), x.round(), 1.0);
                        continue;
                    }
                    let (down, across) = (y - y.floor(), x - x.floor());
                    add(y.floor(), x.floor(), (1.0 - down) * (1.0 - across));
                    add(y.floor(), x.ceil(), (1.0 - down) * across);
                    add(y.ceil(), x.floor(), down * (1.0 - across));
                    add(y.ceil(), x.ceil(), down * across);
                }
            }
        }
        let mut output = Tensor::alloc(ctx.output_type(0)?, shape)?;
        let done = dispatch!(output.dtype(), T in [f32, f64, f16] => {
            output.as_mut_slice::<T>()?.iter_mut().zip(sums).for_each(|(o, sum)| *o = T::from_f64(sum));
            Ok(())
        });
        done.unwrap_or_else(|| Err(internal!("gradients cannot be of this type")))?;
        ctx.set_output(0, output)
    }
}

/// The gradient with respect to the boxes' edges.
struct GradBoxes;

impl Kernel for GradBoxes {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (grads, image) = (ctx.input(0)?, ctx.input(1)?);
        let [count, crop_height, crop_width, depth] = check_gradients(grads)?;
        let &[batch, height, width, image_depth] = image.shape().dims() else {
            return Err(invalid_argument!("input image must be 4-D{}", image.shape()));
        };
        if height == 0 || width == 0 {
            return Err(invalid_argument!("image dimensions must be positive"));
        }
        if image_depth != depth {
            return Err(invalid_argument!("image, grads depth differ"));
        }
        let (boxes, indices) = check_boxes(ctx.input(2)?, ctx.input(3)?, batch)?;
        if boxes.len() != count {
            return Err(invalid_argument!("boxes and grads have incompatible shape"));
        }
        let mut output = Tensor::zeros(DType::Float, Shape::from_dims(&[count, 4])?)?;
        let grads = grads.as_slice::<f32>()?;
        let unit = crop_height * crop_width * depth;
        let done = dispatch!(image.dtype(), T in reals => {
            let image = image.as_slice::<T>()?;
            let (rows, _) = output.as_mut_slice::<f32>()?.as_chunks_mut::<4>();
            for (at, row) in rows.iter_mut().enumerate() {
                let image = &image[indices[at] * height * width * depth..][..height * width * depth];
                let source = Source { image, height, width, depth };
                *row = source.box_gradient(&boxes[at], [crop_height, crop_width], &grads[at * unit..(at + 1) * unit]);
            }
            Ok(())
        });
        done.unwrap_or_else(|| Err(internal!("images cannot be of type {}", image.dtype())))?;
        ctx.set_output(0, output)
    }
}

impl<T: Real> Source<'_, T> {
    fn box_gradient(&self, &[y1, x1, y2, x2]: &[f32; 4], size: [usize; 2], grads: &[f32]) -> [f32; 4] {
        let [crop_height, crop_width] = size;
        let rows = places(y1, y2, self.height, crop_height);
        let columns = places(x1, x2, self.width, crop_width);
        let mut sums = [0.0f32; 4];
        let mut pixels = grads.chunks_exact(self.depth.max(1));
        // How an edge moves the place of a row or column: the near edge less the further that is, the far edge more.
        let shares = |at: usize, image: usize, crop: usize| {
            let last = (image - 1) as f32;
            if crop > 1 {
                let far = at as f32 * (last / (crop - 1) as f32);
                (last - far, far)
            } else {
                (0.5 * last, 0.5 * last)
            }
        };
        for (row, y) in rows.iter().enumerate() {
            for (column, x) in columns.iter().enumerate() {
                let Some(gradient) = pixels.next() else { return sums };
                let (Some(y), Some(x)) = (y, x) else { continue };
                let (down, across) = (y - y.floor(), x - x.floor());
                let (above, below) = (y.floor() as usize, y.ceil() as usize);
                let (before, behind) = (x.floor() as usize, x.ceil() as usize);
                let (near_y, far_y) = shares(row, self.height, crop_height);
                let (near_x, far_x) = shares(column, self.width, crop_width);
                for (d, g) in gradient.iter().enumerate() {
                    let at = |row, column| self.pixel(row, column)[d].to_f32();
                    let (tl, tr) = (at(above, before), at(above, behind));
                    let (bl, br) = (at(below, before), at(below, behind));
                    let vertical = ((1.0 - across) * (bl - tl) + across * (br - tr)) * g;
                    let horizontal = ((1.0 - down) * (tr - tl) + down * (br - bl)) * g;
                    sums[0] += vertical * near_y;
                    sums[1] += horizontal * near_x;
                    sums[2] += vertical * far_y;
                    sums[3] += horizontal * far_x;
                }
            }
        }
        sums
    }
}
