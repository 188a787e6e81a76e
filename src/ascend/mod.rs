//! The Ascend side that needs no torch: which SoC and which CANN this process runs on.

mod cann;
mod events;

pub use cann::machine;
pub use events::elapsed_ns;
