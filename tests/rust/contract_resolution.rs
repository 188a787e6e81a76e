//! Which row holds, and that knowing less about a machine never makes a contract laxer.

use infini_rearrange::contract::{Argument, Contract, Contracts, Platform, Row, Unmet, Version, VersionRange};
use proptest::prelude::*;

fn cann(text: &str) -> Version {
    text.parse().expect(text)
}

fn on(soc: Option<&str>, version: Option<&str>) -> Platform {
    Platform { soc: soc.map(str::to_owned), cann: version.map(cann) }
}

/// The rows of `a` in the only operator of a file.
fn argument(rows: &str) -> Argument {
    let contracts = Contracts::parse(&format!("[op]\na = {rows}"), "test").unwrap_or_else(|error| panic!("{error}"));
    contracts.operators()[0].arguments[0].clone()
}

#[test]
fn the_first_row_that_holds_counts() {
    let argument = argument(
        r#"[{ contract = "rows", soc = ["Ascend910?1", "Other"], cann = ">=9" },
            { contract = "outer(2)", present = "b" },
            { contract = "cache", absent = "b", present = "c" },
            "contiguous"]"#,
    );
    let machine = on(Some("Ascend910B1"), Some("9.0"));
    let old = on(Some("Ascend910B1"), Some("8.5"));
    for (platform, given, expected) in [
        (&machine, &["b"][..], Contract::Rows),
        (&on(Some("Other"), Some("9")), &[], Contract::Rows),
        (&on(Some("ascend910B1"), Some("9")), &[], Contract::Contiguous), // case matters
        (&on(Some("Ascend910B12"), Some("9")), &[], Contract::Contiguous), // ? is one character
        (&old, &["b"], Contract::Outer(2)),
        (&old, &["b", "c"], Contract::Outer(2)),
        (&old, &["c"], Contract::Cache),
        (&old, &[], Contract::Contiguous),
    ] {
        assert_eq!(argument.row(platform, &|name| given.contains(&name)).contract, expected, "{platform:?} {given:?}");
    }
}

