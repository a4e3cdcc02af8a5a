//! `DataFormatVecPermute` and `DataFormatDimMap`: sizes and axes of one data format in the order of another.

use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Tensor, dispatch, internal, invalid_argument};

/// A permutation of the dimensions of a data format.
struct Layouts {
    source: Vec<u8>,
    target: Vec<u8>,
}

impl Layouts {
    fn new(c: &Construction<'_>) -> Result<Layouts> {
        let (source, target) = (c.attrs().str("src_format")?, c.attrs().str("dst_format")?);
        for (name, attr, format) in [("Source", "src_format", source), ("Destination", "dst_format", target)] {
            if !(4..=5).contains(&format.len()) {
                return Err(invalid_argument!("{name} format must be of length 4 or 5, received {attr} = {format}"));
            }
        }
        let layouts = Layouts { source: source.as_bytes().to_vec(), target: target.as_bytes().to_vec() };
        let sorted = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes.sort_unstable();
            let distinct = bytes.windows(2).all(|pair| pair[0] != pair[1]);
            distinct.then_some(bytes)
        };
        match (sorted(&layouts.source), sorted(&layouts.target)) {
            (Some(a), Some(b)) if a == b => Ok(layouts),
            _ => Err(invalid_argument!(
                "Destination and source format must determine a permutation, got {source} and {target}"
            )),
        }
    }

    /// For each dimension of the source its place in the target.
    fn places(&self) -> Vec<usize> {
        let place = |dim| self.target.iter().position(|other| other == dim).unwrap_or(0);
        self.source.iter().map(place).collect()
    }

    /// The layouts of rows and columns alone.
    fn spatial(&self) -> Result<Layouts> {
        let keep = |format: &[u8]| -> Vec<u8> { format.iter().copied().filter(|d| b"HW".contains(d)).collect() };
        let layouts = Layouts { source: keep(&self.source), target: keep(&self.target) };
        if layouts.source.len() != 2 || layouts.target.len() != 2 {
            return Err(invalid_argument!("Format specifier must contain H and W for 2D case"));
        }
        Ok(layouts)
    }
}

/// `DataFormatVecPermute(x)`: a vector with an element, or a matrix with a pair, for each dimension.
struct VecPermute(Layouts);

fn permuted<T: Element>(input: &Tensor, output: &mut Tensor, places: &[usize]) -> Result<()> {
    let width = if input.shape().is_matrix() { 2 } else { 1 };
    let (from, to) = (input.as_slice::<T>()?, output.as_mut_slice::<T>()?);
    for (from, &place) in from.chunks_exact(width).zip(places) {
        to[place * width..(place + 1) * width].copy_from_slice(from);
    }
    Ok(())
}

impl Kernel for VecPermute {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let shape = input.shape();
        match *shape.dims() {
            [2 | 4 | 5] => (),
            [_] => return Err(invalid_argument!("1D input must be of size 2 or 4, but got shape {shape}")),
            [2 | 4, 2] => (),
            [2 | 4, _] => {
                return Err(invalid_argument!("Second dimension of 2D input must be of size 2, but got shape {shape}"));
            }
            [_, _] => {
                return Err(invalid_argument!(
                    "First dimension of 2D input must be of size 2 or 4, but got shape {shape}"
                ));
            }
            _ => return Err(invalid_argument!("input must be a vector or 2D tensor, but got shape {shape}")),
        }
        let places = if shape.dim(0) == 2 { self.0.spatial()?.places() } else { self.0.places() };
        if places.len() != shape.dim(0) {
            return Err(invalid_argument!(
                "the input's first dimension is {}, the formats have {} dimensions",
                shape.dim(0),
                places.len()
            ));
        }
        let mut output = ctx.alloc_output(0, shape.clone())?;
        dispatch!(input.dtype(), T in [i32, i64] => permuted::<T>(input, &mut output, &places))
            .unwrap_or_else(|| Err(internal!("DataFormatVecPermute does not take this type")))?;
        ctx.set_output(0, output)
    }
}

/// `DataFormatDimMap(x)`: axes of the source format, negative ones counted from the end, as axes of the target.
struct DimMap(Vec<usize>);

impl DimMap {
    fn map(&self, axis: i64) -> Result<i64> {
        let count = self.0.len() as i64;
        let place = usize::try_from(if axis < 0 { axis + count } else { axis }).ok();
        match place.and_then(|place| self.0.get(place)) {
            Some(&place) => Ok(place as i64),
            None => Err(invalid_argument!("axis {axis} is not in [-{count}, {count})")),
        }
    }
}

impl Kernel for DimMap {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let mut output = ctx.alloc_output(0, input.shape().clone())?;
        if input.dtype() == DType::Int32 {
            for (to, &axis) in output.as_mut_slice::<i32>()?.iter_mut().zip(input.as_slice::<i32>()?) {
                *to = self.map(i64::from(axis))? as i32;
            }
        } else {
            for (to, &axis) in output.as_mut_slice::<i64>()?.iter_mut().zip(input.as_slice::<i64>()?) {
                *to = self.map(axis)?;
            }
        }
        ctx.set_output(0, output)
    }
}

pub(crate) fn register(registry: &mut Registry) {
    registry.op("DataFormatVecPermute").types("T", DType::INDICES).kernel(|c| Ok(VecPermute(Layouts::new(c)?)));
    registry.op("DataFormatDimMap").types("T", DType::INDICES).kernel(|c| Ok(DimMap(Layouts::new(c)?.places())));
}
