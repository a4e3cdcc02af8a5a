"""Images: resizing, colours, boxes, patches."""

from tests.oracle.table import *  # noqa: F403
from tests.oracle.values import *  # noqa: F403

OPS = """ResizeBilinear ResizeNearestNeighbor ResizeBicubic ResizeArea ResizeBilinearGrad ResizeNearestNeighborGrad ResizeBicubicGrad
ScaleAndTranslate ScaleAndTranslateGrad CropAndResize CropAndResizeGradImage CropAndResizeGradBoxes AdjustContrastv2 AdjustHue
AdjustSaturation RGBToHSV HSVToRGB DrawBoundingBoxes DrawBoundingBoxesV2 NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3
NonMaxSuppressionV4 NonMaxSuppressionV5 NonMaxSuppressionWithOverlaps CombinedNonMaxSuppression ExtractImagePatches ExtractVolumePatches
ExtractGlimpse ExtractGlimpseV2 ImageProjectiveTransformV2 ImageProjectiveTransformV3"""

CORNERS = [{}, {"align_corners": True}, {"half_pixel_centers": True}]
SIZES = [[3, 5], [1, 1], [7, 2], [4, 6], [13, 17]]
unit = lambda *dims: shape(*dims, low=0.0, high=1.0)  # noqa: E731

for name in ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea"):
    for corners in CORNERS[: 2 if name == "ResizeArea" else 3]:
        op(name, inputs=[shape(2, 4, 6, 3), [7, 5]], ulp=8, abs_ulp=8, **corners)
        for size in SIZES:
            for channels in (1, 3, 5):
                op(name, T=["float", "uint8"], inputs=[shape(1, 4, 6, channels), size], ulp=8, abs_ulp=32, **corners)
    for images, size in (((2, 4, 6), [3, 3]), ((1, 0, 6, 3), [3, 3]), ((1, 4, 6, 0), [3, 3]), ((1, 4, 6, 3), [0, 3]), ((1, 4, 6, 3), [3])):
        bad(name, T=["float"], inputs=[shape(*images), size], code=INVALID_ARGUMENT)
    bad(name, T=["float"], inputs=[shape(1, 4, 6, 3), [1 << 30, 1 << 30]])
    op(name, T=["float"], inputs=[shape(0, 4, 6, 3), [3, 5]])
for name in ("ResizeBilinearGrad", "ResizeBicubicGrad"):
    for corners in CORNERS:
        # Products are made in single precision for every type.
        op(name, inputs=[shape(2, 7, 5, 3), shape(2, 4, 6, 3)], ulp=16, rtol=1e-5, atol=1e-5, **corners)
        op(name, T=["float"], inputs=[shape(1, 3, 3, 2), shape(1, 5, 7, 2)], ulp=16, abs_ulp=64, **corners)
for corners in CORNERS:
    op("ResizeNearestNeighborGrad", inputs=[shape(2, 7, 5, 3), [4, 6]], ulp=8, abs_ulp=8, **corners)
bad("ResizeNearestNeighborGrad", T=["float"], inputs=[shape(2, 7, 5, 3), [0, 6]], code=INVALID_ARGUMENT)

FILTERS = "lanczos1 lanczos3 lanczos5 gaussian box triangle keyscubic mitchellcubic".split()
for kernel_type in FILTERS:
    for antialias in (True, False):
        rest = [[3, 9], [0.5, 1.5], [0.25, -0.5]]
        op("ScaleAndTranslate", T=["float", "uint8"], inputs=[shape(2, 6, 6, 3), *rest], kernel_type=kernel_type, antialias=antialias, ulp=16, abs_ulp=64)
        op("ScaleAndTranslateGrad", inputs=[shape(2, 3, 9, 3), shape(2, 6, 6, 3), *rest[1:]], kernel_type=kernel_type, antialias=antialias, ulp=16, abs_ulp=64)
op("ScaleAndTranslate", inputs=[shape(2, 6, 6, 3), [3, 9], [0.5, 1.5], [0.0, 0.0]], ulp=16, abs_ulp=64)
bad("ScaleAndTranslate", T=["float"], inputs=[shape(2, 6, 6, 3), [3, 9], [0.0, 1.5], [0.0, 0.0]], code=INVALID_ARGUMENT)
bad("ScaleAndTranslate", T=["float"], inputs=[shape(2, 6, 6, 3), [3, 9], [1.0, 1.5], [0.0, 0.0]], kernel_type="x", code=INVALID_ARGUMENT)

BOXES = [[0.1, 0.2, 0.7, 0.9], [-0.3, 0.0, 1.4, 1.0], [0.9, 0.9, 0.1, 0.1]]
for method in ("bilinear", "nearest"):
    op("CropAndResize", inputs=[shape(2, 5, 6, 3), BOXES, [0, 1, 0], [4, 3]], method=method, extrapolation_value=-2.0, ulp=16, abs_ulp=16)
    op("CropAndResize", T=["float"], inputs=[shape(2, 5, 6, 3), BOXES, [0, 1, 0], [1, 1]], method=method, ulp=16, abs_ulp=16)
    op("CropAndResizeGradImage", inputs=[shape(3, 4, 3, 2), BOXES, [0, 1, 0], [2, 5, 6, 2]], method=method, ulp=64, rtol=1e-5, atol=1e-5)
