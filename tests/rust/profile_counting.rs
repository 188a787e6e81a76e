//! Counters are exact under contention, and the layouts a site remembers are few and the most frequent.

use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};

use infini_rearrange::layout::Layout;
use infini_rearrange::profile::{self, Mode, Outcome, Site};

/// `reset` and the mode are of the whole process, so the tests here take turns.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rows of `row` elements of which 4 belong to the view.
fn columns(rows: usize, row: isize) -> Layout {
    Layout::new(&[rows, 4], &[row, 1], 0, 2).expect("a valid view")
}

fn note(site: &Site, row: isize) -> u64 {
    site.note_layout("bf16", &columns(3, row), Outcome::Copied)
}

#[test]
fn eight_threads_count_exactly() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 2000;
    let _alone = alone();
    let start = Barrier::new(THREADS as usize);
    let highest = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let mut seen = 0;
                    for round in 0..ROUNDS {
                        let site = profile::site("contended.x");
                        site.count_contiguous();
                        site.count_call();
                        site.count_copied(thread);
                        site.count_copied_back(3);
                        site.count_hidden(round);
                        site.count_refused();
                        site.count_passed();
                        seen = site.note_layout("bf16", &columns(3, 8), Outcome::Copied);
                    }
                    seen
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).max()
    });
    let all = THREADS * ROUNDS;
    let site = profile::site("contended.x");
    let counters = site.counters();
    assert_eq!(
        counters.calls,
        5 * all,
        "contiguous, to be copied, hidden, refused and passed are calls; copies are not"
    );
    for (name, count) in [
        ("contiguous", counters.contiguous),
        ("copied", counters.copied),
        ("copied_back", counters.copied_back),
        ("hidden", counters.hidden),
        ("refused", counters.refused),
        ("passed", counters.passed),
        ("layout", site.layouts()[0].count),
    ] {
        assert_eq!(count, all, "{name}");
    }
    assert_eq!(highest, Some(all), "the last one to note a layout learns how many there were");
    assert_eq!(counters.bytes_copied, ROUNDS * (0..THREADS).sum::<u64>());
    assert_eq!(counters.bytes_copied_back, 3 * all);
    assert_eq!(counters.bytes_hidden, THREADS * (0..ROUNDS).sum::<u64>());
}

#[test]
fn a_name_is_one_site_for_all_threads() {
    let start = Barrier::new(8);
    let addresses: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    std::ptr::from_ref(profile::site("first.come")) as usize
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(addresses.iter().all(|address| *address == addresses[0]), "{addresses:?}");
    assert_ne!(addresses[0], std::ptr::from_ref(profile::site("first.served")) as usize);
    assert_eq!(profile::site("first.come").name(), "first.come");
}

#[test]
fn sites_come_in_the_order_of_their_names() {
    for name in ["order.c", "order.a", "order.b"] {
        profile::site(name);
    }
    let names: Vec<&str> =
        profile::sites().iter().map(|site| site.name()).filter(|n| n.starts_with("order.")).collect();
    assert_eq!(names, ["order.a", "order.b", "order.c"]);
}

