"""Draft on your own machine, let the paid model verify, keep the target's own answer for less.

``from cheapspec import OpenAI`` replaces ``from openai import OpenAI``; ``import cheapspec as openai``
replaces ``import openai``: every other public name is openai's own, and so are the module-level settings
(``openai.api_key = …``) and the module-level client (``openai.chat.completions.create(…)``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cheapspec import module
from cheapspec.client import AsyncAzureOpenAI, AsyncOpenAI, AzureOpenAI, OpenAI
from cheapspec.core.acceptance import (
    DraftToken,
    TargetLogprob,
    VerificationResult,
    verify_draft_tokens,
    verify_greedy,
    verify_stochastic,
)
from cheapspec.core.alternatives import Plan
from cheapspec.core.info import Info
from cheapspec.core.rules import Lenient, TextMatch
from cheapspec.doors import Session, info
from cheapspec.errors import CapabilityError, CheapspecError, LedgerError, PriceUnknownError, SettingsError
from cheapspec.ledger.budgets import Budget
from cheapspec.report import Report
from cheapspec.rules import Agree, Answer, Judge, OkOrAnswer, Patch, Validator
from cheapspec.settings import Speculation
from cheapspec.transport import AsyncTransport, Transport

if TYPE_CHECKING:  # what module.install makes true when it runs; a test holds the list to openai's own
    # fmt: off
    from openai import (  # noqa: I001
        DEFAULT_CONNECTION_LIMITS as DEFAULT_CONNECTION_LIMITS, DEFAULT_MAX_RETRIES as DEFAULT_MAX_RETRIES,
        DEFAULT_TIMEOUT as DEFAULT_TIMEOUT, NOT_GIVEN as NOT_GIVEN, VERSION as VERSION,
        APIConnectionError as APIConnectionError, APIError as APIError, APIResponse as APIResponse,
        APIResponseValidationError as APIResponseValidationError, APIStatusError as APIStatusError,
        APITimeoutError as APITimeoutError, AssistantEventHandler as AssistantEventHandler,
        AsyncAPIResponse as AsyncAPIResponse, AsyncAssistantEventHandler as AsyncAssistantEventHandler,
        AsyncBedrockOpenAI as AsyncBedrockOpenAI, AsyncComputerDriver as AsyncComputerDriver,
        AsyncComputerToolset as AsyncComputerToolset, AsyncStream as AsyncStream,
        AuthenticationError as AuthenticationError, BadRequestError as BadRequestError, BaseModel as BaseModel,
        BedrockOpenAI as BedrockOpenAI, ComputerDriver as ComputerDriver, ComputerToolset as ComputerToolset,
        ConflictError as ConflictError, ContentFilterFinishReasonError as ContentFilterFinishReasonError,
        DataResidency as DataResidency, DefaultAioHttpClient as DefaultAioHttpClient,
        DefaultAsyncHttpx2Client as DefaultAsyncHttpx2Client, DefaultAsyncHttpxClient as DefaultAsyncHttpxClient,
        DefaultHttpx2Client as DefaultHttpx2Client, DefaultHttpxClient as DefaultHttpxClient,
        HttpxBinaryResponseContent as HttpxBinaryResponseContent, InternalServerError as InternalServerError,
        InvalidWebhookSignatureError as InvalidWebhookSignatureError,
        LengthFinishReasonError as LengthFinishReasonError, NoneType as NoneType, NotFoundError as NotFoundError,
        NotGiven as NotGiven, OAuthError as OAuthError, Omit as Omit, OpenAIError as OpenAIError,
        PermissionDeniedError as PermissionDeniedError, ProxiesTypes as ProxiesTypes,
        RateLimitError as RateLimitError, ReconnectingEvent as ReconnectingEvent,
        ReconnectingOverrides as ReconnectingOverrides, RequestOptions as RequestOptions, Stream as Stream,
        Timeout as Timeout, UnprocessableEntityError as UnprocessableEntityError,
        WebSocketConnectionClosedError as WebSocketConnectionClosedError,
        WebSocketQueueFullError as WebSocketQueueFullError, admin as admin, admin_api_key as admin_api_key,
        api_key as api_key, api_type as api_type, api_version as api_version, audio as audio,
        azure_ad_token as azure_ad_token, azure_ad_token_provider as azure_ad_token_provider,
        azure_endpoint as azure_endpoint, base_url as base_url, batches as batches, beta as beta, chat as chat,
        completions as completions, containers as containers, content_provenance_checks as content_provenance_checks,
        conversations as conversations, decisions as decisions, default_headers as default_headers,
        default_query as default_query, embeddings as embeddings, evals as evals, file_from_path as file_from_path,
        files as files, fine_tuning as fine_tuning, http_client as http_client, images as images, live as live,
        max_retries as max_retries, models as models, moderations as moderations, not_given as not_given,
        omit as omit, organization as organization, project as project,
        pydantic_function_tool as pydantic_function_tool,
        pydantic_responses_function_tool as pydantic_responses_function_tool, realtime as realtime,
        resources as resources, responses as responses, safety as safety, skills as skills, timeout as timeout,
        types as types, uploads as uploads, vector_stores as vector_stores, videos as videos,
        webhook_secret as webhook_secret, webhooks as webhooks,
    )
    # fmt: on

__all__ = [
    "Agree",
    "Answer",
    "AsyncAzureOpenAI",
    "AsyncClient",
    "AsyncOpenAI",
    "AsyncTransport",
    "AzureOpenAI",
    "Budget",
    "CapabilityError",
    "CheapspecError",
    "Client",
    "DraftToken",
    "Info",
    "Judge",
    "LedgerError",
    "Lenient",
    "OkOrAnswer",
    "OpenAI",
    "Patch",
    "Plan",
    "PriceUnknownError",
    "Report",
    "Session",
    "SettingsError",
    "Speculation",
    "TargetLogprob",
    "TextMatch",
    "Transport",
    "Validator",
    "VerificationResult",
    "info",
    "verify_draft_tokens",
    "verify_greedy",
    "verify_stochastic",
]

__version__ = "0.1.0"

Client = OpenAI
AsyncClient = AsyncOpenAI

module.install(__name__)
