//! Addresses of nodes.

use graphmill_tensor::{Result, invalid_argument};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// An IP address or a DNS name, as the resource file spells it. An IPv6 address may stand in brackets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Host(String);

impl Host {
    /// Reads an address.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for what is neither an IP address nor a DNS name.
    pub fn parse(text: &str) -> Result<Host> {
        if ip_address(text).is_some() || is_dns_name(text) {
            Ok(Host(text.to_owned()))
        } else {
            Err(invalid_argument!("\"{text}\" is neither an IP address nor a host name"))
        }
    }

    /// The address as it was spelled.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it names the machine that it is read on: `localhost`, `127.0.0.0/8`, `::1`.
    pub fn is_loopback(&self) -> bool {
        self.0.eq_ignore_ascii_case("localhost") || ip_address(&self.0).is_some_and(|address| address.is_loopback())
    }

    /// `host:port`, with an IPv6 address in brackets.
    pub fn with_port(&self, port: u16) -> String {
        if self.0.starts_with('[') || !self.0.contains(':') {
            format!("{}:{port}", self.0)
        } else {
            format!("[{}]:{port}", self.0)
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn ip_address(text: &str) -> Option<IpAddr> {
    match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => text.parse().ok(),
    }
}

fn is_dns_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // What ends in a number is a mistyped IP address.
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= 253 && text.split('.').all(is_label) && !last.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        for text in ["localhost", "10.0.0.1", "::1", "[fe80::1]", "node-7.example.org"] {
            assert_eq!(Host::parse(text).unwrap().as_str(), text);
        }
        for text in ["", "10.0.0.256", "10.0.0", "a b", "host:22", "[10.0.0.1]", "-a", "a..b"] {
            assert!(Host::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ports_follow_the_address() {
        let with_port = |text| Host::parse(text).unwrap().with_port(9);
        assert_eq!(with_port("::1"), "[::1]:9");
        assert_eq!(with_port("[::1]"), "[::1]:9");
        assert_eq!(with_port("a.b"), "a.b:9");
        assert!(Host::parse("127.3.2.1").unwrap().is_loopback());
        assert!(Host::parse("[::1]").unwrap().is_loopback());
        assert!(!Host::parse("10.0.0.1").unwrap().is_loopback());
    }
}
