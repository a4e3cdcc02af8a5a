//! Kernels of signals: Fourier transforms, spectra of sound.

mod fourier;
mod mfcc;
mod spectrogram;

use graphmill_runtime::Registry;

/// Registers the kernels of this family.
pub fn register(registry: &mut Registry) {
    fourier::register(registry);
    spectrogram::register(registry);
    mfcc::register(registry);
}
