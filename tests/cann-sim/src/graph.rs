//! A captured graph, and running it.
//!
//! A graph keeps its tasks in the order in which they were issued. Every wait then lies behind the record that it waits
//! for, so that this order is a valid one, and a replay runs it from front to back on the stream that it is given. The
//! simulated clock still sees the branches side by side: each has a time of its own, a wait takes the later of its own
//! time and the record's, and the replay ends when the last branch does.

use crate::error::{SimError, code};
use crate::groups::{self, Group};
use crate::log;
use crate::mark::Mark;
use crate::signal::Signal;
use crate::task::Task;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// One step of a graph.
pub enum Action {
    /// A task.
    Run(Task),
    /// The tasks of a group, as they are when a replay gets there.
    Group(Arc<Group>),
    /// An event inside the graph is recorded: the number of the recording.
    Record(usize),
    /// A recording of that number is waited for.
    Wait(usize),
    /// An external event is recorded, or a word of memory written.
    Set(Signal),
    /// An external event, or a word of memory, is waited for.
    Await(Signal),
    /// An external event is reset.
    Clear(Arc<Mark>),
}

/// A step and the branch (captured stream) that it belongs to.
pub struct Node {
    /// Number of the branch; 0 is the stream on which the capture began.
    pub branch: usize,
    /// The step.
    pub action: Action,
}

/// A captured graph.
pub struct Graph {
    /// Number for messages, the log and the handle.
    pub id: u64,
    /// The steps in the order of issue.
    pub nodes: Vec<Node>,
    /// Number of branches.
    pub branches: usize,
    /// Number of recordings of events inside the graph.
    pub recordings: usize,
}

static GRAPHS: Mutex<BTreeMap<u64, Arc<Graph>>> = Mutex::new(BTreeMap::new());
static REPLAYS: AtomicU64 = AtomicU64::new(0);

fn graphs() -> MutexGuard<'static, BTreeMap<u64, Arc<Graph>>> {
    GRAPHS.lock().unwrap_or_else(|e| e.into_inner())
}

/// The handle (aclmdlRI) of the graph with a number. It is never used again, so that a stale one is always noticed.
pub fn handle(id: u64) -> *mut c_void {
    (id as usize * 4096) as *mut c_void
}

/// The number behind a handle; it need not be that of a live graph.
pub fn number(handle: *mut c_void) -> u64 {
    let handle = handle as usize;
    if handle.is_multiple_of(4096) { (handle / 4096) as u64 } else { 0 }
}

/// Keeps a graph until [`destroy`].
pub fn keep(graph: Graph) {
    graphs().insert(graph.id, Arc::new(graph));
}

/// The graph behind a handle.
///
/// # Errors
/// 107017 for a handle that is no graph, or of a graph that was destroyed.
pub fn find(handle: *mut c_void) -> Result<Arc<Graph>, SimError> {
    graphs().get(&number(handle)).cloned().ok_or_else(|| {
        SimError::new(code::RT_INVALID_HANDLE, format!("{handle:?} is not a captured graph, or it was destroyed"))
    })
}

/// The newest of the live graphs.
pub fn newest() -> Option<Arc<Graph>> {
    graphs().last_key_value().map(|(_, graph)| graph.clone())
}

/// Forgets a graph and the handles of its task groups. A replay under way keeps what it needs and goes on.
///
/// # Errors
/// As of [`find`].
pub fn destroy(handle: *mut c_void) -> Result<(), SimError> {
    let graph = find(handle)?;
    graphs().remove(&graph.id);
    groups::forget(graph.id);
    log::line(|| format!("graph={} destroyed", graph.id));
    Ok(())
}

/// Replays asked for so far.
pub fn replays() -> u64 {
    REPLAYS.load(Ordering::Relaxed)
}

/// Counts a replay.
pub fn count_replay() {
    REPLAYS.fetch_add(1, Ordering::Relaxed);
}

impl Graph {
    /// Operators, copies, fills and host functions in the graph; events do not count.
    pub fn tasks(&self) -> usize {
        count(&self.nodes)
    }

    /// Runs the graph on the stream with number `stream` from `start` simulated nanoseconds on; gives the time at its
    /// end. After a failed task, or if `skip` says so, only events pass.
    pub fn replay(&self, stream: i32, start: u64, skip: bool) -> (u64, Result<(), SimError>) {
        let id = self.id;
        log::line(|| format!("stream={stream} replay graph={id} tasks={}", self.tasks()));
        let mut times = vec![start; self.branches.max(1)];
        let mut recorded = vec![start; self.recordings];
        let mut failed = None;
        for node in &self.nodes {
            let time = &mut times[node.branch];
            let stopped = skip || failed.is_some();
            let result = match &node.action {
                Action::Record(number) => {
                    recorded[*number] = *time;
                    Ok(*time)
                }
                Action::Wait(number) => Ok((*time).max(recorded[*number])),
                Action::Set(signal) => signal.set(*time).map(|()| *time),
                Action::Clear(mark) => {
                    mark.clear();
                    Ok(*time)
                }
                Action::Run(_) | Action::Group(_) | Action::Await(_) if stopped => Ok(*time),
                Action::Await(signal) => signal.wait().map(|set| set.max(*time)),
                Action::Run(task) => run(task, stream, *time),
                Action::Group(group) => group.tasks().iter().try_fold(*time, |time, task| run(task, stream, time)),
            };
            match result {
                Ok(end) => *time = end,
                Err(error) => failed = Some(SimError::new(error.code, format!("graph {id}: {}", error.text))),
            }
        }
        let end = times.into_iter().max().unwrap_or(start);
        (end, failed.map_or(Ok(()), Err))
    }

    /// The graph as JSON: its tasks in order, with their branch, name and what they touch.
    pub fn to_json(&self) -> String {
        let nodes = self.nodes.iter().map(|node| {
            let (kind, what) = match &node.action {
                Action::Run(task) => ("task", describe(task)),
                Action::Group(group) => {
                    let tasks = group.tasks().iter().map(describe).collect::<Vec<_>>();
                    ("group", tasks.join("; "))
                }
                Action::Record(number) => ("record", number.to_string()),
                Action::Wait(number) => ("wait", number.to_string()),
                Action::Set(signal) => ("set", signal.describe()),
                Action::Await(signal) => ("await", signal.describe()),
                Action::Clear(_) => ("reset", "external event".into()),
            };
            format!("{{\"branch\": {}, \"kind\": \"{kind}\", \"what\": \"{}\"}}", node.branch, escape(&what))
        });
        let nodes = nodes.collect::<Vec<_>>().join(",\n  ");
        format!("{{\"graph\": {}, \"branches\": {}, \"nodes\": [\n  {nodes}\n]}}\n", self.id, self.branches)
    }
}

/// Operators, copies, fills and host functions among steps.
pub fn count(nodes: &[Node]) -> usize {
    let tasks = nodes.iter().map(|node| match &node.action {
        Action::Run(_) => 1,
        Action::Group(group) => group.tasks().len(),
        _ => 0,
    });
    tasks.sum()
}

fn run(task: &Task, stream: i32, time: u64) -> Result<u64, SimError> {
    let (end, result) = task.run(stream, time);
    result.map(|()| end)
}

fn describe(task: &Task) -> String {
    format!("{} {}", task.name, task.cost.what)
}

fn escape(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect::<String>().replace('\\', "\\\\").replace('"', "\\\"")
}
