//! The examples are the files beside this folder: `cargo run --example 01_hello`.

/// The programs of the guide run as tests. They are all here, in one crate, because the doctests of a crate are compiled
/// and linked together.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../docs/guide/README.md")]
    struct Contents;
    #[doc = include_str!("../../docs/guide/first-agent.md")]
    struct FirstAgent;
    #[doc = include_str!("../../docs/guide/tools.md")]
    struct Tools;
    #[doc = include_str!("../../docs/guide/hooks.md")]
    struct Hooks;
    #[doc = include_str!("../../docs/guide/stores.md")]
    struct Stores;
    #[doc = include_str!("../../docs/guide/deleting.md")]
    struct Deleting;
    #[doc = include_str!("../../docs/guide/sub-agents.md")]
    struct SubAgents;
    #[doc = include_str!("../../docs/guide/client-and-human-tools.md")]
    struct ClientAndHumanTools;
    #[doc = include_str!("../../docs/guide/approvals.md")]
    struct Approvals;
    #[doc = include_str!("../../docs/guide/subscribing.md")]
    struct Subscribing;
    #[doc = include_str!("../../docs/guide/testing.md")]
    struct Testing;
    #[doc = include_str!("../../docs/guide/deploying.md")]
    struct Deploying;
}
