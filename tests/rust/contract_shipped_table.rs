//! The shipped contracts, against what is known of fused attention and of the rotary operators.

use infini_rearrange::contract::{Contract, Contracts, Platform, Unmet};

use Contract::{Any, Cache, Contiguous, InOut, Out, Rows};
use Unmet::{Copies, Misreads, Refuses, Unknown};

const FIA: [&str; 2] = ["npu_fused_infer_attention_score", "npu_fused_infer_attention_score_v2"];

/// `("", "")` is the unknown platform.
fn platform((soc, cann): (&str, &str)) -> Platform {
    Platform {
        soc: (!soc.is_empty()).then(|| soc.to_owned()),
        cann: (!cann.is_empty()).then(|| cann.parse().expect(cann)),
    }
}

/// Contract and behaviour of `operator.argument` when exactly the arguments of `given` are there.
fn resolved(operator: &str, argument: &str, on: (&str, &str), given: &[&str]) -> (Contract, Unmet, Contract) {
    let qualified = if operator.contains("::") { operator.to_owned() } else { format!("npu::{operator}") };
    let operator = Contracts::shipped().find(&qualified).unwrap_or_else(|| panic!("{qualified}"));
    let argument = operator.argument(argument).unwrap_or_else(|| panic!("{qualified}.{argument}"));
    let present = |name: &str| given.contains(&name);
    let row = argument.row(&platform(on), &present).into_owned();
    assert_eq!(row, *argument.resolve(&platform(on)).row(&present), "prepared and direct resolution agree");
    (row.contract, row.unmet, row.demand())
}

#[test]
fn the_table_parses_and_is_not_empty() {
    let text = include_str!("../../src/contract/contracts.toml");
    let parsed = Contracts::parse(text, "contracts.toml").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(parsed, *Contracts::shipped());
    let sites: Vec<&str> = parsed.operators().iter().map(|operator| operator.site.as_str()).collect();
    assert_eq!(
        sites,
        [
            "npu_fused_infer_attention_score",
            "npu_fused_infer_attention_score_v2",
            "npu_rotary_mul",
            "npu_apply_rotary_pos_emb",
            "npu_mrope",
            "npu_interleave_rope",
            "npu_kv_rmsnorm_rope_cache",
            "atb::_npu_rotary_embedding",
        ]
    );
}

#[test]
fn every_row_says_what_it_rests_on() {
    for operator in Contracts::shipped().operators() {
        for argument in &operator.arguments {
            for row in argument.rows() {
                assert!(row.note.is_some() || row.source.is_some(), "{}.{}: {row:?}", operator.site, argument.name());
            }
        }
    }
}

