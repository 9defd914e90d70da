//! A table, in as many columns as the screen has.

use anstyle::Style;

use super::super::styled::{Row, wrap};

/// The narrowest column of a table; where there is no room for that, each cell has a line of its own.
const NARROWEST: usize = 3;
/// What stands between two columns.
const BETWEEN: &str = " │ ";
/// A table with more columns is laid out line by line.
const MOST_COLUMNS: usize = 32;

/// Cells by line; the first line has the headings.
pub(super) fn rows(lines: &[Vec<Row>], room: usize) -> Vec<Row> {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    if columns == 0 {
        return Vec::new();
    }
    let between = 3 * (columns - 1);
    if columns > MOST_COLUMNS || room < between + NARROWEST * columns {
        return one_by_one(lines, room);
    }
    let widths = widths(lines, columns, room - between);
    let dim = Style::new().dimmed();
    let mut out = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let cells: Vec<Vec<Row>> = widths
            .iter()
            .enumerate()
            .map(|(column, width)| line.get(column).map_or_else(Vec::new, |cell| wrap(cell, *width, 0)))
            .collect();
        for part in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let mut row = Row::default();
            for (column, width) in widths.iter().enumerate() {
                if column > 0 {
                    row.push(BETWEEN, dim);
                }
                let cell = cells[column].get(part).cloned().unwrap_or_default();
                let missing = width.saturating_sub(cell.width());
                row.append(cell);
                if column + 1 < columns {
                    row.push(&" ".repeat(missing), Style::new());
                }
            }
            out.push(row);
        }
        if index == 0 {
            let ruled: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
            out.push(Row::of(&ruled.join("─┼─"), dim));
        }
    }
    out
}

/// What each column needs, or its share if that is too much: the widest gives way first.
fn widths(lines: &[Vec<Row>], columns: usize, room: usize) -> Vec<usize> {
    let needs = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(Row::width).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..columns).map(|column| needs(column).max(1)).collect();
    let mut total: usize = widths.iter().sum();
    while total > room {
        let Some(widest) = widths.iter().enumerate().max_by_key(|(_, width)| **width).map(|(column, _)| column) else {
            break;
        };
        // Down to the next one, or by what is missing: a few steps, however wide it is.
        let second = widths.iter().enumerate().filter(|(column, _)| *column != widest).map(|(_, width)| *width).max();
        let target = second.unwrap_or(0).min(widths[widest] - 1).max(NARROWEST);
        let less = (widths[widest] - target).max(1).min(total - room);
        if widths[widest] <= less {
            break;
        }
        widths[widest] -= less;
        total -= less;
    }
    widths
}

/// `heading: cell`, for a screen that is too narrow.
fn one_by_one(lines: &[Vec<Row>], room: usize) -> Vec<Row> {
    let Some((headings, lines)) = lines.split_first() else { return Vec::new() };
    let mut out = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            out.push(Row::default());
        }
        for (column, cell) in line.iter().enumerate() {
            let mut row = headings.get(column).cloned().unwrap_or_default();
            row.push(": ", Style::new());
            row.append(cell.clone());
            out.extend(wrap(&row, room, 2));
        }
    }
    out
}
