//! From TOML to operators.
//!
//! The document is walked by hand rather than through serde: every value keeps its place, so that a mistake is reported
//! with line, column and the words that could stand there, and the order of operators and arguments is the file's.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Argument, Contract, ContractError, Operator, Row, Unmet, VersionRange};

/// An operator as read.
pub(super) struct Entry {
    pub operator: Operator,
    /// Whether the file gives `also` for it, be it an empty one.
    pub says_also: bool,
}

const ROW_KEYS: &str = "contract, unmet, accepts, soc, cann, present, absent, note, avoid, source, like";

/// Reads the operators of a file in the file's order.
pub(super) fn read(text: &str, file: &str) -> Result<Vec<Entry>, ContractError> {
    let at = Position { text, file };
    let root = DeTable::parse(text).map_err(|error| {
        let (line, column) = at.line_column(error.span().map_or(0, |span| span.start));
        ContractError::Syntax { file: file.to_owned(), line, column, message: error.message().replace('\n', " ") }
    })?;
    let mut entries: Vec<Entry> = Vec::new();
    for (key, value) in in_file_order(root.get_ref()) {
        let (name, site) = operator_name(key.get_ref()).ok_or_else(|| {
            at.error(key.span(), format!("\"{}\" is not the name of an operator", key.get_ref()), OPERATOR_NAMES)
        })?;
        if entries.iter().any(|entry| entry.operator.name == name) {
            return Err(at.error(key.span(), format!("\"{name}\" stands here a second time"), "each operator once"));
        }
        let DeValue::Table(table) = value.get_ref() else {
            return Err(at.error(
                value.span(),
                format!("operator \"{}\" is {}", key.get_ref(), described(value.get_ref())),
                "a table of arguments, such as [npu_mrope] with query = \"rows\" below it",
            ));
        };
        let operator = Operator { name, site, also: Vec::new(), arguments: Vec::new() };
        entries.push(read_operator(&at, table, operator, &entries)?);
    }
    Ok(entries)
}

const OPERATOR_NAMES: &str = "NAME for npu::NAME, or \"NAMESPACE::NAME\" in quotes, of letters, digits and _, without an \
                              overload (all overloads of an operator share its contracts)";

fn read_operator(
    at: &Position,
    table: &DeTable,
    mut operator: Operator,
    before: &[Entry],
) -> Result<Entry, ContractError> {
    let mut says_also = false;
    for (key, value) in in_file_order(table) {
        let name = key.get_ref().as_ref();
        if name == "also" {
            says_also = true;
            operator.also = strings(at, "also", value)?
                .into_iter()
                .map(|(also, span)| {
                    operator_name(&also).map(|(name, _)| name).ok_or_else(|| {
                        at.error(span, format!("\"{also}\" is not the name of an operator"), OPERATOR_NAMES)
                    })
                })
                .collect::<Result<_, _>>()?;
            continue;
        }
        if !is_identifier(name) {
            return Err(at.error(
                key.span(),
                format!("\"{name}\" is not the name of an argument"),
                "the argument's name in the operator's schema, or also = [operators with the same arguments]",
            ));
        }
        let rows = match value.get_ref() {
            DeValue::Array(array) => {
                let mut rows = Vec::new();
                for item in array.iter() {
                    rows.extend(read_rows(at, item, &operator, before)?);
                }
                rows
            }
            _ => read_rows(at, value, &operator, before)?,
        };
        let argument = Argument::new(name, rows).map_err(|error| {
            at.error(value.span(), error.to_string(), "one row or more, conditional on few other arguments")
        })?;
        operator.arguments.push(argument);
    }
    Ok(Entry { operator, says_also })
}

/// A row, or with `like` all the rows of an argument that stands earlier in the file.
fn read_rows(
    at: &Position,
    value: &Spanned<DeValue>,
    operator: &Operator,
    before: &[Entry],
) -> Result<Vec<Row>, ContractError> {
    let table = match value.get_ref() {
        DeValue::String(_) => return Ok(vec![Row::new(contract(at, value)?)]),
        DeValue::Table(table) => table,
        other => {
            return Err(at.error(
                value.span(),
                format!("a contract is {}", described(other)),
                "a string, such as \"contiguous\", a table with contract = …, or an array of those",
            ));
        }
    };
    match table.iter().find(|(key, _)| key.get_ref() == "like") {
        Some((_, like)) => read_like(at, table, like, operator, before),
        None => read_row(at, value.span(), table).map(|row| vec![row]),
    }
}

