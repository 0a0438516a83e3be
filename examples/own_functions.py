"""Lets a cell call functions of this program, each call approved here."""

from kernelbox import Kernel, SyncApprovalRequest


def search(query: str, limit: int = 3) -> list[str]:
    """Finds documents about something."""
    return [f"{query}, page {number}" for number in range(1, limit + 1)]


def send_mail(to: str, text: str) -> str:
    """Sends a message."""
    return f"sent to {to}"


def approve(request: SyncApprovalRequest) -> bool | str:
    return request.tool_name == "search" or "ask a person before you send mail"


with Kernel(tools=[search, send_mail], approve=approve) as kernel:
    print(kernel.execute("[page.upper() for page in search('cats', limit=1)]").return_value)  # ['CATS, PAGE 1']
    print(kernel.execute("send_mail('ann', 'hello')").error)  # ask a person before you send mail
