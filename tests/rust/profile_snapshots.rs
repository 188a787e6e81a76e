//! Snapshots: what they hold, what is refused when one is read, and that a file is replaced whole or not at all.

use std::path::PathBuf;

use infini_rearrange::layout::Layout;
use infini_rearrange::profile::{self, Outcome, SCHEMA, Snapshot, SnapshotError, VERSION};
use serde_json::{Value, json};

/// A folder of the test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("profile-snapshots-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("readable");
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes some figures at a site of this name.
fn figures(name: &str) {
    let site = profile::site(name);
    site.count_call();
    site.count_copied(384);
    site.count_hidden(u64::MAX / 2);
    let layout = Layout::new(&[3, 64], &[192, 1], 128, 2).expect("a view");
    site.note_layout("bf16", &layout, Outcome::Copied);
}

/// The snapshot without the sites of other tests.
fn snapshot_of(name: &str) -> Snapshot {
    let mut snapshot = profile::snapshot();
    snapshot.sites.retain(|figures| figures.site == name);
    snapshot
}

#[test]
fn what_the_json_holds() {
    figures("ns::json_op.key");
    let text = snapshot_of("ns::json_op.key").to_json().expect("JSON");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["schema"], json!("infini-rearrange.profile"));
    assert_eq!(value["version"], json!(1));
    assert_eq!(value["process"]["pid"], json!(std::process::id()));
    let (started, written) = (&value["process"]["started"], &value["process"]["written"]);
    assert!(started.as_u64() > Some(1_600_000_000) && started.as_u64() <= written.as_u64(), "{value}");
    assert_eq!(
        value["sites"],
        json!([{
            "site": "ns::json_op.key", "op": "ns::json_op", "arg": "key",
            "calls": 2, "contiguous": 0, "copied": 1, "copied_back": 0, "captured": 0, "replayed": 0, "hidden": 1,
            "refused": 0, "passed": 0,
            "bytes_copied": 384, "bytes_copied_back": 0, "bytes_replayed": 0, "bytes_hidden": u64::MAX / 2,
            "timed": 0, "bytes_timed": 0, "ns_timed": 0,
            "layouts": [{
                "dtype": "bf16", "shape": [3, 64], "strides": [192, 1], "offset": 128, "count": 1, "outcome": "copied",
                "diagnosis": "columns 128..192 of rows of 192",
                "remedy": "let the producer write this slice to a buffer of its own instead of slicing a wider row",
            }],
        }])
    );
}

#[test]
fn a_site_without_a_dot_is_all_operator() {
    figures("plain");
    let snapshot = snapshot_of("plain");
    assert_eq!((snapshot.sites[0].op.as_str(), snapshot.sites[0].arg.as_str()), ("plain", ""));
}

