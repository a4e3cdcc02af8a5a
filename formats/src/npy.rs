//! Arrays as NumPy writes them (`.npy`), versions 1 to 3 of the format.

use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, data_loss, invalid_argument, unimplemented_op};

const MAGIC: &[u8] = b"\x93NUMPY";
/// Where the numbers of a written file begin is a multiple of this.
const ALIGNMENT: usize = 64;
/// Longest header that is read.
const MAX_HEADER: usize = 1 << 20;

/// Reads an array. `wanted` is the element type that the reader needs, where it is known: it tells types apart that NumPy does not name
/// (`bfloat16` and the types of eight bits and less, which NumPy writes as raw bytes) or stores as another type (quantised numbers).
///
/// Texts (`S` and `U`) become strings, without the zeros that fill them up.
///
/// # Errors
/// `DATA_LOSS` for a damaged file, `UNIMPLEMENTED` for elements that no tensor has: Python objects, dates, records, long doubles.
pub fn read_npy(bytes: &Bytes, wanted: Option<DType>) -> Result<Tensor> {
    let (header, data) = split(bytes)?;
    let Header { descr, fortran, shape } = parse(header)?;
    let shape = Shape::from_dims(&shape)?;
    let (swapped, kind) = Kind::parse(&descr, wanted)?;
    let size = kind.size()?;
    let length = shape.num_elements().checked_mul(size);
    if length != Some(data.len()) {
        return Err(data_loss!("An array of shape {shape} and type {descr} does not have {} bytes", data.len()));
    }
    let data = match fortran && shape.rank() > 1 {
        true => row_major(&data, &shape, size).into(),
        false => data,
    };
    match kind {
        Kind::Number { dtype, part } if swapped && part > 1 => Tensor::from_bytes(dtype, shape, swap(&data, part)),
        Kind::Number { dtype, .. } => Tensor::from_bytes(dtype, shape, data),
        Kind::Text { width } => strings(shape, width, |at| Ok(trimmed(data.slice(at..at + width)))),
        Kind::Unicode { width } => strings(shape, size, |at| unicode(&data[at..at + width * 4], swapped)),
    }
}

/// Writes an array. Strings become texts of a fixed size (`S`), so that zeros at their ends are lost; `bfloat16` and types of eight bits and less
/// become raw bytes, as the package `ml_dtypes` writes them; quantised numbers become plain ones.
///
/// # Errors
/// `UNIMPLEMENTED` for resources and variants.
pub fn write_npy(tensor: &Tensor) -> Result<Vec<u8>> {
    let (descr, contents) = contents(tensor)?;
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (");
    for size in tensor.shape().dims() {
        header.push_str(&format!("{size}, "));
    }
    header.push_str("), }");
    let length = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', length.next_multiple_of(ALIGNMENT) - length));
    header.push('\n');
    let mut file = Vec::with_capacity(MAGIC.len() + 4 + header.len() + contents.len());
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&[1, 0]);
    // A shape has at most 254 sizes of at most 20 digits.
    file.extend_from_slice(&(header.len() as u16).to_le_bytes());
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&contents);
    Ok(file)
}

fn contents(tensor: &Tensor) -> Result<(String, Bytes)> {
    let dtype = tensor.dtype();
    let plain = |descr: &str| Ok((descr.to_owned(), tensor.to_bytes().unwrap_or_default()));
    match dtype {
        DType::Half => plain("<f2"),
        DType::Float => plain("<f4"),
        DType::Double => plain("<f8"),
        DType::Complex64 => plain("<c8"),
        DType::Complex128 => plain("<c16"),
        DType::Int8 | DType::QInt8 => plain("|i1"),
        DType::Int16 | DType::QInt16 => plain("<i2"),
        DType::Int32 | DType::QInt32 => plain("<i4"),
        DType::Int64 => plain("<i8"),
        DType::UInt8 | DType::QUInt8 => plain("|u1"),
        DType::UInt16 | DType::QUInt16 => plain("<u2"),
        DType::UInt32 => plain("<u4"),
        DType::UInt64 => plain("<u8"),
        DType::Bool => plain("|b1"),
        DType::BFloat16 => plain("|V2"),
        DType::String => {
            let strings = tensor.strings()?;
            // NumPy has no texts of no size.
            let width = strings.iter().map(Bytes::len).max().unwrap_or(0).max(1);
            let mut contents = Vec::with_capacity(width.saturating_mul(strings.len()));
            for text in strings {
                contents.extend_from_slice(text);
                contents.extend(std::iter::repeat_n(0, width - text.len()));
            }
            Ok((format!("|S{width}"), contents.into()))
        }
        _ if dtype.is_fixed_size() && dtype.size() == 1 => plain("|V1"),
        _ => Err(unimplemented_op!("Tensors of type {dtype} cannot be written as arrays of NumPy")),
    }
}

