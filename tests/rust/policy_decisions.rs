//! Decisions about operator calls: contracts × policies, scopes, workspace queries, and what a refusal says.
//!
//! The contracts are those of a file of the test's own, so that no shipped row and no machine decides. The environment is
//! read once per process; every test gets it through [`attach`].

use std::sync::{LazyLock, Mutex, PoisonError};

use infini_rearrange::policy::{self, Action, Decision, Execution, Refusal, Tensor, Verdict};
use infini_rearrange::profile::{self, Counters, Outcome};

use Action::{Copy, CopyInOut, Pass, Placeholder, Restride};

/// Nobody else names these operators, and every test takes arguments of its own, as counters are per site.
const CONTRACTS: &str = r#"
["t::matrix"]
contiguous = { contract = "contiguous", unmet = "refuses" }
rows = { contract = "rows", unmet = "misreads" }
outer = { contract = "outer(2)", unmet = "misreads" }
any = "any"
reads = { contract = "any", unmet = "reads" }
inout = "inout"
out = "out"
cache = "cache"
copying = { contract = "cache", unmet = "copies" }
misread = { contract = "cache", unmet = "misreads" }
outer_cache = { contract = "cache", unmet = "misreads", accepts = "outer(1)" }

["t::asked"]
also = ["t::_asked_get_max_workspace"]
q = "contiguous"
w = "inout"
o = "out"
c = "cache"
h = "any"

["t::paged"]
key = [{ contract = "cache", unmet = "misreads", present = "table" }, "contiguous"]

["t::spoken"]
key = { contract = "contiguous", unmet = "refuses", avoid = "write the key where it belongs" }
value = { contract = "inout", unmet = "unknown" }
mask = "any"

["t::scoped"]
a = "contiguous"
b = "contiguous"

["t::environment"]
key = "contiguous"

["t::counted"]
a = "contiguous"
b = "contiguous"

["t::warned"]
key = "contiguous"
hidden = "any"
cache = "cache"
"#;

static ENVIRONMENT: LazyLock<()> = LazyLock::new(|| {
    let file = std::env::temp_dir().join(format!("policy-decisions-{}.toml", std::process::id()));
    std::fs::write(&file, CONTRACTS).expect("a file of contracts");
    // SAFETY: everything that reads the environment here does so through `attach`, which waits for this first.
    unsafe {
        std::env::set_var("INFINI_CONTRACTS", &file);
        std::env::set_var("INFINI_CONTIGUITY", "t::environment.*=strict");
        std::env::remove_var("INFINI_PROFILE");
    }
    policy::settings().unwrap_or_else(|error| panic!("{error}"));
    std::fs::remove_file(&file).expect("read by now");
});

/// The operator for a schema of these arguments, all of them with contracts unless a condition names them.
fn attach(name: &str, schema: &[&str]) -> &'static policy::HookedOperator {
    LazyLock::force(&ENVIRONMENT);
    let number = policy::attach(name, schema).unwrap_or_else(|error| panic!("{error}"));
    policy::hooked(number).expect("just attached")
}

/// Which slot the argument has. Slots follow the contracts, positions the schema.
fn slot(operator: &policy::HookedOperator, schema: &[&str], argument: &str) -> u32 {
    let position = schema.iter().position(|name| *name == argument).expect("in the schema") as u32;
    operator.positions().iter().position(|p| *p == position).expect("a slot") as u32
}

#[derive(Clone, Copy)]
struct View {
    shape: &'static [i64],
    strides: &'static [i64],
    offset: i64,
}

const DENSE: View = View { shape: &[4, 3, 8], strides: &[24, 8, 1], offset: 0 };
/// Only dim 0 has a stride of its own: meets `rows`.
const ROWS: View = View { shape: &[4, 3, 8], strides: &[48, 8, 1], offset: 0 };
/// The last 8 of 24 columns: meets `outer(2)`.
const COLUMNS: View = View { shape: &[4, 3, 8], strides: &[72, 24, 1], offset: 16 };
const TRANSPOSED: View = View { shape: &[4, 8, 3], strides: &[24, 1, 8], offset: 0 };
const EXPANDED: View = View { shape: &[4, 3, 8], strides: &[0, 8, 1], offset: 0 };
const SIZE_ONE: View = View { shape: &[4, 1, 8], strides: &[8, 777, 1], offset: 0 };
const EMPTY: View = View { shape: &[4, 0, 8], strides: &[1, 2, 3], offset: 0 };

