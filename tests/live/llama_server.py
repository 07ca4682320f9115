"""The model server of the tests in a process of its own: started, killed and started again on the same port."""

import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests.live import llama_program

START_S = 120.0
HANDLE = "llamacpp/SmolLM2-135M-Instruct.Q4_1"


class LlamaServer:
    """One server. `url` stays the same when it is restarted."""

    def __init__(self, port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until its model is loaded."""
        with self._log.open("ab") as log:
            command = (sys.executable, llama_program.__file__, str(self._port))
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._is_healthy():
                return
            time.sleep(0.05)
        raise AssertionError(f"the model server did not start: {self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        """Kills it in the middle of whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def pause(self) -> None:
        """Stops it where it is; its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Ends a pause; nothing happens without one."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def counts(self) -> tuple[float, float]:
        """Tokens that it has read and written since its start, by its own metrics."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            lines = [line.rpartition(" ") for line in answer.read().decode().splitlines() if not line.startswith("#")]
        told = {name: float(value) for name, _, value in lines}
        return told["llamacpp:prompt_tokens_total"], told["llamacpp:tokens_predicted_total"]

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False
