//! What is simulated: the chip, the CANN version, the size of the memory. Read once from the environment.

use std::sync::OnceLock;
use std::time::Duration;

/// A CANN version as the simulation tells it to its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
    /// A build before the release of that number.
    pub pre: bool,
    /// The text that `CANN_SIM_VERSION` holds.
    pub text: &'static str,
}

/// Chips that can be simulated, as `aclrtGetSocName` spells them.
pub const SOCS: [&str; 4] = ["Ascend910B1", "Ascend910B4", "Ascend910_9392", "Ascend950PR_9599"];

/// CANN versions that can be simulated.
pub const VERSIONS: [Version; 3] = [
    Version { major: 8, minor: 5, patch: 0, pre: false, text: "8.5.0" },
    Version { major: 9, minor: 1, patch: 0, pre: true, text: "9.1.0.pre" },
    Version { major: 9, minor: 1, patch: 0, pre: false, text: "9.1.0" },
];

struct Config {
    soc: &'static str,
    version: &'static Version,
    memory: usize,
    timeout: Duration,
}

/// A setting that names nothing we know is a mistake of the person who runs the test. There is no call to report it
/// from (the first to ask may be a static initializer of torch_npu), so the process ends with the list of choices.
fn refuse(variable: &str, given: &str, allowed: &str) -> ! {
    eprintln!("cann-sim: {variable}={given} is not simulated; use one of: {allowed}");
    std::process::abort();
}

fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| {
        let soc = std::env::var("CANN_SIM_SOC").unwrap_or_else(|_| SOCS[0].into());
        let soc = SOCS.iter().find(|s| **s == soc).unwrap_or_else(|| refuse("CANN_SIM_SOC", &soc, &SOCS.join(", ")));
        let text = std::env::var("CANN_SIM_VERSION").unwrap_or_else(|_| "9.1.0".into());
        let version = VERSIONS
            .iter()
            .find(|v| v.text == text)
            .unwrap_or_else(|| refuse("CANN_SIM_VERSION", &text, &VERSIONS.map(|v| v.text).join(", ")));
        let memory = match std::env::var("CANN_SIM_MEMORY") {
            Err(_) => 16 << 30,
            Ok(text) => parse_size(&text).unwrap_or_else(|| {
                refuse("CANN_SIM_MEMORY", &text, "a number of bytes, or with K, M or G behind it (1M at least)")
            }),
        };
        let timeout = match std::env::var("CANN_SIM_TIMEOUT") {
            Err(_) => Duration::from_secs(30),
            Ok(text) => parse_seconds(&text)
                .unwrap_or_else(|| refuse("CANN_SIM_TIMEOUT", &text, "a number of seconds above 0, at most 86400")),
        };
        Config { soc, version, memory, timeout }
    })
}

/// Bytes in a text like `512M`; `None` if it is not a size of at least a megabyte and at most a terabyte.
pub fn parse_size(text: &str) -> Option<usize> {
    let (digits, shift) = match text.trim().char_indices().last()? {
        (at, 'K' | 'k') => (&text.trim()[..at], 10),
        (at, 'M' | 'm') => (&text.trim()[..at], 20),
        (at, 'G' | 'g') => (&text.trim()[..at], 30),
        _ => (text.trim(), 0),
    };
    let size = digits.parse::<usize>().ok()?.checked_mul(1 << shift)?;
    (1 << 20..=1 << 40).contains(&size).then_some(size)
}

fn parse_seconds(text: &str) -> Option<Duration> {
    let seconds = text.trim().parse::<f64>().ok().filter(|s| *s > 0.0 && *s <= 86_400.0)?;
    Some(Duration::from_secs_f64(seconds))
}

/// Name of the simulated chip (`CANN_SIM_SOC`).
pub fn soc() -> &'static str {
    config().soc
}

/// The simulated CANN version (`CANN_SIM_VERSION`).
pub fn version() -> &'static Version {
    config().version
}

/// Bytes of device memory (`CANN_SIM_MEMORY`).
pub fn memory() -> usize {
    config().memory
}

/// How long a task waits for an external event before it fails (`CANN_SIM_TIMEOUT`, seconds).
pub fn timeout() -> Duration {
    config().timeout
}
