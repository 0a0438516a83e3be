"""`dataclass` and `field` for values that every process loads, without the 10 ms that importing `dataclasses` takes.

The standard module imports `inspect` and compiles several functions for each class, which the command line would pay
for at every call. A class made here has the same constructor, slots, equality and repr, and is a real dataclass to
code that asks: `dataclasses.fields`, `asdict`, `replace`, pydantic and `inspect.signature` find what they look for,
made at that moment. Type checkers see the standard decorator.
"""

from __future__ import annotations

from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from typing import Any
else:

    def field(*, default_factory: Callable[[], Any]) -> _Factory:
        """Marks a field whose default is made anew for each value."""
        return _Factory(default_factory)

    def dataclass(*, frozen: bool = False, eq: bool = True, repr: bool = True, slots: bool = True) -> Callable:
        """Makes a class of values with slots; the options mean what they mean to `dataclasses.dataclass`."""
        assert slots, "values have slots"

        def decorate(cls: type) -> type:
            return _build(cls, frozen=frozen, eq=eq, repr=repr)

        return decorate


class _Factory:
    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


class _Described:
    """An attribute of a class that is worked out when it is first asked for, from a standard twin of the class."""

    def __init__(self, name: str, defaults: dict[str, Any], options: dict[str, bool]) -> None:
        self._name = name
        self._defaults = defaults
        self._options = options

    def __get__(self, instance: object, owner: type) -> Any:
        import dataclasses
        import inspect

        namespace: dict[str, Any] = {"__annotations__": owner.__annotations__, "__module__": owner.__module__}
        for name, default in self._defaults.items():
            made = isinstance(default, _Factory)
            namespace[name] = dataclasses.field(default_factory=default.make) if made else default
        twin: Any = dataclasses.dataclass(**self._options)(type(owner.__name__, (), namespace))
        if self._name == "__signature__":
            return inspect.signature(twin)
        return getattr(twin, self._name)


def _build(cls: type, *, frozen: bool, eq: bool, repr: bool) -> type:
    names = tuple(cls.__annotations__)
    body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    defaults = {name: body.pop(name) for name in names if name in body}
    options = {"frozen": frozen, "eq": eq, "repr": repr}
    body["__slots__"] = body["__match_args__"] = names
    body["__init__"] = _constructor(cls, names, defaults)
    for name in ("__dataclass_fields__", "__dataclass_params__", "__signature__"):
        body[name] = _Described(name, defaults, options)
    if repr:
        body.setdefault("__repr__", _repr)
    if eq:
        body["__eq__"] = _eq
        body["__hash__"] = _hash if frozen else None
    if frozen:
        body.update(__setattr__=_refuse, __delattr__=_refuse, __reduce__=_reduce)
    return type(cls)(cls.__name__, cls.__bases__, body)


def _constructor(cls: type, names: tuple[str, ...], defaults: dict[str, Any]) -> Callable[..., None]:
    count = len(names)
    store = object.__setattr__
    required = set(names) - defaults.keys()
    finish = "__post_init__" in vars(cls)

    def __init__(self: object, *values: Any, **named: Any) -> None:
        for name, value in zip(names, values, strict=False):
            store(self, name, value)
        given = len(values)
        if given != count or named:  # all by place is how messages arrive, and ends here
            rest = names[given:]
            if given > count or not named.keys() <= set(rest) or not required <= {*names[:given], *named}:
                raise TypeError(_complaint(cls, names, defaults, given, named))
            for name in rest:
                if name in named:
                    store(self, name, named[name])
                else:
                    default = defaults[name]
                    store(self, name, default.make() if type(default) is _Factory else default)
        if finish:
            self.__post_init__()  # type: ignore[attr-defined]  # looked for above

    return __init__


def _complaint(cls: type, names: tuple[str, ...], defaults: dict[str, Any], given: int, named: dict[str, Any]) -> str:
    if given > len(names):
        return f"{cls.__name__}() takes {len(names)} arguments but {given} were given"
    for name in named:
        if name not in names:
            return f"{cls.__name__}() got an unexpected keyword argument {name!r}"
        if name in names[:given]:
            return f"{cls.__name__}() got multiple values for argument {name!r}"
    missing = [name for name in names[given:] if name not in named and name not in defaults]
    return f"{cls.__name__}() missing arguments: {', '.join(map(repr, missing))}"


def _values(value: Any) -> tuple[object, ...]:
    return tuple([getattr(value, name) for name in type(value).__match_args__])


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).__match_args__)
    return f"{type(self).__qualname__}({shown})"


def _eq(self: object, other: object) -> bool:
    return _values(self) == _values(other) if type(self) is type(other) else NotImplemented


def _hash(self: object) -> int:
    return hash(_values(self))


def _refuse(self: object, name: str, value: object = None) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _reduce(self: object) -> tuple[type, tuple[object, ...]]:
    return type(self), _values(self)