fn read_row(at: &Position, span: Range<usize>, table: &DeTable) -> Result<Row, ContractError> {
    let mut given = None;
    let mut unmet = None;
    let mut row = Row::new(Contract::Contiguous);
    for (key, value) in in_file_order(table) {
        match key.get_ref().as_ref() {
            "contract" => given = Some(contract(at, value)?),
            "unmet" => unmet = Some((unmet_word(at, value)?, value.span())),
            "accepts" => {
                let accepts = contract(at, value)?;
                if !accepts.is_layout() {
                    return Err(at.error(
                        value.span(),
                        format!("\"{accepts}\" cannot be accepted"),
                        "contiguous, rows, outer(N) with N from 1, any",
                    ));
                }
                row.accepts = Some(accepts);
            }
            "soc" => row.soc = socs(at, value)?,
            "cann" => row.cann = Some(range(at, value)?),
            "present" => row.present = Some(argument_name(at, "present", value)?),
            "absent" => row.absent = Some(argument_name(at, "absent", value)?),
            "note" => row.note = Some(string(at, "note", value)?),
            "avoid" => row.avoid = Some(string(at, "avoid", value)?),
            "source" => row.source = Some(string(at, "source", value)?),
            other => return Err(at.error(key.span(), format!("\"{other}\" is not a key of a row"), ROW_KEYS)),
        }
    }
    let Some(contract) = given else {
        return Err(at.error(span, "a row without contract".to_owned(), &format!("contract = {}", Contract::WORDS)));
    };
    row = Row { contract, unmet: Row::new(contract).unmet, ..row };
    if let Some((word, span)) = unmet {
        if contract == Contract::Any && !word.copes() {
            return Err(at.error(
                span,
                format!("\"{word}\" contradicts the contract \"any\", which says that the operator copes"),
                "copies, reads",
            ));
        }
        row.unmet = word;
    }
    if contract.is_layout() && row.accepts.is_some() {
        return Err(at.error(
            span,
            format!("accepts beside the contract \"{contract}\""),
            "accepts only beside cache, inout, out; here the contract itself says it",
        ));
    }
    Ok(row)
}

/// `like = "argument"` or `like = "operator.argument"`: the rows of that one, with texts replaced where given.
fn read_like(
    at: &Position,
    table: &DeTable,
    like: &Spanned<DeValue>,
    operator: &Operator,
    before: &[Entry],
) -> Result<Vec<Row>, ContractError> {
    let target = string(at, "like", like)?;
    let found = match target.rsplit_once('.') {
        None => operator.argument(&target),
        Some((op, argument)) => operator_name(op).and_then(|(name, _)| {
            before.iter().map(|entry| &entry.operator).find(|other| other.name == name)?.argument(argument)
        }),
    };
    let Some(found) = found else {
        return Err(at.error(
            like.span(),
            format!("\"{target}\" does not stand earlier in this file"),
            "an argument of this operator above this line, or OPERATOR.ARGUMENT of an operator above",
        ));
    };
    let mut rows = found.rows().to_vec();
    for (key, value) in in_file_order(table) {
        let name = key.get_ref().as_ref();
        let text = match name {
            "like" => continue,
            "note" | "avoid" | "source" => Some(string(at, name, value)?),
            other => {
                return Err(at.error(key.span(), format!("\"{other}\" beside like"), "like, note, avoid, source"));
            }
        };
        for row in &mut rows {
            match name {
                "note" => row.note.clone_from(&text),
                // A cache is not avoided by what avoids a copy.
                "avoid" if row.contract == Contract::Cache => {}
                "avoid" => row.avoid.clone_from(&text),
                _ => row.source.clone_from(&text),
            }
        }
    }
    Ok(rows)
}

fn contract(at: &Position, value: &Spanned<DeValue>) -> Result<Contract, ContractError> {
    let word = string(at, "contract", value)?;
    word.parse().map_err(|_| at.error(value.span(), format!("\"{word}\" is not a contract"), Contract::WORDS))
}

