//! Captures under way: what is issued on their streams is recorded instead of run.
//!
//! A capture has a branch for each of its streams: the first is the one it began on, others join it by waiting for an
//! event that was recorded in it. Each branch counts its steps, and knows of every other branch how many of its steps lie
//! before what it does next (a vector clock; records carry it along, waits merge it). The capture is whole if, at its
//! end, the first branch knows all steps of all others.
//!
//! What is not allowed while capturing spoils the capture: it stays on its streams until it is ended, refuses
//! everything, and gives no graph.

mod recording;
pub mod rules;

use crate::error::{SimError, code};
use crate::graph::Action;
use crate::groups::{self, Group};
use crate::mark::Mark;
use crate::signal::Signal;
use crate::task::{Kind, Task};
use crate::{graph, log};
use recording::{Branch, Capture};
pub use rules::{Mode, exchange_mode, forbid, forbid_event, forbid_on, forbid_unsafe};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A recording of an ordinary event inside a capture.
#[derive(Clone, Debug)]
pub struct Captured {
    capture: u64,
    recording: usize,
    seen: Vec<usize>,
}

/// What a stream is to wait for.
pub enum Waited<'a> {
    /// An event that was never recorded.
    Nothing,
    /// An event recorded outside of captures.
    Outside,
    /// An event recorded in a capture.
    Inside(&'a Captured),
}

#[derive(Default)]
struct State {
    last: u64,
    captures: BTreeMap<u64, Capture>,
    /// Capture and branch of each capturing stream.
    members: HashMap<usize, (u64, usize)>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);
// So that nothing costs a lock while nothing is captured.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
const DEFAULT_STREAM: usize = 0;

fn with<R>(act: impl FnOnce(&mut State) -> R) -> R {
    let mut state: MutexGuard<'_, _> = STATE.lock().unwrap_or_else(|e| e.into_inner());
    act(state.get_or_insert_default())
}

/// Captures under way, spoiled ones too.
pub fn under_way() -> usize {
    UNDER_WAY.load(Ordering::Acquire)
}

/// Whether the graph with that number is still being captured.
pub fn is_under_way(id: u64) -> bool {
    under_way() > 0 && with(|state| state.captures.contains_key(&id))
}

/// Whether a stream captures.
pub fn is_member(stream: usize) -> bool {
    under_way() > 0 && with(|state| state.members.contains_key(&stream))
}

/// Begins a capture on a stream; gives the number of the graph to be.
///
/// # Errors
/// 107027 if the stream captures already.
pub fn begin(stream: usize, mode: Mode) -> Result<u64, SimError> {
    with(|state| {
        if state.members.contains_key(&stream) {
            return Err(SimError::new(code::RT_STREAM_CAPTURED, "the stream is capturing already"));
        }
        state.last += 1;
        let id = state.last;
        let capture = Capture {
            id,
            thread: std::thread::current().id(),
            mode,
            branches: vec![Branch { stream, seen: vec![0], group: None }],
            nodes: Vec::new(),
            recordings: 0,
            spoiled: None,
            group_error: None,
        };
        state.captures.insert(id, capture);
        state.members.insert(stream, (id, 0));
        UNDER_WAY.store(state.captures.len(), Ordering::Release);
        log::line(|| format!("capture begin graph={id} mode={mode:?}"));
        Ok(id)
    })
}

/// Ends the capture that began on a stream and keeps its graph; gives the graph's number.
///
/// # Errors
/// 107029 if the stream does not capture, 107036 if it joined a capture that began on another. In all other cases
/// the capture is over and there is no graph: 107038 in another thread than began it (unless relaxed), 507903 if it was
/// spoiled, 107033 if a task group is open, 107025 if a branch was not joined back.
pub fn end(stream: usize) -> Result<u64, SimError> {
    let capture = with(|state| {
        let Some(&(id, branch)) = state.members.get(&stream) else {
            return Err(SimError::new(code::RT_STREAM_NOT_CAPTURED, "the stream is not capturing"));
        };
        if branch != 0 {
            let text = "the stream joined the capture of another; the capture is ended where it began";
            return Err(SimError::new(code::RT_STREAM_CAPTURE_UNMATCHED, text));
        }
        state.members.retain(|_, (member, _)| *member != id);
        let capture = state.captures.remove(&id);
        UNDER_WAY.store(state.captures.len(), Ordering::Release);
        capture.ok_or_else(|| SimError::new(code::RT_INTERNAL, "the capture is lost"))
    })?;
    let id = capture.id;
    let result = capture.finish();
    match &result {
        Ok(graph) => log::line(|| format!("capture end graph={id} tasks={}", graph.tasks())),
        Err(error) => {
            groups::forget(id);
            log::line(|| format!("capture end graph={id} failed: {error}"));
        }
    }
    result.map(|graph| {
        graph::keep(graph);
        id
    })
}

