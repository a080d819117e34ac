"""The colours of curves can be told apart, by the colour-blind too, and are never taken for a severity."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stepwatch.render.dashboard import CURVE_COLOURS

SEVERITIES = ("#F2495C", "#FF9830", "#E02F44", "#FF780A")
"""Grafana's red and orange, and their dark shades."""
BACKGROUNDS = {"dark": "#181B1F", "light": "#FFFFFF"}
CONTRAST = 3.0
"""Of graphics against what lies beside them: WCAG 2.1, success criterion 1.4.11."""

# What a dichromat sees of a colour, in linear RGB: G. M. Machado, M. M. Oliveira, L. A. F. Fernandes, "A
# Physiologically-based Model for Simulation of Color Vision Deficiency", 2009, severity 1.
SIGHTS = {
    "usual": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
WHITE = [0.9505, 1.0, 1.089]


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(first: str, second: str) -> float:
    low, high = sorted(float(np.dot(TO_XYZ[1], linear(colour))) for colour in (first, second))
    return (high + 0.05) / (low + 0.05)


def difference(first: str, second: str, sight: str) -> float:
    """CIE 1976 distance in L*a*b*."""

    def lab(colour: str) -> np.ndarray:
        seen = np.clip(SIGHTS[sight] @ linear(colour), 0, 1)
        x, y, z = (
            np.cbrt(part) if part > 0.008856 else 7.787 * part + 16 / 116
            for part in TO_XYZ @ seen / np.array(WHITE)
        )
        return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])

    return float(np.linalg.norm(lab(first) - lab(second)))


@pytest.mark.parametrize("colour", CURVE_COLOURS)
@pytest.mark.parametrize("theme", BACKGROUNDS)
def test_a_curve_is_readable_on_both_themes(colour: str, theme: str) -> None:
    assert contrast(colour, BACKGROUNDS[theme]) >= CONTRAST - 0.05


@pytest.mark.parametrize("sight", SIGHTS)
def test_the_first_five_curves_of_a_panel_differ(sight: str) -> None:
    pairs = itertools.combinations(CURVE_COLOURS[:5], 2)

    assert min(difference(*pair, sight) for pair in pairs) > (25 if sight == "usual" else 13)


@pytest.mark.parametrize("sight", SIGHTS)
def test_no_curve_has_the_colour_of_a_severity(sight: str) -> None:
    pairs = itertools.product(CURVE_COLOURS, SEVERITIES)

    assert min(difference(*pair, sight) for pair in pairs) > (45 if sight == "usual" else 13)


def test_all_curves_differ() -> None:
    pairs = itertools.combinations(CURVE_COLOURS, 2)

    assert min(difference(*pair, "usual") for pair in pairs) > 14
