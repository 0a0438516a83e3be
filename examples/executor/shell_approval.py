"""Asks before each shell command, and rejects one."""

import asyncio

from kernelbox import ApprovalRequest, CodeExecutionError, CodeExecutionResult, CodeExecutor


async def main() -> None:
    async with CodeExecutor(approve_shell_cmds=True) as executor:
        async for item in executor.stream("for name in ('a', 'b'):\n    !echo {name}"):
            match item:
                case ApprovalRequest():
                    assert item.tool_name == "shell"
                    assert item.tool_args["cmd"] in ["echo a", "echo b"]
                    await item.accept()
                case CodeExecutionResult():
                    assert item.text == "a\nb"

        problem = ""
        try:
            async for item in executor.stream("!rm -rf build"):
                match item:
                    case ApprovalRequest():
                        await item.reject("not on a Friday")
        except CodeExecutionError as error:
            problem = f"{error.ename}: {error.evalue}"
        assert problem == "ApprovalRejectedError: shell 'rm -rf build': not on a Friday"


if __name__ == "__main__":
    asyncio.run(main())