/// What the elements of a file are.
enum Kind {
    /// Numbers; of complex ones each `part` has its own order of bytes.
    Number { dtype: DType, part: usize },
    /// Bytes filled up with zeros.
    Text { width: usize },
    /// Characters of four bytes filled up with zeros.
    Unicode { width: usize },
}

impl Kind {
    /// The kind, and whether its bytes are in the other order than this machine's.
    fn parse(descr: &str, wanted: Option<DType>) -> Result<(bool, Kind)> {
        let unknown = || unimplemented_op!("Arrays of NumPy's type {descr} are no tensors");
        let mut letters = descr.chars();
        let order = letters.next().ok_or_else(unknown)?;
        let kind = letters.next().ok_or_else(unknown)?;
        let width: usize = letters.as_str().parse().map_err(|_| unknown())?;
        let swapped = match order {
            '<' => cfg!(target_endian = "big"),
            '>' => cfg!(target_endian = "little"),
            '|' | '=' => false,
            _ => return Err(unknown()),
        };
        let number = |dtype: DType| Kind::Number { dtype, part: dtype.size() };
        let quantised = |dtype: DType, stored: DType| if wanted == Some(stored) { stored } else { dtype };
        let kind = match (kind, width) {
            ('b', 1) => number(DType::Bool),
            ('f', 2) => number(DType::Half),
            ('f', 4) => number(DType::Float),
            ('f', 8) => number(DType::Double),
            ('c', 8) => Kind::Number { dtype: DType::Complex64, part: 4 },
            ('c', 16) => Kind::Number { dtype: DType::Complex128, part: 8 },
            ('i', 1) => number(quantised(DType::Int8, DType::QInt8)),
            ('i', 2) => number(quantised(DType::Int16, DType::QInt16)),
            ('i', 4) => number(quantised(DType::Int32, DType::QInt32)),
            ('i', 8) => number(DType::Int64),
            ('u', 1) => number(quantised(DType::UInt8, DType::QUInt8)),
            ('u', 2) => number(quantised(DType::UInt16, DType::QUInt16)),
            ('u', 4) => number(DType::UInt32),
            ('u', 8) => number(DType::UInt64),
            ('S' | 'a', 1..) => Kind::Text { width },
            ('U', 1..) => Kind::Unicode { width },
            // The package ml_dtypes saves one of its types as a float of one byte.
            ('V', 1 | 2) | ('f', 1) => match wanted {
                Some(dtype) if is_raw(dtype) && dtype.size() == width => number(dtype),
                _ => {
                    return Err(unimplemented_op!(
                        "An array of NumPy's type {descr} says not of which type its raw bytes are, and no tensor of \
                         {} is wanted of it",
                        if width == 2 { "bfloat16" } else { "eight bits or less" }
                    ));
                }
            },
            _ => return Err(unknown()),
        };
        Ok((swapped, kind))
    }

    fn size(&self) -> Result<usize> {
        match *self {
            Kind::Number { dtype, .. } => Ok(dtype.size()),
            Kind::Text { width } => Ok(width),
            Kind::Unicode { width } => {
                width.checked_mul(4).ok_or_else(|| invalid_argument!("Texts of {width} characters are too long"))
            }
        }
    }
}

/// Whether NumPy has no name for the type.
fn is_raw(dtype: DType) -> bool {
    let named = matches!(dtype, DType::Bool | DType::Int8 | DType::UInt8 | DType::QInt8 | DType::QUInt8);
    dtype == DType::BFloat16 || dtype.is_fixed_size() && dtype.size() == 1 && !named
}

/// The header's text and the contents of a file.
fn split(bytes: &Bytes) -> Result<(&str, Bytes)> {
    let damaged = || data_loss!("The header of an .npy file is damaged");
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| invalid_argument!("This is not an .npy file"))?;
    let (length, start) = match rest {
        [1, _, low, high, ..] => (usize::from(u16::from_le_bytes([*low, *high])), MAGIC.len() + 4),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, MAGIC.len() + 6),
        [version, ..] => return Err(unimplemented_op!("Version {version} of .npy files is not known")),
        [] => return Err(damaged()),
    };
    let end = start.checked_add(length).filter(|_| length <= MAX_HEADER).ok_or_else(damaged)?;
    let header = bytes.get(start..end).and_then(|header| std::str::from_utf8(header).ok()).ok_or_else(damaged)?;
    Ok((header, bytes.slice(end..)))
}

