//! The two phases of an aclnn operator. The first checks its arguments, asks for workspace and leaves an executor; the
//! second puts the executor's work on a stream. An executor is good for one launch.

use crate::clock::Cost;
use crate::error::{SimError, code};
use crate::fault;
use crate::stream::{self, Kind, Task, Work};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

pub use crate::config::{soc, version};
pub use crate::error::fail;
pub use crate::handles::{int_array, scalar, tensor, tensor_list};

struct Executor {
    name: &'static str,
    cost: Cost,
    run: Work,
}

static EXECUTORS: Mutex<Option<HashMap<usize, Executor>>> = Mutex::new(None);
static HIDDEN_COPIES: AtomicU64 = AtomicU64::new(0);
static HIDDEN_BYTES: AtomicU64 = AtomicU64::new(0);

fn executors() -> MutexGuard<'static, Option<HashMap<usize, Executor>>> {
    EXECUTORS.lock().unwrap_or_else(|e| e.into_inner())
}

/// First phase: keeps `run` for the stream's worker, and tells how much workspace it wants (`cost`). Returns the code that
/// the C function should return: 0, 161001 for null out-pointers, or what was injected for `<name>GetWorkspaceSize`.
///
/// `run` may be called more than once (a captured task is replayed) and must not wait for other tasks.
// The out-pointers come straight from the C function, whose caller answers for them; operators stay free of unsafe.
#[allow(clippy::not_unsafe_ptr_arg_deref)]
pub fn prepare(
    name: &'static str,
    workspace: *mut u64,
    executor: *mut *mut c_void,
    cost: Cost,
    run: impl Fn() -> Result<(), SimError> + Send + Sync + 'static,
) -> i32 {
    // The handle is a number that is never used again, so that a second launch is always noticed.
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if let Err(code) = fault::enter(&format!("{name}GetWorkspaceSize")) {
        return code;
    }
    if workspace.is_null() || executor.is_null() {
        return fail(code::NNOP_NULL, "EZ1001", format!("{name}: workspaceSize and executor must not be null"));
    }
    let handle = NEXT.fetch_add(1, Ordering::Relaxed) as usize * 16;
    // SAFETY: not null; the interface promises that they can be written to.
    unsafe {
        *workspace = cost.workspace + cost.hidden_bytes;
        *executor = handle as *mut c_void;
    }
    executors().get_or_insert_default().insert(handle, Executor { name, cost, run: Arc::new(run) });
    code::SUCCESS
}

/// Second phase, without a look at the workspace; see [`launch_with`].
pub fn launch(name: &'static str, executor: *mut c_void, stream: *mut c_void) -> i32 {
    if let Err(code) = fault::enter(name) {
        drop_executor(executor);
        return code;
    }
    let Some(found) = executors().get_or_insert_default().remove(&(executor as usize)) else {
        return fail(
            code::NNOP_INVALID,
            "EZ9999",
            format!(
                "{name}: executor {executor:?} was not prepared or was launched already; each launch needs one of its own"
            ),
        );
    };
    if found.name != name {
        return fail(
            code::NNOP_INVALID,
            "EZ9999",
            format!("{name}: the executor was prepared by {}GetWorkspaceSize", found.name),
        );
    }
    stream::send(stream, Task { name, kind: Kind::Operator, cost: found.cost, work: found.run })
}

/// Second phase: puts the prepared work on the stream. The workspace must be there if any was asked for.
pub fn launch_with(
    name: &'static str,
    workspace: *mut c_void,
    size: u64,
    executor: *mut c_void,
    stream: *mut c_void,
) -> i32 {
    let wanted = executors()
        .get_or_insert_default()
        .get(&(executor as usize))
        .map_or(0, |e| e.cost.workspace + e.cost.hidden_bytes);
    if wanted > 0 && (workspace.is_null() || size < wanted) {
        return fail(
            code::NNOP_INVALID,
            "EZ9999",
            format!("{name}: workspace of {wanted} bytes was asked for, {size} bytes at {workspace:?} were given"),
        );
    }
    launch(name, executor, stream)
}

/// Forgets an executor that will not be launched; `false` if it is not known.
pub fn drop_executor(executor: *const c_void) -> bool {
    executors().get_or_insert_default().remove(&(executor as usize)).is_some()
}

/// Counts the hidden copies of a task that ran.
pub fn count_hidden_copies(cost: &Cost) {
    HIDDEN_COPIES.fetch_add(cost.hidden_copies, Ordering::Relaxed);
    HIDDEN_BYTES.fetch_add(cost.hidden_bytes, Ordering::Relaxed);
}

/// Hidden copies run so far, and their bytes; those of a captured operator count with every replay.
pub fn hidden_copies() -> (u64, u64) {
    (HIDDEN_COPIES.load(Ordering::Relaxed), HIDDEN_BYTES.load(Ordering::Relaxed))
}

/// Sets the counts of hidden copies to zero.
pub fn reset_hidden_copies() {
    HIDDEN_COPIES.store(0, Ordering::Relaxed);
    HIDDEN_BYTES.store(0, Ordering::Relaxed);
}

/// Declares the second phases of operators: `launches! { aclnnInplaceCopy, aclnnCast }`.
#[macro_export]
macro_rules! launches {
    ($($name:ident),* $(,)?) => {$(
        /// Second phase: puts the prepared work on the stream.
        ///
        /// # Safety
        /// `executor` comes from the first phase.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            workspace: *mut std::ffi::c_void,
            size: u64,
            executor: *mut std::ffi::c_void,
            stream: *mut std::ffi::c_void,
        ) -> i32 {
            $crate::abi::guard(stringify!($name), || {
                $crate::executor::launch_with(stringify!($name), workspace, size, executor, stream)
            })
        }
    )*};
}
