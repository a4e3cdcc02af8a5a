//! Archives of arrays as NumPy writes them (`.npz`): ZIP files with a member for each array, stored or deflated.

use flate2::read::DeflateDecoder;
use graphmill_tensor::{Bytes, Result, data_loss, invalid_argument, unimplemented_op};
use std::io::Read;

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;
const LOCAL_LENGTH: usize = 30;
const CENTRAL_LENGTH: usize = 46;
const END_LENGTH: usize = 22;
const LOCATOR_LENGTH: usize = 20;
/// Longest comment behind the list of members.
const MAX_COMMENT: usize = u16::MAX as usize;
/// The extra field with sizes and places beyond 32 bits.
const EXTRA_64: u16 = 1;
const UTF_8: u16 = 1 << 11;
/// 1980-01-01, the first day that the format knows.
const DATE: u16 = 1 << 5 | 1;

/// The arrays of an archive by name, each as an `.npy` file.
///
/// # Errors
/// `INVALID_ARGUMENT` if this is no ZIP file, `DATA_LOSS` if it is damaged, `UNIMPLEMENTED` for members that are encrypted or compressed in
/// another way than NumPy does.
pub fn read_npz(bytes: &Bytes) -> Result<Vec<(String, Bytes)>> {
    let (mut at, count) = directory(bytes)?;
    let mut members = Vec::new();
    for _ in 0..count {
        let (member, next) = Member::parse(bytes, at)?;
        at = next;
        let contents = member.contents(bytes)?;
        let name = member.name.strip_suffix(".npy").unwrap_or(&member.name).to_owned();
        members.push((name, contents));
    }
    Ok(members)
}

/// An archive of `.npy` files by name, stored as they are.
///
/// # Errors
/// `UNIMPLEMENTED` beyond 4 GiB or 65,535 arrays; `INVALID_ARGUMENT` for a name that is too long.
pub fn write_npz(members: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
    let large = || unimplemented_op!("Archives beyond 4 GiB are not written; write each array to a file of its own");
    let mut file = Vec::new();
    let mut list = Vec::new();
    for (name, contents) in members {
        let name = format!("{name}.npy");
        let name_length = u16::try_from(name.len()).map_err(|_| invalid_argument!("The name {name} is too long"))?;
        let size = u32::try_from(contents.len()).map_err(|_| large())?;
        let place = u32::try_from(file.len()).map_err(|_| large())?;
        let mut crc = flate2::Crc::new();
        crc.update(contents);
        let mut common = Vec::new();
        // Needed version, flags, method, time, date.
        [20, UTF_8, 0, 0, DATE].iter().for_each(|field: &u16| common.extend_from_slice(&field.to_le_bytes()));
        [crc.sum(), size, size].iter().for_each(|field| common.extend_from_slice(&field.to_le_bytes()));
        common.extend_from_slice(&name_length.to_le_bytes());
        // No extra field.
        common.extend_from_slice(&[0; 2]);
        file.extend_from_slice(&LOCAL.to_le_bytes());
        file.extend_from_slice(&common);
        file.extend_from_slice(name.as_bytes());
        file.extend_from_slice(contents);
        list.extend_from_slice(&CENTRAL.to_le_bytes());
        list.extend_from_slice(&20u16.to_le_bytes());
        list.extend_from_slice(&common);
        // No comment, disk 0, no attributes.
        list.extend_from_slice(&[0; 10]);
        list.extend_from_slice(&place.to_le_bytes());
        list.extend_from_slice(name.as_bytes());
    }
    let count = u16::try_from(members.len()).map_err(|_| large())?;
    let place = u32::try_from(file.len()).map_err(|_| large())?;
    let length = u32::try_from(list.len()).map_err(|_| large())?;
    file.extend_from_slice(&list);
    file.extend_from_slice(&END.to_le_bytes());
    file.extend_from_slice(&[0; 4]);
    file.extend_from_slice(&count.to_le_bytes());
    file.extend_from_slice(&count.to_le_bytes());
    file.extend_from_slice(&length.to_le_bytes());
    file.extend_from_slice(&place.to_le_bytes());
    file.extend_from_slice(&[0; 2]);
    Ok(file)
}

/// A member as the list at the end of an archive describes it.
struct Member {
    name: String,
    flags: u16,
    method: u16,
    crc: u32,
    packed: u64,
    size: u64,
    place: u64,
}

impl Member {
    /// Reads an entry of the list, and tells where the next one is.
    fn parse(bytes: &[u8], at: usize) -> Result<(Member, usize)> {
        if u32_at(bytes, at)? != CENTRAL {
            return Err(damaged());
        }
        let lengths = [28, 30, 32].map(|field| u16_at(bytes, at + field).map(usize::from));
        let [name_length, extra_length, comment_length] = lengths;
        let name_at = at + CENTRAL_LENGTH;
        let extra_at = name_at + name_length?;
        let comment_at = extra_at + extra_length?;
        let name = bytes.get(name_at..extra_at).ok_or_else(damaged)?;
        let mut member = Member {
            name: String::from_utf8_lossy(name).into_owned(),
            flags: u16_at(bytes, at + 8)?,
            method: u16_at(bytes, at + 10)?,
            crc: u32_at(bytes, at + 16)?,
            packed: u32_at(bytes, at + 20)?.into(),
            size: u32_at(bytes, at + 24)?.into(),
            place: u32_at(bytes, at + 42)?.into(),
        };
        member.widen(bytes.get(extra_at..comment_at).ok_or_else(damaged)?)?;
        Ok((member, comment_at + comment_length?))
    }

