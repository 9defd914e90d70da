//! `turnbuckle serve`: conversations over HTTP, until a signal ends it.

mod certificate;
mod token_files;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tokio::net::TcpListener;
use turnbuckle::conversation::{OnChangedAgent, OtherAgents};
use turnbuckle::scope::PermissionMode;
use turnbuckle_mcp::{Approvals, HttpConversationServer, NewIds};
use turnbuckle_server::{Certificate, ClientIds, LiveQuestions, Metrics, ServeError, Server, Tokens};

use self::certificate::CertificateFiles;
use self::token_files::TokenFiles;
use crate::Stopped;
use crate::args::{Common, Serve};
use crate::assemble::prepare;
use crate::config;
use crate::demo::PageStory;
use crate::exit::Exit;
use crate::hooks;
use crate::links;
use crate::output;
use crate::problem::Problem;
use crate::run::Ready;
use crate::signals::{Second, Signals};
use crate::trust::Gate;

/// How often it is looked whether the files with the tokens and with the certificate have changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT. The second signal ends the program at once.
pub(crate) async fn serve(args: Serve, common: &Common) -> Result<Exit, Stopped> {
    let common = &args.trust.noted_in(common);
    let mut prepared = prepare(common, Gate::Needed(args.trust));
    let part = std::mem::take(&mut prepared.config.serve);
    // The demonstration never stands in the place of conversations that are there.
    let is_bare =
        prepared.model_is_default && prepared.files.is_empty() && common.store.is_none() && !prepared.store.is_there();
    let tokens = part.tokens();
    let token_files = tokens.as_ref().map(|list| TokenFiles {
        files: prepared.files.clone(),
        folder: prepared.project.folder.clone(),
        common: common.clone(),
        accepted: list.clone(),
    });
    let hook_lines = hooks::told_lines(&prepared);
    let ready = Ready::of(prepared)?;
    let remarks = ready.remarks();
    if !remarks.trim().is_empty() {
        output::say(remarks.trim_end());
    }
    let address = args.listen.or_else(|| part.listen.as_ref().map(|found| found.value)).unwrap_or(config::LISTEN);
    if tokens.is_none() && !address.ip().is_loopback() {
        return Err(open_to_all(address));
    }
    let bad_certificate = |problem| Stopped { problems: vec![problem], exit: Exit::Usage };
    let files_of_tls = CertificateFiles::of(&part).map_err(bad_certificate)?;
    let certificate = files_of_tls.as_ref().map(CertificateFiles::load).transpose().map_err(bad_certificate)?;
    if let Some(warning) = files_of_tls.as_ref().and_then(CertificateFiles::warning) {
        output::report(&[warning]);
    }
    // Before anything runs: a signal that comes while the server starts is not lost.
    let mut signals =
        Signals::listen(Second::Ends).map_err(|error| failed(format!("listening for signals: {error}")))?;
    let insists = args.carry_on.accept_changes;
    let metrics = Metrics::default();
    // Where nothing is set up, the page explains itself.
    let story = match is_bare && ready.is_demo() {
        true => Some(PageStory::set().await.map_err(|error| failed(format!("the demo: {error}")))?),
        false => None,
    };
    let builder = match &story {
        Some(story) => story.conversations(&metrics).map_err(|error| failed(format!("the demo: {error}")))?,
        None => ready.measured(&metrics)?,
    };
    let builder = builder.permission_mode(PermissionMode::Interactive);
    let builder = builder.on_changed_agent(move |_| match insists {
        true => OnChangedAgent::CarryOn,
        false => OnChangedAgent::Leave,
    });
    let conversations = builder.other_agents(OtherAgents::Refuse).build();
    let mut server = Server::builder(conversations.clone()).local_user(ready.scope.clone()).limits(part.limits());
    let tokens = tokens.map(Tokens::new);
    // The hooks of the story are its own, and no configuration has them.
    if story.is_none() {
        server = server.hook_lines(hook_lines);
    }
    if let Some(tokens) = &tokens {
        server = server.tokens(tokens.clone());
    }
    if let Some(allowed) = &part.client_ids {
        server = server.client_ids(if allowed.value { ClientIds::Allowed } else { ClientIds::Refused });
    }
    if let Some(most) = &part.rest_within {
        server = server.rest_within(most.value);
    }
    if let Some(certificate) = &certificate {
        server = server.tls(certificate.clone());
    }
    let approvals = if args.allow_approvals { Approvals::Allowed } else { Approvals::Refused };
    let chosen_ids = part.client_ids.as_ref().map_or(tokens.is_none(), |found| found.value);
    let new_ids = if chosen_ids { NewIds::Chosen } else { NewIds::Made };
    let mcp = HttpConversationServer::new(conversations.clone(), approvals, new_ids, part.limits().body_bytes);
    server = server.mount("/mcp", move |scope, request| {
        let mcp = mcp.clone();
        async move { mcp.handle(scope, request).await }
    });
    let questions = LiveQuestions::default();
    ready.desk.ask_at(questions.clone());
    server = server.live_questions(questions);
    let store = ready.store.clone();
    let size = move || store.bytes().map(|bytes| bytes as f64);
    server = server.metrics(metrics).gauge("turnbuckle_store_bytes", "Bytes of the store's files.", size);
    match links::keys() {
        Ok(keys) => server = server.keys(keys),
        Err(error) => {
            output::say(&format!("sessions and links end with this process, because there are no keys: {error}"))
        }
    }
    let server = server.build().map_err(|error| failed(format!("making the server: {error}")))?;
    let listener = TcpListener::bind(address).await.map_err(|error| not_bound(address, &error))?;
    let bound = listener.local_addr().map_err(|error| failed(format!("listening on {address}: {error}")))?;
    let scheme = if certificate.is_some() { "https" } else { "http" };
    // The port may have been chosen by the system.
    let base = part.url.as_ref().map_or_else(|| format!("{scheme}://{bound}"), |url| url.value.clone());
    links::hook_links().set_base(base);
    output::say(&format!("listening on {scheme}://{bound}"));
    if story.is_some() {
        output::say("no model is set up: this is a demonstration in a scratch folder, and nothing of it is kept");
    } else if ready.is_demo() {
        output::say(&format!("the conversations of {} are served, and the demo model answers", ready.store));
    }
    let telling = async {
        if let Some(story) = &story
            && let Err(error) = story.begin(&conversations, &ready.scope).await
        {
            output::say(&format!("the demo: {error}"));
        }
        std::future::pending::<Never>().await
    };
    let maintenance = conversations.clone();
    let watch_tokens = follow_tokens(token_files.zip(tokens));
    let watch_certificate = follow_certificate(files_of_tls, certificate);
    let serving = server.serve(listener, async { signals.first().await });
    let served = tokio::select! {
        served = serving => served,
        error = maintenance.run_maintenance() => {
            return Err(failed(format!("the store has failed for a minute: {error}")));
        }
        never = watch_tokens => match never {},
        never = telling => match never {},
        never = watch_certificate => match never {},
    };
    match served {
        Ok(()) => {
            // What background hooks have begun; the rest is in the outbox.
            conversations.drain(Duration::from_secs(2)).await;
            Ok(Exit::Completed)
        }
        Err(ServeError::NotLoopback { address }) => Err(open_to_all(address)),
        Err(error) => Err(failed(format!("serving: {error}"))),
    }
}

