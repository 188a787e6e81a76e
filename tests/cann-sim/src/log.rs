//! `CANN_SIM_LOG`: a line per task, in the order in which the device runs them. `1` is stderr, anything else a file that
//! lines are appended to.

use std::io::Write;
use std::sync::{Mutex, OnceLock};

/// Writes a line, if a log was asked for.
pub fn line(text: impl FnOnce() -> String) {
    static SINK: OnceLock<Option<Mutex<Box<dyn Write + Send>>>> = OnceLock::new();
    let sink = SINK.get_or_init(|| {
        let path = std::env::var("CANN_SIM_LOG").ok().filter(|p| !p.is_empty() && p != "0")?;
        if path == "1" {
            return Some(Mutex::new(Box::new(std::io::stderr())));
        }
        match std::fs::OpenOptions::new().create(true).append(true).open(&path) {
            Ok(file) => Some(Mutex::new(Box::new(file))),
            Err(e) => {
                eprintln!("cann-sim: CANN_SIM_LOG={path} cannot be opened: {e}");
                None
            }
        }
    });
    if let Some(sink) = sink {
        // One write per line keeps lines of several processes apart.
        let line = format!("{}\n", text());
        let _ = sink.lock().unwrap_or_else(|e| e.into_inner()).write_all(line.as_bytes());
    }
}
