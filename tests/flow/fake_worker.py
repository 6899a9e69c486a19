#!/usr/bin/env python3
"""A worker of the demonstration that moves no data: it speaks the protocol and tells what a test wants to hear, from FAKE_WORKER, a
comma-separated list of: swap (schedules change a few collectives after a "rate" command), late (they never change), wrong (one element),
disagree (rank 1 runs another schedule), die (exit in collective 4), babble (not JSON)."""

import json
import os
import sys

arguments = dict(zip(sys.argv[3::2], sys.argv[4::2]))
rank = int(arguments["--rank"])
wishes = set(os.environ.get("FAKE_WORKER", "").split(","))
healthy_rate = float(arguments.get("--emulate-rate", 0))


def tell(**fields):
    print(json.dumps({"rank": rank, **fields}), flush=True)


# Rank 3 is told of its link's rate; the others learn of it through the environment's file, as agreement would tell them.
board = os.environ["FAKE_WORKER_BOARD"]
collective = 0
round_number = 0
schedule = "ring"
swaps = []
tell(event="ready")
for line in sys.stdin:
    verb, _, operand = line.strip().partition(" ")
    if verb == "rate":
        slow = float(operand) < healthy_rate
        # In force three collectives from now.
        with open(board, "a", encoding="ascii") as file:
            file.write(f"{collective + 3} {'star' if slow else 'ring'}\n")
    elif verb == "prepare":
        collective = int(operand)
        tell(event="prepared", collective=collective)
    elif verb == "go":
        if "die" in wishes and rank == 2 and collective == 4:
            sys.exit(3)
        if "babble" in wishes and collective == 4:
            print("hello", flush=True)
        before = schedule
        if "swap" in wishes and os.path.exists(board):
            with open(board, encoding="ascii") as file:
                for start, name in (entry.split() for entry in file):
                    if collective >= int(start):
                        schedule = name
        if schedule != before:
            round_number += 1
            swaps.append({"round": round_number, "switch_at": collective, "collective": "allreduce", "from": before, "to": schedule,
                          "reason": f"rank 3 {'slower' if schedule == 'star' else 'healthy'}"})
        told = "star" if "disagree" in wishes and rank == 1 and collective == 4 else schedule
        tell(event="done", collective=collective, seconds=0.001 * (rank + 1), schedule=told, sequence=collective, round=round_number,
             limit_wait=0.00001 * rank, wrong=1 if "wrong" in wishes and collective == 4 and rank == 1 else 0)
    elif verb == "status":
        tell(event="status", status={"swaps": swaps, "attributes": {"link_rate": [1e8, None]}},
             explain={"schedules": [{"schedule": schedule, "why": "in force", "in_force": True, "predicted_us": 1500.0}]})
