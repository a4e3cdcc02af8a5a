//! Drawing boxes.

use crate::real::Real;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, f16, internal, invalid_argument};

/// Colours of the boxes where none are given: yellow, blue, red, lime, purple, olive, maroon, navy, aqua, fuchsia.
const COLORS: [[f32; 4]; 10] = [
    [1.0, 1.0, 0.0, 1.0],
    [0.0, 0.0, 1.0, 1.0],
    [1.0, 0.0, 0.0, 1.0],
    [0.0, 1.0, 0.0, 1.0],
    [0.5, 0.0, 0.5, 1.0],
    [0.5, 0.5, 0.0, 1.0],
    [0.5, 0.0, 0.0, 1.0],
    [0.0, 0.0, 0.5, 1.0],
    [0.0, 1.0, 1.0, 1.0],
    [1.0, 0.0, 1.0, 1.0],
];

pub(crate) fn register(registry: &mut Registry) {
    for op in ["DrawBoundingBoxes", "DrawBoundingBoxesV2"] {
        registry.op(op).types("T", &[DType::Float, DType::Half]).kernel(|_| Ok(DrawBoundingBoxes));
    }
}

/// Draws the outlines of boxes on copies of the images.
struct DrawBoundingBoxes;

impl Kernel for DrawBoundingBoxes {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (images, boxes) = (ctx.input(0)?, ctx.input(1)?);
        let &[batch, height, width, depth] = images.shape().dims() else {
            return Err(invalid_argument!("The rank of the images should be 4"));
        };
        let &[box_batch, count, corners] = boxes.shape().dims() else {
            return Err(invalid_argument!("The rank of the boxes tensor should be 3"));
        };
        if batch != box_batch {
            return Err(invalid_argument!("The batch sizes should be the same"));
        }
        if !matches!(depth, 1 | 3 | 4) {
            return Err(invalid_argument!("Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA)"));
        }
        if corners != 4 {
            return Err(invalid_argument!("The size of the third dimension of the box must be 4. Received: {corners}"));
        }
        let colors = if ctx.num_inputs() == 3 { given_colors(ctx.input(2)?, depth)? } else { Vec::new() };
        let colors = if colors.is_empty() { default_colors(depth) } else { colors };
        let boxes: Vec<f32> = match boxes.dtype() {
            DType::Half => boxes.as_slice::<f16>()?.iter().map(|v| v.to_f32()).collect(),
            _ => boxes.as_slice::<f32>()?.to_vec(),
        };
        let canvas = Canvas { height, width, depth };
        let mut output = ctx.take_input(0)?.into_unique()?;
        let (boxes, _) = boxes.as_chunks::<4>();
        match output.dtype() {
            DType::Half => canvas.draw(output.as_mut_slice::<f16>()?, boxes, count, &colors),
            DType::Float => canvas.draw(output.as_mut_slice::<f32>()?, boxes, count, &colors),
            other => return Err(internal!("images cannot be of type {other}")),
        }
        ctx.set_output(0, output)
    }
}

fn default_colors(depth: usize) -> Vec<Vec<f32>> {
    let mut colors: Vec<Vec<f32>> = COLORS.iter().map(|color| color.to_vec()).collect();
    if depth == 1 {
        colors.iter_mut().filter_map(|color| color.first_mut()).for_each(|gray| *gray = 1.0);
    }
    colors
}

fn given_colors(colors: &Tensor, depth: usize) -> Result<Vec<Vec<f32>>> {
    let shape = colors.shape();
    if !shape.is_matrix() {
        return Err(invalid_argument!("colors must be a 2-D matrix{shape}"));
    }
    if shape.dim(1) < depth {
        return Err(invalid_argument!("colors must have equal or more channels than the image provided: {shape}"));
    }
    Ok(colors.as_slice::<f32>()?.chunks_exact(shape.dim(1).max(1)).map(<[f32]>::to_vec).collect())
}

struct Canvas {
    height: usize,
    width: usize,
    depth: usize,
}

impl Canvas {
    fn draw<T: Real>(&self, images: &mut [T], boxes: &[[f32; 4]], count: usize, colors: &[Vec<f32>]) {
        let size = self.height * self.width * self.depth;
        if size == 0 || count == 0 {
            return;
        }
        for (image, boxes) in images.chunks_exact_mut(size).zip(boxes.chunks_exact(count)) {
            for (corners, color) in boxes.iter().zip(colors.iter().cycle()) {
                self.outline(image, corners, color);
            }
        }
    }

    fn outline<T: Real>(&self, image: &mut [T], &[top, left, bottom, right]: &[f32; 4], color: &[f32]) {
        let (last_row, last_column) = (self.height as i64 - 1, self.width as i64 - 1);
        let [top, bottom] = [top, bottom].map(|y| (y * last_row as f32) as i64);
        let [left, right] = [left, right].map(|x| (x * last_column as f32) as i64);
        let inverted = top > bottom || left > right;
        if inverted || top > last_row || bottom < 0 || left > last_column || right < 0 {
            return;
        }
        let mut paint = |row: i64, column: i64| {
            let start = (row as usize * self.width + column as usize) * self.depth;
            if let Some(pixel) = image.get_mut(start..start + self.depth) {
                pixel.iter_mut().zip(color).for_each(|(value, &part)| *value = T::from_f32(part));
            }
        };
        let columns = left.max(0)..=right.min(last_column);
        let rows = top.max(0)..=bottom.min(last_row);
        for row in [top, bottom].into_iter().filter(|row| (0..=last_row).contains(row)) {
            columns.clone().for_each(|column| paint(row, column));
        }
        for column in [left, right].into_iter().filter(|column| (0..=last_column).contains(column)) {
            rows.clone().for_each(|row| paint(row, column));
        }
    }
}