fn unmet_word(at: &Position, value: &Spanned<DeValue>) -> Result<Unmet, ContractError> {
    let word = string(at, "unmet", value)?;
    Unmet::parse(&word)
        .ok_or_else(|| at.error(value.span(), format!("\"{word}\" is not what an operator does"), Unmet::WORDS))
}

fn range(at: &Position, value: &Spanned<DeValue>) -> Result<VersionRange, ContractError> {
    let text = string(at, "cann", value)?;
    text.parse().map_err(|_| {
        at.error(
            value.span(),
            format!("\"{text}\" is not a range of CANN versions"),
            "*, VERSION, VERSION-* (any pre-release of it), or comma-separated >=, >, <, <= VERSION, such as \">=8.5,<9.1\"",
        )
    })
}

/// An empty list would hold everywhere and an empty name nowhere: neither is what its author meant.
fn socs(at: &Position, value: &Spanned<DeValue>) -> Result<Vec<String>, ContractError> {
    let socs = strings(at, "soc", value)?;
    let empty = socs.iter().find(|(soc, _)| soc.is_empty()).map(|(_, span)| span.clone());
    if let Some(span) = empty.or_else(|| socs.is_empty().then(|| value.span())) {
        let allowed = "SoC names with * and ?, such as \"Ascend910*\"; without soc the row holds for every SoC";
        return Err(at.error(span, "soc is empty".to_owned(), allowed));
    }
    Ok(socs.into_iter().map(|(soc, _)| soc).collect())
}

fn argument_name(at: &Position, what: &str, value: &Spanned<DeValue>) -> Result<String, ContractError> {
    let name = string(at, what, value)?;
    if is_identifier(&name) {
        return Ok(name);
    }
    Err(at.error(
        value.span(),
        format!("\"{name}\" is not the name of an argument"),
        "the name of another argument of the operator, such as block_table",
    ))
}

fn string(at: &Position, what: &str, value: &Spanned<DeValue>) -> Result<String, ContractError> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        other => Err(at.error(value.span(), format!("{what} is {}", described(other)), "a string")),
    }
}

/// A string or an array of strings, each with its place.
fn strings(at: &Position, what: &str, value: &Spanned<DeValue>) -> Result<Vec<(String, Range<usize>)>, ContractError> {
    match value.get_ref() {
        DeValue::Array(array) => {
            array.iter().map(|item| Ok((string(at, &format!("an item of {what}"), item)?, item.span()))).collect()
        }
        DeValue::String(text) => Ok(vec![(text.to_string(), value.span())]),
        other => {
            Err(at.error(value.span(), format!("{what} is {}", described(other)), "a string or an array of strings"))
        }
    }
}

fn described(value: &DeValue) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// The qualified name and the site name that a key stands for.
fn operator_name(key: &str) -> Option<(String, String)> {
    let (namespace, name) = key.split_once("::").unwrap_or(("npu", key));
    if !is_identifier(namespace) || !is_identifier(name) {
        return None;
    }
    let qualified = format!("{namespace}::{name}");
    let site = if namespace == "npu" { name.to_owned() } else { qualified.clone() };
    Some((qualified, site))
}

fn is_identifier(name: &str) -> bool {
    !name.is_empty()
        && !name.as_bytes()[0].is_ascii_digit()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

type Item<'t, 'i> = (&'t Spanned<std::borrow::Cow<'i, str>>, &'t Spanned<DeValue<'i>>);

/// The table is sorted by key; the file's order is that of the spans.
fn in_file_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<Item<'t, 'i>> {
    let mut items: Vec<Item> = table.iter().collect();
    items.sort_by_key(|(key, _)| key.span().start);
    items
}

/// Turns byte offsets into lines and columns.
struct Position<'a> {
    text: &'a str,
    file: &'a str,
}

impl Position<'_> {
    fn line_column(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.rsplit('\n').next().unwrap_or("");
        (before.matches('\n').count() + 1, line.chars().count() + 1)
    }

    fn error(&self, span: Range<usize>, found: String, allowed: &str) -> ContractError {
        let (line, column) = self.line_column(span.start);
        ContractError::Invalid { file: self.file.to_owned(), line, column, found, allowed: allowed.to_owned() }
    }
}