const BF16: i8 = 15;
/// Bytes of every view of 4 · 3 · 8 elements in bf16.
const BYTES: u64 = 192;

fn tensor(slot: u32, view: View) -> Tensor<'static> {
    let View { shape, strides, offset } = view;
    Tensor { slot, shape, strides, offset, element_size: 2, dtype: BF16, on_npu: true }
}

/// Decides about one call that gives these arguments.
fn call(
    operator: &policy::HookedOperator,
    schema: &[&str],
    given: &[(&str, View)],
) -> Result<(Verdict, Vec<Decision>), Refusal> {
    let tensors: Vec<_> = given.iter().map(|(name, view)| tensor(slot(operator, schema, name), *view)).collect();
    let mut decisions = vec![Decision { action: Pass, site: u32::MAX }; tensors.len()];
    let verdict = policy::decide(operator, &tensors, Execution::Eager, &mut decisions)?;
    let acts = decisions.iter().any(|decision| decision.action != Pass);
    assert_eq!(verdict == Verdict::Act, acts, "the verdict says whether there is anything to do: {decisions:?}");
    Ok((verdict, decisions))
}

/// Opens a scope and closes it, whatever happens inside.
struct Scope(i64);

impl Scope {
    fn new(directives: &str, name: &str) -> Self {
        Scope(policy::push(directives, name, false).unwrap_or_else(|error| panic!("{error}")))
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let _ = policy::pop(self.0);
    }
}

fn counters(site: &str) -> Counters {
    profile::site(site).counters()
}

/// What a call changed about a site: calls, contiguous, hidden, refused, passed, bytes hidden.
fn change(before: Counters, after: Counters) -> [u64; 6] {
    [
        after.calls - before.calls,
        after.contiguous - before.contiguous,
        after.hidden - before.hidden,
        after.refused - before.refused,
        after.passed - before.passed,
        after.bytes_hidden - before.bytes_hidden,
    ]
}

const MET: [u64; 6] = [1, 1, 0, 0, 0, 0];
/// The copy itself is counted where it is made.
const TO_COPY: [u64; 6] = [1, 0, 0, 0, 0, 0];
const HIDDEN: [u64; 6] = [1, 0, 1, 0, 0, BYTES];
const REFUSED: [u64; 6] = [1, 0, 0, 1, 0, 0];
const PASSED: [u64; 6] = [1, 0, 0, 0, 1, 0];

#[test]
fn contracts_under_every_policy() {
    const SCHEMA: [&str; 11] =
        ["contiguous", "rows", "outer", "any", "reads", "inout", "out", "cache", "copying", "misread", "outer_cache"];
    let operator = attach("t::matrix", &SCHEMA);
    // Argument, view, and action with counts under auto and warn, strict, off. `None`: the call is refused.
    type Ruling = (Option<Action>, [u64; 6]);
    let met = (Some(Pass), MET);
    let copied = |action| [(Some(action), TO_COPY), (None, REFUSED), (Some(Pass), PASSED)];
    let table: &[(&str, View, [Ruling; 3])] = &[
        ("contiguous", DENSE, [met; 3]),
        ("contiguous", EMPTY, [met; 3]),
        ("contiguous", SIZE_ONE, [(Some(Restride), MET); 3]),
        ("contiguous", ROWS, copied(Copy)),
        ("contiguous", TRANSPOSED, copied(Copy)),
        ("contiguous", EXPANDED, copied(Copy)),
        ("rows", ROWS, [met; 3]),
        ("rows", COLUMNS, copied(Copy)),
        ("rows", TRANSPOSED, copied(Copy)),
        ("outer", ROWS, [met; 3]),
        ("outer", COLUMNS, [met; 3]),
        ("outer", TRANSPOSED, copied(Copy)),
        ("any", COLUMNS, [(Some(Pass), HIDDEN), (None, REFUSED), (Some(Pass), HIDDEN)]),
        ("any", DENSE, [met; 3]),
        ("reads", TRANSPOSED, [met; 3]),
        ("inout", COLUMNS, copied(CopyInOut)),
        ("inout", SIZE_ONE, [(Some(Restride), MET); 3]),
        ("inout", EXPANDED, [(None, REFUSED), (None, REFUSED), (Some(Pass), PASSED)]),
        ("out", COLUMNS, copied(CopyInOut)),
        ("out", EXPANDED, [(None, REFUSED), (None, REFUSED), (Some(Pass), PASSED)]),
        ("cache", COLUMNS, [(Some(Pass), PASSED), (None, REFUSED), (Some(Pass), PASSED)]),
        ("cache", DENSE, [met; 3]),
        ("copying", COLUMNS, [(Some(Pass), HIDDEN), (None, REFUSED), (Some(Pass), PASSED)]),
        ("misread", COLUMNS, [(None, REFUSED), (None, REFUSED), (Some(Pass), PASSED)]),
        ("outer_cache", ROWS, [met; 3]),
        ("outer_cache", COLUMNS, [(None, REFUSED), (None, REFUSED), (Some(Pass), PASSED)]),
    ];
    for (argument, view, [auto, strict, off]) in table {
        for (word, (action, counts)) in
            [("auto", auto), ("auto-contiguous", auto), ("warn", auto), ("strict", strict), ("off", off)]
        {
            let what = format!("{argument} {:?} {:?} under {word}", view.shape, view.strides);
            let _scope = Scope::new(word, "");
            let site = format!("t::matrix.{argument}");
            let before = counters(&site);
            let decided = call(operator, &SCHEMA, &[(argument, *view)]);
            assert_eq!(decided.as_ref().ok().map(|(_, decisions)| decisions[0].action), *action, "{what}: {decided:?}");
            assert_eq!(change(before, counters(&site)), *counts, "{what}");
            if decided.is_ok_and(|(_, decisions)| decisions[0].action == Copy) {
                let layouts = profile::site(&site).layouts();
                assert!(layouts.iter().all(|layout| layout.outcome != Outcome::Hidden), "{what}");
            }
        }
    }
}

