"""An agent: a model writes code, reads what it did, and goes on. The model here is a script."""

from typing import Any

from kernelbox import Kernel

SCRIPT = iter(["prices = [3, 1, 4]", "sum(price)", "sum(prices)", "done: the prices add up to 8"])


def ask_model(messages: list[dict[str, Any]]) -> str:
    return next(SCRIPT)


messages: list[dict[str, Any]] = [{"role": "user", "content": "What do the prices add up to?"}]

with Kernel(timeout=60, budget=4000) as kernel:
    while not (answer := ask_model(messages)).startswith("done"):
        messages.append({"role": "assistant", "content": answer})
        messages += kernel.execute(answer).to_messages("openai")

print(answer)  # done: the prices add up to 8
print(len(messages))  # 7
