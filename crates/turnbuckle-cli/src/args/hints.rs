//! What a person probably meant whose arguments are not understood.

use std::net::{Ipv4Addr, SocketAddr};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::show::quoted;

/// An address to listen at. `localhost` is this machine's own, whatever a resolver says.
pub(super) fn listen_address(given: &str) -> Result<SocketAddr, String> {
    let on_loopback = |port: &str| Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse::<u16>().ok()?)));
    let localhost = given.strip_prefix("localhost:").and_then(on_loopback);
    localhost.or_else(|| given.parse().ok()).ok_or_else(|| match on_loopback(given.trim_start_matches(':')) {
        Some(address) => format!("an address has a host as well: write `{address}`"),
        None => "it must be an address and a port, such as `127.0.0.1:7878`".to_owned(),
    })
}

/// What to type instead of these arguments, which begin behind the program's name; `None` if nothing better is known than what the
/// error says.
pub(crate) fn after(error: &clap::Error, given: &[String]) -> Option<String> {
    let wrong = match error.get(ContextKind::InvalidSubcommand).or_else(|| error.get(ContextKind::InvalidArg)) {
        Some(ContextValue::String(wrong)) => wrong.as_str(),
        _ => return None,
    };
    let is_option = |word: &String| word.starts_with('-');
    match (error.kind(), given) {
        // Also where a command is similar: `hello` is to `help`.
        (ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument, [first, ..])
            if first == wrong && !is_option(first) =>
        {
            let message: Vec<&str> = given.iter().take_while(|word| !is_option(word)).map(String::as_str).collect();
            Some(format!("`turnbuckle run {}` says it to the model", as_message(&message)))
        }
        (ErrorKind::UnknownArgument, [command, words @ ..]) if command == "run" && !wrong.starts_with('-') => {
            let message: Vec<&str> = words.iter().map(String::as_str).collect();
            Some(match words.iter().any(is_option) {
                true => "put the message into quotes, so that it is one argument: `turnbuckle run \"…\"`".to_owned(),
                false => format!("put the message into quotes: `turnbuckle run {}`", as_message(&message)),
            })
        }
        (ErrorKind::UnknownArgument, [option, rest @ ..]) if option.starts_with("-c") && wrong == "-c" => {
            let id = option.strip_prefix("-c").filter(|id| !id.is_empty());
            let id = id.or_else(|| rest.first().map(String::as_str)).unwrap_or("ID");
            let id = quoted(id.trim_start_matches('='));
            Some(format!(
                "`turnbuckle chat -c {id}` goes on with a conversation, `turnbuckle run -c {id} \"…\"` is one turn"
            ))
        }
        _ => None,
    }
}

/// One argument, in the quotes that people use if they can stand there.
fn as_message(words: &[&str]) -> String {
    let message = words.join(" ");
    let has_special = message.chars().any(|sign| sign.is_control() || "\"\\$`!".contains(sign));
    if has_special { quoted(&message) } else { format!("\"{message}\"") }
}

#[cfg(test)]
mod tests {
    use super::super::command;
    use super::*;

    fn hint(given: &[&str]) -> Option<String> {
        let error = command().try_get_matches_from([&["turnbuckle"], given].concat()).unwrap_err();
        after(&error, &given.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_message_without_its_command_or_quotes_is_shown_with_them() {
        let says = |given: &[&str], words: &str| {
            let hint = hint(given).unwrap_or_default();
            assert!(hint.contains(words), "{given:?}: {hint:?}");
        };
        says(&["What is in this folder?"], "`turnbuckle run \"What is in this folder?\"`");
        says(&["hello"], "`turnbuckle run \"hello\"`");
        says(&["fix", "the", "build", "--model", "demo"], "`turnbuckle run \"fix the build\"`");
        says(&["pay $5"], "`turnbuckle run 'pay $5'`");
        says(&["run", "Hello", "what", "is", "this"], "`turnbuckle run \"Hello what is this\"`");
        says(&["run", "--quiet", "Hello", "what"], "`turnbuckle run \"…\"`");
        says(&["-c", "k4"], "`turnbuckle chat -c k4`");
        says(&["-ck4"], "`turnbuckle chat -c k4`");
        says(&["-c"], "`turnbuckle chat -c ID`");
        for known in [&["run", "--jsn", "x"][..], &["show"], &["chat", "x", "y"]] {
            assert_eq!(hint(known), None, "{known:?}");
        }
    }

    #[test]
    fn an_address_to_listen_at_is_understood_or_shown() {
        let local = |port: u16| Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        assert_eq!(listen_address("localhost:7878"), local(7878));
        assert_eq!(listen_address("127.0.0.1:0"), local(0));
        assert!(listen_address("[::1]:7878").unwrap().is_ipv6());
        for port in ["7878", ":7878"] {
            assert!(listen_address(port).unwrap_err().contains("write `127.0.0.1:7878`"), "{port}");
        }
        for wrong in ["localhost", "localhost:99999", "example.com:80", "", "70000"] {
            assert!(listen_address(wrong).unwrap_err().contains("such as `127.0.0.1:7878`"), "{wrong}");
        }
    }
}
