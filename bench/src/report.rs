//! Results: rows that were measured, ratios with their bars, and how both leave the program.
//!
//! A bar is always "at least": what must stay below something is turned into its reciprocal or
//! into the room that is left, and the ratio's name says so. A ratio that could not be measured
//! fails its bar, so that a missing peer never looks like a victory.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::timing;

/// One line of a table: who was measured, under which conditions, and what came out.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// The title of the table that the row belongs to.
    pub(crate) table: String,
    /// The store.
    pub(crate) subject: String,
    /// Operation, size, threads or callers.
    pub(crate) setting: String,
    /// Columns and their values; `None` where the store cannot do it.
    pub(crate) measures: Vec<(String, Option<f64>)>,
    /// Why something is missing.
    pub(crate) note: Option<String>,
}

/// A quotient of two measurements of one run, with the least value that will do.
#[derive(Debug, Clone)]
pub(crate) struct Ratio {
    /// What is divided by what.
    pub(crate) name: String,
    /// The quotient, or `None` where a part of it was not measured.
    pub(crate) value: Option<f64>,
    /// The bar, or `None` where the ratio only informs.
    pub(crate) at_least: Option<f64>,
}

impl Ratio {
    fn holds(&self) -> bool {
        self.at_least.is_none_or(|bar| self.value.is_some_and(|value| value >= bar))
    }

    fn shortfall(&self) -> Option<String> {
        let bar = self.at_least.filter(|_| !self.holds())?;
        let value = self.value.map_or("not measured".to_owned(), number);
        Some(format!("{}: {value}, must be at least {}", self.name, number(bar)))
    }
}

/// Everything that one run found out.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    ratios: Vec<Ratio>,
    notes: Vec<String>,
}

impl Report {
    /// Adds a row.
    pub(crate) fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Adds a line of prose below the tables.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Adds `dividend / divisor` with the least value that will do.
    pub(crate) fn bar(
        &mut self,
        name: impl Into<String>,
        (dividend, divisor): (Option<f64>, Option<f64>),
        at_least: f64,
    ) {
        let value = quotient(dividend, divisor);
        let ratio = Ratio { name: name.into(), value, at_least: Some(at_least) };
        // A long run may be cut short, and what it has found by then is worth knowing.
        let found = ratio.value.map_or("not measured".to_owned(), number);
        timing::stage(&format!("{}: {found} of {}", ratio.name, number(at_least)));
        self.ratios.push(ratio);
    }

    /// Adds `dividend / divisor` for information only.
    pub(crate) fn ratio(
        &mut self,
        name: impl Into<String>,
        (dividend, divisor): (Option<f64>, Option<f64>),
    ) {
        let value = quotient(dividend, divisor);
        self.ratios.push(Ratio { name: name.into(), value, at_least: None });
    }

    /// The measurement in `column` of the row of `subject` under `setting`.
    pub(crate) fn find(&self, subject: &str, setting: &str, column: &str) -> Option<f64> {
        let mut rows = self.rows.iter();
        let row = rows.find(|row| row.subject == subject && row.setting == setting)?;
        row.measures.iter().find(|(name, _)| name == column)?.1
    }

    /// Takes over everything from `other`.
    pub(crate) fn append(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.ratios.extend(other.ratios);
        self.notes.extend(other.notes);
    }

    /// One line for every ratio that misses its bar.
    pub(crate) fn shortfalls(&self) -> Vec<String> {
        self.ratios.iter().filter_map(Ratio::shortfall).collect()
    }

    /// The report for programs.
    pub(crate) fn to_json(&self) -> Value {
        let ratio = |ratio: &Ratio| json!({ "name": ratio.name, "value": ratio.value, "atLeast": ratio.at_least });
        json!({
            "ratios": self.ratios.iter().map(ratio).collect::<Vec<_>>(),
            "rows": self.rows.iter().map(row_json).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }

    /// The report for people: tables in the order they were measured, ratios, notes.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for rows in self.rows.chunk_by(|left, right| left.table == right.table) {
            let _ = writeln!(text, "\n{}", rows[0].table);
            text += &aligned(&table_cells(rows));
        }
        if !self.ratios.is_empty() {
            let _ = writeln!(text, "\nratios");
            text += &aligned(&ratio_cells(&self.ratios));
        }
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        text
    }
}

fn quotient(dividend: Option<f64>, divisor: Option<f64>) -> Option<f64> {
    let value = dividend? / divisor?;
    value.is_finite().then_some(value)
}

