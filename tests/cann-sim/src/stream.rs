//! Streams and events. Each stream has a worker thread that runs its tasks in order and keeps its simulated time.

use crate::clock::Cost;
use crate::error::{SimError, code, fail, report};
use crate::graph::Graph;
use crate::groups::Group;
use crate::signal::Signal;
use crate::{capture, groups, log};
use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub use crate::mark::Mark;
pub use crate::task::{Kind, Task, Work};

enum Item {
    Run(Task),
    Record(Arc<Mark>),
    Wait(Arc<Mark>),
    Set(Signal),
    /// Waiting for a signal that may never be set.
    Await(Signal),
    Clear(Arc<Mark>),
    Update(Arc<Group>, Vec<Task>),
    Replay(Arc<Graph>),
}

#[derive(Default)]
struct State {
    queue: VecDeque<Item>,
    busy: bool,
    closed: bool,
    time: u64,
    error: Option<SimError>,
}

/// A stream of the simulated device.
pub struct Stream {
    /// Number for messages and the log.
    pub id: i32,
    state: Mutex<State>,
    changed: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

static STREAMS: Mutex<Option<HashMap<usize, Arc<Stream>>>> = Mutex::new(None);
// The default stream of the device; handle null.
const DEFAULT: usize = 0;

/// Creates a stream and its worker.
pub fn create() -> *mut c_void {
    let stream = Stream::start();
    let handle = Arc::as_ptr(&stream) as usize;
    lock(&STREAMS).get_or_insert_default().insert(handle, stream);
    handle as *mut c_void
}

/// The stream behind a handle; null is the default stream.
///
/// # Errors
/// 107003 for a handle that is not a live stream; the text is set for `aclGetRecentErrMsg`.
pub fn find(handle: *mut c_void) -> Result<Arc<Stream>, i32> {
    get(handle).map_err(|e| fail(e.code, "EE1001", e.text))
}

/// As [`find`], with the text in the error.
///
/// # Errors
/// 107003 for a handle that is not a live stream.
pub fn get(handle: *mut c_void) -> Result<Arc<Stream>, SimError> {
    let mut streams = lock(&STREAMS);
    let streams = streams.get_or_insert_default();
    if handle as usize == DEFAULT {
        return Ok(streams.entry(DEFAULT).or_insert_with(Stream::start).clone());
    }
    streams.get(&(handle as usize)).cloned().ok_or_else(|| {
        SimError::new(code::RT_STREAM_CONTEXT, format!("{handle:?} is not a stream, or it was destroyed"))
    })
}

/// Every stream there is.
pub fn all() -> Vec<Arc<Stream>> {
    lock(&STREAMS).get_or_insert_default().values().cloned().collect()
}

/// Ends a stream after what is queued on it.
///
/// # Errors
/// 107003 for a handle that is not a live stream.
pub fn destroy(handle: *mut c_void) -> Result<(), i32> {
    let stream = find(handle)?;
    lock(&STREAMS).get_or_insert_default().remove(&(handle as usize));
    groups::abandon(handle as usize);
    lock(&stream.state).closed = true;
    stream.changed.notify_all();
    Ok(())
}

/// Queues work that is no operator; returns the code for the caller.
pub fn submit(handle: *mut c_void, name: &'static str, cost: Cost, work: Work) -> i32 {
    send(handle, Task { name, kind: Kind::Other, cost, work })
}

/// Queues a task; while the stream captures, it is recorded, and while it updates a task group, it is kept for that.
/// Returns the code for the caller.
pub fn send(handle: *mut c_void, task: Task) -> i32 {
    let name = task.name;
    report(name, try_send(handle, task))
}

fn try_send(handle: *mut c_void, task: Task) -> Result<(), SimError> {
    let stream = get(handle)?;
    let Some(task) = groups::take(handle as usize, task)? else { return Ok(()) };
    let Some(task) = capture::take(handle as usize, task)? else { return Ok(()) };
    stream.push(Item::Run(task));
    Ok(())
}

impl Stream {
    fn start() -> Arc<Self> {
        static NEXT: AtomicI32 = AtomicI32::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let stream = Arc::new(Self { id, state: Mutex::default(), changed: Condvar::new() });
        let worker = stream.clone();
        // A thread that cannot be started leaves the stream without a worker; there is nothing to simulate then.
        std::thread::Builder::new()
            .name(format!("cann-sim-{id}"))
            .spawn(move || worker.work())
            .expect("cann-sim: cannot start the worker thread of a stream");
        stream
    }