/// What a header says.
#[derive(Debug, PartialEq)]
struct Header {
    descr: String,
    fortran: bool,
    shape: Vec<usize>,
}

/// Reads the Python dictionary of a header.
fn parse(header: &str) -> Result<Header> {
    let value = |key: &str| {
        let quoted = [format!("'{key}'"), format!("\"{key}\"")];
        let rest =
            quoted.iter().find_map(|quoted| header.split_once(quoted.as_str())).map(|(_, rest)| rest.trim_start());
        rest.and_then(|rest| rest.strip_prefix(':'))
            .map(str::trim_start)
            .ok_or_else(|| data_loss!("The header of an .npy file lacks {key}: {header}"))
    };
    let damaged = || data_loss!("The header of an .npy file is damaged: {header}");
    let descr = value("descr")?;
    let Some(quote @ ('\'' | '"')) = descr.chars().next() else {
        return Err(unimplemented_op!("Arrays of records are no tensors: {header}"));
    };
    let (descr, _) = descr[1..].split_once(quote).ok_or_else(damaged)?;
    let order = value("fortran_order")?;
    let fortran = match (order.starts_with("True"), order.starts_with("False")) {
        (true, _) => true,
        (_, true) => false,
        _ => return Err(damaged()),
    };
    let sizes = value("shape")?.strip_prefix('(').and_then(|rest| rest.split_once(')')).ok_or_else(damaged)?.0;
    let sizes = sizes.split(',').map(str::trim).filter(|size| !size.is_empty());
    // Python 2 marks long numbers with an L.
    let size = |text: &str| text.trim_end_matches('L').parse().map_err(|_| damaged());
    Ok(Header { descr: descr.to_owned(), fortran, shape: sizes.map(size).collect::<Result<_>>()? })
}

/// Elements in the order of their first axis, from elements in that of their last one.
fn row_major(data: &[u8], shape: &Shape, size: usize) -> Vec<u8> {
    let mut ordered = Vec::with_capacity(data.len());
    let mut strides = Vec::with_capacity(shape.rank());
    let mut stride = size;
    for &dim in shape.dims() {
        strides.push(stride);
        stride *= dim;
    }
    let mut index = vec![0; shape.rank()];
    for _ in 0..shape.num_elements() {
        let at: usize = index.iter().zip(&strides).map(|(i, stride)| i * stride).sum();
        ordered.extend_from_slice(&data[at..at + size]);
        for (i, &dim) in index.iter_mut().zip(shape.dims()).rev() {
            *i += 1;
            if *i < dim {
                break;
            }
            *i = 0;
        }
    }
    ordered
}

fn swap(data: &[u8], size: usize) -> Bytes {
    let mut swapped = data.to_vec();
    swapped.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    swapped.into()
}

/// A string for each element, given the place of its bytes.
fn strings(shape: Shape, size: usize, read: impl Fn(usize) -> Result<Bytes>) -> Result<Tensor> {
    let all = (0..shape.num_elements()).map(|index| read(index * size)).collect::<Result<_>>()?;
    Tensor::from_strings(shape, all)
}

fn trimmed(text: Bytes) -> Bytes {
    let end = text.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    text.slice(..end)
}

