"""The 30-second example of the README."""

from kernelbox import destroy, execute, get_or_create

kernel = get_or_create("agent-sandbox")

result = execute(kernel, "x = [1, 2, 3]\nsum(x)")
print(result.status)  # success
print(result.return_value)  # 6

# The kernel remembers x.
result = execute(kernel, "x.append(4)\nsum(x)")
print(result.return_value)  # 10

destroy("agent-sandbox")
