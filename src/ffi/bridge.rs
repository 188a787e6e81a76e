//! The cxx bridge: what C++ may ask. C++ knows tensors and the dispatcher, Rust knows layouts, contracts and policies.
//!
//! Every `extern "Rust"` function runs under [`super::guard`]: a panic becomes an error, never an abort.

use super::{admin, copy, graph, hook, timing};

#[cxx::bridge(namespace = "infini")]
#[allow(missing_docs, clippy::missing_safety_doc, clippy::ptr_arg)] // cxx passes rust::Vec as &Vec
pub(crate) mod generated {
    /// A strided tensor as the dispatcher sees it. Sizes, strides and offset in elements.
    #[derive(Clone, Copy)]
    struct TensorArg {
        /// Which argument of the operator, as numbered by `hook_attach`.
        slot: u32,
        ndim: u32,
        sizes: *const i64,
        strides: *const i64,
        offset: i64,
        element_size: u32,
        /// c10::ScalarType.
        dtype: i8,
        on_npu: bool,
    }

    /// When a call runs: now, at the replays of a graph, or as the update of a captured call.
    #[derive(Clone, Copy)]
    struct Execution {
        /// Number of the graph that captures the call, 0 for none.
        graph: u64,
        update: bool,
    }

    /// What to do with one tensor before the operator runs, and after.
    #[repr(u8)]
    enum Action {
        /// Hand it on as it is.
        Pass,
        /// Contiguous in memory: hand on a view with canonical strides.
        Restride,
        /// Hand on a contiguous copy.
        Copy,
        /// Hand on a contiguous copy, then copy it back.
        CopyInOut,
        /// Hand on an uninitialized contiguous tensor; nobody reads or writes it.
        Placeholder,
    }

    #[derive(Clone, Copy)]
    struct Decision {
        action: Action,
        site: u32,
    }

    #[repr(u8)]
    enum Verdict {
        /// Every tensor passes as it is.
        Pass,
        /// Follow the decisions.
        Act,
        /// Raise `message`.
        Refuse,
    }

    struct Decided {
        verdict: Verdict,
        message: String,
    }

    /// A copy with the fewest dimensions, in elements relative to the storage bases.
    struct SimplifiedCopy {
        shape: Vec<i64>,
        dst_strides: Vec<i64>,
        src_strides: Vec<i64>,
        dst_offset: i64,
        src_offset: i64,
    }

    /// An operator the hook has been attached to.
    struct Attached {
        id: u32,
        /// Position in the schema of each slot.
        positions: Vec<u32>,
    }

    extern "Rust" {
        fn hook_targets() -> Result<Vec<String>>;
        fn hook_attach(operator_name: &str, arguments: &Vec<String>) -> Result<Attached>;
        unsafe fn hook_decide(
            id: u32,
            tensors: &[TensorArg],
            execution: Execution,
            decisions: &mut [Decision],
        ) -> Result<Decided>;
        fn hook_unknown_arguments(operator_name: &str, arguments: &Vec<String>) -> Result<String>;
        fn hook_not_registered(names: &Vec<String>) -> Result<()>;
        fn hook_site(site: u32) -> Result<String>;
        fn hook_copied_back(site: u32, bytes: u64, execution: Execution) -> Result<()>;

        fn contiguous_passed(site: &str) -> Result<()>;
        unsafe fn contiguous_decide(site: &str, tensor: &TensorArg) -> Result<Decided>;
        fn contiguous_traced(site: &str) -> Result<Decided>;
        unsafe fn copied(site: &str, tensor: &TensorArg, execution: Execution) -> Result<()>;

        unsafe fn copy_on_host(dst: &TensorArg, dst_base: *mut u8, src: &TensorArg, src_base: *const u8) -> Result<()>;
        unsafe fn simplify_copy(dst: &TensorArg, src: &TensorArg) -> Result<SimplifiedCopy>;
        unsafe fn check_out(dst: &TensorArg, dst_base: usize, src: &TensorArg, src_base: usize) -> Result<()>;

        fn graph_begun() -> Result<u64>;
        fn graph_ended(graph: u64) -> Result<()>;
        fn graph_replayed(graph: u64) -> Result<()>;
        fn graph_updated() -> Result<()>;
        fn graph_released(graph: u64) -> Result<()>;

        fn timing() -> bool;
        fn times_next(site: &str) -> Result<u32>;
        unsafe fn copy_timed(timed: u32, bytes: u64, start: usize, end: usize) -> Result<()>;

        fn configure() -> Result<()>;
        fn scope_push(directives: &str, name: &str, activate: bool) -> Result<i64>;
        fn scope_pop(token: i64) -> Result<()>;
        fn scope_active() -> bool;
        unsafe fn explain(tensor: &TensorArg) -> Result<String>;
        fn profile_json() -> Result<String>;
        fn profile_reset() -> Result<()>;
        fn profile_save(path: &str) -> Result<()>;
        fn doctor_json() -> Result<String>;
        fn set_log_callback(address: i64) -> Result<()>;
        fn say(level: u8, message: &str) -> Result<()>;
    }
}

use admin::*;
use copy::*;
use graph::*;
use hook::*;
use timing::*;
