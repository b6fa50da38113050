"""What a dump takes of a thread that runs JavaScript: the time in its signal handler, native and JavaScript frames together."""

import nodes
from stand import REPEAT, ROOT, program, say, stand
from table import Figure, below, skipped

LIMIT_MS = 0.5
VICTIM = ROOT / "tests/languages/node/victim.js"


def pause_ms(dump, tid):
    return float(dump.threads[tid]["pause"].removesuffix("s")) * 1e3


def row_of(node, situation):
    pauses = []
    with stand() as daemon, program(daemon, node.path, VICTIM, situation, ready='{"ready"') as victim:
        daemon.dump(victim.pid)
        for i in range(3 * REPEAT):
            say(f"node {node}, {situation}: {i + 1} of {3 * REPEAT}")
            pauses.append(pause_ms(daemon.dump(victim.pid), victim.pid))
    return below(f"pause of a JavaScript thread, Node {node}, {situation}", Figure(pauses, "ms"), LIMIT_MS)


def node_rows():
    found = nodes.found()
    if not found:
        return [skipped("pause of a JavaScript thread", "no Node.js of 18, 20, 22, 24 is here", f"below {LIMIT_MS} ms")]
    return [row_of(node, situation) for node in found for situation in ("atomics", "loop")]
