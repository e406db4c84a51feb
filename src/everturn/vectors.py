"""Exact search over the embeddings of one session: one pure function for every engine."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.errors import Unsupported


def nearest(wanted: bytes, embeddings: Sequence[bytes], k: int) -> list[tuple[float, int]]:
    """The `k` embeddings most like `wanted` (all float32, of one length) as (cosine similarity, index), best first.

    Ties go to the lower index. A vector of zeros is like nothing: 0.0. Raises Unsupported without numpy.
    """
    try:
        import numpy as np
    except ImportError as exc:
        raise Unsupported("search_summaries needs numpy: pip install 'everturn[vectors]'") from exc
    matrix = np.frombuffer(b"".join(embeddings), dtype="<f4").reshape(len(embeddings), -1).astype(np.float64)
    vector = np.frombuffer(wanted, dtype="<f4").astype(np.float64)
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(vector)
    # Row by row rather than matrix @ vector: BLAS may round equal rows differently, and ties would not be ties.
    products = np.einsum("ij,j->i", matrix, vector)
    scores = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0).clip(-1.0, 1.0)
    best = np.argsort(-scores, kind="stable")[:k]
    return [(float(scores[index]), int(index)) for index in best]
