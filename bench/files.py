"""How fast files are read and indexed, by format, and how long turns of another agent take meanwhile.

    python bench/files.py                 text, Markdown, CSV, JSON, HTML, PDF and DOCX with 256 KB of text each
    python bench/files.py --kb 64         smaller files
    python bench/files.py --only pdf,docx some of the formats

A whole Kelpie runs in this process on a database file, with the embedding model of this machine and the demo model.
Each file is uploaded over HTTP and waited for, while another agent takes one turn after the other. Prints JSON, for
each format: the size of the file and of its text, the number of passages, the seconds until the text was stored
(`parse_s`) and until the file was completed (`total_s`), MB of text per second of parsing and of indexing, p50 and p99
of the other agent's turns in ms, and the growth of the largest resident memory of this process in MB (workers are not
counted).
`idle` are the turns while nothing is processed.
"""

import argparse
import asyncio
import io
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import docx
import httpx

from kelpie.core.settings.settings import Settings
from kelpie.local import open_kelpie
from kelpie.server.app import create_app

WORDS = ("tea", "penguin", "river", "summer", "lantern", "quiet", "harvest", "copper", "window", "letter", "garden")
FORMATS = ("txt", "md", "csv", "json", "html", "pdf", "docx")
MB = 1024 * 1024


def lines_of(kb: int, kind: str) -> list[str]:
    """Lines that are all different, also from those of other kinds, of so many KB together."""
    lines: list[str] = []
    size, number = 0, 0
    while size < kb * 1024:
        words = [WORDS[(number * 7 + place * place) % len(WORDS)] for place in range(12)]
        lines.append(f"{kind} {number} {' '.join(words)}.")
        size += len(lines[-1]) + 1
        number += 1
    return lines


def made(kind: str, lines: list[str]) -> bytes:
    if kind == "json":
        return json.dumps([{"n": n, "text": line} for n, line in enumerate(lines)], indent=0).encode()
    if kind == "csv":
        return "\n".join(f"{n},{line}" for n, line in enumerate(lines)).encode()
    if kind == "html":
        return f"<html><body>{''.join(f'<p>{line}</p>' for line in lines)}</body></html>".encode()
    if kind == "pdf":
        return pdf_of(lines)
    if kind == "docx":
        document, target = docx.Document(), io.BytesIO()
        for line in lines:
            document.add_paragraph(line)
        document.save(target)
        return target.getvalue()
    return "\n".join(lines).encode()


def pdf_of(lines: list[str]) -> bytes:
    """A PDF with 50 lines on each page."""
    pages = [lines[start : start + 50] for start in range(0, len(lines), 50)]
    objects = ["<</Type/Catalog/Pages 2 0 R>>"]
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects += [f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>", "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"]
    for number, page in enumerate(pages):
        text = "BT /F1 9 Tf 20 780 Td 12 TL " + " ".join(f"({line}) Tj T*" for line in page) + " ET"
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents {5 + 2 * number} 0 R"
            "/Resources<</Font<</F1 3 0 R>>>>>>"
        )
        objects.append(f"<</Length {len(text)}>>stream\n{text}\nendstream")
    body = b"%PDF-1.4\n"
    places: list[int] = []
    for number, each in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj{each}endobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer<</Root 1 0 R/Size {len(objects) + 1}>>\n"
    return body + f"{end}startxref\n{len(body)}\n%%EOF\n".encode()


def peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


async def turns(client: httpx.AsyncClient, agent: str, stop: asyncio.Event, least: int = 20) -> list[float]:
    """Milliseconds of turns, one after the other, until it is told to stop."""
    took: list[float] = []
    while not stop.is_set() or len(took) < least:
        began = time.perf_counter()
        answer = await client.post(f"/v1/agents/{agent}/messages", json={"input": "hello"})
        answer.raise_for_status()
        took.append(1000 * (time.perf_counter() - began))
        await asyncio.sleep(0.02)
    return took


def spread(took: list[float]) -> dict[str, float]:
    ordered = sorted(took)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {"turns": len(took), "p50_ms": round(statistics.median(took), 1), "p99_ms": round(p99, 1)}


async def one(client: httpx.AsyncClient, agent: str, folder: str, kind: str, lines: list[str]) -> dict[str, Any]:
    content = made(kind, lines)
    stop, before = asyncio.Event(), peak_mb()
    other = asyncio.create_task(turns(client, agent, stop))
    began = time.perf_counter()
    sent = await client.post(f"/v1/folders/{folder}/upload", files={"file": (f"a.{kind}", content)})
    place = f"/v1/folders/{folder}/files/{sent.json()['id']}"
    parsed = None
    while (found := (await client.get(place)).json())["processing_status"] not in ("completed", "error"):
        if parsed is None and found["processing_status"] == "embedding":
            parsed = time.perf_counter() - began
        await asyncio.sleep(0.02)
    total = time.perf_counter() - began
    stop.set()
    took = spread(await other)
    assert found["processing_status"] == "completed", found
    text = (await client.get(place, params={"include_content": "true"})).json()["content"]
    parsed, size = parsed or total, len(text) / MB
    return {
        "file_kb": len(content) // 1024,
        "text_kb": len(text) // 1024,
        "passages": found["total_chunks"],
        "embedded": found["chunks_embedded"],
        "parse_s": round(parsed, 2),
        "total_s": round(total, 2),
        "parse_mb_per_s": round(size / parsed, 2),
        "index_mb_per_s": round(size / max(total - parsed, 0.02), 3),
        "memory_growth_mb": round(peak_mb() - before, 1),
        **took,
    }


async def measure(kb: int, formats: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        kelpie = open_kelpie(Settings(data_dir=directory, default_model="kelpie/demo", port=0))
        await kelpie.start()
        transport = httpx.ASGITransport(create_app(kelpie))
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8283", timeout=600) as client:
                agent = (await client.post("/v1/agents/", json={"name": "other"})).json()["id"]
                folder = (await client.post("/v1/folders/", json={"name": "bench"})).json()["id"]
                await client.post(f"/v1/folders/{folder}/upload", files={"file": ("warm.txt", b"warm up")})
                stop = asyncio.Event()
                stop.set()
                found["idle"] = spread(await turns(client, agent, stop, least=60))
                for kind in formats:
                    found[kind] = await one(client, agent, folder, kind, lines_of(kb, kind))
        finally:
            await kelpie.stop(5.0)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kb", type=int, default=256, help="text of each file")
    parser.add_argument("--only", default=",".join(FORMATS), help="formats, separated by commas")
    given = parser.parse_args()
    print(json.dumps(asyncio.run(measure(given.kb, given.only.split(","))), indent=1))


if __name__ == "__main__":
    main()