#[test]
fn what_cannot_be_decided_is_taken_at_its_strictest() {
    let unknown = Platform::default();
    for (rows, contract, unmet, demand) in [
        // The worst behaviour decides, wherever it stands.
        (
            r#"[{ contract = "any", cann = "8" }, { contract = "rows", unmet = "misreads", cann = "9" }]"#,
            Contract::Rows,
            Unmet::Misreads,
            Contract::Rows,
        ),
        // Nothing behind a row that certainly holds can be the truth.
        (
            r#"[{ contract = "any", cann = "8" }, "any", { contract = "rows", unmet = "misreads", cann = "9" }]"#,
            Contract::Any,
            Unmet::Copies,
            Contract::Any,
        ),
        // "*" holds for a version that is not known.
        (
            r#"[{ contract = "any", cann = "*" }, { contract = "rows", unmet = "misreads" }]"#,
            Contract::Any,
            Unmet::Copies,
            Contract::Any,
        ),
        // The misreading row allows more strides than the refusing one: the demand of both has to be met.
        (
            r#"[{ contract = "outer(2)", unmet = "misreads", cann = "8" }, { contract = "rows", unmet = "refuses" }]"#,
            Contract::Rows,
            Unmet::Misreads,
            Contract::Rows,
        ),
        // What may be a cache is never copied.
        (
            r#"[{ contract = "cache", unmet = "copies", cann = "8" }, { contract = "rows", unmet = "refuses" }]"#,
            Contract::Cache,
            Unmet::Refuses,
            Contract::Rows,
        ),
        // Conditions on other arguments can always be decided: that row cannot be the truth.
        (
            r#"[{ contract = "contiguous", unmet = "misreads", present = "b" }, { contract = "any", cann = "8" }]"#,
            Contract::Any,
            Unmet::Copies,
            Contract::Any,
        ),
        // No row can hold at all: even those of other arguments count.
        (r#"[{ contract = "rows", present = "b" }]"#, Contract::Rows, Unmet::Unknown, Contract::Rows),
    ] {
        let argument = argument(rows);
        let row = argument.row(&unknown, &|_| false);
        assert_eq!((row.contract, row.unmet, row.demand()), (contract, unmet, demand), "{rows}");
    }
}

#[test]
fn a_machine_that_no_row_names_gets_the_strictest() {
    let argument =
        argument(r#"[{ contract = "any", cann = "8" }, { contract = "contiguous", unmet = "refuses", cann = "9" }]"#);
    let row = argument.row(&on(Some("Ascend910B1"), Some("10")), &|_| false).into_owned();
    assert_eq!((row.contract, row.unmet), (Contract::Contiguous, Unmet::Refuses));
}

const OTHERS: [&str; 2] = ["b", "c"];

fn rows() -> impl Strategy<Value = Row> {
    use prop::sample::select;
    let layout =
        || select(vec![Contract::Contiguous, Contract::Rows, Contract::Outer(1), Contract::Outer(3), Contract::Any]);
    let contract = prop_oneof![
        layout().prop_map(|contract| (contract, None)),
        (select(vec![Contract::InOut, Contract::Out, Contract::Cache]), prop::option::of(layout())),
    ];
    let unmet = select(vec![Unmet::Reads, Unmet::Copies, Unmet::Unknown, Unmet::Refuses, Unmet::Misreads]);
    let soc = select(vec![vec![], vec!["Ascend910*"], vec!["Ascend950*", "Ascend910B1"]]);
    let range = prop::option::of(select(vec!["*", "9.1.0", "9.1.0-*", ">=8.5,<9.1", ">9.1.0"]));
    let other = || prop::option::weighted(0.3, select(OTHERS.to_vec()));
    (contract, unmet, soc, range, other(), other()).prop_map(
        |((contract, accepts), unmet, soc, range, present, absent)| {
            let mut row = Row::new(contract);
            // The reader lets nothing else through: `any` is a promise to cope.
            row.unmet = if contract == Contract::Any { row.unmet.min(unmet) } else { unmet };
            row.accepts = accepts;
            row.soc = soc.into_iter().map(str::to_owned).collect();
            row.cann = range.map(|range| range.parse::<VersionRange>().expect(range));
            row.present = present.map(str::to_owned);
            row.absent = absent.map(str::to_owned);
            row
        },
    )
}

/// How many of the outer dims may be strided. Written down here independently of the crate.
fn freedom(contract: Contract) -> usize {
    match contract {
        Contract::Rows => 1,
        Contract::Outer(n) => n,
        Contract::Any => usize::MAX,
        _ => 0,
    }
}

/// Why treating the argument by `known` would be safe and by `unknown` would not.
fn laxer(unknown: &Row, known: &Row) -> Option<&'static str> {
    let harm = [Unmet::Reads, Unmet::Copies, Unmet::Unknown, Unmet::Refuses, Unmet::Misreads];
    let harm = |row: &Row| harm.iter().position(|unmet| *unmet == row.unmet);
    let copes = matches!(known.unmet, Unmet::Reads | Unmet::Copies);
    let never_copied = known.contract == Contract::Cache && unknown.contract != Contract::Cache;
    let read_back = known.contract == Contract::InOut && !matches!(unknown.contract, Contract::InOut | Contract::Cache);
    let written = known.contract == Contract::Out
        && !matches!(unknown.contract, Contract::Out | Contract::InOut | Contract::Cache);
    if harm(unknown) < harm(known) {
        Some("a milder behaviour")
    } else if !copes && freedom(unknown.demand()) > freedom(known.demand()) {
        Some("freer strides")
    } else if never_copied {
        Some("a cache could be copied")
    } else if read_back || written {
        Some("what is written would not come back")
    } else {
        None
    }
}

const SOCS: [&str; 4] = ["Ascend910B1", "Ascend910_9391", "Ascend950PR_9599", "Other"];
const CANNS: [&str; 7] = ["8.0", "8.5.0", "9.0.0", "9.1.0.pre", "9.1.0", "9.1.1.pre", "9.2.0"];

/// Every machine against all that is less known about it.
fn never_laxer(argument: &Argument) -> Result<(), String> {
    for given in [&[][..], &["b"], &["c"], &["b", "c"], &["block_table"]] {
        let present = |name: &str| given.contains(&name);
        for soc in SOCS {
            for version in CANNS {
                let known = argument.row(&on(Some(soc), Some(version)), &present);
                for less in [on(None, Some(version)), on(Some(soc), None), on(None, None)] {
                    let unknown = argument.row(&less, &present);
                    if let Some(why) = laxer(&unknown, &known) {
                        return Err(format!(
                            "{why}: {unknown:?} on {less:?}, {known:?} on {soc} {version}, given {given:?}"
                        ));
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn the_shipped_table_is_never_laxer_on_an_unknown_machine() {
    for operator in Contracts::shipped().operators() {
        for argument in &operator.arguments {
            never_laxer(argument).unwrap_or_else(|why| panic!("{}.{}: {why}", operator.site, argument.name()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_table_is_laxer_on_an_unknown_machine(rows in prop::collection::vec(rows(), 1..6)) {
        let argument = Argument::new("a", rows).expect("few conditions");
        prop_assert_eq!(never_laxer(&argument), Ok(()));
    }

    #[test]
    fn on_a_known_machine_the_first_row_that_holds_is_taken_unchanged(rows in prop::collection::vec(rows(), 1..6)) {
        let argument = Argument::new("a", rows.clone()).expect("few conditions");
        for (soc, version) in SOCS.iter().flat_map(|soc| CANNS.map(|version| (*soc, version))) {
            for given in [&[][..], &["b"], &["c"], &["b", "c"]] {
                let holds = |row: &&Row| {
                    (row.soc.is_empty() || row.soc.iter().any(|glob| glob == soc || glob.strip_suffix('*').is_some_and(|start| soc.starts_with(start))))
                        && row.cann.as_ref().is_none_or(|range| range.contains(&cann(version)))
                        && row.present.as_deref().is_none_or(|name| given.contains(&name))
                        && !row.absent.as_deref().is_some_and(|name| given.contains(&name))
                };
                if let Some(first) = rows.iter().find(holds) {
                    let platform = on(Some(soc), Some(version));
                    let present = |name: &str| given.contains(&name);
                    prop_assert_eq!(&*argument.row(&platform, &present), first);
                    let resolved = argument.resolve(&platform);
                    prop_assert_eq!(resolved.row(&present), first);
                }
            }
        }
    }
}

#[test]
fn too_many_conditions_are_refused() {
    let rows = ["b", "c", "d", "e", "f"].map(|name| Row { present: Some(name.to_owned()), ..Row::new(Contract::Rows) });
    let error = Argument::new("a", rows.to_vec()).expect_err("five").to_string();
    assert!(error.contains("\"a\"") && error.contains("b, c, d, e, f") && error.contains("at most 4"), "{error}");
    assert!(Argument::new("a", rows[..4].to_vec()).is_ok());
    let error = Argument::new("a", Vec::new()).expect_err("none").to_string();
    assert!(error.contains("no rows"), "{error}");
}