#[test]
fn a_decision_names_the_site_that_counts_the_copy() {
    const SCHEMA: [&str; 3] = ["b", "unlisted", "a"];
    let operator = attach("t::counted", &SCHEMA);
    let (verdict, decisions) = call(operator, &SCHEMA, &[("a", COLUMNS), ("b", DENSE)]).expect("auto");
    assert_eq!(verdict, Verdict::Act);
    assert_eq!((decisions[0].action, decisions[1].action), (Copy, Pass));
    let site = policy::site(decisions[0].site).expect("a number of a site");
    assert_eq!(site.name(), "t::counted.a");
    policy::copied("t::counted.a", &tensor(0, COLUMNS), Execution::Eager);
    let counters = site.counters();
    assert_eq!((counters.calls, counters.copied, counters.bytes_copied), (1, 1, BYTES));
    assert_eq!(self::counters("t::counted.b").contiguous, 1);
    // Beside a strided tensor the others are judged as they are alone.
    let (_, decisions) = call(operator, &SCHEMA, &[("b", SIZE_ONE), ("a", COLUMNS)]).expect("auto");
    assert_eq!((decisions[0].action, decisions[1].action), (Restride, Copy));
}

#[test]
fn attaching_twice_is_attaching_once() {
    attach("t::asked", &["q"]);
    let first = policy::attach("t::asked", &["x", "q"]).expect("attached");
    assert_eq!(policy::attach("t::asked", &["x", "q"]).expect("again"), first);
    assert_ne!(policy::attach("t::asked", &["q", "x"]).expect("another overload"), first);
    assert!(policy::hooked(u32::MAX).is_none());
    let error = policy::attach("t::nobody", &["q"]).expect_err("no contract").to_string();
    assert!(error.contains("t::nobody") && error.contains("INFINI_CONTRACTS") && error.contains("docs/contracts.md"));
    let targets = policy::targets().expect("settings");
    for name in ["t::asked", "t::_asked_get_max_workspace", "npu::npu_mrope"] {
        assert!(targets.iter().any(|target| target == name), "{name} in {targets:?}");
    }
}

