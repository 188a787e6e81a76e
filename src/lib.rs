//! AutoContiguous as a plugin for Ascend NPUs.
//!
//! The crate without features knows nothing of torch: [`layout::Layout`] describes a strided view, [`plan::Plan`] a copy
//! between two of them, [`host`] runs a plan on the CPU. [`contract`] says what an operator's arguments demand,
//! [`policy`] what to do where the demand is not met, [`profile`] what that cost.

pub mod ascend;
pub mod contract;
#[cfg(feature = "torch")]
mod ffi;
pub mod host;
pub mod layout;
pub mod plan;
pub mod policy;
pub mod profile;
