//! Streams and events. Each stream has a worker thread that runs its tasks in order and keeps its simulated time.

use crate::clock::{Cost, LAUNCH_NS};
use crate::error::{SimError, code, fail};
use crate::{fault, log};
use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What a task does. It can be run again, as replaying a captured task does.
pub type Work = Arc<dyn Fn() -> Result<(), SimError> + Send + Sync>;

/// One recording of an event: not yet passed (`None`), or the simulated time at which the stream passed it.
#[derive(Default)]
pub struct Mark {
    time: Mutex<Option<u64>>,
    passed: Condvar,
}

impl Mark {
    /// Simulated nanoseconds at which it was passed, if it was.
    pub fn time(&self) -> Option<u64> {
        *lock(&self.time)
    }

    /// Blocks until it is passed.
    pub fn wait(&self) -> u64 {
        let mut time = lock(&self.time);
        loop {
            match *time {
                Some(ns) => return ns,
                None => time = self.passed.wait(time).unwrap_or_else(|e| e.into_inner()),
            }
        }
    }

    fn pass(&self, ns: u64) {
        *lock(&self.time) = Some(ns);
        self.passed.notify_all();
    }
}

enum Task {
    Run { name: &'static str, cost: Cost, work: Work },
    Record(Arc<Mark>),
    Wait(Arc<Mark>),
}

#[derive(Default)]
struct State {
    queue: VecDeque<Task>,
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
/// 107003 for a handle that is not a live stream.
pub fn find(handle: *mut c_void) -> Result<Arc<Stream>, i32> {
    let mut streams = lock(&STREAMS);
    let streams = streams.get_or_insert_default();
    if handle as usize == DEFAULT {
        return Ok(streams.entry(DEFAULT).or_insert_with(Stream::start).clone());
    }
    streams.get(&(handle as usize)).cloned().ok_or_else(|| {
        fail(code::RT_STREAM_CONTEXT, "EE1001", format!("{handle:?} is not a stream, or it was destroyed"))
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
    lock(&stream.state).closed = true;
    stream.changed.notify_all();
    Ok(())
}

/// Queues work; returns the code for the caller.
pub fn submit(handle: *mut c_void, name: &'static str, cost: Cost, work: Work) -> i32 {
    match find(handle) {
        Err(code) => code,
        Ok(stream) => {
            stream.push(Task::Run { name, cost, work });
            code::SUCCESS
        }
    }
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

    fn push(&self, task: Task) {
        lock(&self.state).queue.push_back(task);
        self.changed.notify_all();
    }

    /// Queues the recording of an event.
    pub fn record(&self) -> Arc<Mark> {
        let mark = Arc::new(Mark::default());
        self.push(Task::Record(mark.clone()));
        mark
    }

    /// Makes what is queued from now on wait for a mark.
    pub fn wait_for(&self, mark: Arc<Mark>) {
        self.push(Task::Wait(mark));
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
            let task = loop {
                match state.queue.pop_front() {
                    Some(task) => break task,
                    None if state.closed => return,
                    None => state = self.changed.wait(state).unwrap_or_else(|e| e.into_inner()),
                }
            };
            state.busy = true;
            // As on the device, nothing runs after a failed task until the host has seen the error. Events still pass,
            // so that nobody waits for ever.
            let (time, skip) = (state.time, state.error.is_some());
            drop(state);
            let (time, result) = self.run(task, time, skip);
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

    fn run(&self, task: Task, time: u64, skip: bool) -> (u64, Result<(), SimError>) {
        match task {
            Task::Record(mark) => {
                log::line(|| format!("stream={} record time={time}", self.id));
                mark.pass(time);
                (time, Ok(()))
            }
            Task::Wait(mark) => {
                let time = mark.wait().max(time);
                log::line(|| format!("stream={} wait time={time}", self.id));
                (time, Ok(()))
            }
            Task::Run { name, .. } if skip => {
                log::line(|| format!("stream={} skipped {name}", self.id));
                (time, Ok(()))
            }
            Task::Run { name, cost, work } => {
                log::line(|| format!("stream={} {name} {}", self.id, cost.what));
                let result = match fault::hit(&format!("{name}.task")) {
                    Some(code) => Err(SimError::new(code, "injected fault")),
                    None => std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work())).unwrap_or_else(|_| {
                        Err(SimError::new(code::RT_INTERNAL, "the simulation itself failed (panic); see stderr"))
                    }),
                };
                let result =
                    result.map_err(|e| SimError::new(e.code, format!("{name} on stream {}: {}", self.id, e.text)));
                if let Err(error) = &result {
                    log::line(|| format!("stream={} failed {error}", self.id));
                }
                (time + cost.ns().max(LAUNCH_NS), result)
            }
        }
    }
}
