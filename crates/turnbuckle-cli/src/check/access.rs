//! What `[access]` comes to, for a person to read.

use turnbuckle::access::{ApproveRule, RoleAccess};
use turnbuckle::message::Text;

/// A line for who may do what, and one for each rule about approvals. Nothing if all is the owner's.
pub(super) fn lines(access: &RoleAccess) -> String {
    let RoleAccess { read, say, answer, cancel, delete, approve } = access;
    let actions = [("read", read), ("say", say), ("answer", answer), ("cancel", cancel), ("delete", delete)];
    let given = actions.iter().filter(|(_, roles)| !roles.is_empty());
    let given: Vec<String> = given.map(|(action, roles)| format!("{action}: {}", joined(roles))).collect();
    let mut text = match given.is_empty() {
        true => String::new(),
        false => format!("access    {}\n", given.join("; ")),
    };
    approve.iter().for_each(|rule| text += &format!("rule      {}\n", described(rule)));
    text
}

fn described(rule: &ApproveRule) -> String {
    let ApproveRule { tool, by, not_requester, n } = rule;
    let by = if by.is_empty() { "whoever may answer".to_owned() } else { joined(by) };
    let other = if *not_requester { ", not the one who asked" } else { "" };
    let count = if *n > 1 { format!(", {n} people") } else { String::new() };
    format!("{tool} is approved by {by}{other}{count}")
}

fn joined(roles: &[Text]) -> String {
    roles.join(", ")
}
