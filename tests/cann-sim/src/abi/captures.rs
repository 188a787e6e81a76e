//! Graph capture and replay (aclmdlRI).

use super::{put, status};
use crate::acl;
use crate::capture::{self, Mode};
use crate::error::{SimError, code, fail};
use crate::graph;
use crate::{groups, log, stream};
use std::ffi::{c_char, c_void};

fn mode_of(name: &str, number: i32) -> Result<Mode, SimError> {
    Mode::of(number).ok_or_else(|| {
        let text = format!("{name}: mode {number}; 0 (global), 1 (thread-local) and 2 (relaxed) are allowed");
        SimError::new(code::RT_PARAM_INVALID, text)
    })
}

fn begin(on: *mut c_void, mode: i32) -> Result<(), SimError> {
    if on.is_null() {
        let text = "the stream is null; the default stream cannot capture";
        return Err(SimError::new(code::RT_PARAM_INVALID, text));
    }
    stream::get(on)?;
    groups::forbid(on as usize, "aclmdlRICaptureBegin")?;
    capture::begin(on as usize, mode_of("aclmdlRICaptureBegin", mode)?).map(|_| ())
}

/// A graph that is still being captured cannot be used yet.
fn finished(model: *mut c_void) -> Result<(), SimError> {
    if capture::is_under_way(graph::number(model)) {
        let text = "the graph is still being captured; end the capture first";
        return Err(SimError::new(code::RT_MODEL_CAPTURED, text));
    }
    Ok(())
}

fn execute(model: *mut c_void, on: *mut c_void) -> Result<(), SimError> {
    let stream = stream::get(on)?;
    finished(model)?;
    let graph = graph::find(model)?;
    groups::forbid(on as usize, "aclmdlRIExecuteAsync")?;
    capture::forbid_on(on as usize, "aclmdlRIExecuteAsync", code::RT_CAPTURE_MODE_NOT_SUPPORT)?;
    graph::count_replay();
    log::line(|| format!("stream={} execute graph={}", stream.id, graph.id));
    stream.replay(graph);
    Ok(())
}

fn print(model: *mut c_void, path: *const c_char) -> Result<(), SimError> {
    finished(model)?;
    let text = graph::find(model)?.to_json();
    if path.is_null() {
        return Err(SimError::new(code::RT_PARAM_INVALID, "the path is null"));
    }
    // SAFETY: not null; the interface promises a C string.
    let path = unsafe { super::device::text_of(path) };
    std::fs::write(&path, text).map_err(|e| SimError::new(code::RT_FILE_OPEN, format!("{path} cannot be written: {e}")))
}

acl! {
    /// Begins to record what is issued on a stream, instead of running it.
    fn aclmdlRICaptureBegin(on: *mut c_void, mode: i32) { status("aclmdlRICaptureBegin", begin(on, mode)) }

    /// Ends the capture that began on a stream. The graph is null where it fails.
    fn aclmdlRICaptureEnd(on: *mut c_void, model: *mut *mut c_void) {
        if model.is_null() {
            return fail(code::RT_PARAM_INVALID, "EE1001", "aclmdlRICaptureEnd: the out-pointer is null".into());
        }
        let ended = stream::get(on).and_then(|_| capture::end(on as usize));
        let out = ended.as_ref().map_or(std::ptr::null_mut(), |id| graph::handle(*id));
        // SAFETY: not null; the interface promises that it can be written to.
        unsafe { model.write(out) };
        status("aclmdlRICaptureEnd", ended.map(|_| ()))
    }

    /// Whether a stream captures: 0 no, 1 yes, 2 yes, but the capture is spoiled; and the graph to be.
    fn aclmdlRICaptureGetInfo(on: *mut c_void, out: *mut i32, model: *mut *mut c_void) {
        if let Err(error) = stream::get(on) {
            return status("aclmdlRICaptureGetInfo", Err(error));
        }
        let (state, id) = capture::info(on as usize);
        // SAFETY: the interface promises pointers to write to, either may be null.
        unsafe {
            if !model.is_null() {
                model.write(id.map_or(std::ptr::null_mut(), graph::handle));
            }
            if !out.is_null() {
                out.write(state);
            }
        }
        code::SUCCESS
    }

    /// Exchanges the calling thread's mode for the given one.
    fn aclmdlRICaptureThreadExchangeMode(mode: *mut i32) {
        if mode.is_null() {
            return fail(code::RT_PARAM_INVALID, "EE1001", "aclmdlRICaptureThreadExchangeMode: the pointer is null".into());
        }
        // SAFETY: not null; the interface promises that it can be read and written.
        match mode_of("aclmdlRICaptureThreadExchangeMode", unsafe { *mode }) {
            Err(error) => status("aclmdlRICaptureThreadExchangeMode", Err(error)),
            // SAFETY: as above.
            Ok(new) => unsafe { put("aclmdlRICaptureThreadExchangeMode", mode, capture::exchange_mode(new) as i32) },
        }
    }

    /// Runs a graph on a stream, behind what is queued there.
    fn aclmdlRIExecuteAsync(model: *mut c_void, on: *mut c_void) { status("aclmdlRIExecuteAsync", execute(model, on)) }

    /// Destroys a graph; replays under way go on to their end.
    fn aclmdlRIDestroy(model: *mut c_void) {
        status("aclmdlRIDestroy", finished(model).and_then(|()| graph::destroy(model)))
    }

    /// Prints a graph to stderr.
    fn aclmdlRIDebugPrint(model: *mut c_void) {
        let printed = finished(model).and_then(|()| graph::find(model)).map(|graph| eprint!("{}", graph.to_json()));
        status("aclmdlRIDebugPrint", printed)
    }

    /// Writes a graph to a file as JSON.
    fn aclmdlRIDebugJsonPrint(model: *mut c_void, path: *const c_char, _flags: u32) {
        status("aclmdlRIDebugJsonPrint", print(model, path))
    }
}

/// Replays asked for so far; not part of CANN.
#[unsafe(no_mangle)]
pub extern "C" fn cann_sim_replays() -> u64 {
    graph::replays()
}

/// Captures under way, spoiled ones too; not part of CANN.
#[unsafe(no_mangle)]
pub extern "C" fn cann_sim_capturing() -> u64 {
    capture::under_way() as u64
}

/// Tasks of a graph (finished or still being captured; null: the newest finished one), without events; 0 if there is no
/// such graph. Not part of CANN.
#[unsafe(no_mangle)]
pub extern "C" fn cann_sim_graph_tasks(model: *mut c_void) -> u64 {
    let mut tasks = 0;
    super::guard("cann_sim_graph_tasks", || {
        let graph = if model.is_null() { graph::newest() } else { graph::find(model).ok() };
        tasks = graph.map(|g| g.tasks()).or_else(|| capture::tasks(graph::number(model))).unwrap_or(0);
        0
    });
    tasks as u64
}