op("CropAndResizeGradBoxes", inputs=[shape(3, 4, 3, 2), shape(2, 5, 6, 2), BOXES, [0, 1, 0]], ulp=256, abs_ulp=1024)
bad("CropAndResize", T=["float"], inputs=[shape(2, 5, 6, 3), BOXES, [0, 2, 0], [4, 3]], code=OUT_OF_RANGE)
bad("CropAndResize", T=["float"], inputs=[shape(2, 5, 6, 3), [[0.0, np.nan, 1.0, 1.0]], [0], [4, 3]], code=INVALID_ARGUMENT)
bad("CropAndResize", T=["float"], inputs=[shape(2, 5, 6, 3), BOXES, [0, 1], [4, 3]], code=INVALID_ARGUMENT)
bad("CropAndResize", T=["float"], inputs=[shape(2, 5, 6, 3), BOXES, [0, 1, 0], [0, 3]], code=INVALID_ARGUMENT)

for factor in (0.0, 0.5, 2.0):
    op("AdjustContrastv2", inputs=[unit(2, 4, 5, 3), factor], ulp=16, abs_ulp=16)
    op("AdjustSaturation", inputs=[unit(2, 4, 5, 3), factor], ulp=32, abs_ulp=32)
for delta in (0.0, 0.3, -0.7, 1.0):
    op("AdjustHue", inputs=[unit(2, 4, 5, 3), delta], ulp=64, abs_ulp=64)
for name in ("AdjustHue", "AdjustSaturation", "AdjustContrastv2"):
    bad(name, inputs=[unit(4, 5), 0.5], code=INVALID_ARGUMENT)
    bad(name, inputs=[unit(4, 5, 3), [0.5]], code=INVALID_ARGUMENT)
op("RGBToHSV", inputs=[unit(4, 5, 3)], ulp=16, abs_ulp=16)
op("HSVToRGB", inputs=[unit(4, 5, 3)], ulp=16, abs_ulp=16)
bad("RGBToHSV", T=["float"], inputs=[unit(4, 5, 2)])
bad("HSVToRGB", T=["float"], inputs=[unit(4, 5, 2)])

DRAWN = [[[0.1, 0.2, 0.7, 0.9], [-0.3, 0.5, 1.4, 0.8], [0.9, 0.9, 0.1, 0.1]]]
for depth in (1, 3, 4):
    op("DrawBoundingBoxes", inputs=[unit(1, 9, 8, depth), DRAWN])
    op("DrawBoundingBoxesV2", inputs=[unit(1, 9, 8, depth), DRAWN, [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]]])
bad("DrawBoundingBoxes", T=["float"], inputs=[unit(2, 9, 8, 3), DRAWN], code=INVALID_ARGUMENT)
bad("DrawBoundingBoxes", T=["float"], inputs=[unit(1, 9, 8, 2), DRAWN], code=INVALID_ARGUMENT)

boxes = unit(20, 4)
scores = unit(20)
op("NonMaxSuppression", inputs=[boxes, scores, 6], iou_threshold=0.3)
op("NonMaxSuppressionV2", inputs=[boxes, scores, 6, 0.3])
op("NonMaxSuppressionV3", inputs=[boxes, scores, 20, 0.2, 0.4])
for pad in (True, False):
    op("NonMaxSuppressionV4", inputs=[boxes, scores, 25, 0.2, 0.4], pad_to_max_output_size=pad)
    op("NonMaxSuppressionV5", T=["float"], inputs=[boxes, scores, 25, 1.0, 0.2, 0.5], pad_to_max_output_size=pad, ulp=64, abs_ulp=64)
    op("NonMaxSuppressionV5", inputs=[boxes, scores, 25, 0.3, 0.2, 0.0], pad_to_max_output_size=pad)
op("NonMaxSuppressionWithOverlaps", inputs=[unit(20, 20), scores, 6, 0.3, 0.1])
for pad in (True, False):
    op("CombinedNonMaxSuppression", inputs=[unit(2, 20, 1, 4), unit(2, 20, 3), 4, 9, 0.3, 0.2], pad_per_class=pad)
    op("CombinedNonMaxSuppression", inputs=[unit(2, 20, 3, 4), unit(2, 20, 3), 4, 9, 0.3, 0.2], pad_per_class=pad)
for name, rest in (("NonMaxSuppressionV2", [6, 0.3]), ("NonMaxSuppressionV3", [6, 0.3, 0.1])):
    bad(name, T=["float"], inputs=[unit(20, 3), scores, *rest], code=INVALID_ARGUMENT)
    bad(name, T=["float"], inputs=[boxes, unit(19), *rest], code=INVALID_ARGUMENT)
    bad(name, T=["float"], inputs=[boxes, scores, -1, *rest[1:]], code=INVALID_ARGUMENT)
    bad(name, T=["float"], inputs=[boxes, scores, 6, 1.5, *rest[2:]], code=INVALID_ARGUMENT)

