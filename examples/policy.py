"""Decides which shell commands a cell may run: rules first, then a function is asked."""

from kernelbox import ApprovalPolicy, Kernel, SyncApprovalRequest

policy = ApprovalPolicy(default="ask").allow("shell", args={"cmd": "ls*"}).deny("shell*", args={"cmd": "rm *"})


def approve(request: SyncApprovalRequest) -> bool | str:
    return True if request.tool_args["cmd"].startswith("echo") else "only echo is allowed"


with Kernel(policy=policy, approve=approve) as kernel:
    for code in ("!ls -d /tmp", "!echo approved", "!rm -rf build", "!curl localhost"):
        print(code, "->", kernel.execute(code).text.splitlines()[-1])
