"""Pictures for a context window: scaled below a limit, and made by a decoder of few formats."""

from __future__ import annotations

import base64
import io
import warnings

# Pixels that are decoded at all: a small file can describe a picture that fills the memory.
_MOST_PIXELS = 64_000_000

_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")


def scale(raw: bytes, *, longest_side: int, most_bytes: int) -> tuple[str, str] | None:
    """Returns a picture as base64 and its MIME type, scaled if it must be; None if it cannot be shown.

    One that takes more than `most_bytes` becomes a JPEG. Raises ImportError if Pillow is not installed.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # `_MOST_PIXELS` decides
            with Image.open(io.BytesIO(raw), formats=_FORMATS) as image:
                if image.width * image.height > _MOST_PIXELS:
                    return None
                if max(image.size) <= longest_side and len(raw) <= most_bytes and image.format in ("PNG", "JPEG"):
                    image.verify()
                    return _encode(raw), f"image/{image.format.lower()}"
                return _shrink(image, longest_side, most_bytes)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError):
        return None  # a picture that cannot be decoded still exists as a file


def _shrink(image: object, longest_side: int, most_bytes: int) -> tuple[str, str]:
    from PIL import Image

    assert isinstance(image, Image.Image)
    small = image.convert("RGBA")
    small.thumbnail((longest_side, longest_side))
    png = _save(small, "PNG")
    if len(png) <= most_bytes:
        return _encode(png), "image/png"
    opaque = Image.new("RGB", small.size, "white")
    opaque.paste(small, mask=small.getchannel("A"))
    return _encode(_save(opaque, "JPEG", quality=80)), "image/jpeg"


def _save(image: object, kind: str, **options: object) -> bytes:
    from PIL import Image

    assert isinstance(image, Image.Image)
    target = io.BytesIO()
    image.save(target, kind, **options)
    return target.getvalue()


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
