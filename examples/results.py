"""What a result says, for a success, an error, bash and a timeout."""

from kernelbox import destroy, execute, get_or_create

kernel = get_or_create("results")

result = execute(kernel, "print('hello')\n2 + 2")
print(result.status)  # success
print(result.ok)  # True
print(result.output)  # hello
print(result.return_value)  # 4
print(result.truncated)  # False

result = execute(kernel, "1 / 0")
assert result.error is not None
print(result.error.ename)  # ZeroDivisionError
print(result.error.evalue)  # division by zero
print(result.text)  # the traceback, for a model to read

result = execute(kernel, "cd /tmp && export NAME=box", language="bash")
result = execute(kernel, "echo $NAME in $PWD", language="bash")
print(result.output)  # box in /tmp

result = execute(kernel, "y = 1\nwhile True: pass", timeout=0.5)
print(result.status, result.state)  # timeout kept
print(execute(kernel, "y").return_value)  # 1

destroy("results")
