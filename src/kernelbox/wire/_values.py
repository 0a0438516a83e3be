"""`dataclass` and `field` for values that every process loads, without the 10 ms that importing `dataclasses` takes.

The standard module imports `inspect` and compiles several functions for each class, which would slow down every call
of the command line. A class made here has the same constructor, slots, equality and repr. `dataclasses.fields`,
`asdict`, `replace`, pydantic and `inspect.signature` see a real dataclass: the attributes they look for are made at
that moment. Type checkers see the standard decorator.
"""

from __future__ import annotations

from kernelbox.wire._builtins import keep_builtins

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


# After this many values of a class it is worth compiling a constructor for it.
_OFTEN = 50

_to_compile: list[Callable[[], object]] = []


def compile_constructors() -> None:
    """Compiles the constructors of all classes made so far, for the forks of this process."""
    for compile_now in _to_compile:
        compile_now()


class _Factory:
    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


class _Described:
    """An attribute of a class that is computed on access, from a standard dataclass with the same fields."""

    def __init__(self, name: str, described: type, defaults: dict[str, Any], options: dict[str, bool]) -> None:
        self._name = name
        self._described = described  # a subclass has no fields of its own
        self._defaults = defaults
        self._options = options

    def __get__(self, instance: object, owner: type) -> Any:
        import dataclasses
        import inspect

        cls = self._described
        namespace: dict[str, Any] = {"__annotations__": cls.__annotations__, "__module__": cls.__module__}
        for name, default in self._defaults.items():
            made = isinstance(default, _Factory)
            namespace[name] = dataclasses.field(default_factory=default.make) if made else default
        twin: Any = dataclasses.dataclass(**self._options)(type(cls.__name__, (), namespace))
        if self._name == "__signature__":
            return inspect.signature(twin)
        return getattr(twin, self._name)


def _build(cls: type, *, frozen: bool, eq: bool, repr: bool) -> type:
    names = tuple(cls.__annotations__)
    body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    defaults = {name: body.pop(name) for name in names if name in body}
    options = {"frozen": frozen, "eq": eq, "repr": repr}
    body["__slots__"] = body["__match_args__"] = names
    finish = "__post_init__" in body

    def compile_now() -> Any:
        made.__init__ = _compiled(cls, names, defaults, finish, frozen)
        return made.__init__

    body["__init__"] = _constructor(names, defaults, finish, compile_now)
    for name in ("__dataclass_fields__", "__dataclass_params__", "__signature__"):
        body[name] = _Described(name, cls, defaults, options)
    if repr:
        body.setdefault("__repr__", _repr)
    if eq:
        body["__eq__"] = _eq
        body["__hash__"] = _hash if frozen else None
    if frozen:
        body.update(__setattr__=_refuse, __delattr__=_refuse, __reduce__=_reduce)
    _to_compile.append(compile_now)
    made: Any = type(cls)(cls.__name__, cls.__bases__, body)
    return made  # type: ignore[no-any-return]  # a class


def _constructor(names: tuple[str, ...], defaults: dict[str, Any], finish: bool, compile_now: Any) -> Any:
    """Returns a constructor that compiles and uses a faster one after many calls, or to report wrong arguments."""
    count = len(names)
    store = object.__setattr__
    required = set(names) - defaults.keys()
    calls = 0

    def __init__(self: object, *values: Any, **named: Any) -> None:
        nonlocal calls
        calls += 1
        given = len(values)
        rest = names[given:]
        if calls > _OFTEN or given > count or not named.keys() <= set(rest) or not required <= {*names[:given], *named}:
            compile_now()(self, *values, **named)
            return
        for name, value in zip(names, values, strict=False):
            store(self, name, value)
        for name in rest:
            if name in named:
                store(self, name, named[name])
            else:
                default = defaults[name]
                store(self, name, default.make() if type(default) is _Factory else default)
        if finish:
            self.__post_init__()  # type: ignore[attr-defined]  # `finish` says that there is one

    return __init__


def _compiled(cls: type, names: tuple[str, ...], defaults: dict[str, Any], finish: bool, frozen: bool) -> Any:
    """Returns a constructor written out for one class, as the standard module makes them: it takes a third of the time.

    Compiling it takes as long as it saves in a hundred calls.
    """
    known: dict[str, Any] = {"store": object.__setattr__}  # and our own built-in names, which `exec` adds
    parameters, lines = ["self"], []
    for name in names:
        value = name
        if name in defaults:
            known[f"default_{name}"] = default = defaults[name]
            parameters.append(f"{name}=default_{name}")
            if type(default) is _Factory:
                value = f"default_{name}.make() if {name} is default_{name} else {name}"
        else:
            parameters.append(name)
        lines.append(f"    store(self, {name!r}, {value})" if frozen else f"    self.{name} = {value}")
    if finish:
        lines.append("    self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or ["    pass"]), known)
    known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return known["__init__"]


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
