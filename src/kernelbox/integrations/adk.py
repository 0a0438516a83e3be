"""Google's Agent Development Kit: a code executor with a kernel for each session."""

from __future__ import annotations

import os
from typing import Any  # the fields of a model are read at run time

from kernelbox.api._sync import destroy
from kernelbox.integrations._adapting import needs, open_session, text_and_pictures

with needs("google-adk"):
    from google.adk.code_executors.base_code_executor import BaseCodeExecutor
    from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult, File
    from pydantic import PrivateAttr


class KernelboxCodeExecutor(BaseCodeExecutor):
    """Runs an agent's code blocks; variables last as long as the session. Plots are saved as artifacts.

    `options` are those of `Kernel`. The kernels end with `close()`, or with the program.
    """

    stateful: bool = True
    options: dict[str, Any] = {}  # noqa: RUF012  # pydantic copies it
    _opened: set[str] = PrivateAttr(default_factory=set)

    def execute_code(self, invocation_context: Any, code_execution_input: CodeExecutionInput) -> CodeExecutionResult:
        name = f"adk-{code_execution_input.execution_id or invocation_context.session.id}"
        options = {"lifetime": "process", "timeout": self.timeout_seconds, **self.options}
        kernel, cell = open_session(name, options)
        self._opened.add(name)
        for file in code_execution_input.input_files:
            kernel.files.write(os.path.basename(file.name), file.content)
        result = kernel.execute(code_execution_input.code, **cell)
        text, pictures = text_and_pictures(result)
        files = [
            File(f"image-{result.execution_count}-{number}.{mime.removeprefix('image/')}", data, mime)
            for number, (mime, data) in enumerate(pictures, 1)
        ]
        if result.ok:  # the agent takes anything in stderr, such as a warning, for a failure
            return CodeExecutionResult(stdout=text, output_files=files, exit_code=0)
        return CodeExecutionResult(stdout=result.stdout, stderr=text, output_files=files, exit_code=1)

    def close(self) -> None:
        """Ends the kernels."""
        while self._opened:
            destroy(self._opened.pop())
