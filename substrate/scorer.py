"""The scorer: the one process that has the labels of a set. It grades answers, and takes no code.

Started by `substrate/custody.py`, in an interpreter of the training environment, with orders as one
line of JSON on stdin. It reads the problems, imports the snapshot's `evaluation/grade.py`, becomes
another user where it may, and serves a Unix socket: one line of JSON in, one out.

    {"ask": "questions"}               -> {"questions": [...], "sha256": "..."}
    {"ask": "grade", "answers": [...]} -> {"values": [...], "domains": [...], "looks": 1}
    {"ask": "count"}                   -> {"looks": 1, "strangers": 0, "uid": 61999}

Only the controller's own process gets these. Whoever else connects is counted and gets STRANGER,
whatever the labels are and whatever is asked. It ends when its stdin does: with the controller.
"""

import ctypes
import hashlib
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
from typing import Any

STRANGER = {"said": "counted"}
SECONDS = 30.0  # to read one request
MOST_BYTES = 256 << 20  # of one request
ROOM = 16  # a question says how long its label is, rounded up to this many bytes

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4  # linux/prctl.h


def main() -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    orders = json.loads(sys.stdin.readline())
    if os.getppid() != orders["controller"]:
        return  # it was gone before it could be watched
    sys.path.insert(0, orders["snapshot"])
    grade = importlib.import_module("evaluation.grade").grade
    problems, sha256 = read_problems(orders["problems"], set(orders["canaries"]))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(orders["socket"])
        server.listen()
        uid = become(orders["uid"], os.path.join(orders["snapshot"], "evaluation", "grade.py"))
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # another user's is forgotten
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # no other process of this user looks inside
        desk = Desk(problems, sha256, set(orders["labels"]), grade, uid)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([server, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            connection, _ = server.accept()
            with connection:
                connection.settimeout(SECONDS)
                try:
                    serve(connection, desk, orders["controller"])
                except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
                    print(f"a request failed: {type(error).__name__}", file=sys.stderr, flush=True)


def read_problems(path: str, canaries: set[str]) -> tuple[list[dict[str, Any]], str]:
    """The problems of a set but for canaries, which are never asked; the hash of their lines."""
    with open(path, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    kept = [line for line in lines if line.strip() and not is_canary(line, canaries)]
    return [json.loads(line) for line in kept], hashlib.sha256(b"".join(kept)).hexdigest()


def is_canary(line: bytes, canaries: set[str]) -> bool:
    return any(canary.encode() in line for canary in canaries)


def become(uid: int | None, needed: str) -> int:
    """Give up root for `uid`, where that user can read what grading may still import."""
    if uid is None or os.geteuid() != 0:
        return os.geteuid()
    os.seteuid(uid)
    try:
        with open(needed, "rb"):
            pass
    except OSError:
        os.seteuid(0)
        return 0
    os.seteuid(0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    return uid


class Desk:
    """The problems, who may hear what of them, and how often they were looked at."""

    def __init__(
        self, problems: list[dict[str, Any]], sha256: str, labels: set[str], grade: Any, uid: int
    ) -> None:
        self.problems, self.sha256, self.labels, self.grade = problems, sha256, labels, grade
        self.uid, self.looks, self.strangers = uid, 0, 0

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["ask"] == "questions":
            questions = [self.question(problem) for problem in self.problems]
            return {"questions": questions, "sha256": self.sha256}
        if request["ask"] == "grade":
            answers = request["answers"]
            if len(answers) != len(self.problems) or not all(isinstance(a, str) for a in answers):
                raise ValueError("wanted one text for each problem")
            self.looks += 1
            values = [float(value) for value in self.grade(self.problems, answers)]
            domains = [problem["domain"] for problem in self.problems]
            return {"values": values, "domains": domains, "looks": self.looks}
        return {"looks": self.looks, "strangers": self.strangers, "uid": self.uid}

    def question(self, problem: dict[str, Any]) -> dict[str, Any]:
        """A problem without its labels, and how much room an answer to it may take."""
        texts = [str(problem.get(label, "")) for label in self.labels]
        longest = max((len(text.encode()) for text in texts), default=0)
        asked = {key: value for key, value in problem.items() if key not in self.labels}
        return asked | {"room": ROOM * -(-longest // ROOM)}


def serve(connection: socket.socket, desk: Desk, controller: int) -> None:
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    peer, _, _ = struct.unpack("3i", credentials)
    received = bytearray()
    while not received.endswith(b"\n"):
        block = connection.recv(1 << 20)
        if not block or len(received) > MOST_BYTES:
            return
        received += block
    reply = STRANGER
    if peer == controller:
        reply = desk.answer(json.loads(received))
    else:
        desk.strangers += 1
    connection.sendall(json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    main()
