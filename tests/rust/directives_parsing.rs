//! What INFINI_CONTIGUITY may say, and how a mistake in it is reported.

use infini_rearrange::policy::{DirectiveError, Directives, Policy};

fn policy(text: &str, site: &str) -> Policy {
    Directives::parse(text).unwrap_or_else(|error| panic!("{error}")).policy_for(site).0
}

#[test]
fn every_policy_word() {
    for (word, expected) in [
        ("auto", Policy::Auto),
        ("auto-contiguous", Policy::Auto),
        ("warn", Policy::Warn),
        ("strict", Policy::Strict),
        ("off", Policy::Off),
    ] {
        assert_eq!(policy(word, "npu_mrope.query"), expected, "{word}");
        assert_eq!(policy(&format!("npu_mrope.query={word}"), "npu_mrope.query"), expected, "{word} at a site");
    }
}

#[test]
fn nothing_means_auto_everywhere() {
    for text in ["", " ", "\t\n"] {
        let directives = Directives::parse(text).expect("empty is fine");
        assert!(directives.is_empty());
        assert_eq!(directives.policy_for("npu_mrope.query"), (Policy::Auto, "auto"));
        assert_eq!(directives.policy_for_opt("npu_mrope.query"), None);
    }
    assert!(!Directives::parse("auto").expect("a directive").is_empty());
}

#[test]
fn spaces_do_not_matter() {
    let directives = Directives::parse("  warn ,\tnpu_mrope.query = strict ").expect("spaces");
    assert_eq!(directives.policy_for("a.b"), (Policy::Warn, "warn"));
    assert_eq!(directives.policy_for("npu_mrope.query"), (Policy::Strict, "npu_mrope.query = strict"));
}

#[test]
fn the_deciding_directive_is_told() {
    let directives = Directives::parse("warn,npu::npu_mrope.*=off,off,atb::rope.query=strict").expect("directives");
    for (site, expected) in [
        ("npu_mrope.query", (Policy::Off, "npu::npu_mrope.*=off")),
        ("atb::rope.query", (Policy::Strict, "atb::rope.query=strict")),
        ("atb::rope.key", (Policy::Off, "off")),
    ] {
        assert_eq!(directives.policy_for(site), expected, "{site}");
    }
}

#[test]
fn words_that_are_no_policy() {
    // The text, the word that is wrong, and its column, counted in characters.
    for (text, word, column) in [
        ("warm", "warm", 1),
        ("  warm", "warm", 3),
        ("Warn", "Warn", 1),
        ("warn,of", "of", 6),
        ("warn, npu_mrope.query=ofd", "ofd", 23),
        ("npu_mrope.query= loud", "loud", 18),
        ("npu_mrope.query=", "", 17),
        ("npu_mrope.query", "npu_mrope.query", 1),
        ("a=warn=off", "warn=off", 3),
        ("warn;off", "warn;off", 1),
        ("größe", "größe", 1),
        ("warn,off,größe", "größe", 10),
        ("a=größe,b=off", "größe", 3),
        ("a=\u{3000}größe", "größe", 4), // an ideographic space: one column, three bytes
    ] {
        let error = Directives::parse(text).expect_err(text);
        let expected = DirectiveError::NotAPolicy { word: word.into(), column, text: text.into() };
        assert_eq!(error, expected, "{text}");
        let message = error.to_string();
        assert!(message.starts_with(&format!("\"{word}\" at column {column} of \"{text}\"")));
        assert!(message.contains("allowed: auto, auto-contiguous, warn, strict, off, or SITE=POLICY"), "{message}");
        assert!(message.contains("npu_mrope.query=warn"), "an example: {message}");
    }
}

#[test]
fn patterns_that_no_site_could_have() {
    for (text, pattern, column) in [
        ("=warn", "", 1),
        ("warn, =off", "", 7),
        ("größe=off", "größe", 1),
        ("warn,\u{3000}größe=off", "größe", 7),
        ("off,npu mrope=warn", "npu mrope", 5),
        ("[a]=off", "[a]", 1),
        ("npu::=off", "npu::", 1),
    ] {
        let error = Directives::parse(text).expect_err(text);
        let expected = DirectiveError::NotAPattern { pattern: pattern.into(), column, text: text.into() };
        assert_eq!(error, expected, "{text}");
        let message = error.to_string();
        assert!(message.contains(&format!("at column {column}")) && message.contains("* and ?"), "{message}");
    }
}

#[test]
fn nothing_between_commas() {
    for (text, column) in
        [(",", 1), ("warn,", 6), (",warn", 1), ("warn,,off", 6), ("warn, ,off", 6), ("a=off,b=off,", 13)]
    {
        let error = Directives::parse(text).expect_err(text);
        assert_eq!(error, DirectiveError::Empty { column, text: text.into() }, "{text}");
        assert!(error.to_string().contains("remove the comma"), "{error}");
    }
    let wide = Directives::parse("warn,\u{3000},off").expect_err("only a space");
    assert_eq!(wide, DirectiveError::Empty { column: 6, text: "warn,\u{3000},off".into() });
}
