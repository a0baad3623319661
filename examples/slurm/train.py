import json
import time


def train(run):
    place, speed = json.loads((run.checkpoint / "state.json").read_text()) if run.checkpoint else (4.0, 0.0)
    for _ in run.epochs():
        time.sleep(0.1)
        speed = run.config["momentum"] * speed - run.config["rate"] * place
        place += speed
        print(f"at {place:g}", flush=True)
        state = json.dumps([place, speed])
        run.report(place**2, save=lambda folder, state=state: (folder / "state.json").write_text(state))
