"""What the examples of the pages do not show: sandboxed runs that go on later, artifacts, cancelling, pictures."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agents import ModelResponse, RunConfig, Runner, Usage
from agents.models.interface import Model
from agents.sandbox import LocalSnapshotSpec, Manifest, SandboxAgent, SandboxRunConfig
from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreterError
from google.adk.agents import LlmAgent
from google.adk.code_executors.code_execution_utils import CodeExecutionInput
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from smolagents import CodeAgent
from smolagents import Model as SmolModel
from smolagents.models import ChatMessage, MessageRole

from kernelbox import ApprovalPolicy, AsyncKernel, list_kernels
from kernelbox.integrations.adk import KernelboxCodeExecutor
from kernelbox.integrations.deepagents import KernelboxSandbox
from kernelbox.integrations.dspy import KernelboxInterpreter
from kernelbox.integrations.langchain import KernelboxTool
from kernelbox.integrations.openai_agents import KernelboxSandboxClient
from kernelbox.integrations.smolagents import KernelboxExecutor

PLOT = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()"


class Script(Model):
    """Calls the sandbox's tool with one command after another, and keeps what it was told."""

    def __init__(self, *commands: str) -> None:
        self._commands = iter(commands)
        self.told: list[str] = []

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **named: Any) -> ModelResponse:
        self.told = [str(item["output"]) for item in input if isinstance(item, dict) and "output" in item]
        command = next(self._commands, None)
        if command is None:
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            said: Any = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
        else:
            asked = json.dumps({"cmd": command})
            said = ResponseFunctionToolCall(type="function_call", call_id=command, name="exec_command", arguments=asked)
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError


def test_a_sandbox_agent_of_openai_is_confined_and_its_session_is_resumed(tmp_path: Path) -> None:
    async def scenario() -> None:
        client = KernelboxSandboxClient()
        agent = SandboxAgent(name="worker", instructions="work", model=(model := Script("echo made > a; touch /etc/x")))
        done = await Runner.run(agent, "go", run_config=RunConfig(sandbox=SandboxRunConfig(client=client)))
        assert done.final_output == "done"
        assert "Read-only file system" in model.told[0]
        assert list_kernels() == []

        work = tmp_path / "work"
        work.mkdir()
        session = await client.create(manifest=Manifest(root=str(work)), snapshot=LocalSnapshotSpec(base_path=tmp_path))
        async with session:
            await session.exec("echo made > kept.txt")
            state = session.state
        assert list_kernels() == []
        restored = client.deserialize_session_state(client.serialize_session_state(state))
        agent = SandboxAgent(name="worker", instructions="work", model=(model := Script("cat kept.txt; touch /etc/x")))
        config = RunConfig(sandbox=SandboxRunConfig(client=client, session_state=restored))
        await Runner.run(agent, "go on", run_config=config)
        assert "made" in model.told[0]
        assert "Read-only file system" in model.told[0]

    asyncio.run(scenario())
    assert list_kernels() == []


def test_a_plot_in_adk_is_saved_as_an_artifact() -> None:
    cells = iter([PLOT])

    class Writer(BaseLlm):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            cell = next(cells, None)
            text = "done" if cell is None else f"```python\n{cell}\n```"
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))

    async def scenario() -> None:
        executor = KernelboxCodeExecutor()
        runner = InMemoryRunner(agent=LlmAgent(name="a", model=Writer(model="s"), code_executor=executor), app_name="p")
        session = await runner.session_service.create_session(app_name="p", user_id="ann")
        question = types.Content(role="user", parts=[types.Part(text="plot")])
        async for _ in runner.run_async(user_id="ann", session_id=session.id, new_message=question):
            pass
        assert runner.artifact_service is not None
        where = {"app_name": "p", "user_id": "ann", "session_id": session.id}
        (name,) = await runner.artifact_service.list_artifact_keys(**where)
        kept = await runner.artifact_service.load_artifact(filename=name, **where)
        assert kept is not None
        assert kept.inline_data is not None
        assert kept.inline_data.data is not None
        assert kept.inline_data.data.startswith(b"\x89PNG")
        assert (name.endswith(".png"), kept.inline_data.mime_type) == (True, "image/png")
        executor.close()

    asyncio.run(scenario())
    assert list_kernels() == []


