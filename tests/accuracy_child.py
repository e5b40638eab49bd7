"""Runs a snippet in a bare child process (no pytest, no torch) and hands back its `result`."""


def run(code: str) -> object:
    names: dict[str, object] = {}
    exec(code, names)
    return names["result"]
