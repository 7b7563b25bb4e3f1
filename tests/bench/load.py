"""A client process: signs requests beforehand, then sends them over many connections and takes the times."""

import argparse
import asyncio
import json
import secrets
import time

from hypercluster.cli.client import sign_headers
from hypercluster.cli.keys import KeySigner, signer_from_seed

AUDIENCE = "hypercluster"
BODY = json.dumps({"gpu_model": "H100", "gpu_count": 8, "ssh_user": "miner"}).encode()


def request_bytes(signer: KeySigner, path: str, body: bytes) -> bytes:
    """One whole HTTP/1.1 request."""
    headers = sign_headers(signer, AUDIENCE, "POST", path, body)
    lines = [f"POST {path} HTTP/1.1", "Host: bench", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def send(port: int, requests: list[bytes], times: list[float]) -> None:
    """Send over one connection, one after the other; every answer must be a 200."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for request in requests:
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(size)
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"{head!r} {body[:300]!r}")
        times.append(time.perf_counter() - began)
    writer.close()


async def run(port: int, requests: list[bytes], connections: int) -> dict[str, float]:
    """Requests per second, and the median and 99th percentile of their times in milliseconds."""
    times: list[float] = []
    shares = [requests[number::connections] for number in range(connections)]
    began = time.perf_counter()
    await asyncio.gather(*(send(port, share, times) for share in shares if share))
    took = time.perf_counter() - began
    times.sort()
    return {"rate": len(times) / took, "p50": times[len(times) // 2] * 1e3, "p99": times[len(times) * 99 // 100] * 1e3}


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--connections", type=int, default=64)
    given = parser.parse_args()
    signers = [signer_from_seed(secrets.token_bytes(32), "sr25519") for _ in range(max(1, given.count // 100))]
    register = [request_bytes(signer, "/v1/providers/register", b"{}") for signer in signers]
    asyncio.run(run(given.port, register, 8))
    nodes = [request_bytes(signers[number % len(signers)], "/v1/nodes", BODY) for number in range(given.count)]
    print(json.dumps(asyncio.run(run(given.port, nodes, given.connections))))


if __name__ == "__main__":
    main()