def test_cancelling_a_call_of_langchain_interrupts_the_cell_and_keeps_the_variables(tmp_path: Path) -> None:
    tool = KernelboxTool()
    config: Any = {"configurable": {"thread_id": "ann"}}

    def call(code: str) -> dict[str, Any]:
        return {"name": "python", "args": {"code": code}, "id": "1", "type": "tool_call"}

    async def scenario() -> None:
        assert (await tool.ainvoke(call("x = 41"), config)).status == "success"
        started = tmp_path / "started"
        code = f"import pathlib, time; pathlib.Path({str(started)!r}).touch(); time.sleep(600)"
        running = asyncio.ensure_future(tool.ainvoke(call(code), config))
        while not started.exists():  # noqa: ASYNC110  # another process makes it
            await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        (record,) = list_kernels()
        assert (await AsyncKernel(record.name).execute("x")).value == 41
        shown = await tool.ainvoke(call(f"{PLOT}; x + 1"), config)
        assert [block["type"] for block in shown.content] == ["text", "image"]

    asyncio.run(scenario())
    tool.close()
    assert list_kernels() == []


def price(item: str) -> float:
    """Returns the price of an item."""
    return len(item) * 1.5


def test_the_options_of_a_kernel_hold_for_the_cells_of_langchain() -> None:
    options = {"tools": [price], "approve": lambda request: request.tool_args["item"] == "pear"}
    tool = KernelboxTool(options=options)

    def call(code: str) -> dict[str, Any]:
        return {"name": "python", "args": {"code": code}, "id": "1", "type": "tool_call"}

    for answer in (tool.invoke(call("price('pear')")), asyncio.run(tool.ainvoke(call("price('pear')")))):
        assert answer.artifact.value == 6.0
    for answer in (tool.invoke(call("price('fig')")), asyncio.run(tool.ainvoke(call("price('fig')")))):
        assert "ApprovalRejectedError" in str(answer.content)
    tool.close()
    assert list_kernels() == []


def test_the_options_of_a_kernel_hold_for_the_cells_of_adk() -> None:
    executor = KernelboxCodeExecutor(options={"tools": [price], "tags": {"team": "a"}})
    done = executor.execute_code(None, CodeExecutionInput("print(price('fig'))", execution_id="one"))
    assert (done.stdout, done.exit_code) == ("4.5", 0)
    executor.close()
    assert list_kernels() == []


def test_a_picture_in_smolagents_reaches_the_next_message_to_the_model() -> None:
    cells = iter([PLOT, "final_answer(1)"])
    seen: list[Any] = []

    class Writer(SmolModel):
        def generate(self, messages: Any, **options: Any) -> ChatMessage:
            seen.append(messages)
            return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{next(cells)}\n</code>")

    executor = KernelboxExecutor()
    with CodeAgent(
        tools=[], model=Writer(), executor=executor, step_callbacks=[executor.show_pictures], verbosity_level=0
    ) as agent:
        assert agent.run("plot") == 1
    kinds = [part["type"] for message in seen[1] for part in message.content]
    assert kinds.count("image") == 1
    assert list_kernels() == []


def test_commands_of_deep_agents_are_held_to_the_policy_on_an_event_loop_too(tmp_path: Path) -> None:
    backend = KernelboxSandbox(tmp_path, policy=ApprovalPolicy(default="deny"))
    for done in (backend.execute("touch made"), asyncio.run(backend.aexecute("touch made"))):
        assert "not allowed by the approval policy" in done.output
    assert list(tmp_path.iterdir()) == []
    backend.close()
    assert list_kernels() == []


def test_a_call_of_a_tool_of_dspy_is_approved() -> None:
    interpreter = KernelboxInterpreter({"ship": lambda: "shipped"}, approve=lambda request: "not today")
    with pytest.raises(CodeExecutionError, match="not today"):
        interpreter.execute("ship()")
    interpreter.shutdown()


def test_dspy_can_submit_after_a_kernel_has_died() -> None:
    interpreter = KernelboxInterpreter(output_fields=[{"name": "answer"}])
    with pytest.raises(CodeInterpreterError, match="the process exited"):
        interpreter.execute("import os; os._exit(1)")
    assert interpreter.execute("SUBMIT(42)").output == {"answer": 42}
    interpreter.shutdown()
    assert list_kernels() == []
