"""Lets rules decide about commands, and a person about the rest."""

import asyncio

from kernelbox import ApprovalPolicy, ApprovalRequest, CodeExecutionError, CodeExecutor

policy = (
    ApprovalPolicy()
    .allow("shell", args={"cmd": "echo *"})
    .deny("shell*", args={"cmd": "*curl*"}, reason="no downloads here")
)

code = """
!echo allowed
for number in range(3):
    !seq {number} {number}
"""


async def main() -> None:
    asked = []
    async with CodeExecutor(approve_shell_cmds=True, approval_policy=policy) as executor:
        async for item in executor.stream(code):
            match item:
                case ApprovalRequest():
                    asked.append(item.tool_args["cmd"])
                    await item.accept(remember="execution", args={"cmd": "seq *"})  # and every other in this cell
        assert asked == ["seq 0 0"]

        problem = ""
        try:
            await executor.execute("!curl https://example.com")
        except CodeExecutionError as error:
            problem = error.evalue
        assert problem.endswith("no downloads here")


if __name__ == "__main__":
    asyncio.run(main())
