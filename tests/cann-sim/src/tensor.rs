//! The simulated device's view of an `aclTensor`.

use crate::dtype::{DType, Value};
use crate::error::{SimError, code};
use crate::memory;
use crate::strided;

/// A view of device memory. Strides and offset count elements; `data` is the device address of the storage's first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Elements per dimension.
    pub shape: Vec<i64>,
    /// Elements between neighbours in each dimension.
    pub strides: Vec<i64>,
    /// First element of the view, in elements from `data`.
    pub offset: i64,
    /// `aclFormat` code.
    pub format: i32,
    /// Shape of the storage behind the view.
    pub storage_dims: Vec<i64>,
    /// Device address of the storage.
    pub data: usize,
}

/// Reading and writing touch device memory and so belong inside tasks: on a stream's worker, not while preparing.
impl Tensor {
    /// Elements of the view.
    pub fn numel(&self) -> usize {
        strided::numel(&self.shape)
    }

    /// Bytes of the elements of the view.
    pub fn bytes(&self) -> u64 {
        (self.numel() * self.dtype.size()) as u64
    }

    /// The innermost dimension whose stride is not the row-major one; dimensions of size 1 do not count.
    pub fn first_bad_dim(&self) -> Option<usize> {
        if self.numel() == 0 {
            return None;
        }
        let mut expected = 1;
        for d in (0..self.shape.len()).rev().filter(|&d| self.shape[d] != 1) {
            if self.strides[d] != expected {
                return Some(d);
            }
            expected *= self.shape[d];
        }
        None
    }

    /// Whether the elements lie in row-major order without gaps. Always so without elements.
    pub fn is_contiguous(&self) -> bool {
        self.first_bad_dim().is_none()
    }

    /// What a kernel that ignores strides takes this tensor for: the same shape and offset, row-major.
    pub fn misread_as_contiguous(&self) -> Self {
        Self { strides: strided::row_major(&self.shape), ..self.clone() }
    }

    /// The same elements seen as `shape`, size-1 dimensions repeated and new ones put in front; `None` if they do not fit.
    pub fn broadcast_to(&self, shape: &[i64]) -> Option<Self> {
        let extra = shape.len().checked_sub(self.shape.len())?;
        let mut strides = vec![0; extra];
        for ((&n, &s), &wanted) in self.shape.iter().zip(&self.strides).zip(&shape[extra..]) {
            strides.push(if n == wanted {
                s
            } else if n == 1 {
                0
            } else {
                return None;
            });
        }
        Some(Self { shape: shape.to_vec(), strides, ..self.clone() })
    }

    /// A short text for messages and the log: `f16[2, 3]`, with strides where not contiguous.
    pub fn describe(&self) -> String {
        let mut text = format!("{}{:?}", self.dtype.name(), self.shape);
        if !self.is_contiguous() {
            text += &format!("/{:?}", self.strides);
        }
        if self.offset != 0 {
            text += &format!("+{}", self.offset);
        }
        text
    }

    /// The device's pointer to the element at the view's offset, after all bytes of the view were found live.
    fn pointer(&self) -> Result<*mut u8, SimError> {
        let size = self.dtype.size() as i64;
        if size == 0 {
            return Err(SimError::new(code::NNOP_INVALID, format!("data type {} is not simulated", self.dtype.0)));
        }
        let Some((low, high)) = strided::extent(&self.shape, &self.strides) else {
            return Ok(std::ptr::dangling_mut());
        };
        let start = self.data as i64 + (self.offset + low) * size;
        let pointer = memory::access(start as usize, ((high - low + 1) * size) as usize)
            .map_err(|e| SimError::new(e.code, format!("{}: {}", self.describe(), e.text)))?;
        // SAFETY: the element at the offset lies between the lowest and the highest one, all just found live.
        Ok(unsafe { pointer.offset((-low * size) as isize) })
    }

    /// Element bytes in logical row-major order.
    ///
    /// # Errors
    /// If the view touches memory that is not allocated.
    pub fn read_bytes(&self) -> Result<Vec<u8>, SimError> {
        let (base, size) = (self.pointer()?, self.dtype.size());
        let mut out = vec![0u8; self.numel() * size];
        let mut to = out.as_mut_ptr();
        strided::runs(&self.shape, &self.strides, |at, count, step| {
            // SAFETY: `pointer` checked every element of the view; `out` holds exactly as many as the runs visit.
            unsafe {
                copy_run(base.offset(at as isize * size as isize), step, to, 1, count, size);
                to = to.add(count * size);
            }
        });
        Ok(out)
    }

