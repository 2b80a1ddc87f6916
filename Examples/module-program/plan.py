#!/usr/bin/env python3
"""A recovery strategy: in place, with what waits kept; where the server was replaced a person decides."""

import json
import sys

IN_PLACE = [
    {"step": "fetch", "what": "differences"},
    {"step": "apply", "requests": "keep", "rebuild": "nothing"},
]

for line in sys.stdin:
    incident = json.loads(line)
    if incident["reason"] in ("server-replaced", "local-corruption"):
        answer = {"cannot": f"for {incident['reason']} a person decides."}
    else:
        answer = {"steps": IN_PLACE}
    print(json.dumps(answer), flush=True)