#[test]
fn a_layout_class_counts_up() {
    let _alone = alone();
    let site = profile::site("classes.count");
    assert_eq!((1..=5).map(|_| note(site, 8)).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(note(site, 9), 1, "other strides are another class");
    assert_eq!(note(site, 8), 6);
}

#[test]
fn what_makes_a_layout_class() {
    let _alone = alone();
    let site = profile::site("classes.key");
    let layout = |shape: &[usize], strides: &[isize], offset| Layout::new(shape, strides, offset, 2).expect("valid");
    let base = layout(&[3, 2, 4], &[16, 8, 1], 0);
    assert_eq!(site.note_layout("bf16", &base, Outcome::Copied), 1);
    for (same, what) in [
        (layout(&[7, 2, 4], &[16, 8, 1], 0), "another first dim: batches differ in size"),
        (layout(&[3, 2, 4], &[16, 8, 1], 4), "another offset"),
    ] {
        assert!(site.note_layout("bf16", &same, Outcome::Copied) > 1, "{what}");
    }
    for (other, what) in [
        (layout(&[3, 1, 4], &[16, 8, 1], 0), "another inner dim"),
        (layout(&[3, 2, 4], &[24, 8, 1], 0), "another stride"),
        (layout(&[3, 2], &[16, 8], 0), "fewer dims"),
    ] {
        assert_eq!(site.note_layout("bf16", &other, Outcome::Copied), 1, "{what}");
    }
    assert_eq!(site.note_layout("f16", &base, Outcome::Copied), 1, "another dtype");
    assert_eq!(site.note_layout("bf16", &base, Outcome::Hidden), 1, "another outcome");
    let first = &site.layouts()[0];
    assert_eq!((first.count, first.layout.offset()), (3, 4), "the latest of the class is shown");
}

#[test]
fn eight_classes_are_kept_and_the_most_frequent_stay() {
    let _alone = alone();
    let site = profile::site("classes.bounded");
    // Seven heavy classes of different weight, among two hundred that are met once each.
    let mut true_counts = std::collections::HashMap::new();
    for round in 0..200 {
        for heavy in 0..7 {
            if round % (heavy + 1) == 0 {
                note(site, 10 + heavy);
                *true_counts.entry(10 + heavy).or_insert(0u64) += 1;
            }
        }
        note(site, 1000 + round);
    }
    let layouts = site.layouts();
    assert_eq!(layouts.len(), 8, "bounded");
    assert!(layouts.windows(2).all(|pair| pair[0].count >= pair[1].count), "most frequent first: {layouts:?}");
    // Space-saving keeps what makes up more than an eighth of everything.
    let total: u64 = true_counts.values().sum::<u64>() + 200;
    let frequent: Vec<_> = true_counts.iter().filter(|(_, count)| **count > total / 8).collect();
    assert!(frequent.len() >= 2, "{true_counts:?}");
    for (stride, count) in frequent {
        let kept = layouts.iter().find(|kept| kept.layout.strides()[0] == *stride);
        let kept = kept.unwrap_or_else(|| panic!("stride {stride}, met {count} times, was dropped: {layouts:?}"));
        assert!(kept.count >= *count, "an upper bound: {} of {count}", kept.count);
    }
    assert_eq!(layouts.iter().map(|kept| kept.count).sum::<u64>(), total, "every note is in exactly one count");
}

#[test]
fn reset_forgets_everything_but_the_sites() {
    let _alone = alone();
    let site = profile::site("reset.x");
    site.count_contiguous();
    site.count_call();
    site.count_copied(1);
    site.count_copied_back(1);
    site.count_hidden(1);
    site.count_refused();
    site.count_passed();
    note(site, 8);
    profile::reset();
    assert_eq!(site.counters(), Default::default());
    assert!(site.layouts().is_empty());
    assert!(std::ptr::eq(site, profile::site("reset.x")), "who holds a site keeps counting on it");
    assert_eq!(note(site, 8), 1, "classes start anew");
    assert!(
        !profile::snapshot().sites.iter().any(|figures| figures.site == "contended.x"),
        "what was not called is left out"
    );
}

#[test]
fn off_keeps_nothing() {
    let _alone = alone();
    let site = profile::site("off.x");
    profile::set_mode(Mode::Off);
    site.count_contiguous();
    site.count_copied(1);
    let (first, second) = (note(site, 8), note(site, 8));
    let counters = site.counters();
    let in_snapshot = profile::snapshot().sites.iter().any(|figures| figures.site == "off.x");
    profile::set_mode(Mode::Count);
    assert_eq!(counters, Default::default());
    assert!(!in_snapshot, "a profile that is off has no figures");
    assert_eq!((first, second), (1, 2), "warnings still have to know what they have said");
    site.count_contiguous();
    assert_eq!(site.counters().calls, 1);
}

#[test]
fn modes() {
    let time = |every| Mode::Time { every };
    for (text, mode) in [
        ("", Mode::Count),
        ("count", Mode::Count),
        (" off ", Mode::Off),
        ("time", time(1)),
        ("time:1/1", time(1)),
        ("time:1/16", time(16)),
    ] {
        assert_eq!(text.parse::<Mode>(), Ok(mode), "{text:?}");
    }
    for text in ["on", "time:", "time:16", "time:1/0", "time:1/-3", "time:1/", "Count", "0"] {
        let message = text.parse::<Mode>().expect_err(text).to_string();
        assert_eq!(
            message,
            format!("INFINI_PROFILE: \"{text}\" is not a mode; allowed: count, time, time:1/N (one copy in N), off")
        );
    }
}
