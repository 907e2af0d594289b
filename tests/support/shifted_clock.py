"""A process whose wall clock is hours off: a library that is loaded before all others."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from support.waiting import PATIENCE

_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long shift(void) { const char *text = getenv("DLQ_TEST_SHIFT"); return text ? atol(text) : 0; }

int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, at);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


@cache
def _library() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="dlq-clock-"))
    (folder / "shift.c").write_text(_SOURCE)
    made = folder / "shift.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, folder / "shift.c", "-ldl"], check=True)
    return made


def environment(hours: float) -> Mapping[str, str]:
    """What a process is started with, whose clock is to be so many hours ahead (or behind, below zero)."""
    return {**os.environ, "LD_PRELOAD": str(_library()), "DLQ_TEST_SHIFT": str(round(hours * 3600))}


def run(hours: float, program: str, *arguments: str) -> str:
    """What a Python program prints whose clock is so many hours off."""
    command = [sys.executable, "-c", program, *arguments]
    path = str(Path(__file__).resolve().parents[1])
    given = {**environment(hours), "PYTHONPATH": path}
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
