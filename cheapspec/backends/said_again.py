"""Takes the beginning of a message off a continuation that says it again (Mistral's ``prefix: true``)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cheapspec.core.effects import HttpReply
from cheapspec.core.ports import Decoder, NoDraft, Streaming, TargetPiece, Unusable

__all__ = ["strip_prefix"]


def strip_prefix(call: Streaming[TargetPiece], prefix: str) -> Streaming[TargetPiece]:
    """The same call, whose text is told without ``prefix`` where it begins with exactly that."""

    def refused(reply: HttpReply) -> Streaming[TargetPiece] | NoDraft | Unusable:
        again = call.on_error(reply)
        return strip_prefix(again, prefix) if isinstance(again, Streaming) else again

    return Streaming(call.request, _WithoutPrefix(call.decoder, prefix), refused)


@dataclass(slots=True)
class _WithoutPrefix:
    """Holds text back while it may be the prefix; everything else of a piece passes at once."""

    decoder: Decoder[TargetPiece]
    prefix: str
    held: str = ""

    def feed(self, data: bytes) -> list[TargetPiece]:
        return [self._take(piece) for piece in self.decoder.feed(data)]

    def close(self) -> list[TargetPiece]:
        pieces = [self._take(piece) for piece in self.decoder.close()]
        rest, self.held, self.prefix = self.held, "", ""
        return [*pieces, TargetPiece(text=rest)] if rest else pieces

    def _take(self, piece: TargetPiece) -> TargetPiece:
        if not self.prefix:
            return piece
        self.held += piece.text
        over = piece.finish_reason is not None or piece.complete or piece.error is not None
        if not over and len(self.held) < len(self.prefix) and self.prefix.startswith(self.held):
            return replace(piece, text="", tokens=None, ids=None)
        text, self.held, prefix, self.prefix = self.held, "", self.prefix, ""
        return replace(piece, text=text.removeprefix(prefix), tokens=None, ids=None)
