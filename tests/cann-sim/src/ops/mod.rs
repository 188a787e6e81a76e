//! Operators (libopapi).

pub mod attention;
pub mod copy;
pub mod fia_layout;
pub mod rotary_math;
