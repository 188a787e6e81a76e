//! The figures of a process at one moment, as JSON with a versioned schema.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Counters, GraphFigures, LayoutCount, Outcome, Site, graph_figures, sites};

/// The value of `schema` in every profile.
pub const SCHEMA: &str = "infini-rearrange.profile";
/// The version of the schema that is written, and the only one that is read.
pub const VERSION: u32 = 1;

/// A profile that cannot be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Not JSON, or not of this form.
    #[error("not a profile: {source}; a profile is JSON as written by infini_rearrange.save_profile")]
    Malformed {
        /// What the reader met.
        source: serde_json::Error,
    },
    /// Another program's JSON.
    #[error("not a profile: schema is \"{found}\", expected \"{SCHEMA}\"")]
    ForeignSchema {
        /// The `schema` of the file.
        found: String,
    },
    /// Written by another version.
    #[error("profile of version {found}; this library reads version {VERSION}: use the release that wrote it")]
    ForeignVersion {
        /// The `version` of the file.
        found: u32,
    },
    /// The file cannot be written.
    #[error("cannot write the profile to {path}: {source}", path = path.display())]
    Write {
        /// Where it was to go.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// The process that the figures are of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Rank in a distributed job, from RANK or LOCAL_RANK.
    pub rank: Option<u32>,
    /// Unix seconds of the first look at the figures.
    pub started: u64,
    /// Unix seconds of this snapshot.
    pub written: u64,
}

/// One layout class met at a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LayoutFigures {
    /// Short dtype name.
    pub dtype: String,
    /// Shape of the latest of the class.
    pub shape: Vec<usize>,
    /// Strides in elements.
    pub strides: Vec<isize>,
    /// Offset in elements.
    pub offset: isize,
    /// How often the class was met.
    pub count: u64,
    /// What was done about it.
    pub outcome: Outcome,
    /// How the view came to be.
    pub diagnosis: String,
    /// What to change at the producer.
    pub remedy: String,
}

/// The figures of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SiteFigures {
    /// The site's name.
    pub site: String,
    /// The part before the last dot.
    pub op: String,
    /// The part behind it.
    pub arg: String,
    /// The counters.
    #[serde(flatten)]
    pub counters: Counters,
    /// Layouts that did not meet the demand, most frequent first.
    #[serde(default)]
    pub layouts: Vec<LayoutFigures>,
}

/// All figures of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`VERSION`].
    pub version: u32,
    /// Whose figures.
    #[serde(default)]
    pub process: Process,
    /// Captured graphs.
    #[serde(default)]
    pub graphs: GraphFigures,
    /// Sites that were called, by name.
    pub sites: Vec<SiteFigures>,
}

impl LayoutFigures {
    fn of(site: &Site, count: &LayoutCount) -> Self {
        let diagnosis = count.layout.diagnosis();
        LayoutFigures {
            dtype: count.dtype.to_owned(),
            shape: count.layout.shape().to_vec(),
            strides: count.layout.strides().to_vec(),
            offset: count.layout.offset(),
            count: count.count,
            outcome: count.outcome,
            diagnosis: diagnosis.to_string(),
            remedy: site.advice().map_or_else(|| diagnosis.remedy(), str::to_owned),
        }
    }
}

impl SiteFigures {
    fn of(site: &Site) -> Self {
        let (op, arg) = site.name().rsplit_once('.').unwrap_or((site.name(), ""));
        SiteFigures {
            site: site.name().to_owned(),
            op: op.to_owned(),
            arg: arg.to_owned(),
            counters: site.counters(),
            layouts: site.layouts().iter().map(|count| LayoutFigures::of(site, count)).collect(),
        }
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn started() -> u64 {
    static STARTED: OnceLock<u64> = OnceLock::new();
    *STARTED.get_or_init(unix_seconds)
}

/// Notes the time that snapshots give as the start.
pub fn start() {
    started();
}

/// The figures of this process now: every site that has been called since the start or the last reset.
pub fn snapshot() -> Snapshot {
    let rank = ["RANK", "LOCAL_RANK"].iter().find_map(|name| std::env::var(name).ok()?.parse().ok());
    Snapshot {
        schema: SCHEMA.to_owned(),
        version: VERSION,
        process: Process { pid: std::process::id(), rank, started: started(), written: unix_seconds() },
        graphs: graph_figures(),
        sites: sites()
            .into_iter()
            .map(SiteFigures::of)
            // Layouts alone are no figures: they are kept for warnings even where the profile is off.
            .filter(|site| site.counters != Counters::default())
            .collect(),
    }
}

impl Snapshot {
    /// As pretty JSON.
    ///
    /// # Errors
    /// None in practice: every field can be written as JSON.
    pub fn to_json(&self) -> Result<String, SnapshotError> {
        serde_json::to_string_pretty(self).map_err(|source| SnapshotError::Malformed { source })
    }

    /// Reads and checks a profile.
    ///
    /// # Errors
    /// Not JSON, another schema, another version, or a field of the wrong type.
    pub fn from_json(text: &str) -> Result<Self, SnapshotError> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
            version: u32,
        }
        let malformed = |source| SnapshotError::Malformed { source };
        let head: Head = serde_json::from_str(text).map_err(malformed)?;
        if head.schema != SCHEMA {
            return Err(SnapshotError::ForeignSchema { found: head.schema });
        }
        if head.version != VERSION {
            return Err(SnapshotError::ForeignVersion { found: head.version });
        }
        serde_json::from_str(text).map_err(malformed)
    }

    /// Writes the profile; a reader sees the old file or the whole new one.
    ///
    /// # Errors
    /// The folder does not exist, or cannot be written to.
    pub fn save(&self, path: &Path) -> Result<(), SnapshotError> {
        // Numbered, since threads may save to the same path at once.
        static SAVES: AtomicU64 = AtomicU64::new(0);
        let text = self.to_json()?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = SAVES.fetch_add(1, Relaxed);
        let temporary = path.with_file_name(format!(".{name}.{}.{number}", std::process::id()));
        let write = || {
            let mut file = std::fs::File::create(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            std::fs::rename(&temporary, path)
        };
        write().map_err(|source| {
            let _ = std::fs::remove_file(&temporary);
            SnapshotError::Write { path: path.to_owned(), source }
        })
    }
}
