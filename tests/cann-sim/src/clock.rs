//! The simulated clock: what a task costs. The figures are round numbers that make relations visible and repeatable;
//! they describe no real device.

use crate::tensor::Tensor;

/// Nanoseconds that any task takes.
pub const LAUNCH_NS: u64 = 4_000;
/// Bytes moved per nanosecond.
pub const BYTES_PER_NS: u64 = 1_000;
/// Nanoseconds per piece of memory that has to be fetched on its own.
pub const BURST_NS: u64 = 2;
/// Arithmetic operations per nanosecond.
pub const FLOPS_PER_NS: u64 = 100_000;

/// What a task does, as far as the clock, the workspace and the log care.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes read and written.
    pub bytes: u64,
    /// Pieces of memory without a gap that are read or written.
    pub bursts: u64,
    /// Arithmetic operations.
    pub flops: u64,
    /// Workspace bytes asked for, besides those of hidden copies.
    pub workspace: u64,
    /// Copies that the operator makes of its inputs without being asked to.
    pub hidden_copies: u64,
    /// Bytes of those copies; they are asked for as workspace.
    pub hidden_bytes: u64,
    /// The tensors, for the log.
    pub what: String,
}

impl Cost {
    /// The cost of going once over each of `tensors`.
    pub fn of(tensors: &[&Tensor]) -> Self {
        tensors.iter().fold(Self::default(), |cost, t| cost.touching(t))
    }

    /// Adds going once over a tensor.
    pub fn touching(mut self, tensor: &Tensor) -> Self {
        self.bytes += tensor.bytes();
        self.bursts += crate::strided::bursts(&tensor.shape, &tensor.strides);
        if !self.what.is_empty() {
            self.what += " ";
        }
        self.what += &tensor.describe();
        self
    }

    /// Adds arithmetic.
    pub fn flops(mut self, flops: u64) -> Self {
        self.flops += flops;
        self
    }

    /// Adds a hidden copy of `tensor` into workspace, if it is not contiguous.
    pub fn hidden_copy(mut self, tensor: &Tensor) -> Self {
        if !tensor.is_contiguous() {
            self.hidden_copies += 1;
            self.hidden_bytes += tensor.bytes();
        }
        self
    }

    /// Simulated nanoseconds. A hidden copy reads and writes its bytes and is a launch of its own.
    pub fn ns(&self) -> u64 {
        LAUNCH_NS * (1 + self.hidden_copies)
            + (self.bytes + 2 * self.hidden_bytes) / BYTES_PER_NS
            + self.bursts * BURST_NS
            + self.flops / FLOPS_PER_NS
    }
}
