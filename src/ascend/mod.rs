//! The Ascend side that needs no torch: which SoC and which CANN this process runs on.

mod cann;

pub use cann::machine;