#[test]
fn json_round_trip() {
    figures("round.trip");
    let snapshot = snapshot_of("round.trip");
    assert_eq!(snapshot.sites.len(), 1);
    let read = Snapshot::from_json(&snapshot.to_json().expect("JSON")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(read, snapshot);
}

#[test]
fn fields_that_are_missing_or_new_are_no_error() {
    let text = json!({ "schema": SCHEMA, "version": VERSION, "later": 1,
                       "sites": [{ "site": "a.b", "op": "a", "arg": "b", "calls": 3, "device_time": 7 }] });
    let read = Snapshot::from_json(&text.to_string()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((read.sites[0].counters.calls, read.sites[0].counters.copied), (3, 0));
}

#[test]
fn a_truncated_profile_is_refused_at_every_length() {
    figures("cut.off");
    let text = snapshot_of("cut.off").to_json().expect("JSON");
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
        let error = Snapshot::from_json(&text[..end]).expect_err("truncated");
        assert!(matches!(error, SnapshotError::Malformed { .. }), "{end}: {error:?}");
    }
    let message = Snapshot::from_json(&text[..text.len() / 2]).expect_err("half").to_string();
    assert!(message.starts_with("not a profile: EOF") && message.contains("line "), "{message}");
    assert!(message.contains("save_profile"), "what a profile is: {message}");
}

#[test]
fn profiles_of_others_are_refused() {
    let foreign = |schema: &str, version: u32| json!({ "schema": schema, "version": version, "sites": [] }).to_string();
    let error = Snapshot::from_json(&foreign("chrome.trace", 1)).expect_err("foreign");
    assert!(matches!(error, SnapshotError::ForeignSchema { .. }), "{error:?}");
    assert_eq!(error.to_string(), "not a profile: schema is \"chrome.trace\", expected \"infini-rearrange.profile\"");
    for version in [0, 2, u32::MAX] {
        let error = Snapshot::from_json(&foreign(SCHEMA, version)).expect_err("foreign");
        assert!(matches!(error, SnapshotError::ForeignVersion { .. }), "{error:?}");
        let message = error.to_string();
        assert!(message.contains(&format!("version {version};")) && message.contains("reads version 1"), "{message}");
    }
    // The version is looked at before the body, which may have any form in another one.
    let other = json!({ "schema": SCHEMA, "version": 2, "sites": "none" }).to_string();
    assert!(matches!(Snapshot::from_json(&other), Err(SnapshotError::ForeignVersion { .. })));
}

#[test]
fn wrong_types_are_refused() {
    figures("wrong.types");
    let good: Value = serde_json::from_str(&snapshot_of("wrong.types").to_json().expect("JSON")).expect("JSON");
    for (pointer, wrong) in [
        ("", json!([])),
        ("", json!(null)),
        ("", json!({})),
        ("", json!({ "traceEvents": [] })),
        ("/schema", json!(1)),
        ("/version", json!("1")),
        ("/version", json!(-1)),
        ("/version", json!(1.5)),
        ("/process", json!([1, "x"])),
        ("/process/pid", json!("me")),
        ("/sites", json!({})),
        ("/sites/0", json!("a.b")),
        ("/sites/0/site", json!(null)),
        ("/sites/0/calls", json!(-1)),
        ("/sites/0/calls", json!("many")),
        ("/sites/0/layouts", json!(null)),
        ("/sites/0/layouts/0/shape", json!([-1])),
        ("/sites/0/layouts/0/strides", json!("1")),
        ("/sites/0/layouts/0/outcome", json!("lost")),
    ] {
        let mut value = good.clone();
        *value.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = wrong.clone();
        let error = Snapshot::from_json(&value.to_string()).expect_err(pointer);
        assert!(matches!(error, SnapshotError::Malformed { .. }), "{pointer} = {wrong}: {error:?}");
    }
    for text in ["", "\0", "profile", "\u{feff}{}"] {
        assert!(Snapshot::from_json(text).is_err(), "{text:?}");
    }
}

#[test]
fn saving_leaves_the_file_and_nothing_else() {
    figures("saved.x");
    let folder = Folder::new("saving");
    let path = folder.0.join("profile.json");
    std::fs::write(&path, "what was there before, and longer than nothing").expect("written");
    let snapshot = snapshot_of("saved.x");
    for _ in 0..2 {
        snapshot.save(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(folder.files(), ["profile.json"]);
        let text = std::fs::read_to_string(&path).expect("readable");
        assert!(text.ends_with("}\n"));
        assert_eq!(Snapshot::from_json(&text).expect("a profile"), snapshot);
    }
}

#[test]
fn threads_may_save_to_the_same_file() {
    figures("saved.together");
    let folder = Folder::new("together");
    let path = folder.0.join("profile.json");
    let snapshot = snapshot_of("saved.together");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    snapshot.save(&path).unwrap_or_else(|error| panic!("{error}"));
                    let text = std::fs::read_to_string(&path).expect("readable");
                    assert_eq!(Snapshot::from_json(&text).expect("whole at any time"), snapshot);
                }
            });
        }
    });
    assert_eq!(folder.files(), ["profile.json"]);
}

#[test]
fn a_failure_names_the_path_and_leaves_what_was_there() {
    figures("not.saved");
    let snapshot = snapshot_of("not.saved");
    let folder = Folder::new("failing");

    // The place is taken by a folder that is not empty: the new file is complete, and the renaming fails.
    let taken = folder.0.join("taken");
    std::fs::create_dir(&taken).expect("a folder");
    std::fs::write(taken.join("old"), "old").expect("written");
    // A folder that does not exist, and one that is a file.
    let missing = folder.0.join("missing/profile.json");
    let file = folder.0.join("file");
    std::fs::write(&file, "old").expect("written");
    for path in [taken.clone(), missing, file.join("profile.json")] {
        let error = snapshot.save(&path).expect_err("impossible");
        assert!(matches!(error, SnapshotError::Write { .. }), "{error:?}");
        let message = error.to_string();
        assert!(message.starts_with(&format!("cannot write the profile to {}: ", path.display())), "{message}");
    }
    assert_eq!(folder.files(), ["file", "taken"], "no temporary file is left");
    assert_eq!(std::fs::read_to_string(taken.join("old")).expect("still there"), "old");
    assert_eq!(std::fs::read_to_string(&file).expect("still there"), "old");
}

#[cfg(unix)]
#[test]
fn a_folder_without_permission_keeps_the_old_file() {
    use std::os::unix::fs::PermissionsExt as _;
    figures("no.permission");
    let folder = Folder::new("permission");
    let path = folder.0.join("profile.json");
    std::fs::write(&path, "old").expect("written");
    let mode = |mode| std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(mode)).expect("own folder");
    mode(0o555);
    // root may write anyway; then there is nothing to see here.
    let refuses = std::fs::File::create(folder.0.join("try")).is_err();
    let saved = snapshot_of("no.permission").save(&path);
    mode(0o755);
    if refuses {
        let message = saved.expect_err("no permission").to_string();
        assert!(message.contains("profile.json") && message.contains("ermission denied"), "{message}");
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "old");
        assert_eq!(folder.files(), ["profile.json"]);
    }
}
