#!/usr/bin/env python3
"""A conflict policy: of a number the larger one stands, of a text both; everything else is for a person."""

import json
import sys


def settle(conflict):
    if conflict["operation"] != "update":
        return {"settle": "both"}
    merged = {}
    for column in conflict["columns"]:
        theirs, ours = conflict["server"][column["name"]], column["new"]
        if theirs == column["old"] or theirs == ours:
            merged[column["name"]] = ours
        elif type(theirs) is int and type(ours) is int:
            merged[column["name"]] = max(theirs, ours)
        elif isinstance(theirs, str) and isinstance(ours, str) and column["name"] == "note":
            merged[column["name"]] = theirs + "\n" + ours
        else:
            return {"settle": "both"}
    return {"settle": "merged", "values": merged}


for line in sys.stdin:
    print(json.dumps(settle(json.loads(line))), flush=True)
