//! Spelling of node names, inputs and tensor names.

use std::fmt;

/// Whether this may be the name of a node. A name is `>`-separated parts, each of which begins with a letter, digit or dot and
/// goes on with these and `_`, `-`, `/`. Names that the runtime makes (`internal`) may begin with an underscore.
pub fn is_valid_node_name(name: &str, internal: bool) -> bool {
    let mut at_start = true;
    let mut may_be_internal = internal;
    for byte in name.bytes() {
        let valid = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' => true,
            b'_' => !at_start || may_be_internal,
            b'-' | b'/' | b'>' => !at_start,
            _ => false,
        };
        if !valid {
            return false;
        }
        at_start = byte == b'>';
        may_be_internal = false;
    }
    !at_start
}

/// Whether clients may write this as an input: `node`, `node:7`, or `^node`.
pub(crate) fn is_valid_input(input: &str) -> bool {
    if let Some(name) = input.strip_prefix('^') {
        return is_valid_node_name(name, false);
    }
    match EndpointName::parse(input) {
        EndpointName { node, slot: Some(_) } if node.len() < input.len() => {
            let digits = &input[node.len() + 1..];
            (digits == "0" || !digits.starts_with('0')) && is_valid_node_name(node, false)
        }
        _ => is_valid_node_name(input, false),
    }
}

/// A node's input, or a tensor's name, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndpointName<'a> {
    /// The node.
    pub node: &'a str,
    /// The output slot; `None` for control edges (`^node`). Numbers that do not fit are `u32::MAX`.
    pub slot: Option<u32>,
}

impl<'a> EndpointName<'a> {
    /// Takes `node`, `node:7` or `^node` apart. There is always a result: `a:-1` and `a:b` are names of nodes that cannot
    /// exist.
    pub fn parse(text: &'a str) -> EndpointName<'a> {
        let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (start, digits) = text.split_at(text.len() - digits);
        if let Some(node) = start.strip_suffix(':')
            && !node.is_empty()
            && !digits.is_empty()
        {
            return EndpointName { node, slot: Some(digits.parse().unwrap_or(u32::MAX)) };
        }
        match text.strip_prefix('^') {
            Some(node) => EndpointName { node, slot: None },
            None => EndpointName { node: text, slot: Some(0) },
        }
    }
}

/// The full spelling: `node:0`, `^node`.
impl fmt::Display for EndpointName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slot {
            Some(slot) => write!(f, "{}:{slot}", self.node),
            None => write!(f, "^{}", self.node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes() {
        for good in ["a", "A/b-c_d", ".x", "0", "a>b", "a>b/c>.d"] {
            assert!(is_valid_node_name(good, false), "{good}");
        }
        for bad in ["", "_q", "-a", "/a", "a b", "a:0", "^a", "a>", ">a", "a>_b", "ä", "a\n", "a\\b"] {
            assert!(!is_valid_node_name(bad, false), "{bad}");
        }
        for good in ["_q", "_", "__a", "_recv_x_0", "a"] {
            assert!(is_valid_node_name(good, true), "{good}");
        }
        for bad in ["", "a>_b", "_a b", ">", "_>"] {
            assert!(!is_valid_node_name(bad, true), "{bad}");
        }
    }

    #[test]
    fn inputs() {
        for good in ["a", "a:0", "a:10", "^a", "a>b:1", "a:4294967296"] {
            assert!(is_valid_input(good), "{good}");
        }
        for bad in ["", "^", "a:", "a:-1", "a:01", "^a:0", ":0", "a:0:0", "_a", "^_a", "a b"] {
            assert!(!is_valid_input(bad), "{bad}");
        }
    }

    #[test]
    fn endpoints() {
        let parts = |text| {
            let name = EndpointName::parse(text);
            (name.node, name.slot)
        };
        assert_eq!(parts("a"), ("a", Some(0)));
        assert_eq!(parts("a/b:12"), ("a/b", Some(12)));
        assert_eq!(parts("a:4294967296"), ("a", Some(u32::MAX)));
        assert_eq!(parts("^a"), ("a", None));
        assert_eq!(parts("a:-1"), ("a:-1", Some(0)));
        assert_eq!(parts(""), ("", Some(0)));
        assert_eq!(parts(":0"), (":0", Some(0)));
        assert_eq!(EndpointName::parse("a").to_string(), "a:0");
    }
}
