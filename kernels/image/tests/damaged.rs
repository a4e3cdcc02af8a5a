//! Pictures that were damaged, or made to harm, are decoded or refused: no panic, no memory beyond what they hold or show.
// Helpers of tests may panic as tests may.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../formats/tests/damage/mod.rs"]
mod damage;

use damage::{Damage, check};
use graphmill_runtime::Registry;
use graphmill_runtime::testing::OpRun;
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor};

const ROUNDS: usize = 3000;
/// Pictures said to be larger are left out, so that the test runs on small machines; those that no reader takes are not.
const LARGEST: usize = 1 << 24;
/// What no reader takes.
const TOO_LARGE: usize = 1 << 29;

fn registry() -> Registry {
    let mut registry = Registry::new();
    graphmill_kernels_image::register(&mut registry);
    registry
}

fn run(registry: &Registry, op: &OpRun, file: &[u8]) -> Result<Tensor> {
    let contents = Tensor::from_strings(Shape::scalar(), vec![Bytes::from(file.to_vec())])?;
    Ok(op.run(registry, vec![contents])?.remove(0))
}

fn picture() -> Tensor {
    let samples: Vec<u8> = (0..24 * 20 * 3u32).map(|n| (n * n / 7) as u8).collect();
    Tensor::from_slice(Shape::from_dims(&[24, 20, 3]).unwrap(), &samples).unwrap()
}

fn encoded(registry: &Registry, op: OpRun) -> Vec<u8> {
    op.run(registry, vec![picture()]).unwrap()[0].strings().unwrap()[0].to_vec()
}

/// Decodes damaged files by each of some ops. `pixels` is how many a file says that it has.
fn decode(ops: &[OpRun], valid: &[u8], mend: impl Fn(&mut [u8]), pixels: impl Fn(&[u8]) -> usize) {
    let registry = registry();
    for (seed, op) in ops.iter().enumerate() {
        run(&registry, op, valid).unwrap();
        let mut damage = Damage::new(seed as u64);
        let damaged = || {
            loop {
                let mut file = damage.of(valid);
                if damage.below(4) > 0 {
                    mend(&mut file);
                }
                if !(LARGEST..TOO_LARGE).contains(&pixels(&file)) {
                    return file;
                }
            }
        };
        let most = |file: &Vec<u8>| (1 << 20) + 100 * file.len() + 32 * pixels(file).min(LARGEST);
        check(ROUNDS, damaged, most, |file| run(&registry, op, file));
    }
}

/// The checksum of PNG's chunks.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1)))
    })
}

/// Makes the checksums of all chunks fit.
fn mend_png(file: &mut [u8]) {
    let mut at = 8;
    while let Some(length) = file.get(at..at + 4).and_then(|bytes| bytes.first_chunk().copied()) {
        let end = (at + 8).saturating_add(u32::from_be_bytes(length) as usize);
        let Some(sum) = file.get(at + 4..end).map(crc32) else { return };
        let Some(place) = file.get_mut(end..end + 4) else { return };
        place.copy_from_slice(&sum.to_be_bytes());
        at = end + 4;
    }
}

#[test]
fn png() {
    let valid = encoded(&registry(), OpRun::new("EncodePng").attr_type("T", DType::UInt8));
    let ops = [
        OpRun::new("DecodePng"),
        OpRun::new("DecodePng").attr_int("channels", 4).attr_type("dtype", DType::UInt16),
        OpRun::new("DecodeImage").attr_int("channels", 1),
    ];
    decode(&ops, &valid, mend_png, |_| 0);
}

#[test]
fn png_with_more_pixels_than_its_data_can_make() {
    let registry = registry();
    let mut file = encoded(&registry, OpRun::new("EncodePng").attr_type("T", DType::UInt8));
    file[16..24].copy_from_slice(&[0, 0, 0x50, 0, 0, 0, 0x50, 0]);
    mend_png(&mut file);
    let op = OpRun::new("DecodePng");
    check(1, || file.clone(), |_| 1 << 20, |file| run(&registry, &op, file));
}

#[test]
fn jpeg() {
    let registry = registry();
    let shape = OpRun::new("ExtractJpegShape");
    let pixels = |file: &[u8]| {
        let shape = run(&registry, &shape, file);
        shape.map_or(0, |shape| shape.as_slice::<i32>().unwrap()[..2].iter().map(|&size| size as usize).product())
    };
    for progressive in [false, true] {
        let op = OpRun::new("EncodeJpeg").attr_bool("progressive", progressive).attr_bool("optimize_size", true);
        let ops = [
            OpRun::new("DecodeJpeg"),
            OpRun::new("DecodeJpeg").attr_bool("try_recover_truncated", true).attr_int("ratio", 4),
            OpRun::new("DecodeImage").attr_int("channels", 1),
        ];
        decode(&ops, &encoded(&registry, op), |_| (), pixels);
    }
}

#[test]
fn gif() {
    let mut valid = Vec::new();
    let mut encoder = gif::Encoder::new(&mut valid, 24, 20, &[0, 0, 0, 255, 0, 0, 0, 255, 0]).unwrap();
    for (left, size) in [(0, 24), (3, 8)] {
        let pixels: Vec<u8> = (0..size * 20).map(|n| (n % 3) as u8).collect();
        let mut frame = gif::Frame::from_indexed_pixels(size, 20, pixels, Some(2));
        frame.left = left;
        encoder.write_frame(&frame).unwrap();
    }
    drop(encoder);
    let ops = [OpRun::new("DecodeGif"), OpRun::new("DecodeImage").attr_bool("expand_animations", false)];
    let size = |file: &[u8], at: usize| {
        file.get(at..at + 2).map_or(0, |size| usize::from(size[0]) + 256 * usize::from(size[1]))
    };
    // Frames are copies of the canvas with something over them that may be larger. A comma is in front of the place of each.
    let pixels = |file: &[u8]| {
        let frames = file.iter().enumerate().filter(|(_, byte)| **byte == b',');
        let largest = frames.map(|(at, _)| size(file, at + 5) * size(file, at + 7)).max();
        4 * size(file, 6) * size(file, 8) + largest.unwrap_or(0)
    };
    decode(&ops, &valid, |_| (), pixels);
}

#[test]
fn bmp() {
    for bits in [8u8, 24, 32] {
        let line = (5 * usize::from(bits) / 8).div_ceil(4) * 4;
        let mut valid = vec![0; 54];
        valid[..2].copy_from_slice(b"BM");
        (valid[10], valid[18], valid[22], valid[28]) = (54, 5, 6, bits);
        valid.extend((0..6 * line).map(|n| n as u8));
        let ops = [OpRun::new("DecodeBmp"), OpRun::new("DecodeImage").attr_int("channels", 4)];
        decode(&ops, &valid, |_| (), |_| 0);
    }
}