#[test]
fn workspace_queries_get_placeholders_and_count_nothing() {
    const SCHEMA: [&str; 5] = ["q", "w", "o", "c", "h"];
    let query = attach("t::_asked_get_max_workspace", &SCHEMA);
    assert!(query.is_query() && !attach("t::asked", &SCHEMA).is_query());
    assert_eq!(query.site(), "t::asked", "the same sites as the operator itself");
    let sites = SCHEMA.map(|argument| format!("t::asked.{argument}"));
    let before = sites.each_ref().map(|site| counters(site));
    let all = SCHEMA.map(|argument| (argument, COLUMNS));
    {
        let (_, decisions) = call(query, &SCHEMA, &all).expect("auto");
        let actions: Vec<_> = decisions.iter().map(|decision| decision.action).collect();
        assert_eq!(actions, [Placeholder, Placeholder, Placeholder, Pass, Pass]);
    }
    call(query, &SCHEMA, &SCHEMA.map(|argument| (argument, DENSE))).expect("contiguous");
    let (_, decisions) = call(query, &SCHEMA, &[("q", SIZE_ONE)]).expect("contiguous");
    assert_eq!(decisions[0].action, Restride);
    for (word, refused) in [("strict", true), ("off", false), ("warn", false)] {
        let _scope = Scope::new(word, "");
        assert_eq!(call(query, &SCHEMA, &all).is_err(), refused, "{word}");
    }
    let after = sites.each_ref().map(|site| counters(site));
    assert_eq!(after, before, "the operator call that follows counts");
    assert!(sites.iter().all(|site| profile::site(site).layouts().is_empty()));
}

#[test]
fn whether_another_argument_is_given_decides() {
    const SCHEMA: [&str; 2] = ["key", "table"];
    let operator = attach("t::paged", &SCHEMA);
    let (_, decisions) = call(operator, &SCHEMA, &[("key", COLUMNS)]).expect("an ordinary tensor");
    assert_eq!(decisions[0].action, Copy);
    let order = [[("key", COLUMNS), ("table", DENSE)], [("table", DENSE), ("key", COLUMNS)]];
    for given in order {
        let refusal = call(operator, &SCHEMA, &given).expect_err("a cache that would be misread");
        assert!(refusal.message.contains("a cache is never copied"), "{}", refusal.message);
    }
    // An overload without the other argument is one where it is not given.
    let operator = attach("t::paged", &["key"]);
    let (_, decisions) = call(operator, &["key"], &[("key", COLUMNS)]).expect("an ordinary tensor");
    assert_eq!(decisions[0].action, Copy);
}

#[test]
fn one_refusal_stops_the_call_and_tells_of_every_argument() {
    const SCHEMA: [&str; 3] = ["key", "value", "mask"];
    let operator = attach("t::spoken", &SCHEMA);
    let before = counters("t::spoken.mask");
    let _scope = Scope::new("t::spoken.key=strict", "");
    let given = [("mask", COLUMNS), ("key", COLUMNS), ("value", EXPANDED)];
    let message = call(operator, &SCHEMA, &given).expect_err("strict").message;
    assert_eq!(
        message,
        "t::spoken.key is not contiguous: refused, since the policy is strict\n  \
           layout  bf16 [4, 3, 8] strides [72, 24, 1] offset 16: columns 16..24 of rows of 24\n  \
           avoid   write the key where it belongs\n  \
           policy  policy(\"t::spoken.key=strict\"); contract contiguous (the operator by itself: refuses)\n\
         t::spoken.value is not contiguous: refused, since the operator writes it, and its elements may overlap in memory\n  \
           layout  bf16 [4, 3, 8] strides [0, 8, 1]: expanded along dim 0 (stride 0)\n  \
           avoid   hand over the tensor before the expand where the operator broadcasts by itself, or share one copy \
         between calls\n  \
           policy  INFINI_CONTIGUITY=\"auto\"; contract inout (the operator by itself: unknown)"
    );
    assert_eq!(counters("t::spoken.mask"), before, "a call that does not run has no hidden copy");
    let layouts = profile::site("t::spoken.key").layouts();
    assert_eq!((layouts.len(), layouts[0].outcome, layouts[0].count), (1, Outcome::Refused, 1));
}

#[test]
fn the_environment_decides_where_no_scope_speaks() {
    const SCHEMA: [&str; 1] = ["key"];
    let operator = attach("t::environment", &SCHEMA);
    let strided = [("key", COLUMNS)];
    let message = call(operator, &SCHEMA, &strided).expect_err("strict").message;
    assert!(message.contains("INFINI_CONTIGUITY=\"t::environment.*=strict\""), "{message}");
    {
        let _scope = Scope::new("t::scoped=off", "");
        assert!(call(operator, &SCHEMA, &strided).is_err(), "the scope does not speak of this site");
    }
    {
        let _scope = Scope::new("auto", "");
        assert!(call(operator, &SCHEMA, &strided).is_ok(), "even the default of a scope goes over the environment");
        let _inner = Scope::new("t::environment.key=strict", "");
        let message = call(operator, &SCHEMA, &strided).expect_err("the inner scope").message;
        assert!(message.contains("policy(\"t::environment.key=strict\")"), "{message}");
    }
    std::thread::scope(|threads| {
        let _scope = Scope::new("auto", "");
        threads.spawn(|| assert!(call(operator, &SCHEMA, &strided).is_err(), "scopes are of one thread"));
    });
    assert!(call(operator, &SCHEMA, &strided).is_err(), "closed scopes are forgotten");
}

