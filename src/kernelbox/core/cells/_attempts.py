"""The attempts of a retry, without running anything: code goes out, results and better code come in."""

from __future__ import annotations

from kernelbox.base._errors import InvalidInput, attach_attempts
from kernelbox.wire._results import ExecutionResult
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt that failed and is not the last: the caller is asked for better code."""

    result: ExecutionResult
    attempt: int


def attempts(
    code: str, allowed: int, can_go_on: Callable[[], bool] = lambda: True
) -> Generator[str | FailedAttempt, ExecutionResult | str | None, ExecutionResult]:
    """Yields code and is sent its result; yields a FailedAttempt and is sent new code, or None for the same again.

    The generator's value is the last result, with all attempts. `can_go_on` is asked after a result that has lost the
    kernel's variables. Raises InvalidInput for an answer that is not code.
    """
    taken = []
    for attempt in range(1, allowed + 1):
        sent = yield code
        assert isinstance(sent, ExecutionResult)
        result = sent
        taken.append(result.snapshot(attempt, code))
        result.attempts = taken
        if result.ok:
            return result
        if attempt == allowed:
            break
        if result.state == "lost" and not can_go_on():
            return result
        try:
            code = _next_code((yield FailedAttempt(result, attempt)), code)
        except GeneratorExit:
            raise
        except BaseException as exc:
            attach_attempts(exc, taken)
            raise
    result.status = "max_attempts_exceeded"
    return result


def check_attempts(on_error: object, max_attempts: object, default: int) -> int:
    """Returns how many attempts are allowed; None and 0 mean the default. Raises InvalidInput."""
    if not callable(on_error):
        raise InvalidInput("on_error_fn", on_error, "use a function of a result and the number of the attempt")
    if max_attempts is not None and (type(max_attempts) is not int or max_attempts < 0):
        raise InvalidInput("max_attempts", max_attempts, "use a whole number, or None or 0 for the configured one")
    return max_attempts or default


def run_attempts(
    steps: Generator[str | FailedAttempt, ExecutionResult | str | None, ExecutionResult],
    run: Callable[[str], ExecutionResult],
    on_error: Callable[[ExecutionResult, int], str | None],
) -> ExecutionResult:
    """Drives the attempts with functions that block."""
    step = next(steps)
    while True:
        try:
            if isinstance(step, str):
                step = steps.send(run(step))
                continue
            try:
                answer = on_error(step.result, step.attempt)
            except BaseException as exc:  # noqa: BLE001  # it is raised again, with the attempts
                step = steps.throw(exc)
            else:
                step = steps.send(answer)
        except StopIteration as stop:
            result: ExecutionResult = stop.value
            return result


def _next_code(answer: object, code: str) -> str:
    if answer is not None and not isinstance(answer, str):
        raise InvalidInput("the return value of on_error_fn", answer, "return new code, or None to try again")
    return code if answer is None else answer
