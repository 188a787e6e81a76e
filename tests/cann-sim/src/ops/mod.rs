//! Operators (libopapi).

pub mod attention;
pub mod copy;
pub mod elementwise;
pub mod fia_layout;
pub mod fill;
pub mod glue;
pub mod indexing;
pub mod linalg;
pub mod picking;
pub mod reduce;
pub mod rotary_math;
