"""Values that load fast and are dataclasses all the same."""

from __future__ import annotations

import builtins
import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from typing import Any

import pytest

from kernelbox import ErrorInfo, ExecutionResult, KernelBoxConfig, KernelRecord
from kernelbox.wire._kernel_state import KernelState
from kernelbox.wire._messages import Done, Interrupt, Started
from kernelbox.wire._values import compile_constructors, dataclass, field

VALUES: list[Any] = [
    ErrorInfo("ValueError", "no", ["a", "b"]),
    ExecutionResult("error", error=ErrorInfo("E", "v")),
    KernelRecord("id", "file", "name", "then", "now", tags={"a": "b"}),
    KernelBoxConfig(home="/nowhere"),
]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_a_dataclass_to_the_standard_library(value: Any) -> None:
    names = [spec.name for spec in dataclasses.fields(value)]
    assert list(dataclasses.asdict(value)) == names
    assert dataclasses.replace(value) == value
    assert dataclasses.is_dataclass(value)


@pytest.mark.parametrize("value", VALUES)
def test_a_value_survives_copying_and_pickling(value: Any) -> None:
    assert copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value


def test_the_signature_names_the_fields_and_their_defaults() -> None:
    parameters = inspect.signature(ErrorInfo).parameters
    assert list(parameters) == ["ename", "evalue", "traceback"]
    assert parameters["ename"].default is inspect.Parameter.empty


def test_a_default_that_is_made_is_made_anew() -> None:
    assert ErrorInfo("a", "b").traceback is not ErrorInfo("a", "b").traceback


@pytest.mark.parametrize(
    ("args", "named", "complaint"),
    [
        ((), {}, "missing 2 required positional arguments: 'id' and 'execution_count'"),
        (("a",), {}, "missing 1 required positional argument: 'execution_count'"),
        (("a", 1, 2), {}, "takes 3 positional arguments but 4 were given"),
        (("a",), {"id": "b", "execution_count": 1}, "multiple values for argument 'id'"),
        (("a", 1), {"colour": 1}, "unexpected keyword argument 'colour'"),
    ],
)
def test_wrong_arguments_are_named(args: tuple[Any, ...], named: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        Started(*args, **named)


def test_arguments_may_be_given_by_place_and_by_name() -> None:
    assert Done("a", status="ok") == Done("a", "ok", None, "", "", [], False)
    assert Interrupt(harder=True) == Interrupt("", True)


def test_a_frozen_value_refuses_changes_and_can_be_a_key() -> None:
    config = KernelBoxConfig(home="/nowhere")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.home = "/elsewhere"  # type: ignore[misc]  # the point of the test
    assert {config: 1}[KernelBoxConfig(home="/nowhere")] == 1


def test_values_of_different_classes_differ() -> None:
    other: object = OtherInfo()
    assert ErrorInfo("a", "b") != other
    assert ErrorInfo("a", "b") != ErrorInfo("a", "c")


def test_a_value_shows_its_fields_unless_it_is_made_otherwise() -> None:
    assert repr(ErrorInfo("E", "v")) == "ErrorInfo(ename='E', evalue='v', traceback=[])"
    assert repr(KernelState("idle", 1, 0.0, 0.0, "", 0, "")).startswith(
        "<kernelbox.wire._kernel_state.KernelState object at "
    )


def make_class() -> Any:
    """Makes a class of values that no constructor has been compiled for."""

    @dataclass(slots=True)
    class Doubled:
        number: int
        name: str = ""
        parts: list[str] = field(default_factory=list)

        def __post_init__(self) -> None:
            self.number *= 2

        def __repr__(self) -> str:
            return f"<{self.number}>"

    return Doubled


def is_compiled(cls: Any) -> bool:
    return "number" in cls.__init__.__code__.co_varnames


@pytest.mark.parametrize("compiled", [False, True])
def test_a_class_of_values_is_the_same_before_and_after_its_constructor_is_compiled(compiled: bool) -> None:
    cls = make_class()
    if compiled:
        compile_constructors()
    for value in (cls(2), cls(number=2), cls(2, "", []), cls(2, parts=[]), cls(number=2, name="", parts=[])):
        assert (value.number, value.name, value.parts) == (4, "", [])
        assert repr(value) == "<4>"
    assert cls(2).parts is not cls(2).parts
    assert is_compiled(cls) is compiled
    with pytest.raises(TypeError, match=r"missing 1 [^']*'number'$"):
        cls(name="x")
    with pytest.raises(TypeError, match="takes from 2 to 4 positional arguments but 5 were given"):
        cls(1, "", [], 2)


def test_a_class_without_fields_can_be_made_any_number_of_times() -> None:
    @dataclass(frozen=True, slots=True)
    class Nothing:
        pass

    compile_constructors()
    assert {Nothing() for _ in range(100)} == {Nothing()}


def test_a_constructor_is_compiled_when_a_process_makes_the_51st_value() -> None:
    cls = make_class()
    for _ in range(50):
        cls(1)
    assert not is_compiled(cls)
    assert cls(1).number == 2
    assert is_compiled(cls)
    assert cls.__init__.__globals__["__builtins__"] is not vars(builtins)


def test_a_value_that_can_be_changed_is_no_key() -> None:
    error = ErrorInfo("E", "v")
    error.evalue = "w"
    assert error == ErrorInfo("E", "w")
    with pytest.raises(TypeError, match="unhashable"):
        hash(error)


def test_positional_patterns_match() -> None:
    match KernelState("idle", 1, 0.0, 0.0, "", 0, ""):
        case KernelState("idle", executions):
            assert executions == 1
        case _:
            pytest.fail("the pattern did not match")


def test_the_api_loads_without_the_dataclasses_module() -> None:
    heavy = "{'asyncio', 'dataclasses', 'inspect', 'typing'}"
    code = f"import sys, kernelbox.api._sync; print(sorted({heavy} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_a_constructor_that_is_called_often_does_the_same() -> None:
    results = [ExecutionResult("error", error=ErrorInfo("E", "v", traceback=["a"])) for _ in range(200)]
    assert all(result == results[0] for result in results)
    assert len({id(result.outputs) for result in results}) == 200
    errors = [Told("a") for _ in range(200)]
    assert {(error.evalue, error.told) for error in errors} == {("told", True)}
    with pytest.raises(TypeError, match=r"ErrorInfo.__init__\(\) missing 1 required positional argument: 'evalue'"):
        ErrorInfo("a")  # type: ignore[call-arg]  # the point of the test


class Told(ErrorInfo):
    """A value with a constructor of its own."""

    def __init__(self, ename: str) -> None:
        super().__init__(ename, evalue="told")
        self.told = True


class OtherInfo:
    ename, evalue, traceback = "a", "b", list[str]()