fn unicode(data: &[u8], swapped: bool) -> Result<Bytes> {
    let mut text = String::new();
    for four in data.chunks_exact(4) {
        let mut number = [four[0], four[1], four[2], four[3]];
        if swapped {
            number.reverse();
        }
        let number = u32::from_ne_bytes(number);
        text.push(char::from_u32(number).ok_or_else(|| data_loss!("{number:#x} is not a character"))?);
    }
    Ok(Bytes::from(text.trim_end_matches('\0').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::{Code, bf16, f16};

    fn file(header: &str, data: &[u8]) -> Bytes {
        let mut file = [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
        file.extend_from_slice(data);
        file.into()
    }

    #[test]
    fn numbers_come_back() {
        let shape = || Shape::new(&[2, 3]).unwrap();
        for &dtype in DType::ALL.iter().filter(|dtype| dtype.is_fixed_size()) {
            let bytes: Vec<u8> = (0..6 * dtype.size()).map(|n| (n % 2) as u8).collect();
            let tensor = Tensor::from_bytes(dtype, shape(), bytes.into()).unwrap();
            let written = Bytes::from(write_npy(&tensor).unwrap());
            let read = read_npy(&written, Some(dtype)).unwrap();
            assert_eq!((read.dtype(), read.shape()), (dtype, tensor.shape()));
            assert_eq!(read.as_bytes(), tensor.as_bytes());
            assert_eq!((written.len() - 6 * dtype.size()) % ALIGNMENT, 0);
        }
        let scalar = write_npy(&Tensor::scalar(2f64).unwrap()).unwrap();
        assert_eq!(read_npy(&scalar.into(), None).unwrap().scalar_value::<f64>().unwrap(), 2.0);
        let empty = Tensor::zeros(DType::Half, Shape::new(&[0, 3]).unwrap()).unwrap();
        assert_eq!(read_npy(&write_npy(&empty).unwrap().into(), None).unwrap().shape().dims(), [0, 3]);
    }

    #[test]
    fn orders_of_bytes_and_axes_are_undone() {
        let header = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n";
        let tensor = read_npy(&file(header, &[0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6]), None).unwrap();
        assert_eq!(tensor.as_slice::<i16>().unwrap(), [1, 2, 3, 4, 5, 6]);
        let header = "{'descr': '>c8', 'fortran_order': False, 'shape': (1L,)}\n";
        let tensor = read_npy(&file(header, &[0x3f, 0x80, 0, 0, 0x40, 0, 0, 0]), None).unwrap();
        assert_eq!(
            tensor.as_slice::<graphmill_tensor::Complex32>().unwrap()[0],
            graphmill_tensor::Complex32::new(1.0, 2.0)
        );
    }

    #[test]
    fn texts_lose_what_fills_them_up() {
        let header = "{'descr': '|S3', 'fortran_order': False, 'shape': (2,)}";
        let tensor = read_npy(&file(header, b"ab\0\0x\0"), None).unwrap();
        assert_eq!(tensor.strings().unwrap(), [&b"ab"[..], b"\0x"]);
        let header = "{'descr': '<U2', 'fortran_order': False, 'shape': (2,)}";
        let tensor =
            read_npy(&file(header, &[0xe9, 0, 0, 0, 0, 0, 0, 0, b'a', 0, 0, 0, 0xac, 0x20, 0, 0]), None).unwrap();
        assert_eq!(tensor.strings().unwrap(), ["é", "a€"]);
        let strings = Tensor::from_strings(Shape::vector(2), vec![Bytes::new(), Bytes::from_static(b"xyz")]).unwrap();
        let read = read_npy(&write_npy(&strings).unwrap().into(), None).unwrap();
        assert_eq!(read.strings().unwrap(), [&b""[..], b"xyz"]);
    }

    #[test]
    fn raw_bytes_take_the_wanted_type() {
        let header = "{'descr': '|V2', 'fortran_order': False, 'shape': ()}";
        let bytes = bf16::from_f32(1.5).to_le_bytes();
        let read = |wanted| read_npy(&file(header, &bytes), wanted);
        assert_eq!(read(Some(DType::BFloat16)).unwrap().scalar_value::<bf16>().unwrap().to_f32(), 1.5);
        assert_eq!(read(Some(DType::Half)).unwrap_err().code(), Code::Unimplemented);
        assert_eq!(read(None).unwrap_err().code(), Code::Unimplemented);
        let half = write_npy(&Tensor::scalar(f16::ONE).unwrap()).unwrap();
        assert_eq!(read_npy(&half.into(), Some(DType::BFloat16)).unwrap().dtype(), DType::Half);
    }

    #[test]
    fn damage_and_foreign_types_are_refused() {
        let header = |descr: &str| format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (1,)}}");
        for descr in ["'|O'", "'<M8[us]'", "'<f16'", "[('a', '<i4')]", "''", "'|é'"] {
            assert_eq!(
                read_npy(&file(&header(descr), &[0; 16]), None).unwrap_err().code(),
                Code::Unimplemented,
                "{descr}"
            );
        }
        let good = file(&header("'<i4'"), &[0; 4]);
        for end in 0..good.len() {
            assert!(read_npy(&good.slice(..end), None).is_err(), "{end}");
        }
        for header in
            ["{'descr': '<i4', 'fortran_order': False, 'shape': (-1,)}", "{'descr': '<i4'}", "", "{'shape': ("]
        {
            assert_eq!(read_npy(&file(header, &[0; 4]), None).unwrap_err().code(), Code::DataLoss, "{header}");
        }
        let huge = "{'descr': '<U4611686018427387905', 'fortran_order': False, 'shape': (4,)}";
        assert!(read_npy(&file(huge, &[0; 16]), None).is_err());
        let many = "{'descr': '|S1', 'fortran_order': False, 'shape': (9999999999, 9999999999)}";
        assert!(read_npy(&file(many, &[0; 16]), None).is_err());
    }
}