#[test]
fn a_named_scope_gives_sites_of_its_own() {
    const SCHEMA: [&str; 2] = ["a", "b"];
    let operator = attach("t::scoped", &SCHEMA);
    let site_of = |decision: Decision| policy::site(decision.site).map(|site| site.name());
    {
        let _scope = Scope::new("", "decoder.attention");
        let (_, decisions) = call(operator, &SCHEMA, &[("a", COLUMNS), ("b", DENSE)]).expect("auto");
        assert_eq!(site_of(decisions[0]), Some("decoder.attention.a"));
        assert_eq!(change(Counters::default(), counters("decoder.attention.a")), TO_COPY);
        assert_eq!(change(Counters::default(), counters("decoder.attention.b")), MET);
        // All contiguous: counted at the named sites as well.
        call(operator, &SCHEMA, &[("b", DENSE)]).expect("contiguous");
        assert_eq!(counters("decoder.attention.b").contiguous, 2);
        {
            let _unnamed = Scope::new("off", "");
            call(operator, &SCHEMA, &[("b", DENSE)]).expect("contiguous");
            assert_eq!(counters("decoder.attention.b").contiguous, 3, "the innermost scope with a name gives it");
            let _named = Scope::new("", "inner");
            call(operator, &SCHEMA, &[("b", DENSE)]).expect("contiguous");
            assert_eq!(counters("inner.b").contiguous, 1);
        }
        assert_eq!(counters("t::scoped.a"), Counters::default(), "nothing is counted twice");
        assert_eq!(counters("t::scoped.b"), Counters::default());
    }
    for (directives, refused) in [
        ("decoder.attention.a=strict", true),
        ("t::scoped.a=strict", true),
        ("decoder.attention.a=auto,t::scoped.a=strict", false), // the name of the scope speaks first
        ("decoder.attention.b=strict", false),
        ("strict,decoder.attention.a=auto", false),
        ("strict,t::scoped.a=auto", false),
    ] {
        let _scope = Scope::new(directives, "decoder.attention");
        assert_eq!(call(operator, &SCHEMA, &[("a", COLUMNS)]).is_err(), refused, "{directives}");
    }
    let _scope = Scope::new("strict", "decoder.attention");
    let message = call(operator, &SCHEMA, &[("a", COLUMNS)]).expect_err("strict").message;
    assert!(message.starts_with("decoder.attention.a is not contiguous"), "{message}");
}

#[test]
fn scopes_close_in_the_opposite_order() {
    LazyLock::force(&ENVIRONMENT);
    let outer = policy::push("warn", "", true).expect("opened");
    let inner = policy::push("off", "", false).expect("opened");
    assert!(policy::active(), "an open scope asks for hooks that are asleep");
    let message = policy::pop(outer).expect_err("not the innermost").to_string();
    assert!(message.contains(&format!("policy scope {outer}")) && message.contains(&inner.to_string()), "{message}");
    policy::pop(inner).expect("innermost");
    assert!(policy::active());
    policy::pop(outer).expect("innermost");
    assert!(!policy::active());
    assert!(policy::pop(outer).is_err(), "closed already");
    let message = policy::push("of", "", true).expect_err("no policy").to_string();
    assert!(message.contains("\"of\" at column 1"), "{message}");
    assert!(!policy::active(), "a scope that was not opened leaves nothing behind");
}

