"""Outputs as they come, the result last."""

from kernelbox import ExecutionResult, OutputItem, destroy, stream

code = """
import time
for step in range(3):
    print("step", step)
    time.sleep(0.1)
"done"
"""
for event in stream("streaming", code):
    match event:
        case ExecutionResult():
            print("result:", event.return_value)
        case OutputItem():
            print(f"{event.kind}: {event.text!r}")

destroy("streaming")
