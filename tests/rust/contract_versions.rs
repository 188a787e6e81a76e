//! CANN versions: their order, pre-releases before everything of the same numbers, and ranges of them.

use infini_rearrange::contract::{Version, VersionRange};
use proptest::prelude::*;

fn version(text: &str) -> Version {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn range(text: &str) -> VersionRange {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn versions_in_ascending_order() {
    let ascending = [
        "7.0.1",
        "8.1.RC1",
        "8.1.RC2",
        "8.1.RC10",
        "8.1",
        "8.5.0.pre",
        "8.5.0",
        "8.5.0.1",
        "8.5.1",
        "8.10",
        "9.0.0-beta.1",
        "9.0.0-beta.2",
        "9.0.0",
        "9.1.0-alpha",
        "9.1.0-beta.1",
        "9.1.0.pre",
        "9.1.T500",
        "9.1.0",
        "9.1.1",
        "10.0",
    ];
    for (i, a) in ascending.iter().enumerate() {
        for (j, b) in ascending.iter().enumerate() {
            assert_eq!(version(a).cmp(&version(b)), i.cmp(&j), "{a} against {b}");
        }
    }
}

#[test]
fn missing_numbers_are_zero_and_letters_have_no_case() {
    for (a, b) in [("9", "9.0.0"), ("9.1", "9.1.0"), ("9.1.RC1", "9.1.0.rc1"), ("9.1.0-beta.1", "9.1.beta1")] {
        assert_eq!(version(a), version(b), "{a} and {b}");
    }
    assert_ne!(version("9.1.0"), version("9.1.0.pre"));
    assert_eq!(version("9.1.0-beta.1").to_string(), "9.1.0-beta.1", "a version is shown as it was given");
}

#[test]
fn prereleases_are_told_from_releases() {
    for text in ["9.1.0.pre", "8.1.RC1", "9.1.T500", "9.1.0-alpha"] {
        assert!(version(text).is_prerelease(), "{text}");
    }
    assert!(!version("9.1.0").is_prerelease());
}

#[test]
fn not_versions() {
    for text in ["", ".", "9.", ".9", "9..1", "pre", "v9.1", "9.1.0-", "9.1 0", "9.1.0_pre", "9.1.0β", "9.1x.0"] {
        let error = text.parse::<Version>().expect_err(text).to_string();
        assert!(error.contains(&format!("\"{text}\"")) && error.contains("8.5.0, 9.1.0.pre"), "{error}");
    }
    assert!("99999999999999999999.1".parse::<Version>().is_err(), "too large for 64 bits");
}

#[test]
fn what_ranges_contain() {
    let table: [(&str, &[&str], &[&str]); 8] = [
        ("*", &["1", "9.1.0.pre", "99"], &[]),
        ("9.1.0", &["9.1", "9.1.0"], &["9.1.0.pre", "9.1.1", "9.0"]),
        ("=9.1.0", &["9.1"], &["9.1.1"]),
        ("9.1.0-*", &["9.1.0.pre", "9.1.T500", "9.1.0-beta.1"], &["9.1.0", "9.1.1.pre", "9.0.0.pre"]),
        (">=8.5,<9.1", &["8.5.0", "9.0.0", "9.0.9", "9.1.0.pre"], &["8.5.0.pre", "8.4", "9.1.0"]),
        (" >= 8.5 , < 9.1 ", &["8.5.0"], &["9.1.0"]),
        (">9.1.0", &["9.1.1", "9.2.0.pre"], &["9.1.0", "9.1.0.pre"]),
        ("<=9.1.0", &["9.1.0", "9.1.0.pre", "8.5"], &["9.1.0.1"]),
    ];
    for (text, inside, outside) in table {
        let range = range(text);
        for v in inside {
            assert!(range.contains(&version(v)), "{v} in {text}");
        }
        for v in outside {
            assert!(!range.contains(&version(v)), "{v} not in {text}");
        }
        assert_eq!(range.to_string().parse::<VersionRange>(), Ok(range), "{text} survives being written");
    }
}

#[test]
fn not_ranges() {
    for (text, part) in [
        ("", ""),
        (">=8.5,", ""),
        (">=8.5,<nine", "<nine"),
        ("~9.1", "~9.1"),
        (">=*", ">=*"),
        ("9.1.0.pre-*", "9.1.0.pre-*"),
        ("9.1.*", "9.1.*"),
        (">8.5 <9", ">8.5 <9"),
    ] {
        let error = text.parse::<VersionRange>().expect_err(text).to_string();
        assert!(error.starts_with(&format!("\"{part}\" in \"{text}\"")), "{error}");
        assert!(error.contains(">=8.5,<9.1"), "the form is shown: {error}");
    }
}

fn versions() -> impl Strategy<Value = String> {
    let suffix = prop::sample::select(vec!["", ".pre", "-beta.1", "-beta.2", ".RC1", ".rc10", ".T500", "-alpha"]);
    (prop::collection::vec(0u64..3, 1..4), suffix).prop_map(|(numbers, suffix)| {
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        numbers.join(".") + suffix
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_is_total(a in versions(), b in versions(), c in versions()) {
        let (a, b, c) = (version(&a), version(&b), version(&c));
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        prop_assert_eq!(a == b, a.cmp(&b).is_eq());
        if a <= b && b <= c {
            prop_assert!(a <= c);
        }
    }

    #[test]
    fn comparisons_partition(a in versions(), b in versions()) {
        let v = version(&a);
        let holds = |sign: &str| range(&format!("{sign}{b}")).contains(&v);
        prop_assert_eq!([holds("<"), holds("="), holds(">")].iter().filter(|h| **h).count(), 1);
        prop_assert_eq!(holds("<="), holds("<") || holds("="));
        prop_assert_eq!(holds(">="), holds(">") || holds("="));
    }
}
