//! Operators (libopapi).

pub mod attention;
pub mod copy;
pub mod elementwise;
pub mod fia;
pub mod fia_interface;
pub mod fia_layout;
pub mod fia_reading;
mod fia_run;
pub mod fill;
pub mod glue;
pub mod indexing;
pub mod linalg;
pub mod picking;
pub mod reduce;
pub mod rotary;
mod rotary_cached;
pub mod rotary_math;
