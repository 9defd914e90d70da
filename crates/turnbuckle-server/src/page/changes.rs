//! What a hook changed: which of the texts in the log belongs to which of its records.

use std::sync::Arc;

use turnbuckle::event::{Event, EventKind, InjectionTarget};
use turnbuckle::hook::{Decision, Point, Record};
use turnbuckle::message::Content;

/// The durable content that each record's hook added, by the number of the record. A record has no reference to it: where a hook ran
/// at a point more than once, the message of the turn tells the runs apart.
pub(super) fn added<'a>(events: &'a [Arc<Event>], records: &[Record]) -> Vec<Vec<&'a Content>> {
    let mut of_records = vec![Vec::new(); records.len()];
    let (mut message, mut is_over) = (0_usize, false);
    for event in events {
        match &event.kind {
            EventKind::UserMessage { .. } => message += 1,
            EventKind::TurnEnded(_) => is_over = true,
            EventKind::Injection { hook, content, place } => {
                let own = || records.iter().enumerate().filter(|(_, record)| record.hook == *hook);
                let at =
                    |points: &[Point]| own().filter(|(_, record)| points.contains(&record.point)).collect::<Vec<_>>();
                let found = match place {
                    InjectionTarget::ThisTurn => before(&at(&[Point::BeforeAgent]), message)
                        .or_else(|| at(&[Point::OnConversation]).first().map(|(number, _)| *number)),
                    InjectionTarget::NextTurn if is_over => at(&[Point::Background]).first().map(|(number, _)| *number),
                    InjectionTarget::NextTurn => {
                        let text = content.text();
                        let advised = own().find(|(_, record)| {
                            record.decision == Decision::Advise && record.reason.as_deref() == Some(&*text)
                        });
                        advised.or_else(|| at(&[Point::AfterAgent]).first().copied()).map(|(number, _)| number)
                    }
                };
                if let Some(of_record) = found.and_then(|number| of_records.get_mut(number)) {
                    of_record.push(content);
                }
            }
            _ => {}
        }
    }
    of_records
}

/// The run of a hook on the message with this number, counted from 1, if it added something.
fn before(runs: &[(usize, &Record)], message: usize) -> Option<usize> {
    let (number, record) = runs.get(message.saturating_sub(1)).or(runs.first())?;
    (record.tokens > 0 || runs.len() == 1).then_some(*number)
}
