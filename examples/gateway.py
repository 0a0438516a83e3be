"""A gateway as a child process, and a client that runs code in a kernel of it."""

import asyncio

from kernelbox.gateway import ExecutionError, ExecutionResult, KernelClient, KernelGateway


async def main() -> None:
    async with KernelGateway(port=0, env={"API_KEY": "for kernels"}) as gateway:  # port 0: the system chooses
        async with KernelClient(port=gateway.port) as client:
            result = await client.execute("print('hello')")
            print(result.text, result.images)  # hello []

            async for item in client.stream("import os; print(os.environ['API_KEY'])"):
                match item:
                    case str():
                        print(f"Chunk: {item}")
                    case ExecutionResult():
                        print(f"Result: {item}")

            try:
                await client.execute("1 / 0")
            except ExecutionError as error:
                print(error.ename, error.state)  # ZeroDivisionError kept


asyncio.run(main())
