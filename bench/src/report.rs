//! Rows of results, as a table for people and as JSON for programs.

use std::io::{self, Write};

use serde_json::{Value, json};

/// One number and what was promised of it.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// What came out.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// The most it may be.
    pub promise: Option<f64>,
}

/// All rows of a run, by heading.
#[derive(Clone, Debug, Default)]
pub struct Report {
    parts: Vec<(String, Vec<Row>)>,
}

impl Report {
    /// Begins a part.
    pub fn part(&mut self, heading: impl Into<String>) {
        self.parts.push((heading.into(), Vec::new()));
    }

    /// Adds a number.
    pub fn row(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.add(Row { name: name.into(), value, unit, promise: None });
    }

    /// Adds a number that was promised to be at most this.
    pub fn promised(&mut self, name: impl Into<String>, value: f64, unit: &'static str, promise: f64) {
        self.add(Row { name: name.into(), value, unit, promise: Some(promise) });
    }

    fn add(&mut self, row: Row) {
        if let Some((_, rows)) = self.parts.last_mut() {
            rows.push(row);
        }
    }

    /// For people.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        for (heading, rows) in &self.parts {
            writeln!(out, "\n{heading}")?;
            for Row { name, value, unit, promise } in rows {
                let digits = if value.abs() < 10.0 { 2 } else { 1 };
                write!(out, "  {name:<62} {value:>10.digits$} {unit:<12}")?;
                match promise {
                    None => writeln!(out)?,
                    Some(most) => {
                        let kept = if value <= most { "kept" } else { "BROKEN" };
                        writeln!(out, " promised ≤ {most:<6} {kept}")?;
                    }
                }
            }
        }
        Ok(())
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let rows = |rows: &[Row]| -> Vec<Value> {
            let row =
                |row: &Row| json!({ "name": row.name, "value": row.value, "unit": row.unit, "promise": row.promise });
            rows.iter().map(row).collect()
        };
        let part = |(heading, all): &(String, Vec<Row>)| json!({ "part": heading, "rows": rows(all) });
        self.parts.iter().map(part).collect()
    }
}