    fn push(&self, item: Item) {
        lock(&self.state).queue.push_back(item);
        self.changed.notify_all();
    }

    /// Queues the recording of an event.
    pub fn record(&self) -> Arc<Mark> {
        let mark = Arc::new(Mark::default());
        self.push(Item::Record(mark.clone()));
        mark
    }

    /// Makes what is queued from now on wait for a mark.
    pub fn wait_for(&self, mark: Arc<Mark>) {
        self.push(Item::Wait(mark));
    }

    /// Sets a signal behind what is queued.
    pub fn set(&self, signal: Signal) {
        self.push(Item::Set(signal));
    }

    /// Makes what is queued from now on wait for a signal, at most as long as `CANN_SIM_TIMEOUT` says.
    pub fn wait_for_signal(&self, signal: Signal) {
        self.push(Item::Await(signal));
    }

    /// Resets an external event behind what is queued.
    pub fn clear(&self, mark: Arc<Mark>) {
        self.push(Item::Clear(mark));
    }

    /// Replaces the tasks of a group behind what is queued.
    pub fn update(&self, group: Arc<Group>, tasks: Vec<Task>) {
        self.push(Item::Update(group, tasks));
    }

    /// Runs a graph behind what is queued.
    pub fn replay(&self, graph: Arc<Graph>) {
        self.push(Item::Replay(graph));
    }

    /// Whether nothing is queued or running.
    pub fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.queue.is_empty() && !state.busy
    }

    /// The stream's simulated time in nanoseconds.
    pub fn time(&self) -> u64 {
        lock(&self.state).time
    }

    /// Blocks until nothing is queued or running, at most `timeout`. A failed task's error comes out here, once.
    ///
    /// # Errors
    /// The error of the first task that failed since the last time; 107020 if the time ran out.
    pub fn synchronize(&self, timeout: Option<Duration>) -> Result<(), SimError> {
        let start = Instant::now();
        let mut state = lock(&self.state);
        while state.busy || !state.queue.is_empty() {
            let left = match timeout {
                None => Duration::from_secs(3600),
                Some(timeout) => timeout.saturating_sub(start.elapsed()),
            };
            if left.is_zero() {
                return Err(SimError::new(code::RT_STREAM_SYNC_TIMEOUT, format!("stream {} is still busy", self.id)));
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()).0;
        }
        state.error.take().map_or(Ok(()), Err)
    }

    fn work(&self) {
        loop {
            let mut state = lock(&self.state);
            let item = loop {
                match state.queue.pop_front() {
                    Some(item) => break item,
                    None if state.closed => return,
                    None => state = self.changed.wait(state).unwrap_or_else(|e| e.into_inner()),
                }
            };
            state.busy = true;
            // As on the device, nothing runs after a failed task until the host has seen the error. Events still pass,
            // so that nobody waits for ever.
            let (time, skip) = (state.time, state.error.is_some());
            drop(state);
            let (time, result) = self.run(item, time, skip);
            let mut state = lock(&self.state);
            state.time = time;
            state.busy = false;
            if let Err(error) = result {
                state.error.get_or_insert(error);
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    fn run(&self, item: Item, time: u64, skip: bool) -> (u64, Result<(), SimError>) {
        let id = self.id;
        match item {
            Item::Record(mark) => {
                log::line(|| format!("stream={id} record time={time}"));
                mark.pass(time);
                (time, Ok(()))
            }
            Item::Wait(mark) => {
                let time = mark.wait().max(time);
                log::line(|| format!("stream={id} wait time={time}"));
                (time, Ok(()))
            }
            Item::Set(signal) => {
                log::line(|| format!("stream={id} set signal time={time}"));
                (time, signal.set(time))
            }
            Item::Await(_) if skip => (time, Ok(())),
            Item::Await(signal) => match signal.wait() {
                Ok(set) => (set.max(time), Ok(())),
                Err(error) => (time, Err(error)),
            },
            Item::Clear(mark) => {
                mark.clear();
                (time, Ok(()))
            }
            Item::Update(group, tasks) => {
                log::line(|| format!("stream={id} update group={}", group.id()));
                group.replace(tasks);
                (time, Ok(()))
            }
            Item::Run(task) if skip => {
                log::line(|| format!("stream={id} skipped {}", task.name));
                (time, Ok(()))
            }
            Item::Run(task) => task.run(id, time),
            Item::Replay(graph) => graph.replay(id, time, skip),
        }
    }
}