fn failed(what: String) -> Stopped {
    Stopped::failed(Problem::error(what))
}

fn open_to_all(address: SocketAddr) -> Stopped {
    let what = format!("{address} can be reached from other machines, and there are no tokens");
    Stopped::usage(Problem::error(what).hint("add `[[serve.tokens]]` with `sha256` and `user`, or listen on 127.0.0.1"))
}

fn not_bound(address: SocketAddr, error: &io::Error) -> Stopped {
    let problem = Problem::error(format!("listening on {address}: {error}"));
    Stopped::failed(match error.kind() {
        io::ErrorKind::AddrInUse => problem.hint("another program has it: `--listen 127.0.0.1:0` takes a free port"),
        _ => problem,
    })
}

/// No value: following never ends by itself.
enum Never {}

async fn follow_certificate(files: Option<CertificateFiles>, certificate: Option<Certificate>) -> Never {
    match files.zip(certificate) {
        Some((files, certificate)) => files.follow(certificate).await,
        None => std::future::pending().await,
    }
}

async fn follow_tokens(followed: Option<(TokenFiles, Tokens)>) -> Never {
    match followed {
        Some((files, tokens)) => files.follow(tokens).await,
        None => std::future::pending().await,
    }
}

/// When a file was changed, and its size: enough to notice a change.
type Stamp = (SystemTime, u64);

/// `None` for a file that is not there.
fn stamps<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Vec<Option<Stamp>> {
    let stamp = |path: &PathBuf| {
        let about = std::fs::metadata(path).ok()?;
        Some((about.modified().ok()?, about.len()))
    };
    files.into_iter().map(stamp).collect()
}
