"""smolagents: an executor for `CodeAgent`."""

from __future__ import annotations

from typing import Any

from kernelbox.api._kernel import Kernel
from kernelbox.integrations._adapting import needs

with needs("smolagents"):
    from PIL import Image
    from smolagents.local_python_executor import CodeOutput
    from smolagents.monitoring import AgentLogger
    from smolagents.remote_executors import RemotePythonExecutor
    from smolagents.utils import AgentError


# The names that are neither modules nor packages in the kernel: smolagents uses both kinds.
_MISSING = """(lambda names, has: [name for name in names if name.lower() not in has and
__import__('importlib.util').util.find_spec(name.partition('.')[0]) is None])({!r},
{{package.name.lower() for package in __import__('importlib.metadata').metadata.distributions()}})"""


class KernelboxExecutor(RemotePythonExecutor):
    """Runs the agent's code in a kernel; `cleanup()` ends it. Further options are those of `Kernel`."""

    def __init__(
        self,
        additional_imports: list[str] | None = None,
        logger: Any = None,
        *,
        allow_pickle: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(additional_imports or [], logger or AgentLogger(), allow_pickle)
        self.pictures: list[Image.Image] = []
        self.kernel = Kernel(**options)
        wanted = [name for name in self.additional_imports if name != "*"]
        self.installed_packages = self.install_packages(wanted)

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        result = self.kernel.execute(code)
        self.pictures = [_read(path) for path in result.images]
        logs = result.stdout + result.stderr
        if result.error is None:
            value = result.value if result.value is not None else [result.return_value, *self.pictures][-1]
            return CodeOutput(output=value, logs=logs, is_final_answer=False)
        if result.error.ename == self.FINAL_ANSWER_EXCEPTION:
            answer = self._deserialize_final_answer(result.error.evalue, self.allow_pickle)
            return CodeOutput(output=answer, logs=logs, is_final_answer=True)
        raise AgentError(str(result), self.logger)

    def show_pictures(self, step: Any, agent: Any = None) -> None:
        """Shows the pictures of a step to the model: `CodeAgent(step_callbacks=[executor.show_pictures])`."""
        step.observations_images, self.pictures = self.pictures, []

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Installs what the kernel does not have."""
        if additional_imports and (wanted := self.kernel.execute(_MISSING.format(additional_imports)).value):
            self.run_code_raise_errors(f"%pip install --quiet {' '.join(wanted)}")
        return additional_imports

    def cleanup(self) -> None:
        """Ends a kernel that was opened without a name."""
        self.kernel.start()
        self.kernel.stop()


def _read(path: str) -> Image.Image:
    with Image.open(path) as picture:
        return picture.copy()
