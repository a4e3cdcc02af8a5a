//! Names under which values cross from one device to another, and numbers of the frames that they cross in.

use crate::{DeviceSpec, hash64, hash64_combine};
use graphmill_tensor::{Result, Status, invalid_argument};
use std::fmt;

/// The frame of nodes that are in no loop.
pub const ROOT_FRAME_ID: u64 = 0;

/// The id of a loop's frame, which all workers must agree upon: from the id of the frame that it was entered from, the iteration of
/// that frame, and the loop's name.
pub fn frame_id(parent: u64, iteration: u64, frame_name: &str) -> u64 {
    hash64_combine(parent, hash64_combine(iteration, hash64(frame_name.as_bytes())))
}

/// The name of one value on its way: `SEND_DEVICE;INCARNATION;RECV_DEVICE;TENSOR_NAME;FRAME:ITERATION`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RendezvousKey<'a> {
    /// The device that sends.
    pub send_device: &'a str,
    /// The number that tells this life of the sending device's process from others.
    pub send_device_incarnation: u64,
    /// The device that receives.
    pub recv_device: &'a str,
    /// The name of the edge, unique among those between the two devices.
    pub tensor_name: &'a str,
    /// The frame; 0 outside of loops.
    pub frame_id: u64,
    /// The iteration of the frame.
    pub iteration: u64,
}

impl<'a> RendezvousKey<'a> {
    /// Takes a key apart. Names of devices are checked for their syntax alone.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if there are not exactly five parts or one is malformed.
    pub fn parse(key: &'a str) -> Result<RendezvousKey<'a>> {
        RendezvousKey::take_apart(key).ok_or_else(|| invalid(key))
    }

    fn take_apart(key: &'a str) -> Option<RendezvousKey<'a>> {
        let mut parts = key.split(';');
        let (send_device, incarnation) = (parts.next()?, parts.next()?);
        let (recv_device, tensor_name, frame) = (parts.next()?, parts.next()?, parts.next()?);
        let (frame_id, iteration) = frame.split_once(':')?;
        let is_device = |name: &str| !name.is_empty() && DeviceSpec::parse(name).is_some();
        let is_hexadecimal = !incarnation.is_empty() && incarnation.bytes().all(|b| b.is_ascii_hexdigit());
        if parts.next().is_some()
            || !is_device(send_device)
            || !is_device(recv_device)
            || tensor_name.is_empty()
            || !is_hexadecimal
        {
            return None;
        }
        Some(RendezvousKey {
            send_device,
            send_device_incarnation: u64::from_str_radix(incarnation, 16).ok()?,
            recv_device,
            tensor_name,
            frame_id: decimal(frame_id)?,
            iteration: decimal(iteration)?,
        })
    }
}

/// A number in decimal digits; TensorFlow writes frame and iteration as signed numbers.
fn decimal(text: &str) -> Option<u64> {
    text.parse::<u64>().ok().or_else(|| text.parse::<i64>().ok().map(i64::cast_unsigned))
}

fn invalid(key: &str) -> Status {
    invalid_argument!("Invalid  rendezvous key: {key}")
}

impl fmt::Display for RendezvousKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{};{:016x};{};{};{}:{}",
            self.send_device,
            self.send_device_incarnation,
            self.recv_device,
            self.tensor_name,
            self.frame_id,
            self.iteration
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::Code;

    #[test]
    fn frames_have_the_ids_that_tensorflow_gives_them() {
        assert_eq!(frame_id(ROOT_FRAME_ID, 0, "while/while_context"), 18_186_195_969_791_715_286);
        let inner = frame_id(frame_id(ROOT_FRAME_ID, 0, "outer"), 3, "inner");
        assert_ne!(inner, frame_id(frame_id(ROOT_FRAME_ID, 0, "outer"), 4, "inner"));
        assert_ne!(inner, frame_id(ROOT_FRAME_ID, 3, "inner"));
    }

    #[test]
    fn keys_are_taken_apart_and_put_together() {
        let text = "/job:ps/replica:0/task:0/device:CPU:0;0cc0348f2dcbcc59;/job:worker/replica:0/task:0/device:CPU:0;edge_17_while/\
                    Identity;18186195969791715286:4";
        let key = RendezvousKey::parse(text).unwrap();
        assert_eq!(key.send_device_incarnation, 0x0cc0_348f_2dcb_cc59);
        assert_eq!(
            (key.tensor_name, key.frame_id, key.iteration),
            ("edge_17_while/Identity", 18_186_195_969_791_715_286, 4)
        );
        assert_eq!(key.to_string(), text);
        let short = "/job:a/cpu:0;ffffffffffffffff;/cpu:0;x:0;0:0";
        assert_eq!(RendezvousKey::parse(short).unwrap().to_string(), short);
    }

    #[test]
    fn malformed_keys() {
        for key in [
            "",
            "x",
            "/cpu:0;1;/cpu:0;x",
            "/cpu:0;1;/cpu:0;x;0:0;",
            "/cpu:0;1;/cpu:0;x;0",
            "/cpu:0;1;/cpu:0;x;a:0",
            "/cpu:0;;/cpu:0;x;0:0",
            "/cpu:0;+1;/cpu:0;x;0:0",
            "/cpu:0;11111111111111111;/cpu:0;x;0:0",
            ";1;/cpu:0;x;0:0",
            "cpu;1;/cpu:0;x;0:0",
        ] {
            let error = RendezvousKey::parse(key).unwrap_err();
            assert_eq!(
                (error.code(), error.message()),
                (Code::InvalidArgument, &*format!("Invalid  rendezvous key: {key}"))
            );
        }
    }
}