fn row_json(row: &Row) -> Value {
    let measures = row.measures.iter().map(|(name, value)| (name.clone(), json!(value)));
    json!({
        "table": row.table,
        "subject": row.subject,
        "setting": row.setting,
        "measures": measures.collect::<serde_json::Map<_, _>>(),
        "note": row.note,
    })
}

fn table_cells(rows: &[Row]) -> Vec<Vec<String>> {
    let columns = rows[0].measures.iter().map(|(name, _)| name.clone());
    let head = ["store".to_owned(), "setting".to_owned()].into_iter().chain(columns);
    let mut cells = vec![head.collect::<Vec<_>>()];
    for row in rows {
        let mut line = vec![row.subject.clone(), row.setting.clone()];
        line.extend(row.measures.iter().map(|(_, value)| value.map_or("-".to_owned(), number)));
        line.extend(row.note.clone());
        cells.push(line);
    }
    cells
}

fn ratio_cells(ratios: &[Ratio]) -> Vec<Vec<String>> {
    let mut cells = vec![["ratio", "", "value", "at least", ""].map(str::to_owned).to_vec()];
    for ratio in ratios {
        let verdict = match (ratio.at_least, ratio.holds()) {
            (None, _) => "",
            (Some(_), true) => "ok",
            (Some(_), false) => "BELOW",
        };
        cells.push(vec![
            ratio.name.clone(),
            String::new(),
            ratio.value.map_or("-".to_owned(), number),
            ratio.at_least.map_or("-".to_owned(), number),
            verdict.to_owned(),
        ]);
    }
    cells
}

/// Pads columns to one width: the first two to the left, as they are names, the rest to the right.
fn aligned(cells: &[Vec<String>]) -> String {
    let columns = cells.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        cells.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in cells {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = match column {
                0 | 1 => write!(line, "{cell:<width$}  "),
                _ => write!(line, "{cell:>width$}  "),
            };
        }
        let _ = writeln!(text, "  {}", line.trim_end());
    }
    text
}

/// A number with about three digits that matter, and thousands set apart.
pub(crate) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        _ => 4,
    };
    let plain = format!("{value:.decimals$}");
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let digits = whole.trim_start_matches('-');
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push('_');
        }
        grouped.push(digit);
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::default();
        report.bar("fast enough", (Some(9.0), Some(10.0)), 0.9);
        report.bar("too slow", (Some(8.9), Some(10.0)), 0.9);
        report.bar("peer missing", (Some(8.9), None), 0.9);
        report.ratio("only told", (Some(0.0), Some(10.0)));
        report
    }

    #[test]
    fn a_ratio_below_its_bar_is_named_and_no_other() {
        let shortfalls = report().shortfalls();
        assert_eq!(shortfalls.len(), 2, "{shortfalls:?}");
        assert!(shortfalls[0].starts_with("too slow: 0.89, must be at least 0.90"));
        assert!(shortfalls[1].starts_with("peer missing: not measured"));
    }

    #[test]
    fn json_has_value_and_bar_of_each_ratio() {
        let json = report().to_json();
        assert_eq!(json["ratios"][0], json!({"name": "fast enough", "value": 0.9, "atLeast": 0.9}));
        assert_eq!(json["ratios"][2]["value"], Value::Null);
        assert_eq!(json["ratios"][3]["atLeast"], Value::Null);
    }

    #[test]
    fn columns_line_up_and_what_is_missing_is_a_dash() {
        let row = |subject: &str, value| Row {
            table: "t".into(),
            subject: subject.into(),
            setting: "1 caller".into(),
            measures: vec![("ops/s".into(), value)],
            note: None,
        };
        let mut report = Report::default();
        report.row(row("wane", Some(1_234_567.0)));
        report.row(row("a longer name", None));
        let text = report.to_text();
        let ends: Vec<usize> = text.lines().skip(2).map(str::len).collect();
        assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
        assert!(text.contains("1_234_567") && text.contains(" -\n"), "{text}");
        assert_eq!(report.find("wane", "1 caller", "ops/s"), Some(1_234_567.0));
    }

    #[test]
    fn a_quotient_by_zero_counts_as_not_measured() {
        let mut report = Report::default();
        report.bar("by zero", (Some(1.0), Some(0.0)), 1.0);
        assert_eq!(report.shortfalls().len(), 1);
    }
}
