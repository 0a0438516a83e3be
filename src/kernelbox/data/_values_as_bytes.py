"""Values as bytes and back: JSON, bytes, numpy arrays, and tables by way of Arrow. Nothing is ever unpickled.

numpy, pandas, polars and pyarrow are imported only for values that need them. An array travels as its own memory, and a
table in Arrow's stream format, so neither becomes text on the way.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_HOW = "use JSON values, bytes, a numpy array or a table of pandas, polars or pyarrow, or write it to a file"


class NotTransferable(TypeError):
    """Raised for a value that cannot be written as bytes without pickling it."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value as bytes; `kind` and `meta`, which is JSON, say how to read them."""

    kind: str
    meta: dict[str, Any] = field(default_factory=dict)
    data: bytes | memoryview = b""


def encode_value(value: object) -> Encoded:
    """Writes a value as bytes; raises NotTransferable."""
    if isinstance(value, bytes | bytearray | memoryview):
        view = memoryview(value)
        return Encoded("bytes", data=view.cast("B") if view.c_contiguous and view.nbytes else view.tobytes())
    numpy, pandas, polars, arrow = map(sys.modules.get, ("numpy", "pandas", "polars", "pyarrow"))
    if numpy is not None and isinstance(value, numpy.generic) and not isinstance(value, float | str | bytes):
        value = value.item()
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _encode_array(numpy, value)
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return Encoded("pandas", data=_stream(value, lambda arrow: arrow.Table.from_pandas(value)))
    if pandas is not None and isinstance(value, pandas.Series):
        named = {"name": value.name if isinstance(value.name, str) else None}
        frame = value.to_frame("values")
        return Encoded("series", named, _stream(value, lambda arrow: arrow.Table.from_pandas(frame)))
    if polars is not None and isinstance(value, polars.DataFrame):
        return Encoded("polars", data=_stream(value, lambda _: value.to_arrow()))
    if arrow is not None and isinstance(value, arrow.Table | arrow.RecordBatch):
        return Encoded("arrow", data=_stream(value, lambda _: value))
    return _encode_json(value)


def decode_value(kind: str, meta: dict[str, Any], data: bytearray) -> object:
    """Reads a value; raises ValueError for bytes that are not what they are said to be."""
    if kind == "bytes":
        return bytes(data)
    if kind == "json":
        return json.loads(data)
    if kind == "array":
        return _decode_array(meta, data)
    if kind in ("pandas", "series", "polars", "arrow"):
        return _decode_table(kind, meta, data)
    raise ValueError(f"unknown kind of value {kind!r}")


def _encode_json(value: object) -> Encoded:
    try:
        text = json.dumps(value, ensure_ascii=False, check_circular=True)
        data = text.encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise NotTransferable(f"{type(value).__name__} objects cannot be passed on ({exc}); {_HOW}") from exc
    return Encoded("json", data=data)


def _encode_array(numpy: Any, array: Any) -> Encoded:
    if array.dtype.hasobject:
        raise NotTransferable(f"an array of Python objects cannot be passed on; {_HOW}")
    if isinstance(array, numpy.ma.MaskedArray):
        raise NotTransferable("a masked array would lose its mask; pass its data and its mask")
    whole = numpy.ascontiguousarray(array)
    meta = {"dtype": numpy.lib.format.dtype_to_descr(whole.dtype), "shape": list(array.shape)}
    return Encoded("array", meta, whole.reshape(-1).view("u1").data if whole.size else b"")


def _decode_array(meta: dict[str, Any], data: bytearray) -> object:
    try:
        import numpy
    except ImportError as exc:
        raise NotTransferable("it is an array; install numpy to read it") from exc
    dtype = numpy.lib.format.descr_to_dtype(_tuples(meta["dtype"]))
    if dtype.hasobject:
        raise ValueError("an array of Python objects is not read")
    return numpy.frombuffer(data, dtype=dtype).reshape([int(size) for size in meta["shape"]])


def _tuples(description: Any) -> Any:
    """Gives the description of a dtype back the tuples that JSON made lists of: fields, and the shapes in them."""
    if not isinstance(description, list):
        return description
    return [(name, _tuples(kind), *map(tuple, shape)) for name, kind, *shape in description]


def _arrow() -> Any:
    try:
        import pyarrow  # type: ignore[import-untyped]  # it has no annotations
    except ImportError as exc:
        raise NotTransferable("tables travel by way of Arrow; install pyarrow here and for the kernel") from exc
    return pyarrow


def _stream(value: object, convert: Callable[[Any], Any]) -> memoryview:
    """Writes a table in Arrow's stream format; `convert` is passed the library and returns Arrow's own table."""
    arrow = _arrow()
    try:
        table, sink = convert(arrow), arrow.BufferOutputStream()
        with arrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write(table)
    except (arrow.ArrowException, ValueError, TypeError) as exc:
        raise NotTransferable(f"this {type(value).__name__} is not a table for Arrow ({exc}); {_HOW}") from exc
    return memoryview(sink.getvalue()).cast("B")


def _decode_table(kind: str, meta: dict[str, Any], data: bytearray) -> object:
    arrow = _arrow()
    try:
        table = arrow.ipc.open_stream(arrow.py_buffer(data)).read_all()
        table.validate(full=True)
    except arrow.ArrowException as exc:
        raise ValueError(f"these bytes are not a table: {exc}") from exc
    try:
        if kind == "polars":
            import polars  # type: ignore[import-not-found]  # few have it

            return polars.from_arrow(table)
        if kind != "arrow":
            frame = table.to_pandas()
            return frame["values"].rename(meta.get("name")) if kind == "series" else frame
    except ImportError:
        pass  # only the other side has the library, so the table stays Arrow's
    return table