    /// Writes element bytes given in logical row-major order.
    ///
    /// # Errors
    /// If the view touches memory that is not allocated, or `bytes` has another length.
    pub fn write_bytes(&self, bytes: &[u8]) -> Result<(), SimError> {
        let (base, size) = (self.pointer()?, self.dtype.size());
        self.check_length(bytes.len(), self.numel() * size, "bytes")?;
        let mut from = bytes.as_ptr();
        strided::runs(&self.shape, &self.strides, |at, count, step| {
            // SAFETY: as in `read_bytes`; `bytes` was just found to be as long as the runs.
            unsafe {
                copy_run(from, 1, base.offset(at as isize * size as isize), step, count, size);
                from = from.add(count * size);
            }
        });
        Ok(())
    }

    fn check_length(&self, given: usize, wanted: usize, unit: &str) -> Result<(), SimError> {
        if given == wanted {
            return Ok(());
        }
        Err(SimError::new(code::RT_INTERNAL, format!("{} takes {wanted} {unit}, got {given}", self.describe())))
    }

    fn no_values(&self) -> SimError {
        SimError::new(code::NNOP_INVALID, format!("{} elements cannot be converted here", self.dtype.name()))
    }

    /// The elements in logical row-major order.
    ///
    /// # Errors
    /// As [`read_bytes`](Self::read_bytes), and for types without values (hif8).
    pub fn read_values(&self) -> Result<Vec<Value>, SimError> {
        let bytes = self.read_bytes()?;
        bytes.chunks_exact(self.dtype.size()).map(|b| self.dtype.decode(b).ok_or_else(|| self.no_values())).collect()
    }

    /// Writes elements given in logical row-major order, rounded to the element type.
    ///
    /// # Errors
    /// As [`write_bytes`](Self::write_bytes), and for types without values (hif8).
    pub fn write_values(&self, values: impl IntoIterator<Item = Value>) -> Result<(), SimError> {
        let mut bytes = Vec::with_capacity(self.numel() * self.dtype.size());
        for value in values {
            if !self.dtype.encode(value, &mut bytes) {
                return Err(self.no_values());
            }
        }
        self.write_bytes(&bytes)
    }

    /// The elements as f32, in logical row-major order (of complex numbers the real part).
    ///
    /// # Errors
    /// As [`read_values`](Self::read_values).
    pub fn read_f32(&self) -> Result<Vec<f32>, SimError> {
        Ok(self.read_values()?.into_iter().map(|v| v.re() as f32).collect())
    }

    /// The elements as i64, in logical row-major order.
    ///
    /// # Errors
    /// As [`read_values`](Self::read_values).
    pub fn read_i64(&self) -> Result<Vec<i64>, SimError> {
        Ok(self.read_values()?.into_iter().map(|v| v.int() as i64).collect())
    }

    /// Writes f32 values, rounded to the element type.
    ///
    /// # Errors
    /// As [`write_values`](Self::write_values).
    pub fn write_f32(&self, values: &[f32]) -> Result<(), SimError> {
        self.write_values(values.iter().map(|&v| Value::Float(v.into())))
    }

    /// Writes i64 values, wrapped to the element type.
    ///
    /// # Errors
    /// As [`write_values`](Self::write_values).
    pub fn write_i64(&self, values: &[i64]) -> Result<(), SimError> {
        self.write_values(values.iter().map(|&v| Value::Int(v.into())))
    }
}

/// Copies `count` elements of `size` bytes; the steps count elements.
///
/// # Safety
/// Both sides must be valid for every element visited.
unsafe fn copy_run(from: *const u8, from_step: i64, to: *mut u8, to_step: i64, count: usize, size: usize) {
    // SAFETY: the caller's promise; within it the pointers stay on visited elements.
    unsafe {
        if from_step == 1 && to_step == 1 {
            std::ptr::copy(from, to, count * size);
            return;
        }
        for i in 0..count as isize {
            let from = from.offset(i * from_step as isize * size as isize);
            std::ptr::copy(from, to.offset(i * to_step as isize * size as isize), size);
        }
    }
}