#[test]
fn warnings_come_at_doubling_counts() {
    const SCHEMA: [&str; 3] = ["key", "hidden", "cache"];
    static SAID: Mutex<Vec<(u8, String)>> = Mutex::new(Vec::new());
    let operator = attach("t::warned", &SCHEMA);
    policy::set_speaker(Some(Box::new(|level, head, tail| {
        SAID.lock().unwrap_or_else(PoisonError::into_inner).push((level, format!("{head}|{tail}")));
    })));
    let said = |about: &str| -> Vec<String> {
        let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(said.iter().all(|(level, _)| *level == 30), "warnings");
        said.iter().map(|(_, text)| text.clone()).filter(|text| text.starts_with(about)).collect()
    };
    let warn = Scope::new("warn", "");
    for _ in 0..9 {
        call(operator, &SCHEMA, &[("key", COLUMNS), ("hidden", COLUMNS), ("cache", COLUMNS)]).expect("warn");
        policy::copied("t::warned.key", &tensor(0, COLUMNS), Execution::Eager); // as whoever made the copy does
    }
    drop(warn);
    let key = said("t::warned.key");
    assert_eq!(
        key[0],
        "t::warned.key needs a contiguous tensor; copied 192 B\n  \
           layout  bf16 [4, 3, 8] strides [72, 24, 1] offset 16: columns 16..24 of rows of 24|  \
           avoid   let the producer write this slice to a buffer of its own instead of slicing a wider row"
    );
    let calls: Vec<bool> =
        [2, 4, 8].iter().zip(&key[1..]).map(|(n, said)| said.contains(&format!("(call {n} "))).collect();
    assert_eq!((key.len(), calls), (4, vec![true; 3]), "{key:#?}");
    for (about, what) in
        [("t::warned.hidden", "itself copies 192 B at every call"), ("t::warned.cache", "passed on as it is")]
    {
        let said = said(about);
        assert!(said.len() == 4 && said[0].contains(what), "{said:#?}");
    }
    // `auto` copies in silence, and tells once of what it does not copy.
    for _ in 0..3 {
        call(operator, &SCHEMA, &[("key", ROWS), ("hidden", ROWS), ("cache", ROWS)]).expect("auto");
        policy::copied("t::warned.key", &tensor(0, ROWS), Execution::Eager);
    }
    let counts = ["key", "hidden", "cache"].map(|argument| said(&format!("t::warned.{argument}")).len());
    assert_eq!(counts, [4, 4, 5]);
    policy::set_speaker(None);
}

#[test]
fn contiguous_at_a_site_that_a_caller_names() {
    LazyLock::force(&ENVIRONMENT);
    let decide = |site: &str, view| policy::decide_contiguous(site, &tensor(0, view));
    let copied = |site: &str| change(Counters::default(), counters(site));
    assert_eq!(decide("mine.a", DENSE), Ok(Verdict::Pass));
    assert_eq!(decide("mine.a", SIZE_ONE), Ok(Verdict::Pass));
    assert_eq!(copied("mine.a"), [2, 2, 0, 0, 0, 0]);
    assert_eq!(decide("mine.b", ROWS), Ok(Verdict::Act));
    assert_eq!(copied("mine.b"), TO_COPY);
    {
        let _scope = Scope::new("mine.c=strict,mine.d=off", "");
        let message = decide("mine.c", ROWS).expect_err("strict").message;
        assert!(message.starts_with("mine.c is not contiguous: refused, since the policy is strict"), "{message}");
        assert!(message.contains("policy(\"mine.c=strict\")"), "{message}");
        assert_eq!(copied("mine.c"), REFUSED);
        assert_eq!(decide("mine.d", ROWS), Ok(Verdict::Pass));
        assert_eq!(copied("mine.d"), PASSED);
    }
    // Without a name there is one site for all, and the name of an argument brings its contract along.
    assert_eq!(decide("", ROWS), Ok(Verdict::Act));
    assert_eq!(copied("infini.contiguous"), TO_COPY);
    assert_eq!(decide("npu_mrope.query", ROWS), Ok(Verdict::Pass), "rows is enough there");
    assert_eq!(decide("npu_mrope.query", COLUMNS), Ok(Verdict::Act));
    assert_eq!(decide("npu_rotary_mul.input", COLUMNS), Ok(Verdict::Pass), "copes by itself");
    assert_eq!(policy::decide_traced("npu_kv_rmsnorm_rope_cache.k_cache"), Ok(Verdict::Pass));
    assert_eq!(policy::decide_traced("npu_mrope.query"), Ok(Verdict::Act));
    assert_eq!(policy::decide_traced("mine.e"), Ok(Verdict::Act));
    let strict = policy::push("mine.e=strict,mine.f=off", "", false).unwrap();
    assert!(policy::decide_traced("mine.e").is_err_and(|refusal| refusal.message.contains("mine.e=strict")));
    assert_eq!(policy::decide_traced("mine.f"), Ok(Verdict::Pass));
    policy::pop(strict).unwrap();
}