/// What a stream is doing: 0 nothing, 1 capturing, 2 its capture is spoiled; and the number of the graph to be.
pub fn info(stream: usize) -> (i32, Option<u64>) {
    if under_way() == 0 {
        return (0, None);
    }
    with(|state| match state.members.get(&stream).and_then(|(id, _)| state.captures.get(id)) {
        None => (0, None),
        Some(capture) => (if capture.spoiled.is_some() { 2 } else { 1 }, Some(capture.id)),
    })
}

/// Tasks recorded so far for the graph with that number, if it is still being captured.
pub fn tasks(id: u64) -> Option<usize> {
    with(|state| state.captures.get(&id).map(|capture| graph::count(&capture.nodes)))
}

/// Records a task if the stream captures; gives it back if not.
///
/// # Errors
/// What captures forbid.
pub fn take(stream: usize, task: Task) -> Result<Option<Task>, SimError> {
    if under_way() == 0 {
        return Ok(Some(task));
    }
    with(|state| {
        let Some((capture, branch)) = state.member(stream, task.name)? else { return Ok(Some(task)) };
        capture.admit(branch, task.kind, task.name)?;
        match &mut capture.branches[branch].group {
            Some(group) => group.push(task),
            None => capture.push(branch, Action::Run(task)),
        }
        Ok(None)
    })
}

fn step(stream: usize, name: &str, action: impl FnOnce() -> Action) -> Result<bool, SimError> {
    if under_way() == 0 {
        return Ok(false);
    }
    with(|state| {
        let Some((capture, branch)) = state.member(stream, name)? else { return Ok(false) };
        capture.admit(branch, Kind::Other, name)?;
        capture.push(branch, action());
        Ok(true)
    })
}

/// Puts the recording of an external event, or the writing of a word, into the graph that a stream captures; `false` if
/// it captures none.
///
/// # Errors
/// What captures forbid.
pub fn set(stream: usize, name: &str, signal: &Signal) -> Result<bool, SimError> {
    step(stream, name, || Action::Set(signal.clone()))
}

/// The same for waiting for it.
///
/// # Errors
/// What captures forbid.
pub fn wait_for_signal(stream: usize, name: &str, signal: &Signal) -> Result<bool, SimError> {
    step(stream, name, || Action::Await(signal.clone()))
}

/// The same for resetting an external event.
///
/// # Errors
/// What captures forbid.
pub fn clear(stream: usize, mark: &Arc<Mark>) -> Result<bool, SimError> {
    step(stream, "aclrtResetEvent", || Action::Clear(mark.clone()))
}

/// Records an ordinary event in the graph that a stream captures; `None` if it captures none.
///
/// # Errors
/// What captures forbid.
pub fn record(stream: usize) -> Result<Option<Captured>, SimError> {
    if under_way() == 0 {
        return Ok(None);
    }
    let name = "aclrtRecordEvent";
    with(|state| {
        let Some((capture, branch)) = state.member(stream, name)? else { return Ok(None) };
        capture.admit(branch, Kind::Other, name)?;
        let recording = capture.recordings;
        capture.recordings += 1;
        capture.push(branch, Action::Record(recording));
        Ok(Some(Captured { capture: capture.id, recording, seen: capture.branches[branch].seen.clone() }))
    })
}

/// Makes the graph that a stream captures wait, or makes the stream join a capture; `false` if the stream has to wait
/// outside of any capture.
///
/// # Errors
/// 107024 for an event recorded outside of the capture, 107028 for one of a capture that has ended, 107032 for one of
/// another capture, 107031 if the default stream would join; what captures forbid.
pub fn wait(stream: usize, waited: Waited<'_>) -> Result<bool, SimError> {
    let name = "aclrtStreamWaitEvent";
    match waited {
        Waited::Inside(captured) => with(|state| state.wait_inside(stream, captured)),
        _ if under_way() == 0 => Ok(false),
        Waited::Nothing => with(|state| Ok(state.member(stream, name)?.is_some())),
        Waited::Outside => with(|state| match state.member(stream, name)? {
            None => Ok(false),
            Some((capture, _)) => Err(capture.refuse(
                code::RT_CAPTURE_DEPENDENCY,
                "aclrtStreamWaitEvent: the event was recorded outside of the capture; wait before the capture begins, \
                 or use an external event",
            )),
        }),
    }
}

