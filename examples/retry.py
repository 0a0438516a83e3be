"""Code that repairs itself: the callback reads the error and returns better code."""

from kernelbox import ExecutionResult, destroy, execute_with_retry, get_or_create

kernel = get_or_create("agent")


def fix(result: ExecutionResult, attempt: int) -> str:
    assert result.error is not None
    print(f"Attempt {attempt} failed: {result.error.evalue}")
    return "x = 41\nx + 1"  # ask your model for a fix here


result = execute_with_retry(kernel, "x + 1", on_error_fn=fix)
print(result.status)  # success
print(result.return_value)  # 42
print(len(result.attempts))  # 2: the failed attempt and the fixed one

destroy("agent")
