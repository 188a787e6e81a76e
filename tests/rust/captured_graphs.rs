//! Copies that are captured move nothing until the graph is replayed, and then at every replay.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use infini_rearrange::policy::{self, Action, Decision, Execution, Tensor, Verdict};
use infini_rearrange::profile::{self, CopyKind, Counters, Mode};

const CONTRACTS: &str = r#"
["g::op"]
key = "contiguous"
value = "inout"
hidden = "any"
strict = "contiguous"
"#;
const SCHEMA: [&str; 4] = ["key", "value", "hidden", "strict"];
/// 3 rows of 4 of 8 elements of 2 bytes.
const BYTES: u64 = 24;

static ENVIRONMENT: LazyLock<()> = LazyLock::new(|| {
    let file = std::env::temp_dir().join(format!("captured-graphs-{}.toml", std::process::id()));
    std::fs::write(&file, CONTRACTS).expect("a file of contracts");
    // SAFETY: everything that reads the environment here waits for this first.
    unsafe {
        std::env::set_var("INFINI_CONTRACTS", &file);
        std::env::set_var("INFINI_CONTIGUITY", "g::op.strict=strict");
        std::env::remove_var("INFINI_PROFILE");
    }
    policy::settings().unwrap_or_else(|error| panic!("{error}"));
    std::fs::remove_file(&file).expect("read by now");
});

/// Figures and the mode are of the whole process, so the tests here take turns; each begins at zero.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    LazyLock::force(&ENVIRONMENT);
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    profile::reset();
    turn
}

fn rows(slot: u32) -> Tensor<'static> {
    Tensor { slot, shape: &[3, 4], strides: &[8, 1], offset: 0, element_size: 2, dtype: 15, on_npu: true }
}

/// One strided argument of the operator; what is to be done about it.
fn decide(argument: &str, execution: Execution) -> Result<Action, String> {
    let number = policy::attach("g::op", &SCHEMA).unwrap_or_else(|error| panic!("{error}"));
    let operator = policy::hooked(number).expect("just attached");
    let position = SCHEMA.iter().position(|name| *name == argument).expect("in the schema") as u32;
    let slot = operator.positions().iter().position(|known| *known == position).expect("a slot") as u32;
    let mut decisions = [Decision { action: Action::Pass, site: u32::MAX }];
    let verdict =
        policy::decide(operator, &[rows(slot)], execution, &mut decisions).map_err(|refusal| refusal.message)?;
    assert_eq!(verdict == Verdict::Act, decisions[0].action != Action::Pass);
    Ok(decisions[0].action)
}

fn counters(argument: &str) -> Counters {
    profile::site(&format!("g::op.{argument}")).counters()
}

#[test]
fn a_captured_copy_counts_when_its_graph_is_replayed() {
    let _alone = alone();
    let graph = profile::capture_begun();
    for _ in 0..2 {
        assert_eq!(decide("key", Execution::Captured(graph)), Ok(Action::Copy));
        policy::copied("g::op.key", &rows(0), Execution::Captured(graph));
    }
    let site = profile::site("g::op.value");
    assert_eq!(decide("value", Execution::Captured(graph)), Ok(Action::CopyInOut));
    policy::copied("g::op.value", &rows(0), Execution::Captured(graph));
    policy::copied_back(site, BYTES, Execution::Captured(graph));
    assert_eq!(counters("key").captured, 0, "a capture that fails has captured nothing");
    profile::capture_ended(graph);

    let key = counters("key");
    assert_eq!((key.calls, key.captured, key.copied, key.bytes_copied), (2, 2, 0, 0), "nothing has moved");
    for replays in 1..=3 {
        profile::replayed(graph);
        let (key, value) = (counters("key"), counters("value"));
        assert_eq!((key.calls, key.replayed, key.bytes_replayed), (2, 2 * replays, 2 * BYTES * replays));
        assert_eq!((value.replayed, value.bytes_replayed), (2 * replays, 2 * BYTES * replays), "in and back");
        assert_eq!((value.copied_back, value.bytes_copied_back), (0, 0));
        assert_eq!(profile::graph_figures().replays, replays);
    }
    profile::released(graph);
    profile::replayed(graph);
    assert_eq!(counters("key").replayed, 6, "a graph that is gone moves nothing");
}

#[test]
fn hidden_copies_are_replayed_too() {
    let _alone = alone();
    let graph = profile::capture_begun();
    assert_eq!(decide("hidden", Execution::Captured(graph)), Ok(Action::Pass));
    profile::capture_ended(graph);
    let hidden = counters("hidden");
    assert_eq!((hidden.calls, hidden.hidden, hidden.captured), (1, 0, 0));
    profile::replayed(graph);
    profile::replayed(graph);
    let hidden = counters("hidden");
    assert_eq!((hidden.calls, hidden.hidden, hidden.bytes_hidden), (1, 2, 2 * BYTES));
    profile::released(graph);
}

