"""Server interceptors: every unary call has a deadline, every exception becomes one rich error.

Order, outermost first: error mapping, deadline. Authorisation is the servicer's, since only it knows what a token
may reach.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import structlog

from wire import errors

Translate = Callable[[Exception], errors.WireError | None]

log = structlog.get_logger(__name__)

_KINDS = {
    (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
    (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
    (True, False): ("stream_unary", grpc.stream_unary_rpc_method_handler),
    (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
}


def translate_nothing(error: Exception) -> errors.WireError | None:
    """The mapping of a room that raises WireError itself."""
    return None


class ErrorInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Maps exceptions through `translate`; what it does not know is logged whole and told as RUNTIME_FAULT."""

    def __init__(self, translate: Translate = translate_nothing) -> None:
        self._translate = translate

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the method's handler."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        method = str(handler_call_details.method)
        name, build = _KINDS[(handler.request_streaming, handler.response_streaming)]
        inner = getattr(handler, name)
        unary = not handler.request_streaming and not handler.response_streaming
        wrapped: Any
        if handler.response_streaming:

            async def stream(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
                try:
                    async for item in inner(request, context):
                        yield item
                except Exception as error:  # noqa: BLE001 - the boundary: everything becomes an answer
                    await self._abort(context, method, error)

            wrapped = stream
        else:

            async def single(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
                try:
                    if unary and context.time_remaining() is None and not method.startswith("/grpc."):
                        raise errors.invalid("DEADLINE_REQUIRED", "set a deadline on every unary call")
                    answer = inner(request, context)
                    return await answer if inspect.isawaitable(answer) else answer
                except Exception as error:  # noqa: BLE001 - the boundary: everything becomes an answer
                    return await self._abort(context, method, error)

            wrapped = single
        return build(
            wrapped,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    async def _abort(self, context: grpc.aio.ServicerContext[Any, Any], method: str, error: Exception) -> None:
        if isinstance(error, grpc.aio.AbortError):
            raise error
        known = error if isinstance(error, errors.WireError) else self._translate(error)
        if known is None:
            log.error("call_failed", method=method, exc_info=error)
            known = errors.internal()
        status = errors.to_status(known)
        await context.abort(
            known.code, status.message, trailing_metadata=((errors.DETAILS_KEY, status.SerializeToString()),)
        )
