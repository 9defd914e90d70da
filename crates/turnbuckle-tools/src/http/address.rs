//! Which addresses hooks may reach: a private one only if the configuration names the address itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Looks names up and gives out only addresses of the open internet. The connection is made to what it gives out, so a name
/// that changes its address between the look and the connection gains nothing.
///
/// A host that is written as an address is not looked up at all, and never comes here. `localhost` means the loopback addresses
/// whatever a name server says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PublicOnly;

/// A name led to an address of a private network.
#[derive(Debug, thiserror::Error)]
#[error("{name} has the private address {address}; a private address must be written as such in the configuration")]
pub(super) struct PrivateAddress {
    name: String,
    address: IpAddr,
}

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let name = name.as_str();
            if name.eq_ignore_ascii_case("localhost") {
                let own = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
                return Ok(Box::new(own.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs);
            }
            let found = tokio::net::lookup_host((name, 0)).await?.collect();
            Ok(Box::new(public(name, found)?.into_iter()) as Addrs)
        })
    }
}

/// The addresses that a name has, if none of them is private.
fn public(name: &str, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, PrivateAddress> {
    match found.iter().map(SocketAddr::ip).find(|address| is_private(*address)) {
        Some(address) => Err(PrivateAddress { name: name.to_owned(), address }),
        None => Ok(found),
    }
}

/// Whether an address is not one of the open internet. What cannot be told counts as private.
pub(crate) fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (b == 18 || b == 19))
        || address.is_documentation()
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let groups = address.segments();
    let last = || {
        let [a, b, c, d] = [groups[6] >> 8, groups[6] & 255, groups[7] >> 8, groups[7] & 255].map(|byte| byte as u8);
        Ipv4Addr::new(a, b, c, d)
    };
    match groups {
        // An IPv4 address in another form: mapped, compatible, or behind a translator.
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => is_private_v4(last()),
        [0x2002, high, low, ..] => {
            let [a, b, c, d] = [high >> 8, high & 255, low >> 8, low & 255].map(|byte| byte as u8);
            is_private_v4(Ipv4Addr::new(a, b, c, d))
        }
        // The open internet is 2000::/3; 2001:db8::/32 is for documentation, 2001::/32 a tunnel.
        [0x2001, 0 | 0xdb8, ..] => true,
        [first, ..] => first & 0xe000 != 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_one_private_address_among_others_is_refused() {
        let at = |address: &str| SocketAddr::new(address.parse().unwrap(), 0);
        let public_only = vec![at("1.1.1.1"), at("2606:4700::1111")];
        assert_eq!(public("a.example", public_only.clone()).unwrap(), public_only);
        let error = public("a.example", vec![at("1.1.1.1"), at("169.254.169.254")]).unwrap_err();
        assert_eq!(error.address, at("169.254.169.254").ip());
        assert!(public("a.example", vec![at("::ffff:127.0.0.1")]).is_err());
    }

    #[test]
    fn addresses_of_private_networks_are_known_in_all_their_forms() {
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
            "2001::1",
        ] {
            assert!(is_private(address.parse().unwrap()), "{address}");
        }
        for address in ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"] {
            assert!(!is_private(address.parse().unwrap()), "{address}");
        }
    }
}