/// Opens a task group on a capturing stream.
///
/// # Errors
/// 107029 if the stream does not capture, 107033 if a group is open on it, 507903 if the capture is spoiled.
pub fn begin_group(stream: usize) -> Result<(), SimError> {
    with(|state| {
        let Some((capture, branch)) = state.member(stream, "aclmdlRICaptureTaskGrpBegin")? else {
            return Err(SimError::new(code::RT_STREAM_NOT_CAPTURED, "the stream is not capturing"));
        };
        if capture.branches[branch].group.is_some() {
            let text = "a task group is open on the stream already; groups do not nest";
            return Err(SimError::new(code::STREAM_TASK_GROUP_STATUS, text));
        }
        capture.branches[branch].group = Some(Vec::new());
        log::line(|| format!("group begin graph={}", capture.id));
        Ok(())
    })
}

/// Closes the task group that is open on a capturing stream.
///
/// # Errors
/// 107029 if the stream does not capture, 107033 if no group is open on it, what went wrong inside the group, 507903 if
/// the capture is spoiled.
pub fn end_group(stream: usize) -> Result<Arc<Group>, SimError> {
    with(|state| {
        let Some(&(id, branch)) = state.members.get(&stream) else {
            return Err(SimError::new(code::RT_STREAM_NOT_CAPTURED, "the stream is not capturing"));
        };
        let Some(capture) = state.captures.get_mut(&id) else {
            return Err(SimError::new(code::RT_INTERNAL, "the capture is lost"));
        };
        let Some(tasks) = capture.branches[branch].group.take() else {
            let text = "no task group is open on the stream";
            return Err(SimError::new(code::STREAM_TASK_GROUP_STATUS, text));
        };
        if let Some(error) = capture.group_error.take() {
            return Err(error);
        }
        capture.check()?;
        let group = groups::create(id, tasks);
        log::line(|| format!("group end graph={id} group={} tasks={}", group.id(), group.tasks().len()));
        capture.push(branch, Action::Group(group.clone()));
        Ok(group)
    })
}

impl State {
    /// The capture of a stream and the branch; `None` if the stream does not capture.
    fn member(&mut self, stream: usize, name: &str) -> Result<Option<(&mut Capture, usize)>, SimError> {
        let Some(&(id, branch)) = self.members.get(&stream) else {
            return self.forbid_default(stream, name).map(|()| None);
        };
        let Some(capture) = self.captures.get_mut(&id) else { return Ok(None) };
        // A group must be able to say itself what went wrong in it.
        capture.check()?;
        Ok(Some((capture, branch)))
    }

    fn wait_inside(&mut self, stream: usize, captured: &Captured) -> Result<bool, SimError> {
        let name = "aclrtStreamWaitEvent";
        let member = self.members.get(&stream).copied();
        if !self.captures.contains_key(&captured.capture) {
            let text = format!("{name}: the event was last recorded in a capture that has ended");
            return match member.and_then(|(id, _)| self.captures.get_mut(&id)) {
                Some(capture) => Err(capture.refuse(code::RT_CAPTURE_DEPENDENCY, &text)),
                None => Err(SimError::new(code::RT_EVENT_CAPTURED, text)),
            };
        }
        self.forbid_default(stream, name)?;
        if let Some((other, _)) = member
            && other != captured.capture
        {
            let text = format!("{name}: the event belongs to another capture; two captures cannot be joined");
            return self
                .refuse_all(code::STREAM_CAPTURE_CONFLICT, &text, |c| c.id == other || c.id == captured.capture)
                .map(|()| true);
        }
        let Some(capture) = self.captures.get_mut(&captured.capture) else { return Ok(false) };
        capture.check()?;
        let branch = match member {
            Some((_, branch)) => branch,
            None => {
                capture.branches.push(Branch { stream, seen: Vec::new(), group: None });
                capture.branches.len() - 1
            }
        };
        capture.admit(branch, Kind::Other, name)?;
        capture.push(branch, Action::Wait(captured.recording));
        let seen = &mut capture.branches[branch].seen;
        seen.resize(seen.len().max(captured.seen.len()), 0);
        for (known, new) in seen.iter_mut().zip(&captured.seen) {
            *known = (*known).max(*new);
        }
        self.members.insert(stream, (captured.capture, branch));
        Ok(true)
    }
}
