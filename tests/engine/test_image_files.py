"""Images that cells show become files: so many, and so many bytes, for one execution."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from kernelbox import ExecutionResult, OutputItem
from kernelbox.core import _images
from kernelbox.core._images import ImageFiles


def image(size: int) -> OutputItem:
    return OutputItem("display_data", data={"image/png": base64.b64encode(bytes(size)).decode()})


def test_the_bytes_of_all_images_of_an_execution_together_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_images, "_MOST_BYTES", 1000)
    files = ImageFiles(str(tmp_path))
    written = [files.save(image(size)) is not None for size in (400, 600, 1)]
    assert written == [True, True, False]
    assert sorted(path.stat().st_size for path in tmp_path.iterdir()) == [400, 600]
    result = ExecutionResult("success")
    files.conclude(result, 0)
    assert result.truncated
    assert "only the first 2 images were written" in result.stderr
    assert [os.path.getsize(path) for path in result.images] == [400, 600]


def test_the_number_of_images_of_an_execution_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_images, "_MOST_FILES", 3)
    files = ImageFiles(str(tmp_path))
    assert [files.save(image(1)) is not None for _ in range(5)] == [True, True, True, False, False]
    assert len(list(tmp_path.iterdir())) == 3
