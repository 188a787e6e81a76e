//! Which directive decides about a site: a table, and random lists against a plain specification.

use infini_rearrange::policy::{Directives, Policy};
use proptest::prelude::*;

const QUERY: &str = "npu_mrope.query";

#[test]
fn the_most_specific_directive_decides() {
    use Policy::{Auto, Off, Strict, Warn};
    for (text, site, expected) in [
        // Bare policies: the later; never over a pattern.
        ("warn,off", QUERY, Off),
        ("*=warn,off", QUERY, Warn),
        // Exact names before globs, wherever they stand.
        ("npu_mrope.query=warn,npu_mrope.quer?=off", QUERY, Warn),
        ("npu_mrope.quer?=off,npu_mrope.query=warn", QUERY, Warn),
        ("*=off,npu_mrope.query=strict,npu_*=warn", QUERY, Strict),
        // More literal characters before fewer.
        ("npu_mrope.*=warn,npu_*=off", QUERY, Warn),
        ("npu_*=off,npu_mrope.*=warn", QUERY, Warn),
        ("*query=warn,npu_*=off", QUERY, Warn),
        // Ties: the later.
        ("npu_mrope.*=warn,npu_mrope.*=off", QUERY, Off),
        ("npu_mrope.query=warn,npu_mrope.query=off", QUERY, Off),
        ("npu_m*=warn,*query=off", QUERY, Off),
        ("*query=warn,npu_m*=off", QUERY, Off),
        // An operator alone is all its arguments, so an argument or part of one is more specific.
        ("npu_mrope=warn", QUERY, Warn),
        ("npu_mrope=warn,npu_mrope.query=off", QUERY, Off),
        ("npu_mrope.query=off,npu_mrope=warn", QUERY, Off),
        ("npu_mrope.q*=off,npu_mrope=warn", QUERY, Off),
        ("npu_mrope=warn,npu_mrope.*=off", QUERY, Off),
        ("npu_mrope.*=off,npu_mrope=warn", QUERY, Warn),
        ("npu_mrope=warn,npu_mrope*=off", QUERY, Warn),
        ("npu_mr?pe=warn", QUERY, Warn),
        // Neither a prefix nor an argument's name.
        ("npu_mrop=warn", QUERY, Auto),
        ("query=warn", QUERY, Auto),
        ("npu_mrope=warn", "npu_mrope_v2.query", Auto),
        // Namespaces: npu:: is never part of a site, others always are.
        ("npu::npu_mrope.query=warn", QUERY, Warn),
        ("npu::npu_mrope=warn", QUERY, Warn),
        ("atb::_npu_rotary_embedding.query=warn", "atb::_npu_rotary_embedding.query", Warn),
        ("_npu_rotary_embedding.query=warn", "atb::_npu_rotary_embedding.query", Auto),
        ("atb::*=warn", "atb::_npu_rotary_embedding.key", Warn),
        ("npu_fused*.key=warn", "npu_fused_infer_attention_score_v2.key", Warn),
        ("npu_fused*.key=warn", "npu_fused_infer_attention_score_v2.key_rope", Auto),
        // Sites that callers name.
        ("decoder/self-attn=warn", "decoder/self-attn", Warn),
        ("decoder=warn", "decoder", Warn),
        ("decoder=warn", "decoder.layer.0", Auto),
    ] {
        let directives = Directives::parse(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(directives.policy_for(site).0, expected, "{text} at {site}");
    }
}

#[test]
fn lists_without_a_default_leave_other_sites_alone() {
    let directives = Directives::parse("npu_mrope.*=warn").expect("a directive");
    assert_eq!(directives.policy_for_opt(QUERY), Some((Policy::Warn, "npu_mrope.*=warn")));
    assert_eq!(directives.policy_for_opt("npu_rotary_mul.input"), None);
    assert_eq!(directives.policy_for("npu_rotary_mul.input").0, Policy::Auto);
}

/// A glob by its definition.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=text.len()).any(|taken| glob(rest, &text[taken..])),
        (Some((b'?', rest)), Some((_, tail))) => glob(rest, tail),
        (Some((a, rest)), Some((b, tail))) => a == b && glob(rest, tail),
        _ => false,
    }
}

/// The specification: sort what matches by kind, then by literal characters, then by place; the last one decides.
fn specified(list: &[(Option<String>, &str)], site: &str) -> Option<usize> {
    let mut matching: Vec<(u8, usize, usize)> = Vec::new();
    for (place, (pattern, _)) in list.iter().enumerate() {
        let Some(pattern) = pattern.as_deref().map(|p| p.strip_prefix("npu::").unwrap_or(p)) else {
            matching.push((0, 0, place));
            continue;
        };
        if pattern == site {
            matching.push((2, 0, place));
            continue;
        }
        let literals = |text: &str| text.bytes().filter(|b| !b"*?".contains(b)).count();
        // `op` is `op.*` for every operator that it matches; of the two readings the site itself comes first.
        if glob(pattern.as_bytes(), site.as_bytes()) {
            matching.push((1, literals(pattern), place));
        } else if site.rsplit_once('.').is_some_and(|(op, _)| glob(pattern.as_bytes(), op.as_bytes())) {
            matching.push((1, literals(&format!("{pattern}.*")), place));
        }
    }
    matching.sort_unstable();
    matching.last().map(|(_, _, place)| *place)
}

fn sites() -> impl Strategy<Value = String> {
    "(x::)?[ab]{1,3}(\\.[ab]{1,2}){0,2}"
}

fn patterns() -> impl Strategy<Value = String> {
    prop_oneof![sites(), "(npu::)?[ab*?.]{1,5}", "[ab*]{1,3}\\.[ab?*]{1,2}", Just("x::*".to_owned())]
}

fn spelled(policy: &str) -> Policy {
    match policy {
        "warn" => Policy::Warn,
        "strict" => Policy::Strict,
        "off" => Policy::Off,
        _ => Policy::Auto,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_lists_decide_as_specified(
        list in prop::collection::vec(
            (prop::option::weighted(0.9, patterns()),
             prop::sample::select(vec!["auto", "auto-contiguous", "warn", "strict", "off"])),
            1..7,
        ),
        site in sites(),
    ) {
        let texts: Vec<String> = list
            .iter()
            .map(|(pattern, policy)| pattern.as_ref().map_or(policy.to_string(), |pattern| format!("{pattern}={policy}")))
            .collect();
        let directives = Directives::parse(&texts.join(",")).expect("well formed");
        let expected = specified(&list, &site).map(|place| (spelled(list[place].1), texts[place].as_str()));
        prop_assert_eq!(directives.policy_for_opt(&site), expected, "{} at {}", texts.join(","), site);
        prop_assert_eq!(directives.policy_for(&site), expected.unwrap_or((Policy::Auto, "auto")));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,40}", also in "[a-z*?.=, ü]{0,30}") {
        for text in [text, also] {
            if let Err(error) = Directives::parse(&text) {
                prop_assert!(error.to_string().contains(&text), "{}", error);
            }
        }
    }
}
