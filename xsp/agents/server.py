"""The Model Context Protocol over stdin and stdout, by the official SDK; the one module that imports it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import AsyncIterable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectSendStream
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolRequestParams,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as OfferedTool
from pydantic import ValidationError

from xsp.agents.request_id import id_in, usable_id
from xsp.agents.service import Service
from xsp.agents.tools import INSTRUCTIONS, TOOLS
from xsp.agents.worker import Reply, Worker

__all__ = ["serve"]

_READS_ALONE = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_MAX_FAULT = 2_000
_NO_JSON = "json_invalid"
_OF_THE_WHOLE = 2  # parts of a fault's place: the kind of message, and what of it


def serve(service: Service) -> None:
    """Serves until stdin ends."""
    worker = Worker(service)

    def end(number: int, _: object) -> None:
        worker.end()
        os._exit(128 + number)  # as shells have it; a thread that waits for stdin would let nothing else end

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, end)
    try:
        anyio.run(_serve, service, worker)
    finally:
        worker.end()


async def _serve(service: Service, worker: Worker) -> None:
    server = _server(service, worker)
    understood, requests = anyio.create_memory_object_stream[SessionMessage | Exception]()
    async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as tasks:
        tasks.start_soon(_sort_out, incoming, understood, outgoing)
        await server.run(requests, outgoing, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _sort_out(
    incoming: AsyncIterable[SessionMessage | Exception],
    understood: MemoryObjectSendStream[SessionMessage | Exception],
    outgoing: MemoryObjectSendStream[SessionMessage],
) -> None:
    """Passes messages on, and answers what is none, which the SDK drops: whoever asked would wait for ever."""
    async with understood:
        async for message in incoming:
            reply = _refusal(message) if isinstance(message, ValidationError) else None
            if reply is None:
                await understood.send(message)
            else:
                await outgoing.send(SessionMessage(reply))


def _refusal(error: ValidationError) -> JSONRPCError | None:
    """The answer to a line that is no message; null for a line without anything on it."""
    faults = error.errors(include_url=False, include_context=False)
    if faults[0]["type"] == _NO_JSON:
        line = str(faults[0]["input"])
        if not line.strip():
            return None
        reason = " ".join(faults[0]["msg"].split())
        return _error(PARSE_ERROR, f"this line cannot be read ({reason})", id_in(line))
    # A message lacks something of each kind that there is, and what lacks it is the whole.
    lacking = [one["input"] for one in faults if one["type"] == "missing" and len(one["loc"]) == _OF_THE_WHOLE]
    request_id = usable_id(lacking[0].get("id")) if lacking else None
    return _error(INVALID_REQUEST, "this is no message of JSON-RPC", request_id)


def _error(code: int, sentence: str, request_id: str | int | None) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=sentence))


def _server(service: Service, worker: Worker) -> Server[Any]:
    schemas = {tool.name: tool.schema(service.aliases) for tool in TOOLS}
    offered = [
        OfferedTool(name=t.name, description=t.description, input_schema=schemas[t.name], annotations=_READS_ALONE)
        for t in TOOLS
    ]

    async def list_tools(_: object, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=offered)

    async def call_tool(_: object, params: CallToolRequestParams) -> CallToolResult:
        arguments = params.arguments or {}
        fault = _fault(schemas, params.name, arguments)
        reply = Reply(fault, is_error=True) if fault else await _call(worker, params.name, arguments)
        return CallToolResult(content=[TextContent(type="text", text=_brief(reply))], is_error=reply.is_error)

    instructions = f"{INSTRUCTIONS}\nInputs: {', '.join(service.aliases)}."
    return Server(
        "xsp", version=version("xsp"), instructions=instructions, on_list_tools=list_tools, on_call_tool=call_tool
    )


def _brief(reply: Reply) -> str:
    """Its text; of a sentence that repeats what it was asked, as much as anybody reads."""
    is_long = reply.is_error and len(reply.text) > _MAX_FAULT
    return f"{reply.text[: _MAX_FAULT // 2]} ... {reply.text[-_MAX_FAULT // 2 :]}" if is_long else reply.text


def _fault(schemas: Mapping[str, Mapping[str, Any]], name: str, arguments: Mapping[str, Any]) -> str | None:
    """What is wrong with a call, in a sentence."""
    if name not in schemas:
        return f"there is no tool {name!r}; there are {', '.join(schemas)}"
    error = best_match(Draft202012Validator(schemas[name]).iter_errors(arguments))
    if error is None:
        return None
    argument = "".join(f"{part}: " for part in error.absolute_path)
    return " ".join(f"{argument}{error.message}".split())


async def _call(worker: Worker, name: str, arguments: Mapping[str, Any]) -> Reply:
    """The worker's reply; a running call that the client cancels ends the worker, and the next one begins another."""
    given_up = threading.Event()
    try:
        return await anyio.to_thread.run_sync(partial(worker.call, name, arguments, given_up), abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        worker.give_up(given_up)
        raise
