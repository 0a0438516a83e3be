"""Approves shell commands in the synchronous API, with a function or in the loop."""

import kernelbox
from kernelbox import SyncApprovalRequest


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
    kernelbox.destroy(kernel)


if __name__ == "__main__":
    main()
