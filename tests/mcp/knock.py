"""The command of a client for MCP's conformance kit: tells the test which server to visit, and waits until it has.

python -S knock.py SOCKET ADDRESS
"""

import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as door:
    door.connect(sys.argv[1])
    context = os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"
    door.sendall(f"{sys.argv[-1]}\n{' '.join(context.splitlines())}\n".encode())
    said = b"".join(iter(lambda: door.recv(65536), b""))
sys.stdout.buffer.write(said)
sys.exit(0 if said.endswith(b"done\n") else 1)
