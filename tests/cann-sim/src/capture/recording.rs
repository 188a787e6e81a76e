//! One capture: its branches, what they have recorded, and whether that makes a graph.

use super::rules::Mode;
use crate::error::{SimError, code};
use crate::graph::{Action, Graph, Node};
use crate::log;
use crate::task::{Kind, Task};
use std::thread::ThreadId;

pub(super) struct Branch {
    pub stream: usize,
    /// Steps of each branch that lie before the next step of this one.
    pub seen: Vec<usize>,
    /// Tasks of the open task group.
    pub group: Option<Vec<Task>>,
}

pub(super) struct Capture {
    pub id: u64,
    pub thread: ThreadId,
    pub mode: Mode,
    pub branches: Vec<Branch>,
    pub nodes: Vec<Node>,
    pub recordings: usize,
    /// Why it is spoiled.
    pub spoiled: Option<String>,
    /// What went wrong inside a task group.
    pub group_error: Option<SimError>,
}

impl Capture {
    /// Refuses everything on a spoiled capture.
    pub fn check(&self) -> Result<(), SimError> {
        match &self.spoiled {
            None => Ok(()),
            Some(why) => {
                let text = format!("the capture was spoiled and can only be ended: {why}");
                Err(SimError::new(code::RT_STREAM_CAPTURE_INVALIDATED, text))
            }
        }
    }

    /// Spoils the capture and gives the error for whoever did it.
    pub fn refuse(&mut self, code: i32, text: &str) -> SimError {
        if self.spoiled.is_none() {
            self.spoiled = Some(text.to_owned());
            log::line(|| format!("capture spoiled graph={}: {text} (code {code})", self.id));
        }
        SimError::new(code, text)
    }

    /// Whether a step fits the task groups that are open.
    pub fn admit(&mut self, branch: usize, kind: Kind, name: &str) -> Result<(), SimError> {
        let error = if self.branches.iter().enumerate().any(|(i, b)| i != branch && b.group.is_some()) {
            let text = format!("{name}: a task group is open on another stream of the capture");
            self.refuse(code::STREAM_TASK_GROUP_INTR, &text)
        } else if self.branches[branch].group.is_some() && kind != Kind::Operator {
            let text = format!("{name} in a task group; only operators are allowed in it");
            self.refuse(code::STREAM_TASK_GROUP_STATUS, &text)
        } else {
            return Ok(());
        };
        self.group_error = Some(error.clone());
        Err(error)
    }

    /// Puts a step behind the others.
    pub fn push(&mut self, branch: usize, action: Action) {
        self.nodes.push(Node { branch, action });
        let seen = &mut self.branches[branch].seen;
        seen.resize(seen.len().max(branch + 1), 0);
        seen[branch] += 1;
    }

    /// Checks that the capture is whole and makes the graph of it.
    pub fn finish(self) -> Result<Graph, SimError> {
        if self.mode != Mode::Relaxed && self.thread != std::thread::current().id() {
            let text = "the capture began in another thread; only a relaxed one may be ended elsewhere";
            return Err(SimError::new(code::RT_STREAM_CAPTURE_WRONG_THREAD, text));
        }
        self.check()?;
        if self.branches.iter().any(|b| b.group.is_some()) {
            return Err(SimError::new(code::STREAM_TASK_GROUP_STATUS, "a task group is still open"));
        }
        let known = &self.branches[0].seen;
        let steps = |branch: usize, b: &Branch| b.seen.get(branch).copied().unwrap_or(0);
        let loose = self.branches.iter().enumerate().find(|(i, b)| steps(*i, b) > known.get(*i).copied().unwrap_or(0));
        if let Some((_, branch)) = loose {
            let text = format!(
                "stream {:#x} joined the capture and was not joined back: record an event behind its last task and \
                 make the first stream wait for it",
                branch.stream
            );
            return Err(SimError::new(code::RT_STREAM_UNJOINED, text));
        }
        Ok(Graph { id: self.id, nodes: self.nodes, branches: self.branches.len(), recordings: self.recordings })
    }
}