#[test]
fn graphs_are_counted_apart() {
    let _alone = alone();
    let live = profile::graph_figures().live;
    let (first, second, failed) = (profile::capture_begun(), profile::capture_begun(), profile::capture_begun());
    assert!(first != 0 && first != second);
    let site = profile::site("graphs.apart");
    profile::copy_captured(first, site, CopyKind::Made, 10);
    profile::copy_captured(second, site, CopyKind::Made, 100);
    profile::copy_captured(failed, site, CopyKind::Made, 1000);
    profile::capture_ended(first);
    profile::capture_ended(second);
    profile::released(failed);
    profile::replayed(first);
    profile::replayed(second);
    profile::replayed(second);
    profile::replayed(failed);
    let counters = site.counters();
    assert_eq!((counters.captured, counters.replayed, counters.bytes_replayed), (2, 3, 210));
    let figures = profile::graph_figures();
    assert_eq!((figures.captured, figures.replays, figures.live), (2, 3, live + 2));
    profile::released(first);
    profile::released(first);
    assert_eq!(profile::graph_figures().live, live + 1);
    profile::released(second);
}

#[test]
fn an_update_is_the_same_call_again() {
    let _alone = alone();
    assert_eq!(decide("key", Execution::Update), Ok(Action::Copy));
    policy::copied("g::op.key", &rows(0), Execution::Update);
    policy::copied_back(profile::site("g::op.key"), BYTES, Execution::Update);
    assert_eq!(decide("hidden", Execution::Update), Ok(Action::Pass));
    let refusal = decide("strict", Execution::Update).expect_err("strict");
    assert!(refusal.contains("the policy is strict"), "{refusal}");
    for argument in SCHEMA {
        assert_eq!(counters(argument), Counters::default(), "{argument}");
        assert!(profile::site(&format!("g::op.{argument}")).layouts().is_empty(), "{argument}");
    }
    profile::updated();
    assert_eq!(profile::graph_figures().updates, 1);
}

#[test]
fn strict_refuses_what_would_be_captured() {
    let _alone = alone();
    let graph = profile::capture_begun();
    decide("strict", Execution::Captured(graph)).expect_err("strict");
    assert_eq!(counters("strict").refused, 1);
    profile::released(graph);
}

#[test]
fn a_warning_says_that_every_replay_copies() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let _alone = alone();
    let graph = profile::capture_begun();
    policy::set_speaker(Some(Box::new(|_, head, _| {
        SAID.lock().unwrap_or_else(PoisonError::into_inner).push(head.to_owned());
    })));
    let token = policy::push("warn", "", false).expect("a policy");
    policy::copied("g::op.key", &rows(0), Execution::Captured(graph));
    policy::copied("g::op.key", &rows(0), Execution::Update);
    policy::pop(token).expect("innermost");
    policy::set_speaker(None);
    profile::released(graph);
    let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].starts_with("g::op.key needs a contiguous tensor; captured into a graph: copies 24 B at every replay")
    );
}

#[test]
fn a_profile_that_is_off_counts_no_replays() {
    let _alone = alone();
    let site = profile::site("graphs.off");
    let graph = profile::capture_begun();
    profile::copy_captured(graph, site, CopyKind::Made, 10);
    profile::set_mode(Mode::Off);
    profile::capture_ended(graph);
    profile::replayed(graph);
    profile::updated();
    profile::set_mode(Mode::Count);
    let figures = profile::graph_figures();
    assert_eq!((figures.captured, figures.replays, figures.updates), (0, 0, 0));
    assert_eq!(site.counters(), Counters::default());
    profile::released(graph);
}

#[test]
fn one_copy_in_so_many_is_timed() {
    let _alone = alone();
    let site = profile::site("graphs.timed");
    assert!(!site.times_next(), "the usual mode measures nothing");
    profile::set_mode(Mode::Time { every: 3 });
    let timed: Vec<bool> = (0..7).map(|_| site.times_next()).collect();
    assert_eq!(timed, [true, false, false, true, false, false, true]);
    site.count_timed(BYTES, 700);
    site.count_timed(BYTES, 300);
    profile::set_mode(Mode::Count);
    let counters = site.counters();
    assert_eq!((counters.timed, counters.bytes_timed, counters.ns_timed), (2, 2 * BYTES, 1000));
}
