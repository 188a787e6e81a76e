//! Simulated CANN: enough of libascendcl and libopapi to run the unmodified torch_npu wheel without an NPU.
//!
//! `tests/cann-sim/README.md` says what is simulated and how to steer it.

#![allow(clippy::missing_safety_doc)]

pub mod abi;
pub mod capture;
pub mod clock;
pub mod config;
pub mod dtype;
pub mod error;
pub mod event;
pub mod executor;
pub mod fault;
pub mod graph;
pub mod groups;
pub mod handles;
pub mod log;
pub mod mark;
pub mod memory;
pub mod ops;
pub mod segv;
pub mod signal;
pub mod stream;
pub mod strided;
pub mod task;
pub mod tensor;