for padding in ("SAME", "VALID"):
    for rates in (1, 2):
        window = {"ksizes": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "rates": [1, rates, rates, 1]}
        op("ExtractImagePatches", inputs=[shape(2, 7, 6, 2)], padding=padding, **window)
    op("ExtractVolumePatches", inputs=[shape(2, 5, 6, 4, 2)], padding=padding, ksizes=[1, 2, 3, 2, 1], strides=[1, 2, 1, 2, 1])
bad("ExtractImagePatches", T=["float"], inputs=[shape(7, 6, 2)], padding="SAME", ksizes=[1, 2, 2, 1], strides=[1, 1, 1, 1], rates=[1, 1, 1, 1])
bad("ExtractImagePatches", T=["float"], inputs=[shape(1, 1, 1, 2)], padding="VALID", ksizes=[1, 9, 9, 1], strides=[1, 1, 1, 1], rates=[1, 1, 1, 1])

GLIMPSES = [[0.0, 0.0], [0.5, -0.5], [-1.0, 1.0]]
for name in ("ExtractGlimpse", "ExtractGlimpseV2"):
    for centered in (True, False):
        for normalized in (True, False):
            offsets = GLIMPSES if normalized else [[1.0, 2.0], [0.0, -3.0], [4.0, 30.0]]
            for size in ([3, 4], [1, 1], [9, 3]):
                op(name, inputs=[shape(3, 6, 7, 2), size, offsets], centered=centered, normalized=normalized, noise="zero", uniform_noise=False)
    op(name, inputs=[shape(2, 6, 7, 2), [0, 3], [[0.0, 0.0], [0.0, 0.0]]], noise="zero", uniform_noise=False)
    op(name, inputs=[shape(1, 8, 8, 1), [9, 9], [[0.0, 0.0]]], noise="gaussian", uniform_noise=False, shapes_only=True)
    op(name, inputs=[shape(1, 8, 8, 1), [9, 9], [[0.0, 0.0]]], shapes_only=True)
    bad(name, inputs=[shape(6, 7, 2), [3, 4], [[0.0, 0.0]]], code=INVALID_ARGUMENT)
    bad(name, inputs=[shape(1, 6, 7, 2), [3], [[0.0, 0.0]]], code=INVALID_ARGUMENT)
    bad(name, inputs=[shape(2, 6, 7, 2), [3, 4], [[0.0, 0.0]]], code=INVALID_ARGUMENT)
    bad(name, inputs=[shape(1, 6, 7, 2), [3, 4], [[0.0]]], code=INVALID_ARGUMENT)
    bad(name, inputs=[shape(1, 6, 7, 2), [3, -4], [[0.0, 0.0]]], code=INVALID_ARGUMENT)
    bad(name, inputs=[shape(1, 6, 7, 2), [3, 4], [[0.0, 0.0]]], noise="pink", uniform_noise=False, code=INVALID_ARGUMENT)
    bad(name, inputs=[shape(1, 6, 7, 2), [3, 4], [[0.0, 0.0]]], noise="zero", uniform_noise=True, code=INVALID_ARGUMENT)

TURN = [[0.5, -0.75, 2.25, 0.75, 0.5, -1.5, 0.0, 0.0]]
WARP = [[1.25, 0.25, -7.5, -0.25, 1.5, -6.25, 0.03125, -0.0625], [-1.0, 0.0, 15.0, 0.0, 3.0, -9.0, 0.0, 0.0]]
for name, rest in (("ImageProjectiveTransformV2", []), ("ImageProjectiveTransformV3", [7.0])):
    for fill_mode in ("CONSTANT", "REFLECT", "WRAP", "NEAREST"):
        for interpolation in ("NEAREST", "BILINEAR"):
            for transforms in (TURN, WARP):
                op(name, inputs=[shape(2, 5, 6, 2), transforms, [7, 8], *rest], interpolation=interpolation, fill_mode=fill_mode, ulp=16, abs_ulp=64)
        op(name, dtype=["float"], inputs=[shape(1, 1, 1, 1), TURN, [3, 3], *rest], interpolation="NEAREST", fill_mode=fill_mode)
    bad(name, dtype=["float"], inputs=[shape(5, 6, 2), TURN, [7, 8], *rest], interpolation="NEAREST", code=INVALID_ARGUMENT)
    bad(name, dtype=["float"], inputs=[shape(3, 5, 6, 2), WARP, [7, 8], *rest], interpolation="NEAREST", code=INVALID_ARGUMENT)
    bad(name, dtype=["float"], inputs=[shape(1, 5, 6, 2), TURN, [7], *rest], interpolation="NEAREST", code=INVALID_ARGUMENT)
    bad(name, dtype=["float"], inputs=[shape(1, 5, 6, 2), TURN, [7, 0], *rest], interpolation="NEAREST", code=INVALID_ARGUMENT)
