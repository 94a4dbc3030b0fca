"""R44: a model API key or gateway URL anywhere in a file. The sandbox must hold no credential.

Found by key name (`api_key`), by the environment names that model clients read, by references to
such variables (`${OPENAI_API_KEY}`), by the shape of well-known keys, and by URLs of model APIs.
"""

from __future__ import annotations

import re

from network.nodes import Walker, join_path
from network.yamlread import Map, Node, Seq

_PROVIDERS = (
    "AI|AI21|ANTHROPIC|AZURE|AZURE_OPENAI|AZUREAI|AZUREAI_OPENAI|BEDROCK|CEREBRAS|CLAUDE|CLOUDFLARE|COHERE|DASHSCOPE|"
    "DEEPSEEK|FIREWORKS|GATEWAY|GEMINI|GOOGLE|GROK|GROQ|HAWK|HF|HUGGINGFACE|HUGGING_FACE|LITELLM|LLM|MIDDLEMAN|MISTRAL|"
    "MODEL|MODEL_GATEWAY|MOONSHOT|NVIDIA|OLLAMA|OPENAI|OPENROUTER|PERPLEXITY|REPLICATE|SAMBANOVA|SGLANG|TOGETHER|"
    "TOGETHERAI|VERTEX|VLLM|VOYAGE|XAI|ZHIPU"
)
_SUFFIXES = (
    "API_KEY|APIKEY|API_TOKEN|ACCESS_TOKEN|AUTH_TOKEN|HUB_TOKEN|TOKEN|BASE_URL|API_BASE|API_BASE_URL|API_URL|"
    "API_ENDPOINT|ENDPOINT|ENDPOINT_URL|GATEWAY|GATEWAY_URL|PROXY_URL"
)
_ENVIRONMENT = re.compile(rf"(?:[A-Z0-9]+_)*(?:{_PROVIDERS})_(?:{_SUFFIXES})|GATEWAY_URL|MIDDLEMAN_URL|API_KEY")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*=")
_REFERENCE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_SECRET = re.compile(r"\b(?:sk-ant-|sk-proj-|sk-or-v1-|xai-|gsk_|hf_)[A-Za-z0-9_-]{16,}|\bsk-[A-Za-z0-9]{32,}")
_API_HOST = re.compile(
    r"https?://[^/\s]*(?:api\.openai\.com|api\.anthropic\.com|openai\.azure\.com|generativelanguage\.googleapis\.com|"
    r"openrouter\.ai|api\.mistral\.ai|api\.groq\.com|api\.x\.ai|api\.deepseek\.com|api\.together\.xyz)",
    re.IGNORECASE,
)
_MAX_NAME = 100
_PLAIN_KEYS = frozenset({"api_key", "apikey", "api_token", "gateway_url", "model_base_url"})
_FIX = "remove it: the trusted side calls the model, the sandbox holds no credential and no gateway address"


def is_credential_name(name: str) -> bool:
    """Whether a key or variable of this name holds a model key or a gateway's address."""
    if len(name) > _MAX_NAME:
        return False
    return name.lower().replace("-", "_") in _PLAIN_KEYS or _ENVIRONMENT.fullmatch(name.upper()) is not None


def reject_credentials(walker: Walker, root: Node) -> None:
    """Report R44 for every credential in the tree; values are never repeated in the message."""
    _walk(walker, root, "")


def _walk(walker: Walker, node: Node, path: str) -> None:
    if isinstance(node, Map):
        for key, child in node.items.items():
            inner = walker.of(key) if path == "services" else walker
            child_path = join_path(path, key)
            if is_credential_name(key):
                _reject(inner, child_path, node.lines[key], f"`{key}` holds a model credential or gateway")
            else:
                _walk(inner, child, child_path)
    elif isinstance(node, Seq):
        for index, child in enumerate(node.items):
            _walk(walker, child, f"{path}[{index}]")
    elif isinstance(node.value, str):
        reason = _reason(node.text)
        if reason is not None:
            _reject(walker, path, node.line, reason)


def _reason(text: str) -> str | None:
    if is_credential_name(text):
        return f"names the model credential {text}"
    assignment = _ASSIGNMENT.match(text)
    if assignment and is_credential_name(assignment[1]):
        return f"sets {assignment[1]}, a model credential or gateway"
    if "$" in text:
        for reference in _REFERENCE.findall(text):
            if is_credential_name(reference):
                return f"takes {reference}, a model credential or gateway, from the environment"
    if _SECRET.search(text):
        return "contains what looks like a model API key"
    if _API_HOST.search(text):
        return "contains the URL of a model API"
    return None


def _reject(walker: Walker, path: str, line: int, reason: str) -> None:
    walker.report.reject("R44", walker.place(path, line), reason, _FIX)
