"""Approves shell commands in the synchronous API: with a function, in the loop, or by rules."""

import kernelbox
from kernelbox import ApprovalPolicy, SyncApprovalRequest


def approve(request: SyncApprovalRequest) -> bool | str:
    return True if request.tool_args["cmd"].startswith("echo ") else "only echo is allowed"


def main() -> None:
    kernel = kernelbox.get_or_create("approved")
    result = kernelbox.execute(kernel, "!echo hello", approve=approve)
    assert result.output == "hello\n"

    result = kernelbox.execute(kernel, "!ls", approve=approve)
    assert result.error is not None
    assert "only echo is allowed" in result.error.evalue

    for item in kernelbox.stream(kernel, "!echo again", approve=True):
        if isinstance(item, SyncApprovalRequest):
            item.accept()

    policy = ApprovalPolicy(default="deny").allow("shell", args={"cmd": "echo *"})
    assert kernelbox.execute(kernel, "!echo by rule", policy=policy).output == "by rule\n"
    assert not kernelbox.execute(kernel, "!echo by rule; ls", policy=policy).ok
    kernelbox.destroy(kernel)


if __name__ == "__main__":
    main()
