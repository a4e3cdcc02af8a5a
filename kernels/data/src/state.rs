//! Saved positions of iterators: a run of bytes and the tensors it refers to, read in the order in which they were written.

use crate::dataset::Tuple;
use graphmill_tensor::{Bytes, Code, Result, Status, Tensor, Variant, data_loss, internal, invalid_argument};

/// The registered name of the variant that holds a position.
const TYPE_NAME: &str = "tensorflow::Iterator";

/// Writes a position down.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    tensors: Vec<Tensor>,
}

impl Writer {
    /// Begins what one iterator writes, so that a reader of another kind notices.
    pub fn begin(&mut self, name: &str) {
        self.text(name.as_bytes());
    }

    pub fn int(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn size(&mut self, value: usize) {
        self.int(value as i64);
    }

    pub fn bool(&mut self, value: bool) {
        self.bytes.push(u8::from(value));
    }

    pub fn text(&mut self, value: &[u8]) {
        self.size(value.len());
        self.bytes.extend_from_slice(value);
    }

    pub fn tensor(&mut self, tensor: &Tensor) {
        self.tensors.push(tensor.clone());
    }

    pub fn tuple(&mut self, tuple: &[Tensor]) {
        self.size(tuple.len());
        tuple.iter().for_each(|tensor| self.tensor(tensor));
    }

    /// What a call of `next` gave.
    pub fn outcome(&mut self, outcome: &Result<Tuple>) {
        self.bool(outcome.is_ok());
        match outcome {
            Ok(tuple) => self.tuple(tuple),
            Err(status) => {
                self.int(status.code() as i64);
                self.text(status.message().as_bytes());
            }
        }
    }

    /// The position as a variant.
    pub fn finish(self) -> Variant {
        Variant {
            type_name: TYPE_NAME.to_owned(),
            metadata: Bytes::from(self.bytes),
            tensors: self.tensors,
            object: None,
        }
    }
}

/// Reads a position back.
pub(crate) struct Reader {
    bytes: Bytes,
    tensors: std::vec::IntoIter<Tensor>,
}

impl Reader {
    /// Of a variant that [`Writer::finish`] made.
    pub fn new(variant: &Variant) -> Result<Reader> {
        if variant.type_name != TYPE_NAME {
            return Err(internal!(
                "Cannot initialize an iterator from tensor of type {}. Expected a variant tensor of type IteratorStateVariant",
                variant.type_name
            ));
        }
        Ok(Reader { bytes: variant.metadata.clone(), tensors: variant.tensors.clone().into_iter() })
    }

    fn take(&mut self, count: usize) -> Result<Bytes> {
        if count > self.bytes.len() {
            return Err(data_loss!("The saved state of the iterator ends too early"));
        }
        Ok(self.bytes.split_to(count))
    }

    pub fn begin(&mut self, name: &str) -> Result<()> {
        let found = self.text()?;
        if found == name.as_bytes() {
            return Ok(());
        }
        let found = String::from_utf8_lossy(&found);
        Err(invalid_argument!("The saved state belongs to the dataset {found}, not to {name}"))
    }

    pub fn int(&mut self) -> Result<i64> {
        let mut value = [0; 8];
        value.copy_from_slice(&self.take(8)?);
        Ok(i64::from_le_bytes(value))
    }

    pub fn size(&mut self) -> Result<usize> {
        usize::try_from(self.int()?).map_err(|_| data_loss!("The saved state of the iterator holds a negative size"))
    }

    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.take(1)?.first() == Some(&1))
    }

    pub fn text(&mut self) -> Result<Bytes> {
        let length = self.size()?;
        self.take(length)
    }

    pub fn tensor(&mut self) -> Result<Tensor> {
        self.tensors.next().ok_or_else(|| data_loss!("The saved state of the iterator lacks a tensor"))
    }

    pub fn tuple(&mut self) -> Result<Tuple> {
        (0..self.size()?).map(|_| self.tensor()).collect()
    }

    pub fn outcome(&mut self) -> Result<Result<Tuple>> {
        if self.bool()? {
            return Ok(Ok(self.tuple()?));
        }
        let code = Code::from_number(i32::try_from(self.int()?).unwrap_or(Code::Unknown as i32));
        let message = self.text()?;
        Ok(Err(Status::new(code, String::from_utf8_lossy(&message))))
    }
}