#[test]
fn workspace_queries_share_the_contracts() {
    for (version, query) in [("", "get_max_workspace"), ("_v2", "get_max_workspace")] {
        let name = format!("npu::_npu_fused_infer_attention_score{version}_{query}");
        let operator = Contracts::shipped().find(&name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(operator.site, format!("npu_fused_infer_attention_score{version}"));
    }
    let hooked: Vec<&str> = Contracts::shipped().operators().iter().flat_map(|operator| operator.names()).collect();
    assert!(!hooked.iter().any(|name| name.ends_with("_infer_output")), "reads no data, so it needs no contract");
    assert!(Contracts::shipped().find("npu::npu_none").is_none());
    assert!(Contracts::shipped().find("npu_mrope").is_none(), "names are looked up qualified");
}

#[test]
fn fused_attention_keys_and_values() {
    // SoC, CANN, what the operator does with a strided key, whether it copes without block_table, and what of a paged
    // cache may be strided.
    let table = [
        (("Ascend910B1", "8.5.0"), Copies, true, Contiguous),
        (("Ascend910B1", "9.0.0"), Copies, true, Contiguous),
        (("Ascend910B1", "9.1.0.pre"), Misreads, false, Contiguous),
        (("Ascend910B1", "9.1.0"), Copies, true, Contiguous),
        (("Ascend910B1", "9.2.0"), Unknown, false, Contiguous),
        (("Ascend910_9391", "9.1.0"), Copies, true, Contiguous),
        (("Ascend950PR_9599", "8.5.0"), Copies, true, Contiguous),
        (("Ascend950PR_9599", "9.0.0"), Copies, true, Contiguous),
        (("Ascend950PR_9599", "9.1.0.pre"), Misreads, false, Contiguous),
        (("Ascend950PR_9599", "9.1.0-beta.1"), Misreads, false, Contiguous),
        (("Ascend950PR_9599", "9.1.0"), Refuses, false, Contiguous),
        (("Ascend950PR_9599", "9.2.0"), Refuses, false, Contract::Outer(1)),
        (("Ascend910B1", "8.0.0"), Unknown, false, Contiguous),
        (("Ascend310P3", "9.1.0"), Unknown, false, Contiguous),
        (("", "8.5.0"), Copies, true, Contiguous),
        (("", "9.1.0"), Refuses, false, Contiguous),
        (("Ascend910B1", ""), Misreads, false, Contiguous),
        (("Ascend950PR_9599", ""), Misreads, false, Contiguous),
        (("", ""), Misreads, false, Contiguous),
    ];
    for operator in FIA {
        for argument in ["key", "value", "key_rope"] {
            for (on, unmet, copes, paged) in table {
                let what = format!("{operator}.{argument} on {on:?}");
                let contract = if copes { Any } else { Contiguous };
                let (found, does, _) = resolved(operator, argument, on, &[]);
                assert_eq!((found, does), (contract, unmet), "{what} without block_table");
                assert_eq!(
                    resolved(operator, argument, on, &["block_table"]),
                    (Cache, unmet, paged),
                    "{what} with block_table: a cache under every version"
                );
            }
        }
    }
}

#[test]
fn fused_attention_scales_follow_the_keys() {
    for (operator, argument) in [
        (FIA[0], "key_antiquant_scale"),
        (FIA[0], "value_antiquant_scale"),
        (FIA[1], "dequant_scale_key"),
        (FIA[1], "dequant_scale_value"),
    ] {
        for (on, expected) in [
            (("Ascend910B1", "9.1.0"), (Any, Copies)),
            (("Ascend950PR_9599", "9.1.0.pre"), (Contiguous, Misreads)),
            (("Ascend950PR_9599", "9.1.0"), (Contiguous, Refuses)),
            (("", ""), (Contiguous, Misreads)),
        ] {
            for given in [&[][..], &["block_table"]] {
                let (contract, unmet, _) = resolved(operator, argument, on, given);
                assert_eq!((contract, unmet), expected, "{operator}.{argument} on {on:?}, given {given:?}");
            }
        }
    }
}

#[test]
fn fused_attention_copes_with_everything_else_everywhere() {
    for operator in FIA {
        for argument in ["query", "query_rope", "pse_shift", "atten_mask", "block_table"] {
            for on in
                [("Ascend910B1", "8.5.0"), ("Ascend950PR_9599", "9.1.0.pre"), ("Ascend950PR_9599", "9.1.0"), ("", "")]
            {
                for given in [&[][..], &["block_table"]] {
                    assert_eq!(resolved(operator, argument, on, given), (Any, Copies, Any), "{operator}.{argument}");
                }
            }
        }
        assert_eq!(resolved(operator, "out", ("", ""), &[]).0, Out);
    }
}

#[test]
fn rotary_operators() {
    let atb = "atb::_npu_rotary_embedding";
    let table: &[(&str, &[&str], Contract, Unmet)] = &[
        ("npu_rotary_mul", &["input", "r1", "r2", "rotate"], Any, Copies),
        ("npu_apply_rotary_pos_emb", &["query", "key"], InOut, Unknown),
        ("npu_apply_rotary_pos_emb", &["cos", "sin"], Contiguous, Unknown),
        ("npu_mrope", &["query", "key"], Rows, Misreads),
        ("npu_mrope", &["positions", "cos_sin_cache"], Any, Copies),
        ("npu_interleave_rope", &["x", "cos", "sin"], Any, Copies),
        ("npu_kv_rmsnorm_rope_cache", &["kv", "gamma", "cos", "sin", "index"], Any, Copies),
        ("npu_kv_rmsnorm_rope_cache", &["k_cache", "ckv_cache"], Cache, Unknown),
        (atb, &["query", "key"], InOut, Refuses),
        (atb, &["positions", "cos_sin_cache"], Contiguous, Refuses),
    ];
    for (operator, arguments, contract, unmet) in table {
        for argument in *arguments {
            // None of these depends on the machine.
            for on in [("Ascend910B1", "8.5.0"), ("Ascend950PR_9599", "9.1.0"), ("", "")] {
                let (found, does, _) = resolved(operator, argument, on, &[]);
                assert_eq!((found, does), (*contract, *unmet), "{operator}.{argument} on {on:?}");
            }
        }
    }
}

#[test]
fn keys_tell_how_to_avoid_the_copy() {
    for name in FIA {
        let operator = Contracts::shipped().find(&format!("npu::{name}")).expect(name);
        for (argument, hint) in
            [("key", "write the key"), ("value", "write the value"), ("key_rope", "share one key_rope")]
        {
            for row in operator.argument(argument).expect(argument).rows() {
                let avoid = row.avoid.as_deref().unwrap_or_default();
                // Of a cache it is the blocks that matter: nobody writes it to a buffer of its own.
                let hint = if row.contract == Contract::Cache { "dense blocks" } else { hint };
                assert!(avoid.contains(hint), "{name}.{argument}: {avoid:?}");
            }
        }
    }
}
