"""The Model Context Protocol over stdin and stdout, by the official SDK; the one module that imports it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from io import StringIO
from typing import Any, BinaryIO

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
    JSONRPCMessage,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
    jsonrpc_message_adapter,
)
from mcp_types import Tool as OfferedTool
from pydantic import ValidationError
from pydantic_core import from_json

from xsp.agents.service import INSTRUCTIONS, TOOLS, Service, id_in, usable_id
from xsp.agents.worker import Reply, Worker

__all__ = ["message_of", "serve"]

_READS_ALONE = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_MAX_FAULT = 2_000


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
    # The SDK would repair a line that is not UTF-8, and take a request whose id it does not know for a notification,
    # so that whoever asked would wait for ever: lines are read here, and the SDK is given none.
    async with stdio_server(stdin=anyio.wrap_file(StringIO())) as (_, outgoing), anyio.create_task_group() as tasks:
        tasks.start_soon(_read, _claim_stdin(), understood, outgoing)
        await server.run(requests, outgoing, server.create_initialization_options())
        tasks.cancel_scope.cancel()


def _claim_stdin() -> BinaryIO:
    """What the client says; processes that are started read nothing of it."""
    lines = os.fdopen(os.dup(0), "rb", closefd=False)  # a thread may still wait for it at the end
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return lines


async def _read(
    lines: BinaryIO,
    understood: MemoryObjectSendStream[SessionMessage | Exception],
    outgoing: MemoryObjectSendStream[SessionMessage],
) -> None:
    """Passes messages on and answers what is none; a line without anything on it says nothing."""
    async with understood:
        async for line in anyio.wrap_file(lines):
            if line.strip():
                message = message_of(line)
                await (outgoing if isinstance(message, JSONRPCError) else understood).send(SessionMessage(message))


def message_of(line: bytes) -> JSONRPCMessage:
    """The message that a line is, or the error that answers it."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        return _error(PARSE_ERROR, f"this line is not UTF-8 ({error.reason} at byte {error.start})", None)
    try:
        held = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        return _error(PARSE_ERROR, f"this line cannot be read ({' '.join(str(error).split())})", id_in(text))
    has_id = isinstance(held, dict) and "id" in held
    request_id = usable_id(held["id"]) if has_id else None
    if has_id and "method" in held and not isinstance(request_id, str | int):
        return _error(INVALID_REQUEST, "the id of a request is to be text or a whole number", request_id)
    try:
        return jsonrpc_message_adapter.validate_python({**held, "id": request_id} if has_id else held, by_name=False)
    except ValidationError:
        return _error(INVALID_REQUEST, "this is no message of JSON-RPC", request_id)


class _RefusalError(JSONRPCError):
    """An error whose id may be a fraction, too: JSON-RPC has such, and this protocol none."""

    id: Any


def _error(code: int, sentence: str, request_id: str | float | None) -> JSONRPCError:
    return _RefusalError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=sentence))


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
