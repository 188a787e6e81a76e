//! Task groups: operators of a graph whose arguments can be replaced between replays.
//!
//! A group is filled while its stream captures. Later another stream, which does not capture, says that it updates the
//! group: what is launched on it from then on is not run, it is kept. If in the end it is as many operators of the same
//! names, they take the place of the old ones when the updating stream gets there, so that an event recorded behind the
//! update says that it is done.

use crate::error::{SimError, code};
use crate::task::{Kind, Task};
use crate::{capture, log, stream};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The tasks of a group.
pub struct Group {
    id: u64,
    graph: u64,
    tasks: Mutex<Vec<Task>>,
}

impl Group {
    /// Number for messages, the log and the handle.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The tasks as they are now.
    pub fn tasks(&self) -> Vec<Task> {
        self.tasks.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Puts other tasks in their place.
    pub fn replace(&self, tasks: Vec<Task>) {
        *self.tasks.lock().unwrap_or_else(|e| e.into_inner()) = tasks;
    }
}

struct Update {
    group: Arc<Group>,
    tasks: Vec<Task>,
    wrong: Option<String>,
}

#[derive(Default)]
struct State {
    next: u64,
    groups: HashMap<u64, Arc<Group>>,
    /// Streams that update a group.
    updates: HashMap<usize, Update>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);
// So that launching costs no lock while nothing is updated.
static UPDATING: AtomicUsize = AtomicUsize::new(0);

fn with<R>(act: impl FnOnce(&mut State) -> R) -> R {
    let mut state: MutexGuard<'_, _> = STATE.lock().unwrap_or_else(|e| e.into_inner());
    act(state.get_or_insert_default())
}

/// Makes a group of captured tasks.
pub fn create(graph: u64, tasks: Vec<Task>) -> Arc<Group> {
    with(|state| {
        state.next += 1;
        let group = Arc::new(Group { id: state.next, graph, tasks: Mutex::new(tasks) });
        state.groups.insert(state.next, group.clone());
        group
    })
}

/// The handle (aclrtTaskGrp) of a group.
pub fn handle(group: &Group) -> *mut c_void {
    (group.id as usize * 64) as *mut c_void
}

/// Forgets the groups of a graph; their handles are stale from then on.
pub fn forget(graph: u64) {
    with(|state| state.groups.retain(|_, group| group.graph != graph));
}

/// Begins the update of a group on a stream.
///
/// # Errors
/// 107027 if the stream captures, 107026 if the group's capture is still under way, 107033 if the stream, or another
/// one for the same group, is updating already, 107017 for a handle that is no group or whose graph is gone.
pub fn begin_update(on: *mut c_void, handle: *mut c_void) -> Result<(), SimError> {
    stream::get(on)?;
    if on.is_null() || handle.is_null() {
        return Err(SimError::new(code::RT_PARAM_INVALID, "neither the stream nor the handle may be null"));
    }
    if capture::is_member(on as usize) {
        let text = "the stream is capturing; a task group is updated on a stream that is not";
        return Err(SimError::new(code::RT_STREAM_CAPTURED, text));
    }
    let number = handle as usize / 64;
    let found = with(|state| state.groups.get(&(number as u64)).filter(|_| handle as usize == number * 64).cloned());
    let Some(group) = found else {
        let text = format!("{handle:?} is not a task group, or its graph was destroyed");
        return Err(SimError::new(code::RT_INVALID_HANDLE, text));
    };
    if capture::is_under_way(group.graph) {
        let text = "the capture that the task group belongs to has not ended";
        return Err(SimError::new(code::RT_MODEL_CAPTURED, text));
    }
    with(|state| {
        if state.updates.contains_key(&(on as usize)) {
            return Err(status("the stream is already updating a task group"));
        }
        if state.updates.values().any(|u| u.group.id == group.id) {
            return Err(status("the task group is being updated by another stream"));
        }
        log::line(|| format!("update begin group={} graph={}", group.id, group.graph));
        state.updates.insert(on as usize, Update { group, tasks: Vec::new(), wrong: None });
        UPDATING.store(state.updates.len(), Ordering::Release);
        Ok(())
    })
}

/// Ends the update and queues the replacement.
///
/// # Errors
/// 107033 if the stream is not updating; 107040 if the tasks do not match, the group then stays as it was.
pub fn end_update(on: *mut c_void) -> Result<(), SimError> {
    let stream = stream::get(on)?;
    let update = with(|state| {
        let update = state.updates.remove(&(on as usize));
        UPDATING.store(state.updates.len(), Ordering::Release);
        update
    });
    let Some(Update { group, tasks, wrong }) = update else {
        return Err(status("the stream is not updating a task group"));
    };
    let names = |tasks: &[Task]| tasks.iter().map(|t| t.name).collect::<Vec<_>>();
    let (old, new) = (names(&group.tasks()), names(&tasks));
    if wrong.is_some() || old != new {
        let why = wrong.unwrap_or_else(|| format!("it holds {old:?}, {new:?} were launched"));
        let text = format!("task group {} stays as it was: {why}; number and kind of the tasks must match", group.id);
        log::line(|| format!("update refused: {text}"));
        return Err(SimError::new(code::RT_MODEL_UPDATE_FAILED, text));
    }
    log::line(|| format!("update end group={} tasks={new:?}", group.id));
    stream.update(group, tasks);
    Ok(())
}

/// Keeps a task that is launched on an updating stream; gives it back if the stream is not updating.
///
/// # Errors
/// 107033 for a task that is no operator.
pub fn take(on: usize, task: Task) -> Result<Option<Task>, SimError> {
    if UPDATING.load(Ordering::Acquire) == 0 {
        return Ok(Some(task));
    }
    with(|state| match state.updates.get_mut(&on) {
        None => Ok(Some(task)),
        Some(update) if task.kind == Kind::Operator => {
            update.tasks.push(task);
            Ok(None)
        }
        Some(update) => Err(update.spoil(task.name)),
    })
}

/// Refuses something that is no operator on an updating stream.
///
/// # Errors
/// 107033 if the stream is updating a task group.
pub fn forbid(on: usize, name: &str) -> Result<(), SimError> {
    if UPDATING.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    with(|state| match state.updates.get_mut(&on) {
        None => Ok(()),
        Some(update) => Err(update.spoil(name)),
    })
}

/// Drops the update of a stream that is destroyed; the group stays as it was.
pub fn abandon(on: usize) {
    if UPDATING.load(Ordering::Acquire) > 0 {
        with(|state| {
            state.updates.remove(&on);
            UPDATING.store(state.updates.len(), Ordering::Release);
        });
    }
}

impl Update {
    fn spoil(&mut self, name: &str) -> SimError {
        self.wrong = Some(format!("{name} is no operator"));
        status("the stream is updating a task group; only operators can be launched on it until the update ends")
    }
}

fn status(text: &str) -> SimError {
    SimError::new(code::STREAM_TASK_GROUP_STATUS, text)
}
