//! A user's own contracts: three lines cover an operator, and a mistake is named with its place and what may stand there.

use infini_rearrange::contract::{Contract, ContractError, Contracts, Unmet};

fn shipped_with(text: &str) -> Contracts {
    Contracts::shipped().merged_with_text(text, "mine.toml").unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn three_lines_cover_an_operator() {
    let contracts = shipped_with("[npu_scatter_pa_kv_cache]\nkey = \"contiguous\"\nvalue = \"rows\"\n");
    let operator = contracts.find("npu::npu_scatter_pa_kv_cache").expect("covered now");
    assert_eq!(operator.site, "npu_scatter_pa_kv_cache");
    let found: Vec<_> = operator
        .arguments
        .iter()
        .map(|a| (a.name(), a.rows()[0].contract, a.rows()[0].unmet, a.rows().len()))
        .collect();
    assert_eq!(
        found,
        [("key", Contract::Contiguous, Unmet::Unknown, 1), ("value", Contract::Rows, Unmet::Unknown, 1)],
        "in the order of the file"
    );
    assert_eq!(contracts.operators().len(), Contracts::shipped().operators().len() + 1);
    assert_eq!(contracts.find("npu::npu_mrope"), Contracts::shipped().find("npu::npu_mrope"), "others stay");
}

#[test]
fn a_shipped_operator_is_replaced_and_keeps_the_names_it_covers() {
    let contracts = shipped_with("[npu_fused_infer_attention_score]\nkey = \"rows\"\n");
    for name in ["npu::npu_fused_infer_attention_score", "npu::_npu_fused_infer_attention_score_get_max_workspace"] {
        let operator = contracts.find(name).expect(name);
        let arguments: Vec<_> = operator.arguments.iter().map(|a| (a.name(), a.rows()[0].contract)).collect();
        assert_eq!(arguments, [("key", Contract::Rows)], "{name}: the whole operator is replaced");
    }
    assert_eq!(contracts.operators().len(), Contracts::shipped().operators().len());
}

#[test]
fn an_empty_also_gives_the_covered_names_up() {
    let contracts = shipped_with("[npu_fused_infer_attention_score]\nalso = []\nkey = \"rows\"\n");
    assert!(contracts.find("npu::_npu_fused_infer_attention_score_get_max_workspace").is_none());
}

#[test]
fn a_covered_name_can_get_contracts_of_its_own() {
    let query = "npu::_npu_fused_infer_attention_score_get_max_workspace";
    let contracts = shipped_with("[_npu_fused_infer_attention_score_get_max_workspace]\nquery = \"rows\"\n");
    assert_eq!(contracts.find(query).expect(query).arguments.len(), 1);
    let names: Vec<&str> = contracts.operators().iter().flat_map(|operator| operator.names()).collect();
    assert_eq!(names.iter().filter(|name| **name == query).count(), 1, "nobody else covers it still");
}

#[test]
fn a_section_of_its_own_wins_over_being_covered_wherever_it_stands() {
    for text in [
        "[a]\nalso = [\"b\"]\nx = \"rows\"\n[b]\nx = \"any\"\n",
        "[b]\nx = \"any\"\n[a]\nalso = [\"b\"]\nx = \"rows\"\n",
    ] {
        let contracts = Contracts::parse(text, "mine.toml").expect(text);
        let names: Vec<&str> = contracts.operators().iter().flat_map(|operator| operator.names()).collect();
        assert_eq!(names.iter().filter(|name| **name == "npu::b").count(), 1, "{text}");
        let b = contracts.find("npu::b").and_then(|b| b.argument("x")).expect(text);
        assert_eq!(b.rows()[0].contract, Contract::Any, "{text}");
    }
}

#[test]
fn a_name_is_covered_once() {
    let text = "[a]\nalso = [\"a\", \"b\", \"npu::b\"]\nx = \"rows\"\n";
    let contracts = Contracts::parse(text, "mine.toml").expect(text);
    let names: Vec<&str> = contracts.operators().iter().flat_map(|operator| operator.names()).collect();
    assert_eq!(names, ["npu::a", "npu::b"]);
}

#[test]
fn also_takes_an_operator_away_from_the_shipped_table() {
    let contracts = shipped_with("[mine]\nalso = [\"npu_fused_infer_attention_score\"]\nkey = \"outer(2)\"\n");
    for name in ["npu::npu_fused_infer_attention_score", "npu::_npu_fused_infer_attention_score_get_max_workspace"] {
        assert_eq!(contracts.find(name).map(|operator| operator.name.as_str()), Some("npu::mine"), "{name}");
    }
    assert!(contracts.operators().iter().all(|operator| operator.name != "npu::npu_fused_infer_attention_score"));
}

#[test]
fn other_namespaces_stand_in_quotes() {
    let contracts = shipped_with("[\"_C_ascend::rope\"]\nalso = [\"npu_other\", \"x::y\"]\nq = \"inout\"\n");
    let operator = contracts.find("_C_ascend::rope").expect("by its qualified name");
    assert_eq!(operator.site, "_C_ascend::rope", "only npu:: is dropped from site names");
    assert_eq!(operator.also, ["npu::npu_other", "x::y"]);
    assert_eq!(contracts.find("npu::npu_other"), Some(operator));
}

#[test]
fn rows_in_all_their_forms() {
    let contracts = shipped_with(
        r#"
        ["npu::npu_x"]
        a = { contract = "cache", unmet = "refuses", accepts = "outer(2)", soc = "Ascend9*", cann = ">=9", present = "b", absent = "c", note = "n", avoid = "v", source = "s" }
        b = ["rows", { contract = "any" }, { contract = "any", unmet = "reads" }]
        c = { like = "a", note = "as a" }
        [[npu_y.list]]
        contract = "out"
        accepts = "any"
        [[npu_y.list]]
        like = "npu_x.b"
        "#,
    );
    let x = contracts.find("npu::npu_x").expect("npu_x");
    let a = &x.argument("a").expect("a").rows()[0];
    assert_eq!((a.contract, a.unmet, a.accepts), (Contract::Cache, Unmet::Refuses, Some(Contract::Outer(2))));
    assert_eq!(
        (a.soc.as_slice(), a.cann.as_ref().expect("cann").to_string()),
        (&["Ascend9*".to_owned()][..], ">=9".into())
    );
    let texts = [&a.present, &a.absent, &a.note, &a.avoid, &a.source].map(|text| text.as_deref().expect("given"));
    assert_eq!(texts, ["b", "c", "n", "v", "s"]);
    let unmet: Vec<_> = x.argument("b").expect("b").rows().iter().map(|row| row.unmet).collect();
    assert_eq!(unmet, [Unmet::Unknown, Unmet::Copies, Unmet::Reads], "any implies copies, the others unknown");
    let c = &x.argument("c").expect("c").rows()[0];
    assert_eq!((c.note.as_deref(), c.avoid.as_deref(), c.contract), (Some("as a"), Some("v"), a.contract));
    let list = contracts.find("npu::npu_y").and_then(|y| y.argument("list")).expect("list");
    assert_eq!(list.rows().len(), 4, "like brings all the rows of the argument it names");
}

/// The words that must be allowed for a contract, and for a row.
const CONTRACTS: &str = "contiguous, rows, outer(N) with N from 1, any, inout, out, cache";
const KEYS: &str = "contract, unmet, accepts, soc, cann, present, absent, note, avoid, source, like";

#[test]
fn mistakes_are_named_with_place_and_choice() {
    // The text, where the mistake is, what of it is named, and what is allowed.
    let table: &[(&str, &str, &str, &str)] = &[
        ("[npu_x]\nkey = \"contigous\"", "2:7", "\"contigous\"", CONTRACTS),
        ("[npu_x]\nkey = \"Rows\"", "2:7", "\"Rows\"", CONTRACTS),
        ("[npu_x]\nkey = \"\"", "2:7", "\"\"", CONTRACTS),
        ("[npu_x]\nkey = \"outer(0)\"", "2:7", "\"outer(0)\"", CONTRACTS),
        ("[npu_x]\nkey = \"outer(-1)\"", "2:7", "\"outer(-1)\"", CONTRACTS),
        ("[npu_x]\nkey = \"outer(2\"", "2:7", "\"outer(2\"", CONTRACTS),
        ("[npu_x]\nkey = \"outer\"", "2:7", "\"outer\"", CONTRACTS),
        ("[npu_x]\na = \"rows\"\nkey = 3", "3:7", "an integer", "a string"),
        ("[npu_x]\nkey = true", "2:7", "a boolean", "a string"),
        ("[npu_x]\nkey = 1.5", "2:7", "a float", "a string"),
        ("[npu_x]\nkey = 2020-01-01", "2:7", "a date", "a string"),
        ("[npu_x]\nkey = []", "2:7", "no rows", "one row"),
        ("[npu_x]\nkey = [\"rows\", 7]", "2:16", "an integer", "a string"),
        ("[npu_x]\nkey = [[\"rows\"]]", "2:8", "an array", "a string"),
        ("[npu_x]\nkey = {}", "2:7", "without contract", CONTRACTS),
        ("[npu_x]\nkey = { unmet = \"copies\" }", "2:7", "without contract", CONTRACTS),
        ("[npu_x]\nkey = { contract = 1 }", "2:20", "an integer", "a string"),
        ("[npu_x]\nkey = { contrakt = \"rows\" }", "2:9", "\"contrakt\"", KEYS),
        ("[npu_x]\nkey = { contract = \"rows\", version = \"9\" }", "2:28", "\"version\"", KEYS),
        (
            "[npu_x]\nkey = { contract = \"rows\", unmet = \"crashes\" }",
            "2:36",
            "\"crashes\"",
            "reads, copies, unknown, refuses, misreads",
        ),
        ("[npu_x]\nkey = { contract = \"any\", unmet = \"misreads\" }", "2:35", "\"misreads\"", "copies, reads"),
        ("[npu_x]\nkey = { contract = \"cache\", accepts = \"out\" }", "2:39", "\"out\"", "contiguous, rows, outer(N)"),
        ("[npu_x]\nkey = { contract = \"rows\", accepts = \"any\" }", "2:7", "accepts", "cache, inout, out"),
        ("[npu_x]\nkey = { contract = \"rows\", cann = \"new\" }", "2:35", "\"new\"", ">=8.5,<9.1"),
        ("[npu_x]\nkey = { contract = \"rows\", cann = 9 }", "2:35", "an integer", "a string"),
        ("[npu_x]\nkey = { contract = \"rows\", soc = [\"A\", 9] }", "2:40", "an integer", "a string"),
        ("[npu_x]\nkey = { contract = \"rows\", soc = [] }", "2:34", "soc is empty", "Ascend910*"),
        ("[npu_x]\nkey = { contract = \"rows\", soc = [\"A\", \"\"] }", "2:40", "soc is empty", "Ascend910*"),
        ("[npu_x]\nkey = { contract = \"rows\", present = \"a b\" }", "2:38", "\"a b\"", "another argument"),
        ("[npu_x]\nkey = { contract = \"rows\", note = 1 }", "2:35", "note is an integer", "a string"),
        ("[npu_x]\nkey = { like = \"value\" }\nvalue = \"rows\"", "2:16", "\"value\"", "above this line"),
        ("[npu_x]\nkey = { like = \"npu_y.key\" }", "2:16", "\"npu_y.key\"", "above this line"),
        (
            "[npu_x]\na = \"rows\"\nkey = { like = \"a\", unmet = \"reads\" }",
            "3:21",
            "\"unmet\"",
            "note, avoid, source",
        ),
        ("[npu_x]\nalso = \"bad name\"", "2:8", "\"bad name\"", "NAMESPACE::NAME"),
        ("[npu_x]\nalso = [\"a\", 1]", "2:14", "an integer", "a string"),
        ("[npu_x]\n\"key rope\" = \"rows\"", "2:1", "\"key rope\"", "schema"),
        ("[\"npu_x.default\"]\nkey = \"rows\"", "1:2", "\"npu_x.default\"", "without an overload"),
        ("[\"a::b::c\"]\nkey = \"rows\"", "1:2", "\"a::b::c\"", "NAMESPACE::NAME"),
        ("[\"\"]\nkey = \"rows\"", "1:2", "\"\"", "NAMESPACE::NAME"),
        ("npu_x = \"rows\"", "1:9", "\"npu_x\" is a string", "a table of arguments"),
        ("[npu_x]\nkey = \"rows\"\n[\"npu::npu_x\"]\nkey = \"any\"", "3:2", "second time", "each operator once"),
        // Columns are characters, not bytes.
        ("[npu_x]\nkey = { note = \"größer\", contract = \"row\" }", "2:37", "\"row\"", CONTRACTS),
    ];
    for (text, place, found, allowed) in table {
        let error = Contracts::parse(text, "mine.toml").expect_err(text);
        assert!(matches!(error, ContractError::Invalid { .. }), "{text}: {error:?}");
        let message = error.to_string();
        let (what, choice) = message.split_once("; allowed: ").unwrap_or_else(|| panic!("no choice: {message}"));
        assert!(what.starts_with(&format!("mine.toml:{place}: ")), "{text}\n  {message}\n  expected at {place}");
        assert!(what.contains(found), "{text}\n  {message}\n  should name {found}");
        assert!(choice.contains(allowed), "{text}\n  {message}\n  should allow {allowed}");
    }
}

#[test]
fn syntax_errors_have_a_place_too() {
    for (text, place) in [
        ("[npu_x\nkey = \"rows\"", "1:7"),
        ("[npu_x]\nkey \"rows\"", "2:5"),
        ("[npu_x]\nkey = \"rows", "2:12"),
        ("[npu_x]\nkey = rows", "2:7"),
        ("[npu_x]\nkey = \"rows\"\nkey = \"any\"", "3:1"),
        ("[npu_x]\n\n[npu_x]", "3:2"),
        ("[_C_ascend::rope]\nq = \"rows\"", "1:11"),
        ("# ünïcödé\n[npu_x]\n\"ü\" = ?", "3:7"),
    ] {
        let error = Contracts::parse(text, "mine.toml").expect_err(text);
        assert!(matches!(error, ContractError::Syntax { .. }), "{text}: {error:?}");
        let message = error.to_string();
        assert!(message.starts_with(&format!("mine.toml:{place}: not TOML: ")), "{text}\n  {message}\n  {place}");
        assert!(!message.contains('\n'), "one line: {message}");
    }
}

#[test]
fn an_empty_file_changes_nothing() {
    for text in ["", "# nothing yet\n"] {
        assert_eq!(shipped_with(text), *Contracts::shipped());
    }
}

#[test]
fn files_are_read_or_the_error_names_them() {
    let folder = std::env::temp_dir().join(format!("contract-user-files-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let good = folder.join("good.toml");
    std::fs::write(&good, "[npu_x]\nkey = \"rows\"\n").expect("written");
    let merged = Contracts::shipped().merged_with(&good).unwrap_or_else(|error| panic!("{error}"));
    assert!(merged.find("npu::npu_x").is_some());

    let bad = folder.join("bad.toml");
    std::fs::write(&bad, "[npu_x]\nkey = \"row\"\n").expect("written");
    let error = Contracts::shipped().merged_with(&bad).expect_err("a typo").to_string();
    assert!(error.starts_with(&format!("{}:2:7: ", bad.display())), "{error}");

    let latin1 = folder.join("latin1.toml");
    std::fs::write(&latin1, b"[npu_x]\nkey = \"r\xf6ws\"\n").expect("written");
    for path in [folder.join("missing.toml"), folder.clone(), latin1] {
        let error = Contracts::shipped().merged_with(&path).expect_err("unreadable");
        assert!(matches!(error, ContractError::Read { .. }), "{error:?}");
        let message = error.to_string();
        assert!(message.contains(&path.display().to_string()), "{message}");
        assert!(message.contains("INFINI_CONTRACTS"), "what to do: {message}");
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}