    /// Takes from the extra field what did not fit into 32 bits.
    fn widen(&mut self, mut extra: &[u8]) -> Result<()> {
        while !extra.is_empty() {
            let (tag, length) = (u16_at(extra, 0)?, usize::from(u16_at(extra, 2)?));
            let field = extra.get(4..4 + length).ok_or_else(damaged)?;
            if tag == EXTRA_64 {
                let mut at = 0;
                for value in [&mut self.size, &mut self.packed, &mut self.place] {
                    if *value == u64::from(u32::MAX) {
                        *value = u64_at(field, at)?;
                        at += 8;
                    }
                }
            }
            extra = &extra[4 + length..];
        }
        Ok(())
    }

    fn contents(&self, bytes: &Bytes) -> Result<Bytes> {
        if self.flags & 1 != 0 {
            return Err(unimplemented_op!("{} is encrypted", self.name));
        }
        let at = usize::try_from(self.place).map_err(|_| damaged())?;
        if u32_at(bytes, at)? != LOCAL {
            return Err(damaged());
        }
        // Its extra field need not be as long as that of the list.
        let head = LOCAL_LENGTH + usize::from(u16_at(bytes, at + 26)?) + usize::from(u16_at(bytes, at + 28)?);
        let start = at.checked_add(head).ok_or_else(damaged)?;
        let end = usize::try_from(self.packed).ok().and_then(|length| start.checked_add(length)).ok_or_else(damaged)?;
        if end > bytes.len() {
            return Err(damaged());
        }
        let packed = bytes.slice(start..end);
        let contents = match self.method {
            0 => packed,
            8 => {
                let mut contents = Vec::new();
                DeflateDecoder::new(packed.as_ref())
                    .take(self.size.saturating_add(1))
                    .read_to_end(&mut contents)
                    .map_err(|error| data_loss!("{} is damaged: {error}", self.name))?;
                contents.into()
            }
            method => return Err(unimplemented_op!("{} is compressed by method {method}", self.name)),
        };
        let mut crc = flate2::Crc::new();
        crc.update(&contents);
        if contents.len() as u64 != self.size || crc.sum() != self.crc {
            return Err(data_loss!("{} is damaged: its checksum differs", self.name));
        }
        Ok(contents)
    }
}

/// Where the list of members begins, and how many there are.
fn directory(bytes: &[u8]) -> Result<(usize, u64)> {
    let last = bytes.len().checked_sub(END_LENGTH).ok_or_else(no_archive)?;
    let first = last.saturating_sub(MAX_COMMENT);
    let at = (first..=last).rev().find(|&at| u32_at(bytes, at) == Ok(END)).ok_or_else(no_archive)?;
    let (count, place) = (u16_at(bytes, at + 10)?, u32_at(bytes, at + 16)?);
    if count != u16::MAX && place != u32::MAX {
        return Ok((place as usize, count.into()));
    }
    let locator = at.checked_sub(LOCATOR_LENGTH).ok_or_else(damaged)?;
    if u32_at(bytes, locator)? != LOCATOR_64 {
        return Err(damaged());
    }
    let end = usize::try_from(u64_at(bytes, locator + 8)?).map_err(|_| damaged())?;
    if u32_at(bytes, end)? != END_64 {
        return Err(damaged());
    }
    let place = usize::try_from(u64_at(bytes, end.saturating_add(48))?).map_err(|_| damaged())?;
    Ok((place, u64_at(bytes, end.saturating_add(32))?))
}

fn no_archive() -> graphmill_tensor::Status {
    invalid_argument!("This is not an .npz file")
}

fn damaged() -> graphmill_tensor::Status {
    data_loss!("An .npz file is damaged")
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let end = at.checked_add(N).ok_or_else(damaged)?;
    bytes.get(at..end).and_then(|field| field.try_into().ok()).ok_or_else(damaged)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::Code;

    fn archive() -> Bytes {
        write_npz(&[("a".into(), b"first".to_vec()), ("b/c".into(), vec![]), ("d".into(), vec![7; 300])])
            .unwrap()
            .into()
    }

    #[test]
    fn members_come_back() {
        let members = read_npz(&archive()).unwrap();
        let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b/c", "d"]);
        assert_eq!(members[0].1, "first");
        assert_eq!(members[2].1, vec![7; 300]);
        assert!(read_npz(&write_npz(&[]).unwrap().into()).unwrap().is_empty());
    }

    #[test]
    fn damage_is_found() {
        let good = archive();
        for end in 0..good.len() {
            assert!(read_npz(&good.slice(..end)).is_err(), "{end}");
        }
        let mut flipped = good.to_vec();
        let at = flipped.windows(5).position(|window| window == b"first").unwrap();
        flipped[at] ^= 1;
        assert_eq!(read_npz(&flipped.into()).unwrap_err().code(), Code::DataLoss);
        assert_eq!(
            read_npz(&Bytes::from_static(b"nonsense, but long enough to look")).unwrap_err().code(),
            Code::InvalidArgument
        );
        // Every byte may be any other: an error or arrays, never a panic.
        for at in 0..good.len() {
            let mut bad = good.to_vec();
            bad[at] = !bad[at];
            let _ = read_npz(&bad.into());
        }
    }
}
